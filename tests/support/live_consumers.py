"""Helpers for tests of the consumer with a running broker: topics, records, waiting, a rebalance
listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer as ForeignProducer

from foreign_topics import create_topic
from live_brokers import LiveBroker
from odradek.testing import make_unique_topic
from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.structs import ConsumerRecord, TopicPartition

DEADLINE_S = 30.0


def make_topic(broker: LiveBroker, partitions: int, name: str | None = None) -> str:
    name = name or make_unique_topic()
    create_topic(broker.bootstrap, name, partitions)
    return name


def produce(broker: LiveBroker, topic: str, count: int, start: int = 0, **more: Any) -> None:
    """Produce records: record n, with value b"n", goes to partition n mod 3."""
    producer = ForeignProducer({"bootstrap.servers": broker.bootstrap})
    for n in range(start, start + count):
        producer.produce(topic, str(n).encode(), partition=n % 3, **more)
    assert producer.flush(DEADLINE_S) == 0


async def read(consumer: Consumer, count: int, **options: Any) -> list[ConsumerRecord]:
    """Poll until `count` records have arrived, and fail if there are more."""
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            found += await consumer.poll(1_000, **options)
    assert len(found) == count
    return found


def values(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int(record.value) for record in records)


def all_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for n in range(3)]


async def until(condition: Callable[[], bool], *polled: Consumer) -> None:
    """Poll the consumers until the condition is true."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.gather(*(consumer.poll(50) for consumer in polled))
            await asyncio.sleep(0.01)


class Diary(RebalanceListener):
    """A rebalance listener that records its calls."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, set[int]]] = []

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self.entries.append(("revoked", {each.partition for each in partitions}))

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.entries.append(("assigned", {each.partition for each in partitions}))

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.entries.append(("lost", {each.partition for each in partitions}))
