"""The calls that a listener is allowed to make while its consumer closes or unsubscribes (K-33,
K-34)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from live_consumers import DEADLINE_S, Diary, make_topic, produce, read, until
from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.errors import Closed, OdradekError, RebalanceInProgress
from odradek_client.structs import OffsetAndMetadata, TopicPartition

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 50},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "next": {"group_protocol": "consumer"},
}
BY_HAND: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class Committing(RebalanceListener):
    """A listener that commits the revoked partitions, as applications do."""

    def __init__(self, offsets: dict[Any, int] | None = None, *, soon: bool = False) -> None:
        self.offsets, self.soon = offsets, soon
        self.consumer: Any = None
        self.failures: list[OdradekError] = []
        self.told: list[str] = []
        self.positions: dict[TopicPartition, int] = {}

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self.told.append("revoked")
        await self._commit(partitions)

    async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.told.append("lost")
        await self._commit(partitions)

    async def _commit(self, partitions: set[TopicPartition]) -> None:
        try:
            for each in partitions:
                self.positions[each] = await self.consumer.position(each)
                await self.consumer.committed(each)
            if self.soon:
                self.consumer.commit_soon(self.offsets)
            else:
                await self.consumer.commit(self.offsets)
        except OdradekError as error:
            self.failures.append(error)


async def committed_of(broker: SubprocessBroker, group_id: str, topic: str) -> list[int | None]:
    async with Consumer(bootstrap_servers=broker.bootstrap, group_id=group_id) as watcher:
        found = [await watcher.committed((topic, n)) for n in range(3)]
    return [at.offset if isinstance(at, OffsetAndMetadata) else None for at in found]


@each_protocol
@pytest.mark.parametrize("soon", [False, True], ids=["commit", "commit_soon"])
async def test_k34_a_listener_commits_while_the_consumer_is_closed(
    broker: SubprocessBroker, topic: str, consumers: Any, protocol: str, soon: bool
) -> None:
    produce(broker, topic, 30)
    listener = Committing(soon=soon)
    consumer = await consumers(group_id=topic, **BY_HAND, **PROTOCOLS[protocol])
    listener.consumer = consumer
    consumer.subscribe([topic], listener=listener)
    await read(consumer, 30)
    await consumer.close()
    assert listener.failures == []
    assert listener.told == ["revoked"]
    assert set(listener.positions.values()) == {10}
    assert await committed_of(broker, topic, topic) == [10, 10, 10]
    with pytest.raises(Closed):
        await consumer.commit()
    with pytest.raises(Closed):
        await consumer.poll(0)


@each_protocol
async def test_k34_a_listener_commits_while_the_consumer_unsubscribes(
    broker: SubprocessBroker, topic: str, consumers: Any, protocol: str
) -> None:
    produce(broker, topic, 30)
    listener = Committing({(topic, 1): 7})
    consumer = await consumers(group_id=topic, **BY_HAND, **PROTOCOLS[protocol])
    listener.consumer = consumer
    consumer.subscribe([topic], listener=listener)
    await read(consumer, 30)
    await consumer.unsubscribe()
    assert listener.failures == []
    assert await committed_of(broker, topic, topic) == [None, 7, None]


@pytest.mark.parametrize("protocol", ["classic", "next"])
async def test_k34_lost_partitions_are_not_committed_on_close(
    topic: str, consumers: Any, protocol: str
) -> None:
    """The listener of a removed member gets its lost partitions. A commit by this listener is
    refused, because only the new owners are allowed to commit."""
    listener = Committing({(topic, 0): 3})
    consumer = await consumers(
        group_id=topic, **BY_HAND, **PROTOCOLS[protocol], max_poll_interval_ms=200
    )
    listener.consumer = consumer
    consumer.subscribe([topic], listener=listener)
    await until(lambda: len(consumer.assignment()) == 3, consumer)
    async with asyncio.timeout(DEADLINE_S):
        await consumer.membership_lost.wait()
    await consumer.close()
    # The machine may have delayed the polls, so the partitions may have been lost more than once.
    assert set(listener.told) == {"lost"}
    assert {type(each) for each in listener.failures} == {RebalanceInProgress}


@each_protocol
def test_k34_a_blocking_listener_commits_while_the_consumer_is_closed(
    broker: SubprocessBroker, protocol: str
) -> None:
    topic = make_topic(broker, 3)
    produce(broker, topic, 30)

    class Blocking(RebalanceListener):
        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            consumer.commit()
            consumer.commit_soon({(topic, 2): 9}).result(DEADLINE_S)

    settings = BY_HAND | PROTOCOLS[protocol]
    consumer = sync.Consumer(bootstrap_servers=broker.bootstrap, group_id=topic, **settings)
    with consumer:
        consumer.subscribe([topic], listener=Blocking())
        seen = 0
        while seen < 30:
            seen += len(consumer.poll(1_000))
    with sync.Consumer(bootstrap_servers=broker.bootstrap, group_id=topic) as watcher:
        found = [watcher.committed((topic, n)) for n in range(3)]
    assert [at.offset for at in found if at is not None] == [10, 10, 9]


@each_protocol
async def test_k33_a_closing_consumer_leaves_its_group_though_its_listener_raises(
    topic: str, consumers: Any, protocol: str
) -> None:
    class Failing(RebalanceListener):
        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            raise ValueError("no")

    consumer = await consumers(group_id=topic, **BY_HAND, **PROTOCOLS[protocol])
    consumer.subscribe([topic], listener=Failing())
    await until(lambda: len(consumer.assignment()) == 3, consumer)
    with pytest.raises(ValueError, match="no"):
        await consumer.close()
    assert consumer.assignment() == set()
    diary = Diary()
    other = await consumers(group_id=topic, **BY_HAND, **PROTOCOLS[protocol])
    other.subscribe([topic], listener=diary)
    await until(lambda: len(other.assignment()) == 3, other)
