"""The mirror as a process that a user would start, and readers of its copies that use
librdkafka."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka

from mirrored import Row

DEADLINE_S = 120.0


def command(*words: str) -> list[str]:
    """The command that starts the mirror."""
    return [sys.executable, "-m", "odradek", "mirror", *words]


def ended(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the mirror and wait for its end."""
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False
    )


def options(option: str, settings: Mapping[str, str]) -> list[str]:
    """Settings of a client as options for the command line."""
    return [word for key, value in settings.items() for word in (option, f"{key}={value}")]


def messages(
    bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed"
) -> list[list[confluent_kafka.Message]]:
    """The messages of each partition, from its beginning to its end, as librdkafka reads them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    beginning = confluent_kafka.OFFSET_BEGINNING
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, number, beginning) for number in range(partitions)]
    )
    found: list[list[confluent_kafka.Message]] = [[] for _ in range(partitions)]
    left = set(range(partitions))
    end_s = time.monotonic() + DEADLINE_S
    while left:
        assert time.monotonic() < end_s, f"partitions {left} were not read to their ends"
        message = consumer.poll(1.0)
        if message is None:
            continue
        partition, error = message.partition(), message.error()
        assert partition is not None
        if error is None:
            found[partition].append(message)
            continue
        assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
        left.discard(partition)
    consumer.close()
    return found


def row(message: confluent_kafka.Message) -> Row:
    """Convert a message of librdkafka to a `ComparedRecord`."""
    headers: Any = tuple(tuple(each) for each in message.headers() or [])
    offset: Any = message.offset()
    key: Any = message.key()
    value: Any = message.value()
    return offset, message.timestamp()[1], key, value, headers
