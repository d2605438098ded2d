"""LeaveGroup of the classic protocol (G-80 to G-82)."""

from __future__ import annotations

import pytest

from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity

E = ErrorCode
S = GroupState


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_g80_up_to_version_2_a_leave_has_one_member_and_a_top_level_error(
    world: GroupWorld, version: int
) -> None:
    one, two = world.stable(2)
    request = LeaveGroupRequest(group_id=GROUP, member_id=two)
    assert world.groups.leave(request, version).result().error_code == E.NONE
    assert list(world.group().members) == [one]
    answer = world.groups.leave(request, version).result()
    assert (answer.error_code, answer.members) == (E.UNKNOWN_MEMBER_ID, [])


def test_g80_a_batch_of_leaving_members_causes_one_rebalance(world: GroupWorld) -> None:
    one, two, three = world.stable(3)
    world.states.clear()
    assert world.leave(two, "nobody", three) == [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE]
    assert world.states == [S.PREPARING_REBALANCE]
    assert list(world.group().members) == [one]


def test_g80_an_administrator_removes_static_members_by_instance(world: GroupWorld) -> None:
    leader = world.join(instance="one").result().member_id
    world.sync(leader, 1, {}, instance="one")
    answers = world.leave_as(
        MemberIdentity(group_instance_id="two"), MemberIdentity(group_instance_id="one")
    )
    assert answers == [E.UNKNOWN_MEMBER_ID, E.NONE]
    assert world.state() is S.EMPTY


def test_g80_a_pending_member_that_leaves_starts_a_rebalance(world: GroupWorld) -> None:
    world.stable(2)
    assert world.leave(world.new_id()) == [E.NONE]
    assert world.state() is S.PREPARING_REBALANCE


def test_g80_a_pending_member_that_leaves_may_complete_the_join_phase(world: GroupWorld) -> None:
    one, two = world.stable(2)
    pending = world.new_id()
    parked = world.join(one)
    world.join(two)
    assert not parked.done
    assert world.leave(pending) == [E.NONE]
    assert parked.result().generation_id == 3


def test_g80_leaving_an_unknown_group_gets_unknown_member_id(world: GroupWorld) -> None:
    assert world.leave("a", "b") == [E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]


def test_g80_a_leaving_members_parked_sync_is_answered(world: GroupWorld) -> None:
    one, _ = world.enter()
    two, _ = world.enter()
    world.join(one)
    parked = world.sync(two, 2)
    world.leave(two)
    assert parked.result().error_code == E.UNKNOWN_MEMBER_ID


def test_g82_an_emptied_group_keeps_its_offsets(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    world.commit(7, member_id=one, generation=1)
    world.leave(one)
    assert world.state() is S.EMPTY
    assert world.committed() == 7
