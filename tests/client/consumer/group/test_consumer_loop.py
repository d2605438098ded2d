"""The consumer with group_protocol="consumer" (KIP-848) against a running broker."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from live_consumers import DEADLINE_S, Diary, all_of, make_topic, produce, read, until, values
from odradek.broker import SubprocessBroker
from odradek.testing import make_unique_topic
from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.group.consumer_membership import MemberState
from odradek_client.errors import CoordinatorUnavailable, UnsupportedByBroker
from odradek_client.structs import ConsumerGroupMetadata, OffsetAndMetadata
from odradek_protocol.keys import ApiKey
from scripted_broker import ScriptedBroker

NEXT: dict[str, Any] = {"group_protocol": "consumer"}


def shares(*group: Consumer) -> list[int]:
    return sorted(len(each.assignment()) for each in group)


async def test_k32_three_members_share_partitions_and_hand_them_over(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    diaries = [Diary() for _ in range(3)]
    group: list[Consumer] = []
    for n, diary in enumerate(diaries):
        member = await consumers(group_id=topic, **NEXT)
        member.subscribe([topic], listener=diary)
        group.append(member)
        await until(lambda n=n: shares(*group) == [[3], [1, 2], [1, 1, 1]][n], *group)  # type: ignore[misc]
    held = [partition for member in group for partition in member.assignment()]
    assert sorted(held) == all_of(topic)
    for diary, member in zip(diaries, group, strict=True):
        owned: set[int] = set()
        for kind, partitions in diary.entries:
            if kind == "assigned":
                assert not owned & partitions
                owned |= partitions
            else:
                assert kind == "revoked"
                assert partitions <= owned
                owned -= partitions
        assert owned == {each.partition for each in member.assignment()}
        assert member.is_member
    await group[2].close()
    assert diaries[2].entries[-1][0] == "revoked"
    await until(lambda: shares(*group[:2]) == [1, 2], *group[:2])


async def test_k25_k39_k40_a_new_member_continues_at_committed_offsets(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 300)
    first = await consumers(topic, group_id=topic, **NEXT)
    assert values(await read(first, 300)) == list(range(300))
    await first.commit({(topic, 0): 50})
    assert await first.committed((topic, 0)) == OffsetAndMetadata(50, "", -1)
    await first.close()  # commits its positions
    second = await consumers(topic, group_id=topic, **NEXT)
    produce(broker, topic, 3, start=300)
    assert values(await read(second, 3)) == [300, 301, 302]


async def test_k35_a_member_that_does_not_poll_leaves_and_joins_again(
    topic: str, consumers: Any
) -> None:
    diary = Diary()
    slow = await consumers(group_id=topic, max_poll_interval_ms=300, **NEXT)
    slow.subscribe([topic], listener=diary)
    await until(lambda: len(slow.assignment()) == 3, slow)
    async with asyncio.timeout(DEADLINE_S):
        await slow.membership_lost.wait()
    assert not slow.is_member
    other = await consumers(topic, group_id=topic, **NEXT)
    await until(lambda: len(other.assignment()) == 3, other)
    await slow.poll(10)
    assert diary.entries[1] == ("lost", {0, 1, 2})
    await until(lambda: shares(slow, other) == [1, 2], slow, other)


async def until_idle_in_the_group(consumer: Any) -> None:
    """Wait until the member is stable and has no heartbeat in flight: the answer to a heartbeat
    could change the epoch."""
    group, network = consumer._group, consumer.network
    node_id = await network.find_coordinator(group.membership.group_id)

    def idle() -> bool:
        stable = group.membership.state is MemberState.STABLE
        return stable and network.in_flight(node_id, "coordinator") == 0

    while True:
        await until(idle, consumer)
        for _ in range(10):  # lets the task run that waits for the answer
            await asyncio.sleep(0)
        if idle():
            return


async def test_a_fenced_member_loses_its_partitions_and_joins_again(
    topic: str, consumers: Any
) -> None:
    diary = Diary()
    consumer = await consumers(group_id=topic, **NEXT)
    consumer.subscribe([topic], listener=diary)
    await until(lambda: len(consumer.assignment()) == 3, consumer)
    await until_idle_in_the_group(consumer)
    consumer._group.membership.epoch += 7  # the broker does not have this epoch
    consumer._group.membership.hasten_heartbeat()
    consumer._group._heartbeat_wanted.set()
    await until(lambda: len(diary.entries) == 3, consumer)
    assert diary.entries[1:] == [("lost", {0, 1, 2}), ("assigned", {0, 1, 2})]
    assert consumer.is_member


async def test_kip447_a_fenced_member_keeps_its_identity_until_it_polls(
    topic: str, consumers: Any
) -> None:
    """Without the identity, the coordinator would take the commit for that of a client outside of
    the group (O-05)."""
    consumer = await consumers(topic, group_id=topic, **NEXT)
    assert consumer.group_metadata() == ConsumerGroupMetadata(topic)
    await until(lambda: len(consumer.assignment()) == 3, consumer)
    membership = consumer._group.membership
    await until_idle_in_the_group(consumer)
    held = consumer.group_metadata()
    assert (held.generation_id, held.member_id) == (membership.epoch, membership.member_id)
    membership.epoch += 7  # the broker does not have this epoch
    membership.hasten_heartbeat()
    consumer._group._heartbeat_wanted.set()
    async with asyncio.timeout(DEADLINE_S):
        while membership.in_group:  # noqa: ASYNC110  until a heartbeat is refused
            await asyncio.sleep(0.005)
    assert consumer.group_metadata() == held
    await until(lambda: membership.in_group, consumer)
    assert consumer.group_metadata().generation_id == membership.epoch


@pytest.mark.parametrize("compiled", [False, True])
async def test_a_pattern_is_matched_by_the_broker_or_the_client(
    broker: SubprocessBroker, consumers: Any, compiled: bool
) -> None:
    first = make_topic(broker, 1)
    consumer = await consumers(group_id=first, metadata_max_age_ms=200, **NEXT)
    pattern = f"{first}.*"
    consumer.subscribe(pattern=re.compile(pattern) if compiled else pattern)
    await until(lambda: len(consumer.assignment()) == 1, consumer)
    make_topic(broker, 1, f"{first}-more")
    await until(lambda: len(consumer.assignment()) == 2, consumer)
    assert consumer.subscription() == {first, f"{first}-more"}


async def test_the_broker_assigns_later_topics_that_match_a_pattern(
    broker: SubprocessBroker, consumers: Any
) -> None:
    """The client does not request the metadata again within the next five minutes."""
    name = make_unique_topic()
    consumer = await consumers(group_id=name, **NEXT)
    consumer.subscribe(pattern=f"{name}.*")
    await until(lambda: consumer.is_member, consumer)
    make_topic(broker, 2, f"{name}-late")
    await until(lambda: len(consumer.assignment()) == 2, consumer)


async def test_unsubscribing_leaves_and_subscribing_joins_again(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    other = make_topic(broker, 1)
    consumer = await consumers(topic, group_id=topic, **NEXT)
    await until(lambda: len(consumer.assignment()) == 3, consumer)
    await consumer.unsubscribe()
    assert not consumer.is_member
    consumer.subscribe([other])
    await until(lambda: consumer.assignment() == {(other, 0)}, consumer)
    consumer.subscribe([other, topic])
    await until(lambda: len(consumer.assignment()) == 4, consumer)


async def test_a_member_whose_leave_request_failed_joins_again(
    topic: str, consumers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = await consumers(topic, group_id=topic, enable_auto_commit=False, **NEXT)
    await until(lambda: len(consumer.assignment()) == 3, consumer)

    async def find() -> int:
        raise CoordinatorUnavailable("nobody coordinates")

    with monkeypatch.context() as patched:
        patched.setattr(consumer._group._coordinator, "find", find)
        await consumer.unsubscribe()
    assert consumer._group.membership.state is MemberState.UNSUBSCRIBED
    consumer.subscribe([topic])
    await until(lambda: len(consumer.assignment()) == 3, consumer)


async def test_a_static_member_gets_back_its_partitions(topic: str, consumers: Any) -> None:
    settings = {"group_id": topic, "group_instance_id": "one", **NEXT}
    first = await consumers(topic, **settings)
    other = await consumers(topic, group_id=topic, **NEXT)
    await until(lambda: shares(first, other) == [1, 2], first, other)
    had = first.assignment()
    await first.close()
    again = await consumers(topic, **settings)
    await until(lambda: again.assignment() == had, again, other)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
async def test_the_broker_uses_the_requested_assignor(
    topic: str, consumers: Any, assignor: str
) -> None:
    group = [
        await consumers(topic, group_id=topic, group_remote_assignor=assignor, **NEXT)
        for _ in range(2)
    ]
    await until(lambda: shares(*group) == [1, 2], *group)


async def test_an_unknown_assignor_is_refused(topic: str, consumers: Any) -> None:
    consumer = await consumers(topic, group_id=topic, group_remote_assignor="fair", **NEXT)
    with pytest.raises(Exception, match="UNSUPPORTED_ASSIGNOR"):
        async with asyncio.timeout(DEADLINE_S):
            while True:
                await consumer.poll(100)


async def test_a_broker_without_the_consumer_protocol_is_an_error() -> None:
    without: dict[ApiKey, tuple[int, int] | None] = {ApiKey.CONSUMER_GROUP_HEARTBEAT: None}
    async with (
        ScriptedBroker(topics={"t": 1}, versions=without) as old,
        Consumer("t", bootstrap_servers=old.address, group_id="g", **NEXT) as consumer,
    ):
        with pytest.raises(UnsupportedByBroker, match='set group_protocol="classic"'):
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    await consumer.poll(100)


async def test_a_group_moves_from_the_classic_to_the_consumer_protocol_online(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    produce(broker, topic, 30)
    old = await consumers(topic, group_id=topic, heartbeat_interval_ms=50)
    assert len(await read(old, 30)) == 30
    new = await consumers(topic, group_id=topic, **NEXT)
    await until(lambda: shares(old, new) == [1, 2], old, new)
    await old.close()
    await until(lambda: len(new.assignment()) == 3, new)
    produce(broker, topic, 3, start=30)
    assert values(await read(new, 3)) == [30, 31, 32]


async def test_a_group_is_classic_again_without_consumer_protocol_members(
    broker: SubprocessBroker, topic: str, consumers: Any
) -> None:
    old = await consumers(topic, group_id=topic, heartbeat_interval_ms=50)
    new = await consumers(topic, group_id=topic, **NEXT)
    await until(lambda: shares(old, new) == [1, 2], old, new)
    await new.close()
    await until(lambda: len(old.assignment()) == 3, old)
    produce(broker, topic, 30)
    assert values(await read(old, 30)) == list(range(30))
