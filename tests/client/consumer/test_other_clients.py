"""The consumer against a broker of another project: the mock cluster of librdkafka."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as ForeignProducer

from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.group.classic_loop import ClassicGroupLoop
from odradek_client.structs import ConsumerRecord, TopicPartition
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import Versions

DEADLINE_S = 40.0

# The mock advertises flexible versions of these APIs, but parses their requests as those of
# inflexible versions.
MOCK_NEWEST = {ApiKey.JOIN_GROUP: 5, ApiKey.SYNC_GROUP: 3, ApiKey.HEARTBEAT: 3}

#: The versions that every broker with batches of format 2 has (Kafka 0.11).
OLDEST = {
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.METADATA: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.JOIN_GROUP: 0,
    ApiKey.SYNC_GROUP: 0,
    ApiKey.HEARTBEAT: 0,
    ApiKey.LEAVE_GROUP: 0,
}


@pytest.fixture
def mock() -> Iterator[tuple[ForeignProducer, str]]:
    """(a producer that keeps the mock cluster running, the cluster's address)."""
    producer = ForeignProducer({"test.mock.num.brokers": 2, "log_level": 0, "linger.ms": 1})
    brokers = producer.list_topics(timeout=DEADLINE_S).brokers.values()
    yield producer, ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


@pytest.fixture
def limit_versions(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[ApiKey, int]], None]:
    """A function that limits the versions that the client uses."""

    def limit(newest: dict[ApiKey, int]) -> None:
        for key, version in newest.items():
            first = min(APIS[key].versions.first, version)
            row = dataclasses.replace(APIS[key], versions=Versions(first, version))
            monkeypatch.setitem(APIS, key, row)

    return limit


@pytest.fixture
def leaders_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let leaders send SyncGroup last: the mock answers a SyncGroup that comes after the leader's
    with invalid bytes."""
    know_topics = ClassicGroupLoop._know_topics

    async def slowly(self: ClassicGroupLoop) -> None:
        await know_topics(self)
        if self.membership.is_leader:
            await asyncio.sleep(0.3)

    monkeypatch.setattr(ClassicGroupLoop, "_know_topics", slowly)


@pytest.fixture
async def consumers(
    mock: tuple[ForeignProducer, str], limit_versions: Callable[[dict[ApiKey, int]], None]
) -> AsyncIterator[Callable[..., Any]]:
    limit_versions(MOCK_NEWEST)
    started: list[Consumer] = []

    async def make(*topics: str, **settings: Any) -> Consumer:
        settings.setdefault("auto_offset_reset", "earliest")
        consumer = Consumer(*topics, bootstrap_servers=mock[1], **settings)
        started.append(consumer)
        await consumer.start()
        return consumer

    yield make
    await asyncio.gather(*(consumer.close() for consumer in started))


def produce(producer: ForeignProducer, topic: str, count: int) -> None:
    """Produce to the four partitions that the mock creates for a topic."""
    for n in range(count):
        producer.produce(topic, str(n).encode(), partition=n % 4, headers={"n": str(n).encode()})
    assert producer.flush(DEADLINE_S) == 0


async def read(count: int, *group: Consumer) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            for records in await asyncio.gather(*(each.poll(100) for each in group)):
                found += records
    assert len(found) == count
    return found


async def test_records_of_partitions_on_two_brokers_are_read(mock: Any, consumers: Any) -> None:
    produce(mock[0], "t", 1_000)
    consumer = await consumers()
    consumer.assign([("t", n) for n in range(4)])
    records = await read(1_000, consumer)
    assert sorted(int(record.value) for record in records) == list(range(1_000))
    assert all(record.headers == (("n", record.value),) for record in records)
    assert await consumer.end_offsets() == {TopicPartition("t", n): 250 for n in range(4)}


@pytest.mark.full
async def test_three_members_share_and_commit_four_partitions(
    mock: Any, consumers: Any, leaders_last: None
) -> None:
    produce(mock[0], "t", 400)
    group = [
        await consumers("t", group_id="g", heartbeat_interval_ms=100, enable_auto_commit=False)
        for _ in range(3)
    ]
    async with asyncio.timeout(DEADLINE_S):
        while sorted(len(each.assignment()) for each in group) != [1, 1, 2]:
            await asyncio.gather(*(each.poll(50, max_records=1) for each in group))
    held = [partition for each in group for partition in each.assignment()]
    assert sorted(held) == [("t", n) for n in range(4)]
    await asyncio.gather(*(each.seek_to_beginning() for each in group))
    records = await read(400, *group)
    assert sorted(int(record.value) for record in records) == list(range(400))
    for each in group:
        await each.commit()
        for partition in each.assignment():
            committed = await each.committed(partition)
            assert committed is not None
            assert committed.offset == 100


@pytest.mark.full
async def test_a_consumer_works_with_the_oldest_api_versions(
    mock: Any, consumers: Any, limit_versions: Any
) -> None:
    limit_versions(OLDEST)
    produce(mock[0], "t", 40)
    consumer = await consumers("t", group_id="old", enable_auto_commit=False)
    records = await read(40, consumer)
    assert sorted(int(record.value) for record in records) == list(range(40))
    await consumer.commit()
    committed = await consumer.committed(("t", 0))
    assert committed is not None
    assert committed.offset == 10


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 3])
async def test_a_group_of_the_consumer_protocol_reads_every_record(
    mock: Any, consumers: Any, count: int
) -> None:
    """KIP-848 as librdkafka's mock implements it."""
    produce(mock[0], "n", 400)
    group = [await consumers("n", group_id="next", group_protocol="consumer") for _ in range(count)]
    records = await read(400, *group)
    assert sorted(int(record.value) for record in records) == list(range(400))
