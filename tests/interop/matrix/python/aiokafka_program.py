"""Tries aiokafka with the work of `client_story`. Arguments: HOST:PORT NAME."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from client_story import Client, Member, Record, Sender, Story

WAIT_S = 90.0
T = TypeVar("T")


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


class _Sender:
    def __init__(self, loop: _Loop, producer: AIOKafkaProducer, topic: str) -> None:
        self.acknowledged: list[str] = []
        self._loop, self._producer, self._topic = loop, producer, topic
        self._sent: list[tuple[str, asyncio.Future[Any]]] = []

    async def _send(self, record: Record, partition: int | None) -> None:
        future = await self._producer.send(
            self._topic, record.value, record.key, partition, headers=list(record.headers)
        )
        self._sent.append(((record.value or b"").decode(), future))

    def send(self, record: Record, partition: int | None = None) -> None:
        self._loop.run(self._send(record, partition))

    async def _close(self) -> None:
        for value, future in self._sent:
            await future
            self.acknowledged.append(value)
        await self._producer.stop()

    def close(self) -> None:
        self._loop.run(self._close())


class _Member:
    def __init__(self, loop: _Loop, consumer: AIOKafkaConsumer) -> None:
        self._loop, self._consumer = loop, consumer

    def poll(self) -> list[Record]:
        found = self._loop.run(self._consumer.getmany(timeout_ms=200))
        return [
            Record(each.key, each.value, tuple(each.headers))
            for records in found.values()
            for each in records
        ]

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._loop.run(self._consumer.stop())


class Aiokafka:
    """aiokafka's calls, run on the loop. Its admin client cannot delete groups."""

    deletes_groups = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = _Loop()
        self._admin = self._loop.run(self._started_admin())

    async def _started_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        return admin

    def create_topic(self, topic: str, partitions: int) -> None:
        self._loop.run(self._admin.create_topics([NewTopic(topic, partitions, 1)]))

    def partitions(self, topic: str) -> int:
        if topic not in self._loop.run(self._admin.list_topics()):
            return 0
        return len(self._loop.run(self._admin.describe_topics([topic]))[0]["partitions"])

    def sender(self, topic: str, codec: str = "none") -> Sender:
        return _Sender(self._loop, self._loop.run(self._started_producer(codec)), topic)

    async def _started_producer(self, codec: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
        )
        await producer.start()
        return producer

    def member(self, group: str, topic: str, committed: bool = False) -> Member:
        return _Member(self._loop, self._loop.run(self._started_consumer(group, topic, committed)))

    async def _started_consumer(self, group: str, topic: str, committed: bool) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            heartbeat_interval_ms=500,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        await consumer.start()
        return consumer

    def transact(
        self, name: str, topic: str, value: str, position: tuple[str, str, int], commits: bool
    ) -> None:
        self._loop.run(self._transact(name, topic, value, position, commits))

    async def _transact(
        self, name: str, topic: str, value: str, position: tuple[str, str, int], commits: bool
    ) -> None:
        group, read, offset = position
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=name)
        async with producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value.encode())
            await producer.send_offsets_to_transaction({TopicPartition(read, 0): offset}, group)
            await (producer.commit_transaction if commits else producer.abort_transaction)()

    def positions(self, group: str, topic: str) -> dict[int, int]:
        found = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {each.partition: at.offset for each, at in found.items() if each.topic == topic}

    def ends(self, topic: str) -> dict[int, int]:
        asked = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
        found: dict[TopicPartition, int] = self._loop.run(self._asked("end_offsets", asked))
        return {each.partition: offset for each, offset in found.items()}

    def offset_by_time(self, topic: str, timestamp_ms: int) -> int:
        asked = TopicPartition(topic, 0)
        found = self._loop.run(self._asked("offsets_for_times", {asked: timestamp_ms}))
        return int(found[asked].offset)

    async def _asked(self, call: str, argument: object) -> Any:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        try:
            return await getattr(consumer, call)(argument)
        finally:
            await consumer.stop()

    def groups(self) -> set[str]:
        return {group for group, *_ in self._loop.run(self._admin.list_consumer_groups())}

    def delete_group(self, group: str) -> None:
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        self._loop.run(self._admin.delete_topics([topic]))


def main() -> None:
    bootstrap, name = sys.argv[1:]
    client: Client = Aiokafka(bootstrap)
    Story(client, name).run()


if __name__ == "__main__":
    main()
