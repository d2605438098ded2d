"""Tries confluent-kafka with the work of `client_story`. Arguments: PROTOCOL HOST:PORT NAME."""

from __future__ import annotations

import sys
from typing import Any, cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from client_story import Client, Member, Record, Sender, Story

WAIT_S = 60.0


class _Sender:
    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self.acknowledged: list[str] = []
        self._producer, self._topic = Producer(settings), topic

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append((message.value() or b"").decode())

    def send(self, record: Record, partition: int | None = None) -> None:
        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        self._producer.produce(
            self._topic,
            record.value,
            record.key,
            headers=list(record.headers),
            on_delivery=self._delivered,
            **where,
        )
        self._producer.poll(0)

    def close(self) -> None:
        if left := self._producer.flush(WAIT_S):
            raise TimeoutError(f"{left} records are not acknowledged")


class _Member:
    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])

    def poll(self) -> list[Record]:
        return [
            Record(m.key(), m.value(), tuple(cast("Any", m.headers()) or ()))
            for m in self._consumer.consume(500, 0.2)
            if m.error() is None
        ]

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class Confluent:
    """confluent-kafka's calls. Groups use the given protocol."""

    deletes_groups = True

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self._base: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._group = {"group.protocol": protocol, "auto.offset.reset": "earliest"}
        self._admin = AdminClient(self._base)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)

    def partitions(self, topic: str) -> int:
        found = self._admin.list_topics(timeout=WAIT_S).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def sender(self, topic: str, codec: str = "none") -> Sender:
        idempotent = {"enable.idempotence": True, "compression.type": codec, "linger.ms": 5}
        return _Sender({**self._base, **idempotent}, topic)

    def member(self, group: str, topic: str, committed: bool = False) -> Member:
        isolation = "read_committed" if committed else "read_uncommitted"
        more = {"group.id": group, "isolation.level": isolation}
        return _Member({**self._base, **self._group, **more}, topic)

    def transact(
        self, name: str, topic: str, value: str, position: tuple[str, str, int], commits: bool
    ) -> None:
        group, read, offset = position
        consumer = Consumer({**self._base, "group.id": group})
        producer = Producer({**self._base, "transactional.id": name})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce(topic, value)
        owner = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(read, 0, offset)], owner, WAIT_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(WAIT_S)
        consumer.close()

    def positions(self, group: str, topic: str) -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        found = self._admin.list_consumer_group_offsets(asked)[group].result(WAIT_S)
        return {
            each.partition: each.offset for each in found.topic_partitions if each.topic == topic
        }

    def ends(self, topic: str) -> dict[int, int]:
        return self._offsets(topic, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def offset_by_time(self, topic: str, timestamp_ms: int) -> int:
        return self._offsets(topic, OffsetSpec.for_timestamp(timestamp_ms))[0]

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(topic, n): spec for n in range(self.partitions(topic))}
        found = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return {each.partition: future.result(WAIT_S).offset for each, future in found.items()}

    def groups(self) -> set[str]:
        found = self._admin.list_consumer_groups().result(WAIT_S)
        if found.errors:
            raise KafkaException(found.errors[0])
        return {each.group_id for each in found.valid}

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(WAIT_S)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(WAIT_S)


def main() -> None:
    protocol, bootstrap, name = sys.argv[1:]
    client: Client = Confluent(bootstrap, protocol)
    Story(client, name).run()


if __name__ == "__main__":
    main()
