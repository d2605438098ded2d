"""Cooperative rebalancing against a running broker: the calls of listeners, and reading during a
rebalance."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from live_consumers import DEADLINE_S, Diary, all_of, make_topic, produce, read, until, values
from odradek.broker import SubprocessBroker
from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.structs import ConsumerRecord, TopicPartition

COOPERATIVE = {
    "partition_assignment_strategy": "cooperative-sticky",
    "heartbeat_interval_ms": 30,
    "session_timeout_ms": 10_000,
}


def shares(*group: Consumer) -> list[int]:
    return sorted(len(each.assignment()) for each in group)


async def test_k31_k32_only_moved_partitions_are_revoked_and_assigned(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    diaries = [Diary(), Diary(), Diary()]
    group: list[Consumer] = []
    for n, diary in enumerate(diaries):
        member = await consumers(group_id=topic, **COOPERATIVE)
        member.subscribe([topic], listener=diary)
        group.append(member)
        await until(lambda n=n: shares(*group) == [[3], [1, 2], [1, 1, 1]][n], *group)  # type: ignore[misc]
    held = [partition for member in group for partition in member.assignment()]
    assert sorted(held) == all_of(topic)
    first, second, third = (diary.entries for diary in diaries)
    assert first[0] == ("assigned", {0, 1, 2})
    revoked = [partitions for kind, partitions in first if kind == "revoked"]
    # For each new member one partition is revoked, and never two at the same time.
    assert len(revoked) <= 2
    assert all(len(each) == 1 for each in revoked)
    assert not any(kind == "lost" for diary in diaries for kind, _ in diary.entries)
    for entries, member in zip((first, second, third), group, strict=True):
        assert {each.partition for each in member.assignment()} == owned_after(entries)
    # The first assignment of a new member is empty, because its share must be revoked first.
    assert second[0] == ("assigned", set())


def owned_after(entries: list[tuple[str, set[int]]]) -> set[int]:
    """The partitions that are owned after these calls of a listener.

    No partition may be assigned twice, or revoked without being owned.
    """
    owned: set[int] = set()
    for kind, partitions in entries:
        if kind == "assigned":
            assert not owned & partitions
            owned |= partitions
        else:
            assert partitions <= owned
            owned -= partitions
    return owned


async def test_k31_kept_partitions_are_read_while_the_group_waits_for_a_member(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    group = [await consumers(topic, group_id=topic, **COOPERATIVE) for _ in range(2)]
    await until(lambda: shares(*group) == [1, 2], *group)
    reader = group[0]
    await until(lambda: not any(each._group.membership.rebalancing for each in group), *group)
    # A third member joins. The second does not poll, so the group waits for its JoinGroup.
    third = await consumers(topic, group_id=topic, **COOPERATIVE)
    membership = reader._group.membership
    await until(lambda: membership.state.value == "joining", reader, third)
    mine = {each.partition for each in reader.assignment()}
    produce(broker, topic, 300)
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < 100 * len(mine):
            found += await reader.poll(200)
    assert {each.partition for each in found} == mine
    assert membership.state.value == "joining"
    assert reader.is_member
    await until(lambda: shares(*group, third) == [1, 1, 1], *group, third)


async def test_k32_positions_are_committed_before_a_partition_moves(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    """The second member does not read again what the first has read."""
    produce(broker, topic, 300)
    settings = COOPERATIVE | {"auto_commit_interval_ms": 600_000, "max_poll_records": 7}
    first = await consumers(topic, group_id=topic, **settings)
    seen = await read(first, 280)
    second = await consumers(topic, group_id=topic, **settings)
    async with asyncio.timeout(DEADLINE_S):
        while len(seen) < 300 or shares(first, second) != [1, 2]:
            for records in await asyncio.gather(first.poll(50), second.poll(50)):
                seen += records
    assert values(seen) == list(range(300))


async def test_k31_partitions_of_unsubscribed_topics_are_revoked_before_joining(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    other = make_topic(broker, 2)
    diary = Diary()
    consumer = await consumers(group_id=topic, **COOPERATIVE)
    consumer.subscribe([topic, other], listener=diary)
    await until(lambda: len(consumer.assignment()) == 5, consumer)
    consumer.subscribe([other], listener=diary)
    await until(lambda: len(consumer.assignment()) == 2, consumer)
    await until(lambda: not consumer._group.membership.rebalancing, consumer)
    assert diary.entries[1] == ("revoked", {0, 1, 2})
    assert diary.entries[2] == ("assigned", set())
    assert len(diary.entries) == 3


async def test_k31_partitions_are_lost_when_the_member_was_dropped(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    diary = Diary()
    slow = await consumers(
        group_id=topic, enable_auto_commit=False, max_poll_interval_ms=300, **COOPERATIVE
    )
    slow.subscribe([topic], listener=diary)
    await until(lambda: len(slow.assignment()) == 3, slow)
    assert slow.is_member
    assert not slow.membership_lost.is_set()
    async with asyncio.timeout(DEADLINE_S):
        await slow.membership_lost.wait()
    assert not slow.is_member
    await slow.poll(10)
    assert diary.entries[1] == ("lost", {0, 1, 2})
    await until(lambda: slow.is_member, slow)
    assert diary.entries[2:] == [("assigned", {0, 1, 2})]


async def test_k33_an_exception_of_a_listener_is_raised_after_all_calls(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    class Grumpy(RebalanceListener):
        def __init__(self) -> None:
            self.told: list[str] = []

        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            self.told.append("revoked")
            if self.told.count("revoked") == 1:
                raise LookupError("no")

        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            self.told.append("assigned")

    grumpy = Grumpy()
    first = await consumers(group_id=topic, **COOPERATIVE)
    first.subscribe([topic], listener=grumpy)
    await until(lambda: len(first.assignment()) == 3, first)
    second = await consumers(topic, group_id=topic, **COOPERATIVE)
    with pytest.raises(LookupError):
        async with asyncio.timeout(DEADLINE_S):
            while True:
                await second.poll(0)
                await first.poll(50)
    assert grumpy.told == ["assigned", "revoked", "assigned"]
    assert len(first.assignment()) == 2
    await until(lambda: shares(first, second) == [1, 2], first, second)


async def test_k33_the_next_poll_finishes_a_rebalance_cancelled_in_a_listener(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    class Slow(Diary):
        def __init__(self) -> None:
            super().__init__()
            self.entered = asyncio.Event()

        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:  # type: ignore[override]
            super().on_partitions_revoked(partitions)
            if not self.entered.is_set():
                self.entered.set()
                await asyncio.Event().wait()

    slow = Slow()
    first = await consumers(group_id=topic, **COOPERATIVE)
    first.subscribe([topic], listener=slow)
    await until(lambda: len(first.assignment()) == 3, first)
    second = await consumers(topic, group_id=topic, **COOPERATIVE)

    async def poll_first() -> None:
        while True:
            await first.poll(50)

    task = asyncio.create_task(poll_first())
    async with asyncio.timeout(DEADLINE_S):
        while not slow.entered.is_set():
            await second.poll(20)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(first.assignment()) == 2
    await until(lambda: shares(first, second) == [1, 2], first, second)
    assert [kind for kind, _ in slow.entries][:3] == ["assigned", "revoked", "assigned"]


async def test_k54_a_member_that_also_offers_an_eager_assignor_is_eager(
    topic: str, consumers: Any
) -> None:
    diary = Diary()
    eager = await consumers(group_id=topic, heartbeat_interval_ms=30)  # range, cooperative-sticky
    eager.subscribe([topic], listener=diary)
    await until(lambda: len(eager.assignment()) == 3, eager)
    other = await consumers(topic, group_id=topic, **COOPERATIVE)
    await until(lambda: shares(eager, other) == [1, 2], eager, other)
    assert diary.entries[1] == ("revoked", {0, 1, 2})


async def test_k35_a_consumer_without_a_group_is_no_member(topic: str, consumers: Any) -> None:
    alone = await consumers(topic)
    assert not alone.is_member


@pytest.mark.own_broker
async def test_k35_heartbeats_survive_a_slow_handler(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    """Processing records takes longer than several sessions; no other member gets the
    partitions."""
    produce(broker, topic, 3)
    slow = await consumers(topic, group_id=topic, heartbeat_interval_ms=30, session_timeout_ms=500)
    assert len(await read(slow, 3)) == 3
    other = await consumers(topic, group_id=topic, heartbeat_interval_ms=30)
    loop = asyncio.get_running_loop()
    done_at = loop.time() + 1.5
    while loop.time() < done_at:
        await other.poll(50)
    assert slow.is_member
    assert len(slow.assignment()) == 3
