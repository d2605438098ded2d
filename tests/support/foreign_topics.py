"""Topics, records and settings of groups, created by librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import confluent_kafka
import confluent_kafka.admin

_TIMEOUT_S = 30.0
_TRANSACTIONS = count()


def create_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic and wait until it exists. `configs`: settings with underscores for Kafka's
    dots."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    topic = confluent_kafka.admin.NewTopic(  # type: ignore[attr-defined]
        name, partitions, 1, config=settings
    )
    admin.create_topics([topic])[name].result(_TIMEOUT_S)


def configure_group(bootstrap: str, group: str, settings: Mapping[str, str]) -> None:
    """Change settings of a group, and wait until the broker has applied the changes."""
    kafka_admin: Any = confluent_kafka.admin
    client = kafka_admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    operation = kafka_admin.AlterConfigOpType.SET
    entries = [
        kafka_admin.ConfigEntry(key, value, incremental_operation=operation)
        for key, value in settings.items()
    ]
    resource = kafka_admin.ConfigResource(
        kafka_admin.ResourceType.GROUP, group, incremental_configs=entries
    )
    client.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)


def topic_maker(bootstrap: str) -> Callable[..., str]:
    """Return a function that creates a topic with a number of partitions, under an unused name."""
    numbers = count(1)

    def create(partitions: int = 1, prefix: str = "topic", **configs: str) -> str:
        name = f"{prefix}-{next(numbers)}"
        create_topic(bootstrap, name, partitions, **configs)
        return name

    return create


def send_records(
    bootstrap: str, topic: str, records: Sequence[tuple[Any, ...]], **settings: object
) -> None:
    """Produce records (partition, key, value, timestamp_ms, headers), and wait for all
    acknowledgements.

    `settings`: librdkafka's settings with underscores for dots.
    """
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0} | dotted)
    for partition, key, value, timestamp_ms, headers in records:
        producer.produce(
            topic, value, key, partition=partition, timestamp=timestamp_ms, headers=headers
        )
    assert producer.flush(_TIMEOUT_S) == 0


def read_committed(
    bootstrap: str, topic: str, partitions: int, wanted: int, deadline_s: float
) -> list[tuple[str, str]]:
    """Wait for at least `wanted` committed records. Returns the keys and values of all."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[tuple[str, str]] = []
    end = time.monotonic() + deadline_s
    try:
        while True:
            # Polls until no more records arrive, so that duplicates are returned too.
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
            elif message is None and len(found) >= wanted:
                return found
            assert time.monotonic() < end, f"{topic}: {len(found)} of {wanted} records"
    finally:
        consumer.close()


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic and wait for the broker's response."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([name])[name].result(_TIMEOUT_S)


def add_partitions(bootstrap: str, name: str, total: int) -> None:
    """Add partitions until the topic has `total` partitions, and wait for the broker's response."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    grown = confluent_kafka.admin.NewPartitions(name, total)  # type: ignore[attr-defined]
    admin.create_partitions([grown])[name].result(_TIMEOUT_S)


def delete_records(bootstrap: str, name: str, partition: int, before: int) -> None:
    """Delete records and wait until the log starts at `before`."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    place = confluent_kafka.TopicPartition(name, partition, before)
    for done in admin.delete_records([place]).values():
        done.result(_TIMEOUT_S)


def _transactional(bootstrap: str, name: str, timeout_ms: int) -> confluent_kafka.Producer:
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": name,
        "transaction.timeout.ms": timeout_ms,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(_TIMEOUT_S)
    return producer


def open_transaction(bootstrap: str, topic: str, count: int) -> confluent_kafka.Producer:
    """A producer with an open transaction that has `count` records in partition 0 of a topic."""
    name = f"{topic}-{next(_TRANSACTIONS)}"
    try:
        producer = _transactional(bootstrap, name, 600_000)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != confluent_kafka.KafkaError.INVALID_TRANSACTION_TIMEOUT:
            raise
        # The broker has a small transaction.max.timeout.ms.
        producer = _transactional(bootstrap, name, 30_000)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000)
    producer.flush(_TIMEOUT_S)
    return producer
