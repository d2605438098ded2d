"""ConsumerGroupHeartbeat, rule by rule (KIP-848; G-100 to G-118), in virtual time."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from consumer_group_world import (
    FakeMember,
    assigned,
    consumer_group,
    grow,
    joined,
    listed,
    send,
    settle,
    shard,
    stored,
    topic_id_partitions,
)
from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.modern.group import ModernGroupState
from odradek_protocol.errors import ErrorCode

E = ErrorCode
ALL = topic_id_partitions(*range(10))


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


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
        ({"topic_partitions": listed(topic_id_partitions(1))}, "TopicPartitions"),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames"),
        ({"member_epoch": -2}, "InstanceId"),
        ({"member_epoch": -3}, "MemberEpoch"),
    ],
)
def test_g110_an_invalid_heartbeat_is_refused_with_its_reason(
    world: GroupWorld, changes: dict[str, Any], what: str
) -> None:
    answer = send(world, **(JOIN | changes)).result()
    assert answer.error_code == E.INVALID_REQUEST
    assert what in (answer.error_message or "")
    assert GROUP not in shard(world).consumers


def test_g111_the_first_member_gets_all_partitions_at_epoch_2(world: GroupWorld) -> None:
    answer = FakeMember(world, "a").beat()
    assert (answer.error_code, answer.member_epoch, answer.member_id) == (E.NONE, 2, "a")
    assert assigned(answer) == ALL
    assert answer.heartbeat_interval_ms == 5_000


def test_g111_a_version_0_member_without_an_id_gets_one_from_the_broker(world: GroupWorld) -> None:
    answer = send(world, **(JOIN | {"member_id": "", "version": 0})).result()
    assert answer.error_code == E.NONE
    assert answer.member_id is not None and len(answer.member_id) == 36


def test_g112_a_full_group_accepts_no_more_members(world: GroupWorld) -> None:
    world = GroupWorld(group_consumer_max_size=2)
    a, b = joined(world, "a", "b")
    assert FakeMember(world, "c").beat().error_code == E.GROUP_MAX_SIZE_REACHED
    assert b.beat(full=True).error_code == E.NONE
    a.leave()
    assert FakeMember(world, "c").beat().error_code == E.NONE


def test_g113_unknown_members_are_refused(world: GroupWorld) -> None:
    for epoch in (1, -1):
        answer = send(world, member_id="a", member_epoch=epoch).result()
        assert answer.error_code == E.GROUP_ID_NOT_FOUND
    joined(world, "a")
    for epoch in (1, -1):
        answer = send(world, member_id="b", member_epoch=epoch).result()
        assert answer.error_code == E.UNKNOWN_MEMBER_ID
    answer = send(world, member_id="a", member_epoch=1, instance_id="i").result()
    assert answer.error_code == E.UNKNOWN_MEMBER_ID


def test_g114_a_heartbeat_with_another_epoch_is_fenced_and_the_member_stays(
    world: GroupWorld,
) -> None:
    a, b = joined(world, "a", "b")
    for epoch in (a.epoch + 1, a.epoch - 2 or 7):
        answer = send(world, member_id="a", member_epoch=epoch).result()
        assert answer.error_code == E.FENCED_MEMBER_EPOCH
        assert str(epoch) in (answer.error_message or "")
    assert b.beat().error_code == a.beat().error_code == E.NONE


def test_g114_the_previous_epoch_is_accepted_if_the_answer_was_lost(world: GroupWorld) -> None:
    (a,) = joined(world, "a")
    before, request = a.epoch, a.request(full=True)
    grow(world, "topic", 12)
    assert send(world, **request).result().member_epoch == before + 1, "this one is lost"
    silent = send(world, member_id="a", member_epoch=before).result()
    assert silent.error_code == E.FENCED_MEMBER_EPOCH, "it must say what it owns"
    foreign = request | {"topic_partitions": listed(topic_id_partitions(99))}
    assert send(world, **foreign).result().error_code == E.FENCED_MEMBER_EPOCH
    again = send(world, **request).result()
    assert (again.error_code, again.member_epoch) == (E.NONE, before + 1)
    assert assigned(again) == topic_id_partitions(*range(12))


def test_g115_a_member_that_joins_again_owns_nothing_and_gets_its_assignment(
    world: GroupWorld,
) -> None:
    a, b = joined(world, "a", "b")
    epoch, owned = a.epoch, a.owned
    again = FakeMember(world, "a")
    answer = again.beat()
    assert (answer.member_epoch, assigned(answer)) == (epoch, owned)
    settle(again, b)


def test_g116_an_assignor_that_is_not_offered_is_refused(world: GroupWorld) -> None:
    answer = send(world, **(JOIN | {"server_assignor": "sticky"})).result()
    assert answer.error_code == E.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in (answer.error_message or "")
    assert send(world, **(JOIN | {"server_assignor": "range"})).result().error_code == E.NONE


def test_g117_an_invalid_regular_expression_is_refused(world: GroupWorld) -> None:
    (a,) = joined(world, "a")
    answer = send(world, **(JOIN | {"member_id": "b", "subscribed_topic_regex": "(a"})).result()
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
    assert list(consumer_group(world).members) == ["a"]
    assert a.beat(subscribed_topic_regex="[").error_code == E.INVALID_REGULAR_EXPRESSION


def test_g118_the_assignment_is_answered_after_changes_and_to_full_requests(
    world: GroupWorld,
) -> None:
    (a,) = joined(world, "a")
    assert assigned(a.beat()) is None
    assert assigned(a.beat(full=True)) == ALL
    grow(world, "topic", 11)
    assert assigned(a.beat()) == topic_id_partitions(*range(11))
    assert assigned(a.beat()) is None


def test_g100_a_restart_finds_the_same_group(world: GroupWorld) -> None:
    members = joined(world, "a", "b", instance=None)
    FakeMember(world, "s", instance="i", topics=None, pattern="o.*").beat()
    members[0].beat()
    before = copy.deepcopy(shard(world).consumers)
    for group in before.values():
        group.topics_version = None
    world.restart()
    assert shard(world).consumers == before
    epoch = consumer_group(world).epoch
    settle(*members)
    assert consumer_group(world).epoch == epoch, "nothing has changed, so nobody moves"


def test_g101_changed_subscriptions_topics_and_members_raise_the_group_epoch(
    world: GroupWorld,
) -> None:
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


def test_g101_topics_that_nobody_subscribes_to_any_more_do_not_raise_the_epoch(
    world: GroupWorld,
) -> None:
    (a,) = joined(world, "a")
    (b,) = joined(world, "b", topics=["topic", "other"])
    b.leave()
    settle(a)
    epoch = consumer_group(world).epoch
    grow(world, "other", 12)
    settle(a)
    assert consumer_group(world).epoch == epoch


def test_g102_target_assignments_are_computed_at_the_next_heartbeat(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b")
    b.leave()
    group = consumer_group(world)
    assert (group.assignment_epoch, group.epoch) == (3, 4)
    assert group.state is ModernGroupState.ASSIGNING
    a.beat()
    assert (group.assignment_epoch, group.state) == (4, ModernGroupState.STABLE)


def test_g103_a_member_catches_up_with_the_group(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b")
    assert (a.epoch, b.epoch) == (3, 3)
    grow(world, "topic", 12)
    assert b.beat().member_epoch == 4
    assert a.epoch == stored(world, "a").epoch == 3, "it has not been heard of since"
    assert a.beat().member_epoch == 4
    assert (stored(world, "a").epoch, stored(world, "a").previous_epoch) == (4, 3)


def test_g104_a_consumer_group_goes_through_its_states(world: GroupWorld) -> None:
    def state() -> ModernGroupState:
        return consumer_group(world).state

    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.beat()
    assert state() is ModernGroupState.STABLE
    b.beat()
    assert state() is ModernGroupState.RECONCILING
    settle(a, b)
    assert state() is ModernGroupState.STABLE
    a.leave()
    assert state() is ModernGroupState.ASSIGNING
    b.leave()
    assert state() is ModernGroupState.EMPTY


def test_a_refused_append_leaves_the_consumer_group_unchanged(world: GroupWorld) -> None:
    _a, _b = joined(world, "a", "b")
    before = copy.deepcopy(consumer_group(world))
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    answer = send(world, member_id="b", member_epoch=-1).result()
    assert answer.error_code == E.NOT_COORDINATOR
    assert FakeMember(world, "c").beat().error_code == E.NOT_COORDINATOR
    world.log.refuse = E.NONE
    before.topics_version = consumer_group(world).topics_version
    assert consumer_group(world) == before
    world.wait(45_000)
    assert not consumer_group(world).members, "b is still waited for"


def test_a_heartbeat_is_answered_when_its_records_are_durable(world: GroupWorld) -> None:
    world.log.hold = True
    answer = send(world, **JOIN)
    assert not answer.done
    world.log.flush()
    assert answer.result().error_code == E.NONE


def test_a_group_may_have_its_own_session_timeout_and_heartbeat_interval(world: GroupWorld) -> None:
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


def test_a_group_without_own_settings_has_the_heartbeat_interval_of_the_broker(
    world: GroupWorld,
) -> None:
    world.metadata.group_settings = {("other", "consumer.heartbeat.interval.ms"): 9_000}
    assert send(world, **JOIN).result().heartbeat_interval_ms == 5_000
