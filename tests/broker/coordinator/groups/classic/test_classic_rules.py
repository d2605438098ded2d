"""Rules of section G that are not about a single request (G-01, G-05, G-10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from group_world import GROUP, GroupWorld
from odradek_broker.config.broker import default_config
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.coordinator.groups.classic.join_phase import NEW_MEMBER_JOIN_TIMEOUT_MS
from odradek_protocol.errors import ErrorCode

E = ErrorCode
S = GroupState
CHANGED = [("range", b"changed")]


def test_g01_a_group_has_state_generation_and_leader_at_each_step() -> None:
    world = GroupWorld()
    pending = world.new_id()
    group = world.group()
    assert (group.state, group.generation, group.protocol, group.leader_id) == (
        S.EMPTY,
        0,
        None,
        None,
    )
    assert list(group.pending) == [pending]
    assert not group.members

    world.join(pending)
    static = world.join(instance="one")
    world.join(pending)
    member_id = static.result().member_id
    assert group.state is S.COMPLETING_REBALANCE
    assert (group.generation, group.protocol_type, group.protocol) == (2, "consumer", "range")
    assert group.leader_id == pending
    assert list(group.members) == [pending, member_id]
    assert not group.pending
    assert group.pending_syncs == {pending, member_id}
    assert group.static_ids == {"one": member_id}

    world.clock.now_ms += 5
    world.sync(pending, 2, {pending: b"p", member_id: b"s"})
    assert world.state() is S.STABLE
    assert group.state_since_ms == world.clock.wall_ms()
    assert group.pending_syncs == {member_id}
    assert (group.assignment(pending), group.assignment(member_id)) == (b"p", b"s")

    world.leave(pending, member_id)
    group = world.group()
    assert (group.state, group.generation) == (S.EMPTY, 3)
    assert (group.protocol, group.leader_id) == (None, None)
    assert (group.static_ids, group.pending_syncs) == ({}, set())


def test_g05_group_settings_have_kafkas_defaults() -> None:
    config = default_config()
    assert config.group_min_session_timeout_ms == 6_000
    assert config.group_max_session_timeout_ms == 1_800_000
    assert config.group_initial_rebalance_delay_ms == 0, "Kafka's shipped server.properties"
    assert config.group_max_size == 2**31 - 1
    assert config.offset_metadata_max_bytes == 4_096
    assert config.offsets_retention_minutes == 10_080
    assert config.offsets_topic_num_partitions == 50
    assert NEW_MEMBER_JOIN_TIMEOUT_MS == 300_000


# --- Reasons for a stable group to rebalance ---

REBALANCE_MS = 60_000


def _nothing(world: GroupWorld, leader: str, follower: str) -> None:
    """Requests that cause no rebalance: heartbeats, commits, syncs, a repeated join of the
    follower."""
    for member_id in (leader, follower):
        assert world.heartbeat(member_id, 2) is E.NONE
        assert world.commit(member_id=member_id, generation=2) is E.NONE
        assert world.sync(member_id, 2).result().error_code == E.NONE
    assert world.join(follower).result().error_code == E.NONE
    assert world.commit(member_id="stranger", generation=2) is E.UNKNOWN_MEMBER_ID
    world.new_id()


def _joins(world: GroupWorld, leader: str, follower: str) -> None:
    world.enter()


def _expires(world: GroupWorld, leader: str, follower: str) -> None:
    world.wait(9_000)
    world.heartbeat(leader, 2)
    world.wait(1_000)


def _leaves(world: GroupWorld, leader: str, follower: str) -> None:
    world.leave(follower)


def _changes(world: GroupWorld, leader: str, follower: str) -> None:
    world.join(follower, protocols=CHANGED)


def _leader_rejoins(world: GroupWorld, leader: str, follower: str) -> None:
    """The leader joins again, as it does after topics or partition counts have changed."""
    world.join(leader)


@pytest.mark.parametrize(
    ("happens", "rebalances"),
    [
        (_nothing, False),
        (_joins, True),
        (_expires, True),
        (_leaves, True),
        (_changes, True),
        (_leader_rejoins, True),
    ],
)
def test_g10_a_stable_group_rebalances_on_joins_leaves_and_expiries(
    happens: Callable[[GroupWorld, str, str], None], rebalances: bool
) -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.states.clear()
    happens(world, leader, follower)
    assert world.states == ([S.PREPARING_REBALANCE] if rebalances else [])


def test_g10_a_static_member_that_changes_the_selected_protocol_rebalances() -> None:
    world = GroupWorld()
    both = [("a", b""), ("b", b"")]
    leader = world.join(instance="one", protocols=both).result().member_id
    world.sync(leader, 1, {}, instance="one")
    world.states.clear()
    world.join(instance="one", protocols=both)
    assert world.states == []
    world.join(instance="one", protocols=list(reversed(both)))
    assert world.states == [S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE]


@pytest.mark.parametrize("missed", ["rebalance timeout", "sync deadline"])
def test_g10_a_member_that_misses_its_deadline_causes_a_rebalance(missed: str) -> None:
    world = GroupWorld()
    how: dict[str, Any] = {"session_ms": 1_000_000, "rebalance_ms": REBALANCE_MS}
    leader, follower = world.stable(2, **how)
    world.join(leader, **how)
    if missed == "rebalance timeout":
        world.wait(REBALANCE_MS)
        assert world.group().generation == 3
    else:
        world.join(follower, **how)
        world.sync(leader, 3, {})
        assert world.state() is S.STABLE
        world.wait(REBALANCE_MS)
        assert world.state() is S.PREPARING_REBALANCE
    assert list(world.group(GROUP).members) == [leader]
