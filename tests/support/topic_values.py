"""Reads the values of a topic with librdkafka."""

from __future__ import annotations

import time

import confluent_kafka

_DEADLINE_S = 120.0


def values_of(bootstrap: str, topic: str, isolation_level: str = "read_committed") -> list[bytes]:
    """All values up to the end offset for this isolation level. Raises TimeoutError if the end is
    not reached."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[bytes] = []
    try:
        partitions = consumer.list_topics(topic, timeout=_DEADLINE_S).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in partitions])
        left = set(partitions)
        deadline = time.monotonic() + _DEADLINE_S
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the ends of partitions {left} of {topic} are not reached")
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message.value() or b"")
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise confluent_kafka.KafkaException(error)
    finally:
        consumer.close()
    return found
