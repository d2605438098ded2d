"""The assignors sticky and cooperative-sticky: balance, stickiness, and user data of other
clients."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from aiokafka.structs import TopicPartition as AioPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.coordinator.assignors.cooperative_sticky import (
    CooperativeStickyAssignor as TheirCooperative,
)
from kafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as TheirSticky,
)
from kafka.structs import TopicPartition as KafkaPartition

import budget
from odradek_client.consumer.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    GroupMember,
    MemberAssignment,
    StickyAssignor,
)
from odradek_client.structs import TopicPartition
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.stored.sticky_user_data import (
    StickyUserData,
    decode_cooperative,
    decode_sticky,
    encode_cooperative,
    encode_sticky,
)
from odradek_protocol.stored.subscription import decode_subscription

TOPICS = ["a", "b", "c", "d"]
NAMES = ["m1", "m2", "m3", "m4", "m5", "m6"]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
small_counts = st.dictionaries(st.sampled_from(TOPICS[:3]), st.integers(1, 3), min_size=1)
subscriptions = st.dictionaries(
    st.sampled_from(NAMES),
    st.sets(st.sampled_from([*TOPICS, "missing"]), min_size=1).map(sorted),
    min_size=1,
)


def partitions_of(
    partition_counts: Mapping[str, int], wanted: set[str] | None = None
) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic, n)
        for topic, count in partition_counts.items()
        for n in range(count)
        if wanted is None or topic in wanted
    )


def tell(
    assignor: type[StickyAssignor],
    member: str,
    topics: Sequence[str],
    had: Sequence[TopicPartition] | None = None,
    generation: int = 1,
) -> GroupMember:
    """A member as the leader sees it."""
    own = assignor()
    if had is not None:
        own.on_assignment(list(had), None, generation)
    eager = assignor is StickyAssignor
    return GroupMember(
        member,
        tuple(topics),
        owned_partitions=() if eager else tuple(had or ()),
        generation_id=generation if had is not None else -1,
        user_data=own.user_data(frozenset(topics)),
    )


def group(
    members: Mapping[str, Sequence[str]], before: MemberAssignment | None = None
) -> list[GroupMember]:
    return [
        tell(StickyAssignor, name, topics, None if before is None else before.get(name))
        for name, topics in members.items()
    ]


def check_once(
    answer: MemberAssignment,
    members: Mapping[str, Sequence[str]],
    partition_counts: Mapping[str, int],
) -> None:
    assert set(answer) == set(members)
    given = sorted(each for partitions in answer.values() for each in partitions)
    wanted = {topic for topics in members.values() for topic in topics}
    assert given == partitions_of(partition_counts, wanted)
    for member, partitions in answer.items():
        assert {each.topic for each in partitions} <= set(members[member])


def moved(before: MemberAssignment, after: MemberAssignment) -> set[TopicPartition]:
    """The partitions that have moved between members."""
    owner = {each: member for member, partitions in before.items() for each in partitions}
    return {
        each
        for member, partitions in after.items()
        for each in partitions
        if owner.get(each, member) != member
    }


# --- balance --------------------------------------------------------------------------------------


@settings(max_examples=budget.examples(200), deadline=None)
@given(counts, st.sets(st.sampled_from(NAMES), min_size=1), st.data())
def test_k52_equal_subscriptions_get_partition_counts_within_one(
    partition_counts: dict[str, int], names: set[str], data: Any
) -> None:
    members = dict.fromkeys(sorted(names), TOPICS)
    owners = {
        each: data.draw(st.sampled_from([*sorted(names), None]))
        for each in partitions_of(partition_counts)
    }
    before = {name: [each for each, owner in owners.items() if owner == name] for name in members}
    answer = StickyAssignor().assign(partition_counts, group(members, before))
    check_once(answer, members, partition_counts)
    sizes = sorted(map(len, answer.values()))
    assert sizes[-1] - sizes[0] <= 1
    # No even assignment lets members keep more partitions than this one does.
    kept = sum(len(set(answer[name]) & set(before[name])) for name in members)
    had = sorted((len(each) for each in before.values()), reverse=True)
    assert kept == sum(map(min, had, reversed(sizes)))


def best_balance(partition_counts: Mapping[str, int], members: Mapping[str, Sequence[str]]) -> int:
    """The lowest possible sum of squared loads."""
    everything = partitions_of(
        partition_counts, {topic for topics in members.values() for topic in topics}
    )
    takers = [[m for m, topics in members.items() if each.topic in topics] for each in everything]
    return min(
        sum(choice.count(member) ** 2 for member in members)
        for choice in itertools.product(*takers)
    )


@settings(max_examples=budget.examples(150), deadline=None)
@given(
    small_counts,
    st.dictionaries(
        st.sampled_from(NAMES[:3]),
        st.sets(st.sampled_from(TOPICS[:3]), min_size=1).map(sorted),
        min_size=1,
    ),
)
def test_k52_unequal_subscriptions_get_the_most_even_assignment(
    partition_counts: dict[str, int], members: dict[str, list[str]]
) -> None:
    answer = StickyAssignor().assign(partition_counts, group(members))
    check_once(answer, members, partition_counts)
    assert sum(len(each) ** 2 for each in answer.values()) == best_balance(
        partition_counts, members
    )


def test_k52_partitions_move_through_several_members_to_balance_the_load() -> None:
    # Only y can take partitions from x, and y can give other partitions to z.
    members = {"x": ["a"], "y": ["a", "b"], "z": ["b"]}
    before = {
        "x": partitions_of({"a": 4}),
        "y": [TopicPartition("b", 0), TopicPartition("b", 1), TopicPartition("b", 2)],
        "z": list[TopicPartition](),
    }
    answer = StickyAssignor().assign({"a": 4, "b": 3}, group(members, before))
    assert sorted(map(len, answer.values())) == [2, 2, 3]


# --- stickiness -----------------------------------------------------------------------------------


@settings(max_examples=budget.examples(150), deadline=None)
@given(counts, subscriptions)
def test_k52_nothing_moves_when_nothing_changed(
    partition_counts: dict[str, int], members: dict[str, list[str]]
) -> None:
    before = StickyAssignor().assign(partition_counts, group(members))
    assert StickyAssignor().assign(partition_counts, group(members, before)) == before


@settings(max_examples=budget.examples(150), deadline=None)
@given(counts, st.sets(st.sampled_from(NAMES), min_size=2), st.booleans())
def test_k52_the_fewest_partitions_move_when_a_member_joins_or_leaves(
    partition_counts: dict[str, int], names: set[str], comes: bool
) -> None:
    *stay, other = sorted(names)
    few, many = dict.fromkeys(stay, TOPICS), dict.fromkeys([*stay, other], TOPICS)
    if comes:
        before = StickyAssignor().assign(partition_counts, group(few))
        after = StickyAssignor().assign(partition_counts, group(many, before))
        assert moved(before, after) == set(after[other])
    else:
        before = StickyAssignor().assign(partition_counts, group(many))
        after = StickyAssignor().assign(partition_counts, group(few, before))
        assert moved(before, after) == set(before[other])


@settings(max_examples=budget.examples(100), deadline=None)
@given(counts, subscriptions, subscriptions)
def test_k52_k55_every_partition_has_one_owner_after_any_change(
    partition_counts: dict[str, int],
    first: dict[str, list[str]],
    second: dict[str, list[str]],
) -> None:
    before = StickyAssignor().assign({"a": 2, "d": 3}, group(first))
    answer = StickyAssignor().assign(partition_counts, group(second, before))
    check_once(answer, second, partition_counts)


def test_k52_the_owner_of_the_highest_generation_keeps_its_partition() -> None:
    partition = TopicPartition("a", 0)
    members = [
        tell(StickyAssignor, "m1", ["a"], [partition], generation=3),
        tell(StickyAssignor, "m2", ["a"], [partition], generation=4),
    ]
    assert StickyAssignor().assign({"a": 1}, members) == {"m1": [], "m2": [partition]}


def test_k52_a_partition_owned_twice_in_one_generation_goes_to_one_member() -> None:
    mine, disputed = TopicPartition("a", 1), TopicPartition("a", 0)
    members = [
        tell(StickyAssignor, "m1", ["a"], [disputed], generation=3),
        tell(StickyAssignor, "m2", ["a"], [disputed, mine], generation=3),
    ]
    assert StickyAssignor().assign({"a": 2}, members) == {"m1": [disputed], "m2": [mine]}


def test_k52_a_large_group_is_balanced() -> None:
    """The group is so large that the test notices an algorithm that does not scale."""
    partition_counts = {f"t{n:03}": 5 for n in range(200)}
    topics = list(partition_counts)
    members = {f"m{n:03}": topics[n:] + topics[: n // 2] for n in range(100)}
    answer = StickyAssignor().assign(partition_counts, group(members))
    check_once(answer, members, partition_counts)
    sizes = sorted(map(len, answer.values()))
    assert sizes[-1] - sizes[0] <= 1


# --- cooperative ----------------------------------------------------------------------------------


def cooperate(
    partition_counts: Mapping[str, int],
    members: Mapping[str, Sequence[str]],
    held: MemberAssignment,
    generation: int,
) -> MemberAssignment:
    return CooperativeStickyAssignor().assign(
        partition_counts,
        [
            tell(CooperativeStickyAssignor, name, topics, held.get(name), generation)
            for name, topics in members.items()
        ],
    )


@settings(max_examples=budget.examples(200), deadline=None)
@given(counts, subscriptions, subscriptions)
def test_k53_two_cooperative_rebalances_never_give_a_partition_two_owners(
    partition_counts: dict[str, int], first: dict[str, list[str]], second: dict[str, list[str]]
) -> None:
    held = cooperate(partition_counts, first, {}, 1)
    check_once(held, first, partition_counts)
    # Before members join, they revoke the partitions of topics that they no longer subscribe to
    # (K-31).
    held = {
        name: [each for each in held.get(name, ()) if each.topic in topics]
        for name, topics in second.items()
    }
    given = cooperate(partition_counts, second, held, 2)
    for name, partitions in given.items():
        others = {each for other, had in held.items() if other != name for each in had}
        assert not others & set(partitions)
    withheld = set(partitions_of(partition_counts, {t for ts in second.values() for t in ts})) - {
        each for partitions in given.values() for each in partitions
    }
    assert withheld <= {each for had in held.values() for each in had}
    final = cooperate(partition_counts, second, given, 3)
    check_once(final, second, partition_counts)
    # The second rebalance revokes nothing.
    for name, partitions in given.items():
        assert set(partitions) <= set(final[name])
    assert cooperate(partition_counts, second, final, 4) == final


def test_k53_a_disputed_partition_is_withheld_from_both() -> None:
    disputed = TopicPartition("a", 0)
    members = [
        tell(CooperativeStickyAssignor, name, ["a"], [disputed], generation=3)
        for name in ("m1", "m2")
    ]
    assert CooperativeStickyAssignor().assign({"a": 1}, members) == {"m1": [], "m2": []}


def test_k53_an_owner_of_an_older_generation_loses_the_partition() -> None:
    disputed = TopicPartition("a", 0)
    stale = tell(CooperativeStickyAssignor, "m1", ["a"], [disputed], generation=3)
    owner = tell(CooperativeStickyAssignor, "m2", ["a"], [disputed], generation=4)
    answer = CooperativeStickyAssignor().assign({"a": 1}, [stale, owner])
    assert answer == {"m1": [], "m2": [disputed]}


def test_k53_the_generation_may_come_from_the_user_data() -> None:
    disputed = TopicPartition("a", 0)
    old = tell(CooperativeStickyAssignor, "m1", ["a"], [disputed], generation=3)
    new = tell(CooperativeStickyAssignor, "m2", ["a"], [disputed], generation=4)
    answer = CooperativeStickyAssignor().assign(
        {"a": 1}, [replace(old, generation_id=-1), replace(new, generation_id=-1)]
    )
    assert answer == {"m1": [], "m2": [disputed]}


@pytest.mark.parametrize("assignor", [StickyAssignor(), CooperativeStickyAssignor()])
def test_k50_rack_ids_do_not_disturb_the_assignment(assignor: Assignor) -> None:
    members = [GroupMember(name, ("a",), rack_id=f"rack {name}") for name in ("m1", "m2")]
    assert sorted(map(len, assignor.assign({"a": 4}, members).values())) == [2, 2]


# --- bytes ----------------------------------------------------------------------------------------

SAID = StickyUserData(
    previous_assignment=[PartitionsOfTopic(topic="a", partitions=[0, 2])], generation=7
)
#: An array of one topic, "a", with an array of two partitions; in version 1 the generation follows.
SAID_V0 = bytes.fromhex("00000001 0001 61 00000002 00000000 00000002")


def test_g52_sticky_user_data_is_encoded_as_by_kafka() -> None:
    assert encode_sticky(SAID) == SAID_V0 + bytes.fromhex("00000007")
    assert encode_sticky(SAID, 0) == SAID_V0
    assert decode_sticky(SAID_V0 + bytes.fromhex("00000007")) == SAID
    older = decode_sticky(SAID_V0)
    assert (older.generation, older.previous_assignment) == (-1, SAID.previous_assignment)


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\xff" * 9])
def test_g52_invalid_user_data_names_no_partitions(data: bytes | None) -> None:
    assert decode_sticky(data).previous_assignment == []
    if data is None or len(data) < 4:
        assert decode_cooperative(data) == -1


def test_g52_cooperative_user_data_is_a_generation() -> None:
    assert encode_cooperative(7) == bytes.fromhex("00000007")
    assert decode_cooperative(encode_cooperative(7)) == 7


def test_k52_user_data_of_kafka_python_is_understood() -> None:
    their = TheirSticky()
    their.member_assignment = [KafkaPartition("a", 0), KafkaPartition("a", 2)]
    their.generation = 7
    said = decode_subscription(their.metadata({"a"}).encode())
    assert said.user_data == b"\0\1" + encode_sticky(SAID)
    assert decode_sticky(said.user_data) == SAID


def test_k52_user_data_is_encoded_as_by_aiokafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        AioSticky, "member_assignment", [AioPartition("a", 0), AioPartition("a", 2)]
    )
    monkeypatch.setattr(AioSticky, "generation", 7)
    assert AioSticky.metadata(["a"]).user_data == encode_sticky(SAID)


def test_k53_kafka_pythons_subscription_is_understood() -> None:
    their = TheirCooperative()
    their.member_assignment = [KafkaPartition("a", 0), KafkaPartition("a", 2)]
    said = decode_subscription(their.metadata({"a"}).encode())
    assert [(each.topic, each.partitions) for each in said.owned_partitions] == [("a", [0, 2])]
    assert said.generation_id == -1
