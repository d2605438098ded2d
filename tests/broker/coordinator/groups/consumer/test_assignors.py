"""The assignors of the broker, on random groups (rules G-140 to G-142)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from at_once import at_once
from group_world import Settings
from odradek_broker.coordinator.groups.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_range,
    assign_uniform,
)
from odradek_broker.coordinator.groups.consumer.group import ConsumerMember
from odradek_broker.coordinator.groups.consumer.reconciliation import (
    assignor_names,
    choose_assignor,
)
from odradek_broker.coordinator.groups.partitions import Partitions, each_partition

TOPICS = [bytes([65 + at]) * 16 for at in range(5)]
A, B, C = TOPICS[:3]


def member(name: str, *topics: bytes, current: Partitions | None = None) -> Subscriber:
    return Subscriber(member_id=name, topics=frozenset(topics), current=current or {})


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[bytes, int]]:
    """Members with random current assignments and subscriptions, and the number of partitions of
    each topic. In many groups all members have the same subscriptions."""
    counts = {topic: draw(st.integers(1, 8)) for topic in draw(st.sets(st.sampled_from(TOPICS)))}
    same = draw(st.booleans())
    subscription = st.frozensets(st.sampled_from(TOPICS))
    shared = draw(subscription)
    members = []
    for at in range(draw(st.integers(1, 6))):
        held = draw(
            st.dictionaries(
                st.sampled_from(TOPICS), st.frozensets(st.integers(0, 9), min_size=1), max_size=3
            )
        )
        members.append(
            Subscriber(
                member_id=f"m{at}",
                instance_id=draw(st.sampled_from([None, f"i{9 - at}"])),
                topics=shared if same else draw(subscription),
                current=held,
            )
        )
    return members, counts


def sizes(assignment: Assignment) -> dict[str, int]:
    return {name: sum(1 for _ in each_partition(parts)) for name, parts in assignment.items()}


def after(members: list[Subscriber], assignment: Assignment) -> list[Subscriber]:
    """The members with their new partitions."""
    return [
        Subscriber(
            member_id=held.member_id,
            instance_id=held.instance_id,
            topics=held.topics,
            current=assignment[held.member_id],
        )
        for held in members
    ]


@pytest.mark.parametrize("name", ASSIGNORS)
@given(groups())
@settings(max_examples=budget.examples(40), deadline=None)
def test_g140_every_partition_goes_to_one_of_its_subscribers(
    name: str, group: tuple[list[Subscriber], dict[bytes, int]]
) -> None:
    members, counts = group
    assignment = at_once(ASSIGNORS[name](members, counts))
    assert set(assignment) == {held.member_id for held in members}
    subscribed = {held.member_id: held.topics for held in members}
    given_out = []
    for member_id, parts in assignment.items():
        assert all(indexes for indexes in parts.values())
        for topic, index in each_partition(parts):
            assert topic in subscribed[member_id]
            given_out.append((topic, index))
    wanted = frozenset().union(*subscribed.values())
    expected = [
        (topic, index)
        for topic, count in counts.items()
        if topic in wanted
        for index in range(count)
    ]
    assert sorted(given_out) == sorted(expected)


@given(groups())
@settings(max_examples=budget.examples(100), deadline=None)
def test_g140_uniform_balances_members_as_far_as_subscriptions_allow(
    group: tuple[list[Subscriber], dict[bytes, int]],
) -> None:
    """A search by brute force finds no chain of moves from a member to one that has at least two
    partitions fewer."""
    members, counts = group
    assignment = at_once(assign_uniform(members, counts))
    load = sizes(assignment)
    takes = {held.member_id: held.topics for held in members}
    for source in load:
        reached = {source}
        ring = [source]
        while ring:
            ring = [
                taker
                for giver in ring
                for taker in load
                if taker not in reached and not takes[taker].isdisjoint(assignment[giver])
            ]
            reached.update(ring)
        assert all(load[source] <= load[held] + 1 for held in reached)


@given(groups())
@settings(max_examples=budget.examples(40), deadline=None)
def test_g140_uniform_gives_members_with_the_same_topics_the_same_number(
    group: tuple[list[Subscriber], dict[bytes, int]],
) -> None:
    members, counts = group
    alike = [Subscriber(member_id=held.member_id, topics=frozenset(TOPICS)) for held in members]
    load = sizes(at_once(assign_uniform(alike, counts))).values()
    assert max(load) - min(load) <= 1


@given(groups())
@settings(max_examples=budget.examples(40), deadline=None)
def test_g140_uniform_moves_no_partition_in_a_balanced_group(
    group: tuple[list[Subscriber], dict[bytes, int]],
) -> None:
    members, counts = group
    assignment = at_once(assign_uniform(members, counts))
    assert at_once(assign_uniform(after(members, assignment), counts)) == assignment


@pytest.mark.parametrize(("before", "moved"), [(2, 4), (3, 3), (5, 2)])
def test_g140_uniform_moves_only_the_partitions_of_a_new_member(before: int, moved: int) -> None:
    """A member joins a group with 12 partitions: only the partitions of the new member move."""
    members = [member(f"m{at}", A) for at in range(before)]
    first = at_once(assign_uniform(members, {A: 12}))
    again = at_once(assign_uniform([*after(members, first), member("new", A)], {A: 12}))
    kept = sum(len(first[held.member_id][A] & again[held.member_id][A]) for held in members)
    assert (12 - kept, len(again["new"][A])) == (moved, moved)
    # When the new member leaves again, the others keep all their partitions.
    rest = after(members, again)
    back = at_once(assign_uniform(rest, {A: 12}))
    assert all(again[held.member_id][A] <= back[held.member_id][A] for held in members)


def test_g140_uniform_moves_partitions_along_a_chain_of_members() -> None:
    """Member a subscribes to A, b to A and B, c to B. b gives its partitions of B to c, and gets
    partitions of A from a."""
    members = [
        member("a", A, current={A: frozenset({0, 1, 2, 3})}),
        member("b", A, B, current={B: frozenset({0, 1})}),
        member("c", B),
    ]
    assignment = at_once(assign_uniform(members, {A: 4, B: 2}))
    assert sizes(assignment) == {"a": 2, "b": 2, "c": 2}
    assert assignment["c"] == {B: frozenset({0, 1})}


def test_g140_uniform_divides_ten_thousand_partitions_between_two_members() -> None:
    """The first member had all 10,000 partitions before the second member joined."""
    counts = {at.to_bytes(16, "big"): 10 for at in range(1_000)}
    everything = {topic: frozenset(range(10)) for topic in counts}
    members = [member("a", *counts, current=everything), member("b", *counts)]
    assert sizes(at_once(assign_uniform(members, counts))) == {"a": 5_000, "b": 5_000}


@given(groups())
@settings(max_examples=budget.examples(40), deadline=None)
def test_g141_range_gives_members_contiguous_partitions_in_equal_numbers(
    group: tuple[list[Subscriber], dict[bytes, int]],
) -> None:
    members, counts = group
    assignment = at_once(assign_range(members, counts))
    for topic in counts:
        runs = sorted(parts[topic] for parts in assignment.values() if topic in parts)
        for run in runs:
            assert max(run) - min(run) == len(run) - 1
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1


@given(groups(), st.integers(1, 9))
@settings(max_examples=budget.examples(40), deadline=None)
def test_g141_range_divides_equal_topics_alike(
    group: tuple[list[Subscriber], dict[bytes, int]], count: int
) -> None:
    members = [Subscriber(member_id=held.member_id, topics=frozenset({A, B})) for held in group[0]]
    assignment = at_once(assign_range(members, {A: count, B: count}))
    assert all(parts.get(A) == parts.get(B) for parts in assignment.values())


def test_g141_range_orders_static_members_by_their_instance() -> None:
    def names(first: str, second: str) -> Mapping[str, Partitions]:
        members = [
            Subscriber(member_id=first, instance_id="i2", topics=frozenset({A})),
            Subscriber(member_id=second, instance_id="i1", topics=frozenset({A})),
        ]
        return at_once(assign_range(members, {A: 2}))

    assert names("a", "b")["b"] == {A: frozenset({0})}
    assert names("z", "y")["y"] == {A: frozenset({0})}, "another id, the same place"


def test_g142_members_vote_on_the_assignor_and_the_first_offered_wins_ties() -> None:
    def chosen(*wishes: str | None, offered: tuple[str, ...] = ("uniform", "range")) -> str:
        members = {
            str(at): ConsumerMember(member_id=str(at), assignor=wish)
            for at, wish in enumerate(wishes)
        }
        return choose_assignor(members, Settings(group_consumer_assignors=offered))

    assert chosen() == "uniform"
    assert chosen(None, None, offered=("range", "uniform")) == "range"
    assert chosen("range", "range", "uniform") == "range"
    assert chosen("range", "uniform") == "uniform"
    assert chosen("range", None, None) == "range"
    assert chosen("uniform", offered=("range",)) == "range", "it is offered no more"


def test_g142_assignors_may_be_configured_by_kafkas_class_names() -> None:
    package = "org.apache.kafka.coordinator.group.assignor."
    config = Settings(group_consumer_assignors=(package + "RangeAssignor", "uniform"))
    assert assignor_names(config) == ["range", "uniform"]
