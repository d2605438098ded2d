"""The assignors range and roundrobin, compared with their rules and with other clients (K-50 to
K-55)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from odradek_client.consumer.assignors import (
    Assignor,
    GroupMember,
    RangeAssignor,
    RoundRobinAssignor,
    resolve,
)
from odradek_client.structs import TopicPartition

TOPICS = ["a", "b", "c"]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))
subscriptions = st.dictionaries(
    st.text("mn123-", min_size=1, max_size=4),
    st.sets(st.sampled_from([*TOPICS, "missing"]), min_size=1).map(sorted),
    min_size=1,
    max_size=6,
)


class TheirCluster:
    """The cluster metadata that aiokafka's assignors need."""

    def __init__(self, partition_counts: Mapping[str, int]) -> None:
        self._counts = partition_counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if topic in self._counts else None


def theirs(assignor: Any, partition_counts: Mapping[str, int], members: Any) -> Any:
    """aiokafka's assignment, converted to the form of this client."""
    metadata = {member: assignor.metadata(topics) for member, topics in members.items()}
    answer = assignor.assign(TheirCluster(partition_counts), metadata)
    return {
        member: sorted(
            TopicPartition(topic, number)
            for topic, numbers in given.assignment
            for number in numbers
        )
        for member, given in answer.items()
    }


def ours(assignor: Assignor, partition_counts: Mapping[str, int], members: Any) -> Any:
    group = [GroupMember(member, tuple(topics)) for member, topics in members.items()]
    return {
        member: sorted(partitions)
        for member, partitions in assignor.assign(partition_counts, group).items()
    }


@settings(max_examples=budget.examples(200), deadline=None)
@given(counts, subscriptions)
def test_k50_range_assigns_like_aiokafka(partition_counts: dict[str, int], members: Any) -> None:
    assert ours(RangeAssignor(), partition_counts, members) == theirs(
        RangePartitionAssignor, partition_counts, members
    )


@settings(max_examples=budget.examples(200), deadline=None)
@given(counts, subscriptions)
def test_k51_roundrobin_assigns_like_aiokafka(
    partition_counts: dict[str, int], members: Any
) -> None:
    wanted = {topic for topics in members.values() for topic in topics}
    partition_counts = {t: n for t, n in partition_counts.items() if t in wanted}
    assert ours(RoundRobinAssignor(), partition_counts, members) == theirs(
        RoundRobinPartitionAssignor, partition_counts, members
    )


@settings(max_examples=budget.examples(200), deadline=None)
@given(counts, subscriptions, st.sampled_from([RangeAssignor(), RoundRobinAssignor()]))
def test_k55_every_partition_has_one_owner_subscribed_to_its_topic(
    partition_counts: dict[str, int], members: Any, assignor: Assignor
) -> None:
    answer = ours(assignor, partition_counts, members)
    assert set(answer) == set(members)
    owned = [each for partitions in answer.values() for each in partitions]
    wanted = {topic for topics in members.values() for topic in topics}
    assert sorted(owned) == sorted(
        TopicPartition(topic, number)
        for topic, count in partition_counts.items()
        if topic in wanted
        for number in range(count)
    )
    for member, partitions in answer.items():
        assert {each.topic for each in partitions} <= set(members[member])


def test_k50_the_first_members_get_one_partition_more() -> None:
    answer = ours(RangeAssignor(), {"a": 7}, {"x": ["a"], "y": ["a"], "z": ["a"]})
    assert {member: [n for _, n in given] for member, given in answer.items()} == {
        "x": [0, 1, 2],
        "y": [3, 4],
        "z": [5, 6],
    }


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()])
def test_k50_static_members_come_first_by_instance_id(assignor: Assignor) -> None:
    members = [
        GroupMember("m1", ("a",)),
        GroupMember("m2", ("a",), group_instance_id="z"),
        GroupMember("m3", ("a",), group_instance_id="b"),
    ]
    answer = assignor.assign({"a": 3}, members)
    assert {member: given[0].partition for member, given in answer.items()} == {
        "m3": 0,
        "m2": 1,
        "m1": 2,
    }


def test_k51_members_not_subscribed_are_passed_over() -> None:
    answer = ours(RoundRobinAssignor(), {"a": 2, "b": 3}, {"x": ["a"], "y": ["a", "b"]})
    assert answer == {
        "x": [("a", 0)],
        "y": [("a", 1), ("b", 0), ("b", 1), ("b", 2)],
    }


def test_k54_assignor_names_must_be_unique_and_known() -> None:
    assert list(resolve(["roundrobin", "range"])) == ["roundrobin", "range"]
    with pytest.raises(ValueError, match="two assignors are called 'range'"):
        resolve(["range", RangeAssignor()])
    with pytest.raises(ValueError, match="no assignor is called 'rang'"):
        resolve(["rang"])
    with pytest.raises(ValueError, match="at least one"):
        resolve([])
