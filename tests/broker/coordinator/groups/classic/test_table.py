"""The answer and the next state for each pair of a state and a request, as a client sees them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.classic.group import (
    ANSWERS,
    PREDECESSORS,
    ClassicRequest,
    GroupState,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import LeaveGroupRequest

E = ErrorCode
S = GroupState
R = ClassicRequest
CHANGED = [("range", b"changed")]


def _no_group(world: GroupWorld) -> tuple[str, str, int]:
    return "leader", "follower", 1


def _empty(world: GroupWorld) -> tuple[str, str, int]:
    leader, follower = world.stable(2)
    world.leave(leader, follower)
    return leader, follower, world.group().generation


def _preparing(world: GroupWorld) -> tuple[str, str, int]:
    """A group in which a third member has joined, and the first two have not rejoined yet."""
    leader, follower = world.stable(2)
    world.enter()
    return leader, follower, 2


def _completing(world: GroupWorld) -> tuple[str, str, int]:
    leader, _ = world.enter()
    follower, _ = world.enter()
    world.join(leader)
    return leader, follower, 2


def _stable(world: GroupWorld) -> tuple[str, str, int]:
    leader, follower = world.stable(2)
    return leader, follower, 2


def _dead(world: GroupWorld) -> tuple[str, str, int]:
    """A group that is being removed while a request arrives."""
    leader, follower = world.stable(2)
    world.group().state = S.DEAD
    return leader, follower, 2


SETUPS: dict[str, Callable[[GroupWorld], tuple[str, str, int]]] = {
    "none": _no_group,
    "Empty": _empty,
    "PreparingRebalance": _preparing,
    "CompletingRebalance": _completing,
    "Stable": _stable,
    "Dead": _dead,
}

PARKED = "parked"

#: (state, request) -> the immediate answer, and the state afterwards.
EXPECTED: dict[tuple[str, ClassicRequest], tuple[ErrorCode | str, GroupState | None]] = {
    # The first member of a group waits for the initial delay, which is 0 in these tests.
    ("none", R.JOIN_NEW): (E.NONE, S.COMPLETING_REBALANCE),
    ("none", R.JOIN_LEADER): (E.UNKNOWN_MEMBER_ID, None),
    ("none", R.JOIN_FOLLOWER): (E.UNKNOWN_MEMBER_ID, None),
    ("none", R.JOIN_CHANGED): (E.UNKNOWN_MEMBER_ID, None),
    ("none", R.SYNC): (E.UNKNOWN_MEMBER_ID, None),
    ("none", R.HEARTBEAT): (E.UNKNOWN_MEMBER_ID, None),
    ("none", R.LEAVE): (E.UNKNOWN_MEMBER_ID, None),
    ("Empty", R.JOIN_NEW): (E.NONE, S.COMPLETING_REBALANCE),
    ("Empty", R.JOIN_LEADER): (E.UNKNOWN_MEMBER_ID, S.EMPTY),
    ("Empty", R.JOIN_FOLLOWER): (E.UNKNOWN_MEMBER_ID, S.EMPTY),
    ("Empty", R.JOIN_CHANGED): (E.UNKNOWN_MEMBER_ID, S.EMPTY),
    ("Empty", R.SYNC): (E.UNKNOWN_MEMBER_ID, S.EMPTY),
    ("Empty", R.HEARTBEAT): (E.UNKNOWN_MEMBER_ID, S.EMPTY),
    ("Empty", R.LEAVE): (E.UNKNOWN_MEMBER_ID, S.EMPTY),
    ("PreparingRebalance", R.JOIN_NEW): (PARKED, S.PREPARING_REBALANCE),
    ("PreparingRebalance", R.JOIN_LEADER): (PARKED, S.PREPARING_REBALANCE),
    ("PreparingRebalance", R.JOIN_FOLLOWER): (PARKED, S.PREPARING_REBALANCE),
    ("PreparingRebalance", R.JOIN_CHANGED): (PARKED, S.PREPARING_REBALANCE),
    ("PreparingRebalance", R.SYNC): (E.REBALANCE_IN_PROGRESS, S.PREPARING_REBALANCE),
    ("PreparingRebalance", R.HEARTBEAT): (E.REBALANCE_IN_PROGRESS, S.PREPARING_REBALANCE),
    ("PreparingRebalance", R.LEAVE): (E.NONE, S.PREPARING_REBALANCE),
    ("CompletingRebalance", R.JOIN_NEW): (PARKED, S.PREPARING_REBALANCE),
    ("CompletingRebalance", R.JOIN_LEADER): (E.NONE, S.COMPLETING_REBALANCE),
    ("CompletingRebalance", R.JOIN_FOLLOWER): (E.NONE, S.COMPLETING_REBALANCE),
    ("CompletingRebalance", R.JOIN_CHANGED): (PARKED, S.PREPARING_REBALANCE),
    ("CompletingRebalance", R.SYNC): (PARKED, S.COMPLETING_REBALANCE),
    ("CompletingRebalance", R.HEARTBEAT): (E.NONE, S.COMPLETING_REBALANCE),
    ("CompletingRebalance", R.LEAVE): (E.NONE, S.PREPARING_REBALANCE),
    ("Stable", R.JOIN_NEW): (PARKED, S.PREPARING_REBALANCE),
    ("Stable", R.JOIN_LEADER): (PARKED, S.PREPARING_REBALANCE),
    ("Stable", R.JOIN_FOLLOWER): (E.NONE, S.STABLE),
    ("Stable", R.JOIN_CHANGED): (PARKED, S.PREPARING_REBALANCE),
    ("Stable", R.SYNC): (E.NONE, S.STABLE),
    ("Stable", R.HEARTBEAT): (E.NONE, S.STABLE),
    ("Stable", R.LEAVE): (E.NONE, S.PREPARING_REBALANCE),
    **{("Dead", request): (E.COORDINATOR_NOT_AVAILABLE, S.DEAD) for request in R},
}


def test_g03_the_tables_have_a_cell_for_every_state_and_request() -> None:
    assert set(ANSWERS) == {(state, request) for state in S for request in R}
    assert set(PREDECESSORS) == set(S)
    assert set(EXPECTED) == {(state, request) for state in SETUPS for request in R}


@pytest.mark.parametrize("request_kind", list(R))
@pytest.mark.parametrize("state", list(SETUPS))
def test_g20_to_g64_each_state_answers_each_request_as_the_table_says(
    state: str, request_kind: ClassicRequest
) -> None:
    world = GroupWorld()
    leader, follower, generation = SETUPS[state](world)
    told: ErrorCode | str
    if request_kind is R.JOIN_NEW:
        later = world.join(version=3)
    elif request_kind is R.JOIN_LEADER:
        later = world.join(leader)
    elif request_kind is R.JOIN_FOLLOWER:
        later = world.join(follower)
    elif request_kind is R.JOIN_CHANGED:
        later = world.join(follower, protocols=CHANGED)
    elif request_kind is R.SYNC:
        later = world.sync(follower, generation)  # type: ignore[assignment]
    elif request_kind is R.LEAVE:
        request = LeaveGroupRequest(group_id=GROUP, member_id=follower)
        later = world.groups.leave(request, 2)  # type: ignore[assignment]
    if request_kind is R.HEARTBEAT:
        told = world.heartbeat(follower, generation)
    else:
        told = ErrorCode(later.result().error_code) if later.done else PARKED
    expected, after = EXPECTED[state, request_kind]
    assert told == expected
    found = world.groups.group(GROUP)
    assert (None if found is None else found.state) is after


@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"])
def test_g25_a_pending_id_is_a_new_member_in_every_state(state: str) -> None:
    world = GroupWorld()
    SETUPS[state](world)
    members = len(world.group().members)
    later = world.join(world.new_id())
    assert later.done == (state == "Empty")
    assert len(world.group().members) == members + 1


def test_a_new_member_in_completing_rebalance_answers_the_parked_syncs() -> None:
    world = GroupWorld()
    _, follower, generation = _completing(world)
    parked = world.sync(follower, generation)
    world.join(version=3)
    assert parked.result().error_code == E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_g65_a_heartbeat_keeps_the_member_alive_in_every_state(state: str) -> None:
    world = GroupWorld()
    _, follower, generation = SETUPS[state](world)
    world.wait(9_000)
    world.heartbeat(follower, generation)
    world.wait(9_000)
    assert follower in world.group().members
    world.wait(1_000)
    assert follower not in world.group().members
