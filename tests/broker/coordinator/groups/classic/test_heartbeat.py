"""Heartbeats and sessions of the classic protocol (G-70 to G-72)."""

from __future__ import annotations

import pytest

from group_world import GroupWorld
from odradek_protocol.errors import ErrorCode

E = ErrorCode


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_g70_a_member_without_heartbeats_is_removed_after_its_session_timeout(
    world: GroupWorld,
) -> None:
    one, two = world.stable(2, session_ms=10_000)
    world.wait(9_999)
    assert world.heartbeat(one, 2) is E.NONE
    assert len(world.group().members) == 2
    world.wait(1)
    assert list(world.group().members) == [one]
    assert world.heartbeat(two, 2) is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(one, 2) is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("jump_ms", [-3_600_000, 86_400_000])
def test_g70_setting_the_wall_clock_neither_ends_nor_extends_a_session(
    world: GroupWorld, jump_ms: int
) -> None:
    """The wall clock is set back by an hour, then forward by a day."""
    one, two = world.stable(2, session_ms=10_000)
    world.clock.jump(jump_ms)
    world.wait(9_999)
    assert world.heartbeat(one, 2) is E.NONE
    assert len(world.group().members) == 2
    world.wait(1)
    assert list(world.group().members) == [one]
    assert world.heartbeat(two, 2) is E.UNKNOWN_MEMBER_ID


def test_g70_each_member_has_its_own_session_timeout(world: GroupWorld) -> None:
    one, _ = world.enter(session_ms=30_000)
    two, _ = world.enter(session_ms=8_000)
    world.join(one, session_ms=30_000)
    world.complete([one, two])
    world.wait(8_000)
    assert list(world.group().members) == [one]


def test_g70_a_parked_join_keeps_its_member_beyond_the_session(world: GroupWorld) -> None:
    one, two = world.stable(2, session_ms=6_000, rebalance_ms=60_000)
    parked = world.join(one, session_ms=6_000)
    for _ in range(5):
        world.wait(5_000)
        assert world.heartbeat(two, 2) is E.REBALANCE_IN_PROGRESS
    assert not parked.done
    world.join(two, session_ms=6_000)
    assert parked.result().generation_id == 3


def test_g71_a_missed_heartbeat_fails_no_request_before_the_session_ends(world: GroupWorld) -> None:
    (one,) = world.stable(1, session_ms=10_000)
    world.wait(9_000)
    assert world.commit(member_id=one, generation=1) is E.NONE
    world.wait(9_000)
    assert world.heartbeat(one, 1) is E.NONE


@pytest.mark.parametrize("generation", [-1, 0, 1, 3])
def test_g71_a_request_with_another_generation_gets_illegal_generation(
    world: GroupWorld, generation: int
) -> None:
    one, _ = world.stable(2)
    assert world.heartbeat(one, generation) is E.ILLEGAL_GENERATION
    assert world.sync(one, generation).result().error_code == E.ILLEGAL_GENERATION


def test_g72_the_broker_does_not_enforce_the_poll_interval(world: GroupWorld) -> None:
    """The broker uses max.poll.interval.ms only as the limit of a join phase."""
    (one,) = world.stable(1, rebalance_ms=1_000)
    for _ in range(10):
        world.wait(5_000)
        assert world.heartbeat(one, 1) is E.NONE
