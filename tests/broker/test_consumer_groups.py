"""ConsumerGroupHeartbeat, rule by rule (KIP-848; G-100 to G-134), on virtual time."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from consumer_group_world import (
    FakeMember,
    assigned,
    consumer_group,
    joined,
    listed,
    places,
    send,
    settle,
    shard,
    stored,
)
from group_world import GROUP, GroupWorld, part
from odradek_broker.coordinator.groups.consumer.group import ConsumerMember
from odradek_broker.coordinator.groups.consumer.partitions import NOTHING, Partitions
from odradek_broker.coordinator.groups.consumer.reconcile import reconcile
from odradek_broker.coordinator.groups.consumer.records import member_record
from odradek_broker.coordinator.groups.consumer.states import (
    STEPS,
    ConsumerGroupState,
    MemberState,
    Report,
    Step,
)
from odradek_broker.coordinator.groups.offsets import CommitCall, FetchingMember
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored.consumer_group import ConsumerGroupCurrentMemberAssignmentValue

E = ErrorCode
M = MemberState
ALL = places(*range(10))
TOPIC = b"T" * 16


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def grow(world: GroupWorld, topic: str, count: int) -> None:
    world.metadata.counts[topic] = count
    world.metadata.topics_version += 1


# --- Requests that are none (G-110) ---

JOIN: dict[str, Any] = {
    "member_id": "a",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["topic"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"group_id": ""}, "GroupId"),
        ({"member_id": ""}, "MemberId"),
        ({"member_id": "", "member_epoch": 3, "version": 0}, "MemberId"),
        ({"instance_id": ""}, "InstanceId"),
        ({"rack_id": ""}, "RackId"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, "TopicPartitions"),
        ({"topic_partitions": listed(places(1))}, "TopicPartitions"),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames"),
        ({"member_epoch": -2}, "InstanceId"),
        ({"member_epoch": -3}, "MemberEpoch"),
    ],
)
def test_g110_an_invalid_request_says_what_is_wrong(
    world: GroupWorld, changes: dict[str, Any], what: str
) -> None:
    answer = send(world, **(JOIN | changes)).result()
    assert answer.error_code == E.INVALID_REQUEST
    assert what in (answer.error_message or "")
    assert GROUP not in shard(world).consumers


# --- Joining ---


def test_g111_a_first_member_gets_everything_at_epoch_2(world: GroupWorld) -> None:
    answer = FakeMember(world, "a").beat()
    assert (answer.error_code, answer.member_epoch, answer.member_id) == (E.NONE, 2, "a")
    assert assigned(answer) == ALL
    assert answer.heartbeat_interval_ms == 5_000


def test_g111_version_0_may_leave_the_id_to_the_broker(world: GroupWorld) -> None:
    answer = send(world, **(JOIN | {"member_id": "", "version": 0})).result()
    assert answer.error_code == E.NONE
    assert answer.member_id is not None and len(answer.member_id) == 36


def test_g112_a_full_group_takes_nobody_else(world: GroupWorld) -> None:
    world = GroupWorld(group_consumer_max_size=2)
    a, b = joined(world, "a", "b")
    assert FakeMember(world, "c").beat().error_code == E.GROUP_MAX_SIZE_REACHED
    assert b.beat(full=True).error_code == E.NONE
    a.leave()
    assert FakeMember(world, "c").beat().error_code == E.NONE


def test_g113_strangers_are_told_so(world: GroupWorld) -> None:
    for epoch in (1, -1):
        answer = send(world, member_id="a", member_epoch=epoch).result()
        assert answer.error_code == E.GROUP_ID_NOT_FOUND
    joined(world, "a")
    for epoch in (1, -1):
        answer = send(world, member_id="b", member_epoch=epoch).result()
        assert answer.error_code == E.UNKNOWN_MEMBER_ID
    answer = send(world, member_id="a", member_epoch=1, instance_id="i").result()
    assert answer.error_code == E.UNKNOWN_MEMBER_ID


def test_g114_another_epoch_is_fenced_and_the_member_lives_on(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b")
    for epoch in (a.epoch + 1, a.epoch - 2 or 7):
        answer = send(world, member_id="a", member_epoch=epoch).result()
        assert answer.error_code == E.FENCED_MEMBER_EPOCH
        assert str(epoch) in (answer.error_message or "")
    assert b.beat().error_code == a.beat().error_code == E.NONE


def test_g114_the_epoch_before_is_taken_when_the_answer_was_lost(world: GroupWorld) -> None:
    (a,) = joined(world, "a")
    before, request = a.epoch, a.request(full=True)
    grow(world, "topic", 12)
    assert send(world, **request).result().member_epoch == before + 1, "this one is lost"
    silent = send(world, member_id="a", member_epoch=before).result()
    assert silent.error_code == E.FENCED_MEMBER_EPOCH, "it must say what it owns"
    foreign = request | {"topic_partitions": listed(places(99))}
    assert send(world, **foreign).result().error_code == E.FENCED_MEMBER_EPOCH
    again = send(world, **request).result()
    assert (again.error_code, again.member_epoch) == (E.NONE, before + 1)
    assert assigned(again) == places(*range(12))


def test_g115_whoever_joins_again_owns_nothing_and_is_told_everything(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b")
    epoch, owned = a.epoch, a.owned
    again = FakeMember(world, "a")
    answer = again.beat()
    assert (answer.member_epoch, assigned(answer)) == (epoch, owned)
    settle(again, b)


def test_g116_an_assignor_that_is_not_offered(world: GroupWorld) -> None:
    answer = send(world, **(JOIN | {"server_assignor": "sticky"})).result()
    assert answer.error_code == E.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in (answer.error_message or "")
    assert send(world, **(JOIN | {"server_assignor": "range"})).result().error_code == E.NONE


def test_g117_an_expression_that_is_none(world: GroupWorld) -> None:
    (a,) = joined(world, "a")
    answer = send(world, **(JOIN | {"member_id": "b", "subscribed_topic_regex": "(a"})).result()
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
    assert list(consumer_group(world).members) == ["a"]
    assert a.beat(subscribed_topic_regex="[").error_code == E.INVALID_REGULAR_EXPRESSION


def test_g118_the_assignment_is_told_when_it_changes_or_everything_is_asked(
    world: GroupWorld,
) -> None:
    (a,) = joined(world, "a")
    assert assigned(a.beat()) is None
    assert assigned(a.beat(full=True)) == ALL
    grow(world, "topic", 11)
    assert assigned(a.beat()) == places(*range(11))
    assert assigned(a.beat()) is None


# --- Epochs and states (G-100 to G-104) ---


def test_g100_a_restart_finds_the_same_group(world: GroupWorld) -> None:
    members = joined(world, "a", "b", instance=None)
    FakeMember(world, "s", instance="i", topics=None, pattern="o.*").beat()
    members[0].beat()
    before = copy.deepcopy(shard(world).consumers)
    for group in before.values():
        group.seen_version = None
    world.restart()
    assert shard(world).consumers == before
    epoch = consumer_group(world).epoch
    settle(*members)
    assert consumer_group(world).epoch == epoch, "nothing has changed, so nobody moves"


def test_g101_what_makes_the_group_epoch_grow(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b")
    epoch = consumer_group(world).epoch

    def grew(by: int = 1) -> bool:
        nonlocal epoch
        before, epoch = epoch, consumer_group(world).epoch
        return epoch == before + by

    a.beat(full=True)
    a.beat(rebalance_timeout_ms=5_000)
    assert grew(0), "the same again, or what no assignment depends on"
    a.beat(subscribed_topic_names=["topic", "other"])
    assert grew()
    a.beat(subscribed_topic_regex="o.*")
    assert grew(0), "the same topics, asked for in another way"
    grow(world, "unrelated", 3)
    a.beat()
    assert grew(0)
    grow(world, "topic", 11)
    a.beat()
    assert grew()
    b.leave()
    assert grew()
    world.wait(46_000)
    assert grew(), "a was silent"


def test_g102_targets_are_computed_at_the_first_heartbeat_after(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b")
    b.leave()
    group = consumer_group(world)
    assert (group.assignment_epoch, group.epoch) == (3, 4)
    assert group.state is ConsumerGroupState.ASSIGNING
    a.beat()
    assert (group.assignment_epoch, group.state) == (4, ConsumerGroupState.STABLE)


def test_g103_a_member_catches_up_with_the_group(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b")
    assert (a.epoch, b.epoch) == (3, 3)
    grow(world, "topic", 12)
    assert b.beat().member_epoch == 4
    assert a.epoch == stored(world, "a").epoch == 3, "it has not been heard of since"
    assert a.beat().member_epoch == 4
    assert (stored(world, "a").epoch, stored(world, "a").previous_epoch) == (4, 3)


def test_g104_the_states_of_a_group(world: GroupWorld) -> None:
    def state() -> ConsumerGroupState:
        return consumer_group(world).state

    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.beat()
    assert state() is ConsumerGroupState.STABLE
    b.beat()
    assert state() is ConsumerGroupState.RECONCILING
    settle(a, b)
    assert state() is ConsumerGroupState.STABLE
    a.leave()
    assert state() is ConsumerGroupState.ASSIGNING
    b.leave()
    assert state() is ConsumerGroupState.EMPTY


# --- Reconciliation (G-120 to G-125) ---


@pytest.mark.parametrize(("state", "report", "newer"), list(product(M, Report, (False, True))))
def test_g120_the_table_walked(state: MemberState, report: Report, newer: bool) -> None:
    """One step from every state with every report, as the table says."""
    held: Partitions = {TOPIC: frozenset({0, 1})}
    lost: Partitions = {TOPIC: frozenset({2})}
    pending = lost if state is M.UNREVOKED_PARTITIONS else NOTHING
    member = ConsumerMember(
        member_id="a", epoch=5, previous_epoch=4, state=state, assigned=held, pending=pending
    )
    owned: Partitions | None = {
        Report.SILENT: None,
        Report.OWNING: {TOPIC: frozenset({0, 1, 2})},
        Report.RELEASED: held,
    }[report]
    target: Partitions = {TOPIC: frozenset({0, 3})}
    target_epoch = 7 if newer else 5
    after = reconcile(member, target_epoch, target, owned, lambda *_: None)
    step = STEPS[state, report if pending else _without_pending(report), newer]
    if step in (Step.STAY, Step.WAIT):
        assert after is member
    else:
        # 1 is to be given back first, whatever else there is to get.
        assert after.state is M.UNREVOKED_PARTITIONS
        assert (after.assigned, after.pending) == (
            {TOPIC: frozenset({0})},
            {TOPIC: frozenset({1})},
        )
        assert after.epoch == (6 if step is Step.ADVANCE else 5)


def _without_pending(report: Report) -> Report:
    """Whoever has nothing to give back owns none of it."""
    return Report.SILENT if report is Report.SILENT else Report.RELEASED


def test_g120_every_case_is_in_the_table() -> None:
    assert set(STEPS) == set(product(M, Report, (False, True)))


def test_g121_a_partition_is_given_on_only_when_it_was_given_back(world: GroupWorld) -> None:
    a = FakeMember(world, "a")
    b = FakeMember(world, "b")
    assert assigned(a.beat()) == ALL
    assert assigned(b.beat()) == frozenset()
    told = send(world, **a.request()).result()
    assert stored(world, "a").state is M.UNREVOKED_PARTITIONS
    assert (told.member_epoch, assigned(told)) == (2, places(0, 1, 2, 3, 4))
    assert assigned(b.beat()) is None, "a has not said so yet"
    assert stored(world, "b").state is M.UNRELEASED_PARTITIONS
    a.take(told)
    assert a.beat().member_epoch == 3
    assert assigned(b.beat()) == places(5, 6, 7, 8, 9)
    assert stored(world, "b").state is M.STABLE


def test_g122_owning_a_part_is_not_giving_back(world: GroupWorld) -> None:
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.beat()
    b.beat()
    a.beat()
    send(world, member_id="a", member_epoch=2, topic_partitions=listed(places(0, 1, 9))).result()
    assert stored(world, "a").state is M.UNREVOKED_PARTITIONS
    assert assigned(b.beat()) is None
    send(world, member_id="a", member_epoch=2, topic_partitions=listed(places(0, 1))).result()
    assert stored(world, "a").epoch == 3
    assert assigned(b.beat()) == places(5, 6, 7, 8, 9)


def test_g122_a_third_joins_while_one_gives_back(world: GroupWorld) -> None:
    a, b, c = (FakeMember(world, name) for name in "abc")
    a.beat()
    b.beat()
    a.beat()
    c.beat()
    settle(a, b, c)
    assert sorted(map(len, (a.owned, b.owned, c.owned))) == [3, 3, 4]
    assert a.owned | b.owned | c.owned == ALL


def test_g123_whoever_does_not_give_back_in_time_is_out(world: GroupWorld) -> None:
    a, b = FakeMember(world, "a", rebalance_ms=7_000), FakeMember(world, "b")
    a.beat()
    b.beat()
    a.beat()
    a.told = True
    for _ in range(3):
        world.wait(2_000)
        assert a.beat().error_code == b.beat().error_code == E.NONE
    world.wait(1_000)
    assert list(consumer_group(world).members) == ["b"]
    assert a.beat().error_code == E.UNKNOWN_MEMBER_ID
    assert assigned(b.beat()) == ALL


def test_g123_the_deadline_begins_anew_after_a_restart(world: GroupWorld) -> None:
    a, b = FakeMember(world, "a", rebalance_ms=7_000), FakeMember(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.restart()
    world.wait(6_999)
    assert list(consumer_group(world).members) == ["a", "b"]
    world.wait(1)
    assert list(consumer_group(world).members) == ["b"]


def test_g124_silence_ends_a_session(world: GroupWorld) -> None:
    _a, b = joined(world, "a", "b")
    world.wait(44_999)
    b.beat()
    world.wait(1)
    assert list(consumer_group(world).members) == ["b"]
    settle(b)
    assert b.owned == ALL
    world.wait(45_000)
    assert consumer_group(world).state is ConsumerGroupState.EMPTY


def test_g124_a_restart_gives_everyone_a_whole_session(world: GroupWorld) -> None:
    joined(world, "a")
    world.wait(40_000)
    world.restart()
    world.wait(44_999)
    assert "a" in consumer_group(world).members
    world.wait(1)
    assert not consumer_group(world).members


def test_g125_a_member_that_leaves_is_gone_at_once(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b")
    answer = a.leave()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, "a", -1)
    assert assigned(b.beat()) == ALL
    assert a.leave().error_code == E.UNKNOWN_MEMBER_ID


# --- Static members (G-130 to G-133) ---


def test_g130_an_instance_id_in_use_is_not_given_away(world: GroupWorld) -> None:
    (a,) = joined(world, "a", instance="i")
    other = FakeMember(world, "b", instance="i")
    assert other.beat().error_code == E.UNRELEASED_INSTANCE_ID
    assert a.beat().error_code == E.NONE


def test_g131_its_successor_gets_the_same_without_a_rebalance(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b", instance=None)
    s = FakeMember(world, "s1", instance="i")
    s.beat()
    settle(a, b, s)
    owned, epoch = s.owned, consumer_group(world).epoch
    answer = s.leave(-2)
    assert (answer.error_code, answer.member_epoch) == (E.NONE, -2)
    assert stored(world, "s1").epoch == -2
    settle(a, b)
    successor = FakeMember(world, "s2", instance="i")
    assert assigned(successor.beat()) == owned
    assert (successor.epoch, consumer_group(world).epoch) == (epoch, epoch)
    assert set(consumer_group(world).members) == {"a", "b", "s2"}
    settle(a, b, successor)


def test_g132_one_that_does_not_come_back_is_out_when_its_session_is(world: GroupWorld) -> None:
    (s,) = joined(world, "s", instance="i")
    s.leave(-2)
    world.wait(44_999)
    assert "s" in consumer_group(world).members
    world.wait(1)
    assert not consumer_group(world).members


def test_g132_it_may_come_back_under_its_own_id(world: GroupWorld) -> None:
    (s,) = joined(world, "s", instance="i")
    s.leave(-2)
    again = FakeMember(world, "s", instance="i")
    assert assigned(again.beat()) == ALL
    assert again.epoch == 2


def test_g133_the_one_before_is_fenced(world: GroupWorld) -> None:
    (a,) = joined(world, "a", instance="i")
    a.leave(-2)
    FakeMember(world, "b", instance="i").beat()
    for epoch in (1, -1, -2):
        answer = send(world, member_id="a", member_epoch=epoch, instance_id="i").result()
        assert answer.error_code == E.FENCED_INSTANCE_ID


# --- Topics and expressions (G-145, G-146) ---


def test_g145_topics_that_come_grow_and_go(world: GroupWorld) -> None:
    (a,) = joined(world, "a", topics=["later"])
    assert a.owned == frozenset()
    world.metadata.ids["later"] = b"L" * 16
    grow(world, "later", 2)
    settle(a)
    assert a.owned == places(0, 1, topic=b"L" * 16)
    world.metadata.ids["later"] = b"M" * 16
    grow(world, "later", 2)
    settle(a)
    assert a.owned == places(0, 1, topic=b"M" * 16), "the same name, another topic"
    grow(world, "later", 0)
    settle(a)
    assert a.owned == frozenset()


def test_g146_an_expression_follows_the_topics(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b", topics=None, pattern="t.*|n.*")
    assert consumer_group(world).patterns == {"t.*|n.*": frozenset({"topic"})}
    world.metadata.ids["new"] = b"N" * 16
    grow(world, "new", 4)
    settle(a, b)
    assert a.owned | b.owned == ALL | places(0, 1, 2, 3, topic=b"N" * 16)
    a.leave()
    assert "t.*|n.*" in consumer_group(world).patterns
    b.beat(subscribed_topic_regex="", subscribed_topic_names=["topic"])
    assert consumer_group(world).patterns == {}


def test_g146_an_expression_that_only_others_can_read_matches_nothing(world: GroupWorld) -> None:
    """As in a log that Kafka has written."""
    a, b = joined(world, "a", "b")
    foreign = replace(stored(world, "b"), pattern=r"\p{Lu}.*", topics=frozenset())
    world.log.append_internal([member_record(GROUP, foreign)], 0)
    world.restart()
    grow(world, "topic", 11)
    settle(a, b)
    assert a.owned == places(*range(11))


def test_g100_a_record_with_an_unknown_state_is_not_taken(world: GroupWorld) -> None:
    joined(world, "a")
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=1, state=99)
    with pytest.raises(DecodeError, match="99"):
        consumer_group(world).replay_current("a", value)


# --- Appends that fail ---


def test_a_refused_append_is_as_if_nothing_had_come(world: GroupWorld) -> None:
    _a, _b = joined(world, "a", "b")
    before = copy.deepcopy(consumer_group(world))
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    answer = send(world, member_id="b", member_epoch=-1).result()
    assert answer.error_code == E.NOT_COORDINATOR
    assert FakeMember(world, "c").beat().error_code == E.NOT_COORDINATOR
    world.log.refuse = E.NONE
    before.seen_version = consumer_group(world).seen_version
    assert consumer_group(world) == before
    world.wait(45_000)
    assert not consumer_group(world).members, "b is still waited for"


def test_no_answer_before_its_records_are_durable(world: GroupWorld) -> None:
    world.log.hold = True
    answer = send(world, **JOIN)
    assert not answer.done
    world.log.flush()
    assert answer.result().error_code == E.NONE


# --- Offsets (O-20 to O-23) ---


def test_o20_a_member_commits_with_its_epoch(world: GroupWorld) -> None:
    (a,) = joined(world, "a")
    assert world.commit(5, member_id="a", generation=2) is E.NONE
    assert world.committed() == 5
    assert world.commit(6, member_id="a", generation=3) is E.STALE_MEMBER_EPOCH
    assert world.commit(6, member_id="b", generation=1) is E.UNKNOWN_MEMBER_ID
    assert world.commit(6) is E.UNKNOWN_MEMBER_ID, "nobody from outside while there are members"
    assert world.commit(6, member_id="a", generation=2, version=8) is E.UNSUPPORTED_VERSION
    a.leave()
    assert world.commit(7) is E.NONE
    assert world.committed() == 7


def test_o21_a_member_fetches_with_its_epoch(world: GroupWorld) -> None:
    joined(world, "a")
    world.commit(5, member_id="a", generation=2)

    def fetch(member_id: str | None, epoch: int) -> ErrorCode:
        member = FetchingMember(member_id, epoch)
        return world.groups.fetch_offsets(GROUP, [("topic", 0)], False, member).result().error

    assert fetch("a", 2) is E.NONE
    assert fetch(None, -1) is E.NONE
    assert fetch("", -1) is E.UNKNOWN_MEMBER_ID
    assert fetch("a", 3) is E.STALE_MEMBER_EPOCH
    assert fetch("b", 1) is E.UNKNOWN_MEMBER_ID


def test_o22_a_transaction_knows_no_stale_epoch(world: GroupWorld) -> None:
    joined(world, "a")

    def commit(member_id: str, epoch: int) -> ErrorCode:
        call = CommitCall(GROUP, epoch, member_id, None, 5, -1, [part(3)])
        return world.groups.commit_in_transaction(call, 7, 0).result()[0]

    assert commit("a", 2) is E.NONE
    assert commit("a", 3) is E.ILLEGAL_GENERATION
    assert commit("b", 1) is E.UNKNOWN_MEMBER_ID
    assert commit("", -1) is E.NONE


def test_o23_offsets_of_topics_that_nobody_reads_expire() -> None:
    world = GroupWorld(offsets_retention_minutes=2, offsets_retention_check_interval_ms=10_000)
    (a,) = joined(world, "a")
    world.commit_later(part(1), part(2, topic="other"), member_id="a", generation=2)
    for _ in range(4):
        world.wait(30_000)
        assert a.beat().error_code == E.NONE
    world.wait(10_000)
    assert set(shard(world).offsets.of_group(GROUP)) == {("topic", 0)}
    world.wait(300_000)
    assert GROUP not in shard(world).consumers, "nobody and nothing is left"
    assert set(latest(world).values()) == {None}


def latest(world: GroupWorld) -> dict[bytes, bytes | None]:
    """What compaction would leave of the log."""
    return {key: value for key, value in world.log.records if key is not None}


def test_o14_a_consumer_group_is_deleted_when_nobody_is_in_it(world: GroupWorld) -> None:
    (a,) = joined(world, "a", topics=None, pattern="t.*")
    world.commit(5, member_id="a", generation=2)
    assert world.groups.delete_group(GROUP).result() is E.NON_EMPTY_GROUP
    a.leave()
    assert world.groups.delete_group(GROUP).result() is E.NONE
    assert GROUP not in shard(world).consumers
    assert set(latest(world).values()) == {None}
    world.restart()
    assert not shard(world).consumers and not shard(world).groups


# --- What tools see (G-160, G-161) ---


def test_g160_a_group_is_described_by_the_api_of_its_kind(world: GroupWorld) -> None:
    joined(world, "a", instance="i", pattern="o.*")
    told = world.groups.describe_consumer_group(GROUP).result()
    assert (told.group_state, told.group_epoch, told.assignment_epoch) == ("Stable", 2, 2)
    assert told.assignor_name == "uniform"
    (member,) = told.members
    assert (member.member_id, member.instance_id, member.member_epoch) == ("a", "i", 2)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["topic"], "o.*")
    assert member.member_type == 1
    assert member.assignment == member.target_assignment
    parts = {part.topic_name: part.partitions for part in member.assignment.topic_partitions}
    assert parts == {"topic": list(range(10)), "other": list(range(10))}
    classic = world.groups.describe_group(GROUP).result()
    assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    world.stable(1, group="old")
    told = world.groups.describe_consumer_group("old").result()
    assert told.error_code == E.GROUP_ID_NOT_FOUND
    assert "not a consumer group" in (told.error_message or "")
    missing = world.groups.describe_consumer_group("none").result()
    assert missing.error_code == E.GROUP_ID_NOT_FOUND


def test_g161_groups_are_listed_with_their_kind(world: GroupWorld) -> None:
    joined(world, "a")
    world.stable(1, group="old")
    _, found = world.groups.list_groups().result()
    told = {(each.group_id, each.group_type, each.state, each.protocol_type) for each in found}
    assert told == {
        (GROUP, "consumer", "Stable", "consumer"),
        ("old", "classic", "Stable", "consumer"),
    }


# --- Settings that a group has of its own ---


def test_a_group_has_timeouts_of_its_own(world: GroupWorld) -> None:
    world.metadata.group_settings = {
        (GROUP, "consumer.session.timeout.ms"): 50_000,
        (GROUP, "consumer.heartbeat.interval.ms"): 9_000,
    }
    answer = send(world, **JOIN)
    assert answer.result().heartbeat_interval_ms == 9_000
    world.wait(49_999)
    assert "a" in consumer_group(world).members
    world.wait(1)
    assert "a" not in consumer_group(world).members


def test_another_group_has_those_of_the_broker(world: GroupWorld) -> None:
    world.metadata.group_settings = {("other", "consumer.heartbeat.interval.ms"): 9_000}
    assert send(world, **JOIN).result().heartbeat_interval_ms == 5_000
