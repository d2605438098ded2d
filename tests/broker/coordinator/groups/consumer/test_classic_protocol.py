"""Members of a consumer group that speak the classic protocol (KIP-848; G-152 to G-154)."""

from __future__ import annotations

import pytest

from classic_member import ClassicMember, classic_group, rest
from consumer_group_world import (
    FakeMember,
    assigned,
    consumer_group,
    joined,
    settle,
    shard,
    stored,
    topic_id_partitions,
)
from group_world import GroupWorld
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import MemberIdentity

E = ErrorCode


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_g152_a_classic_member_joins_a_consumer_group(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    old = ClassicMember(world)
    answer = old.enter()
    assert (answer.error_code, answer.protocol_type, answer.protocol_name) == (
        E.NONE,
        "consumer",
        "range",
    )
    assert (answer.generation_id, answer.leader, answer.members) == (3, "", [])
    assert old.sync() is E.NONE
    rest(old, new)


def test_g91_a_member_whose_join_was_refused_has_no_deadline(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    before = len(shard(world).timers)
    old = ClassicMember(world)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    assert old.enter().error_code == E.NOT_COORDINATOR
    world.log.refuse = E.NONE
    assert len(shard(world).timers) == before
    assert new.beat().error_code == E.NONE


def test_g152_an_invalid_classic_join_to_a_consumer_group_is_refused(world: GroupWorld) -> None:
    joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    how = {**old.how(), "protocol_type": "connect"}
    refused = world.join("x", **how).result()
    assert (refused.error_code, refused.member_id) == (E.INCONSISTENT_GROUP_PROTOCOL, "")
    how = {**old.how(), "protocols": [("sticky", b"")]}
    assert world.join("x", **how).result().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    how = {**old.how(), "protocols": [("range", b"\x00")]}
    assert world.join("x", **how).result().error_code == E.UNKNOWN_SERVER_ERROR
    how = {**old.how(), "session_ms": 1}
    refused = world.join("x", **how).result()
    assert (refused.error_code, refused.member_id) == (E.INVALID_SESSION_TIMEOUT, "x")


def test_g152_an_answer_that_the_log_refuses_has_no_member_id(world: GroupWorld) -> None:
    joined(world, "new")
    old = ClassicMember(world)
    old.member_id = world.new_id(**old.how())
    world.log.refuse = E.NOT_ENOUGH_REPLICAS
    refused = world.join(old.member_id, **old.how()).result()
    assert (refused.error_code, refused.member_id) == (E.COORDINATOR_NOT_AVAILABLE, "")


def test_g152_a_full_group_refuses_any_protocol() -> None:
    world = GroupWorld(group_consumer_max_size=1)
    joined(world, "new")
    how = {**ClassicMember(world).how(), "protocol_type": "connect"}
    assert world.join("x", **how).result().error_code == E.GROUP_MAX_SIZE_REACHED


def test_g152_a_static_member_keeps_its_instance_when_it_changes_the_protocol(
    world: GroupWorld,
) -> None:
    """A rolling restart: the old process has ended without a LeaveGroup."""
    old = classic_group(world, instance="i")
    new = FakeMember(world, "new", instance="i")
    assert assigned(new.beat()) == topic_id_partitions(*range(10))
    assert list(consumer_group(world).members) == ["new"]
    assert old.beat() is E.FENCED_INSTANCE_ID
    other = FakeMember(world, "other")
    other.beat()
    settle(new, other)
    back = ClassicMember(world, instance="i")
    assert back.enter().error_code == E.NONE
    assert set(consumer_group(world).members) == {back.member_id, "other"}
    assert back.sync() is E.NONE
    rest(back, other)


def test_g152_a_member_may_change_the_protocol_under_its_id(world: GroupWorld) -> None:
    joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    same = FakeMember(world, old.member_id)
    assert same.beat().error_code == E.NONE
    assert stored(world, old.member_id).classic is None
    for _ in range(4):
        world.wait(20_000)
        assert same.beat().error_code == E.NONE, "it is no more waited for with a SyncGroup"


def test_g153_a_sync_with_a_wrong_member_generation_or_protocol_is_refused(
    world: GroupWorld,
) -> None:
    (new,) = joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    assert world.sync("x", 2).result().error_code == E.UNKNOWN_MEMBER_ID
    assert world.sync("new", new.epoch).result().error_code == E.UNKNOWN_MEMBER_ID
    assert world.sync(old.member_id, 1).result().error_code == E.ILLEGAL_GENERATION
    other = world.sync(old.member_id, 3, protocol_name="sticky").result()
    assert other.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    third = FakeMember(world, "third")
    third.beat()
    assert old.sync() is E.REBALANCE_IN_PROGRESS, "the group has moved on"
    rest(old, new, third)


def test_g153_a_member_that_does_not_sync_is_removed(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    old = ClassicMember(world, session_ms=100_000)
    old.enter()
    world.wait(40_000)
    new.beat()
    world.wait(20_000)
    assert list(consumer_group(world).members) == ["new"]
    assert old.beat() is E.UNKNOWN_MEMBER_ID


def test_g154_a_heartbeat_tells_a_classic_member_when_to_rejoin(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    old.sync()
    assert old.beat() is E.NONE, "new has still to give back: nothing to be had by joining"
    new.beat()
    assert old.beat() is E.NONE
    new.beat()
    assert old.beat() is E.REBALANCE_IN_PROGRESS, "now there is"
    old.join()
    old.sync()
    assert len(old.owned) == 5
    assert old.beat() is E.NONE


def test_g154_a_member_that_does_not_join_again_is_removed(world: GroupWorld) -> None:
    old = classic_group(world, session_ms=100_000)
    new = FakeMember(world, "new")
    new.beat()
    for _ in range(4):
        world.wait(20_000)
        new.beat()
        assert old.beat() in (E.REBALANCE_IN_PROGRESS, E.UNKNOWN_MEMBER_ID)
    assert list(consumer_group(world).members) == ["new"]
    settle(new)
    assert len(new.owned) == 10


def test_g154_a_classic_member_keeps_its_own_session_timeout(world: GroupWorld) -> None:
    joined(world, "new")
    old = ClassicMember(world, session_ms=10_000)
    old.enter()
    world.wait(9_999)
    assert old.member_id in consumer_group(world).members
    world.wait(1)
    assert list(consumer_group(world).members) == ["new"]


def test_g154_classic_members_commit_with_their_generation(world: GroupWorld) -> None:
    joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    how = {"member_id": old.member_id, "version": 7}
    assert world.commit(5, generation=3, **how) is E.NONE
    assert world.commit(5, generation=2, **how) is E.ILLEGAL_GENERATION


def test_g154_one_leave_group_request_removes_members_of_both_protocols(world: GroupWorld) -> None:
    joined(world, "new")
    old, static = ClassicMember(world), ClassicMember(world, instance="i")
    old.enter()
    static.enter()
    epoch = consumer_group(world).epoch
    codes = world.leave_as(
        MemberIdentity(member_id=old.member_id),
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id="new"),
        MemberIdentity(member_id=old.member_id),
    )
    assert codes == [E.NONE] * 4, "a repeated member leaves once"
    assert consumer_group(world).epoch == epoch + 1
    assert not consumer_group(world).members
