"""The work for groups with many members (rules G-143, G-144, H-09, J-07), counted in steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from at_once import at_once
from consumer_group_world import FakeMember, consumer_group, grow
from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.consumer import assignors
from odradek_broker.coordinator.groups.consumer.assignors import (
    ASSIGNORS,
    Subscriber,
    assign_uniform,
)
from odradek_broker.coordinator.groups.partitions import Partitions, each_partition
from odradek_broker.coordinator.groups.share.assignor import assign_simple
from odradek_broker.coordinator.groups.streams.assignor import AssignmentMember, assign_sticky
from odradek_broker.coordinator.groups.streams.tasks import TaskSet
from odradek_broker.coordinator.groups.streams.topology import ConfiguredSubtopology, InternalTopic
from odradek_protocol.errors import ErrorCode
from share_group_world import ShareGroupWorld, T
from steps import steps_of
from streams_group_world import StreamsGroupWorld

#: n log n steps for twice as many members are hardly more than twice the steps; n * n are four
#: times as many.
DOUBLE = 2.6


def uniform(members: int, current: dict[str, Partitions] | None = None) -> object:
    """Divide one partition for each member; three topics."""
    topics = {bytes([at]) * 16: members // 3 + 1 for at in range(3)}
    held = current or {}
    return at_once(
        assign_uniform(
            [
                Subscriber(
                    member_id=f"m{at:05}",
                    topics=frozenset(topics),
                    current=held.get(f"m{at:05}", {}),
                )
                for at in range(members)
            ],
            topics,
        )
    )


def one_has_all(members: int) -> object:
    topics = {bytes([at]) * 16: members // 3 + 1 for at in range(3)}
    return uniform(members, {"m00000": {each: frozenset(range(n)) for each, n in topics.items()}})


def of_two_kinds(members: int) -> object:
    """Half of the members subscribe to a further topic, whose partitions some of them have."""
    first, second = b"1" * 16, b"2" * 16
    return at_once(
        assign_uniform(
            [
                Subscriber(
                    member_id=f"m{at:05}",
                    topics=frozenset({first, second} if at % 2 else {first}),
                    current={second: frozenset({at, at - 1})}
                    if at % 2 and at < members // 2
                    else {},
                )
                for at in range(members)
            ],
            {first: members, second: members},
        )
    )


def ranges(members: int) -> object:
    topics = {bytes([at]) * 16: 5 for at in range(50)}
    subscribers = [
        Subscriber(member_id=f"m{at:05}", topics=frozenset(topics)) for at in range(members)
    ]
    return at_once(ASSIGNORS["range"](subscribers, topics))


def simple(members: int) -> object:
    topics = {bytes([at]) * 16: frozenset(range(members // 5)) for at in range(10)}
    subscription = frozenset(topics)
    return at_once(assign_simple({f"m{at:05}": subscription for at in range(members)}, {}, topics))


def sticky(members: int) -> object:
    changelogs = {"log": InternalTopic("log", members, 0, {})}
    topology = {
        "0": ConfiguredSubtopology(members, frozenset({"topic"}), frozenset(), {}, changelogs)
    }
    there = {f"m{at:05}": AssignmentMember(f"p{at}", TaskSet()) for at in range(members)}
    return at_once(assign_sticky(topology, there, 1))


@pytest.mark.parametrize("assign", [uniform, one_has_all, of_two_kinds, ranges, simple, sticky])
def test_g144_twice_as_many_members_need_hardly_more_than_twice_the_steps(
    assign: Callable[[int], object],
) -> None:
    few, many = (steps_of(lambda n=n: assign(n)) for n in (120, 240))  # type: ignore[misc]
    assert many < DOUBLE * few


def test_g144_the_search_for_moves_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit every partition still has an owner, but members may differ by more."""
    topic = b"T" * 16
    all_of_it = {topic: frozenset(range(4))}
    members = [
        Subscriber(member_id="a", topics=frozenset({topic}), current=all_of_it),
        Subscriber(member_id="b", topics=frozenset({topic})),
    ]
    assert sorted(
        len(each[topic]) for each in at_once(assign_uniform(members, {topic: 4})).values()
    ) == [
        2,
        2,
    ]
    monkeypatch.setattr(assignors, "SEARCH_STEPS_MAX", 0)
    assert at_once(assign_uniform(members, {topic: 4})) == {"a": all_of_it, "b": {}}


# --- Joins ---


def consumer_joins(world: GroupWorld, names: list[str]) -> None:
    for name in names:
        assert FakeMember(world, name).beat().error_code == ErrorCode.NONE


def share_joins(world: ShareGroupWorld, names: list[str]) -> None:
    for name in names:
        assert world.beat(name, 0, topics=["topic"]).error_code == ErrorCode.NONE


def streams_joins(world: StreamsGroupWorld, names: list[str]) -> None:
    for name in names:
        world.beat(name)


def classic_joins(world: GroupWorld, names: list[str]) -> None:
    for name in names:
        world.enter(client=name)


def _consumer() -> tuple[GroupWorld, Callable[[list[str]], None]]:
    world = GroupWorld()
    world.metadata.consumer_assignment_interval_ms = 1_000
    return world, lambda names: consumer_joins(world, names)


def _share() -> tuple[GroupWorld, Callable[[list[str]], None]]:
    world = ShareGroupWorld(group_share_max_size=1_000)
    return world, lambda names: share_joins(world, names)


def _streams() -> tuple[GroupWorld, Callable[[list[str]], None]]:
    world = StreamsGroupWorld(interval_ms=1_000)
    return world, lambda names: streams_joins(world, names)


def _classic() -> tuple[GroupWorld, Callable[[list[str]], None]]:
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    return world, lambda names: classic_joins(world, names)


@pytest.mark.parametrize("make", [_consumer, _share, _streams, _classic])
def test_g144_a_join_costs_the_same_however_many_members_there_are(
    make: Callable[[], tuple[GroupWorld, Callable[[list[str]], None]]],
) -> None:
    _, join = make()
    join([f"m{at:05}" for at in range(20)])
    few = steps_of(lambda: join(["few"]))
    join([f"n{at:05}" for at in range(180)])
    many = steps_of(lambda: join(["many"]))
    assert many < 1.5 * few


# --- The interval between assignments ---


def test_g143_assignments_are_at_least_the_assignment_interval_apart() -> None:
    world = GroupWorld()
    world.metadata.consumer_assignment_interval_ms = 1_000
    first, second = FakeMember(world, "first"), FakeMember(world, "second")
    first.beat()
    assert len(first.owned) == 10
    world.wait(999)
    answer = second.beat()
    group = consumer_group(world)
    assert (answer.member_epoch, group.epoch, group.assignment_epoch) == (
        group.assignment_epoch,
        group.assignment_epoch + 1,
        group.assignment_epoch,
    )
    assert second.owned == frozenset()
    world.wait(1)
    for member in (first, first, second):
        member.beat()
    assert consumer_group(world).assignment_epoch == group.epoch
    assert (len(first.owned), len(second.owned)) == (5, 5)


def test_g143_the_setting_of_the_group_comes_before_the_setting_of_the_broker() -> None:
    world = GroupWorld()
    world.metadata.consumer_assignment_interval_ms = 1_000
    world.metadata.group_settings[GROUP, "consumer.assignment.interval.ms"] = 0
    first, second = FakeMember(world, "first"), FakeMember(world, "second")
    first.beat()
    second.beat()
    assert consumer_group(world).assignment_epoch == consumer_group(world).epoch


def test_g143_the_interval_goes_on_after_a_restart() -> None:
    world = GroupWorld()
    world.metadata.consumer_assignment_interval_ms = 1_000
    first = FakeMember(world, "first")
    first.beat()
    world.restart()
    grow(world, "topic", 20)
    first.beat()
    assert len(first.owned) == 10
    world.wait(1_000)
    first.beat()
    assert len(first.owned) == 20


def test_h07_the_partitions_in_targets_are_counted() -> None:
    """After any changes of the targets, the counts are those of the targets that there are."""
    world = ShareGroupWorld()
    world.share_join("a", ["topic"])
    world.share_join("b", ["topic"])
    world.beat("a", -1)
    group = world.share_group()
    counted = {(topic_id, index) for topic_id, held in group.assigned.items() for index in held}
    assert counted == {each for target in group.targets.values() for each in each_partition(target)}
    world.beat("b", -1)
    assert not world.share_group().assigned
    assert not world.share_group().subscribers and T


def test_g144_the_answers_at_the_end_of_a_join_phase_are_sent_in_slices() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    parked = [world.enter(client=f"m{at}")[1] for at in range(120)]
    sent = []
    while not all(deferred.done for deferred in parked):
        before = sum(deferred.done for deferred in parked)
        at_ms = world.groups.shards.next_deadline_ms()
        assert at_ms is not None
        world.clock.advance(max(0, at_ms - world.clock.monotonic_ms()))
        world.groups.shards.run_due(world.clock.monotonic_ms())
        sent.append(sum(deferred.done for deferred in parked) - before)
    assert [number for number in sent if number] == [50, 50, 20]
    assert {deferred.result().generation_id for deferred in parked} == {1}
