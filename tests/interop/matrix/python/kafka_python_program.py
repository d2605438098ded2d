"""Tries kafka-python with the work of `client_story`. Arguments: HOST:PORT NAME."""

from __future__ import annotations

import sys
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaConnectionError
from kafka.structs import OffsetAndMetadata

from client_story import Client, Member, Record, Sender, Story

WAIT_S = 90.0


class _Sender:
    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self.acknowledged: list[str] = []
        self._producer, self._topic = producer, topic
        self._sent: list[tuple[str, Any]] = []

    def send(self, record: Record, partition: int | None = None) -> None:
        future = self._producer.send(
            self._topic, record.value, record.key, list(record.headers), partition
        )
        self._sent.append(((record.value or b"").decode(), future))

    def close(self) -> None:
        self._producer.flush(WAIT_S)
        for value, future in self._sent:
            future.get(WAIT_S)
            self.acknowledged.append(value)
        self._producer.close()


class _Member:
    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        self._consumer.subscribe([topic])

    def poll(self) -> list[Record]:
        # A shorter poll may time out between SyncGroup and its response, which would lose the
        # assignment.
        try:
            found = self._consumer.poll(timeout_ms=1000)
        # kafka-python raises this while the broker is down; a later poll succeeds.
        except KafkaConnectionError:
            return []
        return [
            Record(each.key, each.value, tuple(each.headers))
            for records in found.values()
            for each in records
        ]

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """The calls of kafka-python."""

    deletes_groups = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, 1)])

    def partitions(self, topic: str) -> int:
        if topic not in self._admin.list_topics():
            return 0
        return len(self._admin.describe_topics([topic])[0]["partitions"])

    def sender(self, topic: str, codec: str = "none") -> Sender:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
        )
        return _Sender(producer, topic)

    def member(self, group: str, topic: str, committed: bool = False) -> Member:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            heartbeat_interval_ms=500,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        return _Member(consumer, topic)

    def transact(
        self, name: str, topic: str, value: str, position: tuple[str, str, int], commits: bool
    ) -> None:
        group, read, offset = position
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=name)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value.encode())
        positions = {TopicPartition(read, 0): OffsetAndMetadata(offset, "", -1)}
        producer.send_offsets_to_transaction(positions, group)
        (producer.commit_transaction if commits else producer.abort_transaction)()
        producer.close()

    def positions(self, group: str, topic: str) -> dict[int, int]:
        found = self._admin.list_group_offsets({group: None})[group]
        return {each.partition: at.offset for each, at in found.items() if each.topic == topic}

    def ends(self, topic: str) -> dict[int, int]:
        asked = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap)
        found = consumer.end_offsets(asked)
        consumer.close()
        return {each.partition: offset for each, offset in found.items()}

    def offset_by_time(self, topic: str, timestamp_ms: int) -> int:
        asked = TopicPartition(topic, 0)
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap)
        found = consumer.offsets_for_times({asked: timestamp_ms})
        consumer.close()
        return int(found[asked].offset)

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def delete_group(self, group: str) -> None:
        self._admin.delete_groups([group])

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])


def main() -> None:
    bootstrap, name = sys.argv[1:]
    client: Client = KafkaPython(bootstrap)
    Story(client, name).run()


if __name__ == "__main__":
    main()
