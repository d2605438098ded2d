"""The assignor of share groups, on random groups (rule H-06)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from at_once import at_once
from odradek_broker.coordinator.groups.partitions import Partitions, each_partition
from odradek_broker.coordinator.groups.share.assignor import assign_simple

TOPICS = [bytes([65 + at]) * 16 for at in range(4)]
A, B = TOPICS[:2]

Subscriptions = dict[str, frozenset[bytes]]


@st.composite
def groups(draw: st.DrawFn) -> tuple[Subscriptions, dict[str, Partitions], Partitions]:
    """Members with equal or different subscriptions, their current targets, and the partitions that
    have a state."""
    available: Partitions = {
        topic: frozenset(range(draw(st.integers(1, 7))))
        for topic in draw(st.sets(st.sampled_from(TOPICS)))
    }
    subscription = st.frozensets(st.sampled_from(TOPICS))
    same = draw(st.none() | subscription)
    subscriptions = {
        f"m{at}": draw(subscription) if same is None else same
        for at in range(draw(st.integers(1, 9)))
    }
    held = st.dictionaries(
        st.sampled_from(TOPICS), st.frozensets(st.integers(0, 9), min_size=1), max_size=3
    )
    current: dict[str, Partitions] = {
        member_id: draw(held) for member_id in subscriptions if draw(st.booleans())
    }
    return subscriptions, current, available


def loads(assignment: dict[str, Partitions]) -> list[int]:
    return sorted(len(list(each_partition(parts))) for parts in assignment.values())


def range_of(count: int, *topics: bytes) -> Partitions:
    return {topic: frozenset(range(count)) for topic in topics}


@given(groups())
@settings(max_examples=budget.examples(300))
def test_h06_each_partition_goes_to_subscribers_only_and_to_at_least_one(
    group: tuple[Subscriptions, dict[str, Partitions], Partitions],
) -> None:
    subscriptions, current, available = group
    assigned = at_once(assign_simple(subscriptions, current, available))
    assert assigned.keys() == subscriptions.keys()
    for member_id, parts in assigned.items():
        assert parts.keys() <= subscriptions[member_id]
    wanted = frozenset[bytes]().union(*subscriptions.values())
    given_out = {each for parts in assigned.values() for each in each_partition(parts)}
    assert given_out == {each for each in each_partition(available) if each[0] in wanted}


@given(groups())
@settings(max_examples=budget.examples(300))
def test_h06_an_unchanged_group_keeps_its_assignment(
    group: tuple[Subscriptions, dict[str, Partitions], Partitions],
) -> None:
    subscriptions, current, available = group
    assigned = at_once(assign_simple(subscriptions, current, available))
    assert at_once(assign_simple(subscriptions, assigned, available)) == assigned


@given(st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=budget.examples(150))
def test_h06_members_with_the_same_subscription_have_equal_shares(
    members: int, partitions: int
) -> None:
    subscriptions = {f"m{at:02}": frozenset({A}) for at in range(members)}
    assigned = at_once(assign_simple(subscriptions, {}, range_of(partitions, A)))
    sharing = -(-members // partitions)
    least, more = divmod(sharing * partitions, members)
    assert loads(assigned) == [least] * (members - more) + [least + 1] * more
    holders = [
        sum(index in parts.get(A, ()) for parts in assigned.values()) for index in range(partitions)
    ]
    assert set(holders) == {sharing}


def test_h06_a_new_member_takes_half_and_the_other_half_stays() -> None:
    before = at_once(assign_simple({"m": frozenset({A})}, {}, range_of(6, A)))
    after = at_once(
        assign_simple({"m": frozenset({A}), "n": frozenset({A})}, before, range_of(6, A))
    )
    assert after["m"][A] <= before["m"][A]
    assert after["m"][A] | after["n"][A] == set(range(6))
    assert loads(after) == [3, 3]


def test_h06_different_subscriptions_are_divided_topic_by_topic() -> None:
    subscriptions = {"m": frozenset({A}), "n": frozenset({B}), "o": frozenset({A, B})}
    assigned = at_once(assign_simple(subscriptions, {}, range_of(4, A, B)))
    sizes = {
        member_id: {topic: len(indexes) for topic, indexes in parts.items()}
        for member_id, parts in assigned.items()
    }
    assert sizes == {"m": {A: 2}, "n": {B: 2}, "o": {A: 2, B: 2}}


def test_h06_partitions_are_shared_if_there_are_more_members() -> None:
    subscriptions = {f"m{at}": frozenset({A}) for at in range(5)}
    assigned = at_once(assign_simple(subscriptions, {}, range_of(2, A)))
    assert loads(assigned) == [1, 1, 1, 1, 2]
