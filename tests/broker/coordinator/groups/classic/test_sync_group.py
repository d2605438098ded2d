"""SyncGroup of the classic protocol, rule by rule (G-60 to G-65)."""

from __future__ import annotations

import pytest

from group_world import GroupWorld
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_protocol.errors import ErrorCode

E = ErrorCode
S = GroupState


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def _records(world: GroupWorld) -> int:
    return len(world.log.records)


def test_g60_a_sync_with_another_protocol_than_the_groups_is_refused(world: GroupWorld) -> None:
    leader, _ = world.enter()
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "roundrobin"}):
        answer = world.sync(leader, 1, {}, **wrong).result()
        assert answer.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    right = world.sync(leader, 1, {}, protocol_type="consumer", protocol_name="range").result()
    assert right.error_code == E.NONE
    assert (right.protocol_type, right.protocol_name) == ("consumer", "range")


def test_g61_the_assignment_is_one_record_and_durable_before_it_is_sent(
    world: GroupWorld,
) -> None:
    one, _ = world.enter()
    two, _ = world.enter()
    world.join(one)
    before = _records(world)
    world.log.hold = True
    parked = world.sync(two, 2)
    leaders = world.sync(one, 2, {one: b"1"})
    assert _records(world) == before + 1
    assert world.state() is S.COMPLETING_REBALANCE
    assert not parked.done
    assert not leaders.done
    world.log.flush()
    assert world.state() is S.STABLE
    assert leaders.result().assignment == b"1"
    assert parked.result().assignment == b""  # the leader's assignment does not name this member
    assert parked.result().error_code == E.NONE


def test_g61_a_group_is_completing_until_its_assignment_is_durable(world: GroupWorld) -> None:
    one, _ = world.enter()
    two, _ = world.enter()
    world.join(one)
    world.log.hold = True
    world.sync(one, 2, {two: b"2"})
    late = world.sync(two, 2)
    commit = world.commit_later(member_id=one, generation=2)
    world.log.flush()
    assert late.result().assignment == b"2"
    assert commit.result() == []
    assert world.state() is S.STABLE


def test_g61_a_rebalance_before_the_assignment_is_durable_discards_it(world: GroupWorld) -> None:
    one, _ = world.enter()
    new = world.new_id()
    world.log.hold = True
    leaders = world.sync(one, 1, {one: b"1"})
    world.join(new)
    world.log.flush()
    assert leaders.result().error_code == E.REBALANCE_IN_PROGRESS
    assert world.state() is S.PREPARING_REBALANCE


def test_g61_a_second_sync_of_the_leader_writes_nothing(world: GroupWorld) -> None:
    one, _ = world.enter()
    world.log.hold = True
    first = world.sync(one, 1, {one: b"1"})
    count = _records(world)
    second = world.sync(one, 1, {one: b"other"})
    assert _records(world) == count
    world.log.flush()
    assert first.result().error_code == E.REBALANCE_IN_PROGRESS
    assert second.result().assignment == b"1"


def test_g61_a_failed_write_of_the_assignment_is_answered_and_rebalances(world: GroupWorld) -> None:
    one, _ = world.enter()
    two, _ = world.enter()
    world.join(one)
    parked = world.sync(two, 2)
    world.log.refuse = E.MESSAGE_TOO_LARGE
    leaders = world.sync(one, 2, {one: b"1"})
    assert leaders.result().error_code == E.UNKNOWN_SERVER_ERROR
    assert parked.result().error_code == E.UNKNOWN_SERVER_ERROR
    assert world.state() is S.PREPARING_REBALANCE
    world.log.refuse = E.NONE
    world.join(one)
    assert world.join(two).result().generation_id == 3


def test_g61_requests_get_not_coordinator_after_the_disk_has_failed(world: GroupWorld) -> None:
    one, _ = world.enter()
    world.log.hold = True
    leaders = world.sync(one, 1, {one: b"1"})
    world.log.flush(E.KAFKA_STORAGE_ERROR)
    assert leaders.result().error_code == E.NOT_COORDINATOR
    assert world.heartbeat(one, 1) is E.NOT_COORDINATOR
    assert world.commit() is E.NOT_COORDINATOR


def test_g62_assignments_of_a_follower_are_ignored(world: GroupWorld) -> None:
    one, _ = world.enter()
    two, _ = world.enter()
    world.join(one)
    parked = world.sync(two, 2, {one: b"bad", two: b"bad"})
    assert not parked.done
    assert world.sync(one, 2, {one: b"1", two: b"2"}).result().assignment == b"1"
    assert parked.result().assignment == b"2"


def test_g63_a_late_sync_gets_the_stored_assignment(world: GroupWorld) -> None:
    members = world.stable(2)
    for member_id in members:
        assert world.sync(member_id, 2).result().assignment == member_id.encode()


def test_g64_a_leaders_sync_in_the_join_phase_is_discarded(world: GroupWorld) -> None:
    one, _ = world.enter()
    world.enter()
    count = _records(world)
    answer = world.sync(one, 1, {one: b"1"}).result()
    assert answer.error_code == E.REBALANCE_IN_PROGRESS
    assert answer.assignment == b""
    assert _records(world) == count


def test_g65_a_parked_sync_keeps_its_member_and_the_answer_restarts_its_session(
    world: GroupWorld,
) -> None:
    one, _ = world.enter(session_ms=50_000)
    two, _ = world.enter(session_ms=6_000)
    world.join(one, session_ms=50_000)
    parked = world.sync(two, 2)
    world.wait(40_000)
    world.sync(one, 2, {})
    assert parked.result().error_code == E.NONE
    world.wait(5_999)
    assert world.state() is S.STABLE
    world.wait(1)
    assert list(world.group().members) == [one]


def test_g65_a_member_whose_parked_sync_was_refused_still_has_a_session(world: GroupWorld) -> None:
    one, _ = world.enter(session_ms=50_000)
    two = world.join(instance="two", session_ms=6_000)
    world.join(one, session_ms=50_000)
    member_id = two.result().member_id
    parked = world.sync(member_id, 2, instance="two")
    world.wait(20_000)
    world.enter(session_ms=50_000)
    assert parked.result().error_code == E.REBALANCE_IN_PROGRESS
    world.wait(6_000)
    assert member_id not in world.group().members
