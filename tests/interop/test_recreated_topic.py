"""Producers write to a topic while it is repeatedly deleted and created again with the same
name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.producer import Producer
from odradek_client.structs import TopicPartition
from waiting import DEADLINE_S, until

TOPIC, PARTITIONS = "t", 3
TIMES = 6
#: The minimum number of records of each writer that are acknowledged between two deletions.
ROUND = 30


@pytest.fixture
def odradek_broker_settings() -> dict[str, object]:
    return {"auto.create.topics.enable": False}


class Writer:
    """Writes numbered values, one after the other.

    `acknowledged`: (value, partition, offset) of records sent since the last creation of the topic.
    """

    def __init__(self, name: str, bootstrap: str) -> None:
        self._name = name
        self._bootstrap = bootstrap
        self._next = 0
        self.acknowledged: list[tuple[bytes, int, int]] = []
        self.ended = False
        self._topics_made = 0

    def topic_was_made(self) -> None:
        """Called when the topic was created again, and forget all records that were sent before."""
        self._topics_made += 1
        self.acknowledged = []

    async def run(self) -> None:
        async with Producer(
            bootstrap_servers=self._bootstrap, enable_idempotence=False, linger_ms=0
        ) as producer:
            while not self.ended:
                self._next += 1
                value = f"{self._name}-{self._next}".encode()
                topics_made = self._topics_made
                try:
                    written = await producer.send_and_wait(TOPIC, value)
                except OdradekError:
                    continue  # The record was sent during the deletion.
                if topics_made == self._topics_made:
                    self.acknowledged.append((value, written.partition, written.offset))


async def read_all(bootstrap: str) -> list[tuple[bytes, int, int]]:
    """The records in the topic: (value, partition, offset)."""
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    found: list[tuple[bytes, int, int]] = []
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        total = sum((await consumer.end_offsets(*partitions)).values())
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < total:
                found += [
                    (record.value or b"", record.partition, record.offset)
                    for record in await consumer.poll(1000)
                ]
    return found


def directories(broker: SubprocessBroker) -> list[str]:
    return sorted(path.name for path in Path(broker.data_dir).glob(f"{TOPIC}-*"))


@pytest.mark.full
async def test_l38_a_topic_recreated_while_producers_write_has_only_new_records(
    odradek_broker: SubprocessBroker,
) -> None:
    """Records that are sent and acknowledged after the creation are in the new topic, once and at
    their offsets. Older records are not there, even after a kill."""
    bootstrap = odradek_broker.bootstrap
    topic = NewTopic(TOPIC, PARTITIONS, configs={"file.delete.delay.ms": "0"})
    writers = [Writer(name, bootstrap) for name in "abc"]
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(topic)
        async with asyncio.TaskGroup() as tasks:
            for writer in writers:
                tasks.create_task(writer.run())
            for _ in range(TIMES):
                await written_by_all(writers)
                old = {value for writer in writers for value, _, _ in writer.acknowledged}
                await admin.delete_topics(TOPIC)
                await admin.create_topics(topic)
                for writer in writers:
                    writer.topic_was_made()
            await written_by_all(writers)
            for writer in writers:
                writer.ended = True
    acknowledged = [each for writer in writers for each in writer.acknowledged]
    found = await read_all(bootstrap)
    places = {(partition, offset) for _, partition, offset in found}
    assert len(places) == len(found)
    assert not {value for value, _, _ in found} & old
    assert set(acknowledged) - set(found) == set()
    wanted = [f"{TOPIC}-{index}" for index in range(PARTITIONS)]
    await until(lambda: directories(odradek_broker) == wanted)
    odradek_broker.kill()
    odradek_broker.start()
    assert sorted(await read_all(odradek_broker.bootstrap)) == sorted(found)
    assert directories(odradek_broker) == wanted


async def written_by_all(writers: list[Writer]) -> None:
    """Wait until each writer has `ROUND` more acknowledged records."""
    goals = [len(writer.acknowledged) + ROUND for writer in writers]
    for writer, goal in zip(writers, goals, strict=True):
        await until(lambda writer=writer, goal=goal: len(writer.acknowledged) >= goal)  # type: ignore[misc]
