"""The join phase: when it is complete, and which members are late (G-40 to G-46)."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_world import ListPartition
from group_world import GroupWorld, static_group
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_protocol.errors import ErrorCode

E = ErrorCode
S = GroupState


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_g40_the_join_phase_ends_when_the_last_member_joins_leaves_or_expires(
    world: GroupWorld,
) -> None:
    for how in ("join", "leave", "expire"):
        world = GroupWorld()
        one, two, three = world.stable(3)
        parked = [world.join(one), world.join(two)]
        assert not any(later.done for later in parked)
        if how == "join":
            parked.append(world.join(three))
        elif how == "leave":
            assert world.leave(three) == [E.NONE]
        else:
            world.wait(10_000)
        assert {later.result().generation_id for later in parked} == {4}


def test_g41_the_join_phase_ends_after_the_longest_rebalance_timeout(world: GroupWorld) -> None:
    one, _ = world.enter(rebalance_ms=20_000, session_ms=50_000)
    two, _ = world.enter(rebalance_ms=40_000, session_ms=50_000)
    world.join(one, rebalance_ms=20_000, session_ms=50_000)
    world.complete([one, two])
    new, answer = world.enter(rebalance_ms=1_000)
    world.wait(39_999)
    assert not answer.done
    world.wait(1)
    assert answer.result().generation_id == 3
    assert list(world.group().members) == [new]


def test_g41_a_version_0_join_uses_its_session_timeout_as_rebalance_timeout(
    world: GroupWorld,
) -> None:
    one = world.join(version=0, session_ms=10_000).result().member_id
    two = world.join(version=0, session_ms=6_000)
    world.join(one, version=0, session_ms=10_000)
    assert two.result().error_code == E.NONE
    assert world.group().max_rebalance_timeout_ms == 10_000


def test_g42_absent_dynamic_members_are_removed_and_the_first_to_rejoin_leads(
    world: GroupWorld,
) -> None:
    leader, second, third = world.stable(3, session_ms=1_000_000)
    answers = [world.join(third, session_ms=1_000_000, protocols=[("range", b"x")])]
    answers.append(world.join(second, session_ms=1_000_000))
    world.wait(60_000)
    assert [later.result().leader for later in answers] == [second, second]
    assert list(world.group().members) == [second, third]
    assert world.heartbeat(leader, 3) is E.UNKNOWN_MEMBER_ID


def test_g42_absent_static_members_stay(world: GroupWorld) -> None:
    leader, follower = static_group(world)
    session: dict[str, Any] = {"session_ms": 1_000_000}
    world.join(follower, instance="two", **session)
    answer = world.join(leader, instance="one", protocols=[("range", b"x")], **session)
    world.join(follower, instance="two", **session)
    world.sync(leader, 3, {}, instance="one")
    world.sync(follower, 3, instance="two")
    world.heartbeat(follower, 3, instance="two")
    again = world.join(leader, instance="one", **session)
    world.wait(60_000)
    assert answer.result().generation_id == 3
    assert again.result().generation_id == 4
    assert [member.member_id for member in again.result().members] == [leader, follower]


def test_g42_absent_static_members_are_waited_for_if_no_member_joined(
    world: GroupWorld,
) -> None:
    leader, follower = static_group(world)
    for member_id, instance in [(leader, "one"), (follower, "two")]:
        world.join(member_id, instance=instance, session_ms=1_000_000, protocols=[("range", b"n")])
    world.sync(leader, 3, {}, instance="one")
    world.sync(follower, 3, instance="two")
    dynamic, parked = world.enter(session_ms=1_000_000)
    world.leave(dynamic)
    assert parked.result().error_code == E.UNKNOWN_MEMBER_ID
    world.wait(60_000)
    assert world.state() is S.PREPARING_REBALANCE
    assert world.group().generation == 3
    answer = world.join(follower, instance="two")
    world.wait(60_000)
    assert answer.result().generation_id == 4
    assert answer.result().leader == follower


def test_g42_a_rebalance_timeout_of_zero_does_not_loop_the_join_phase(
    world: GroupWorld,
) -> None:
    """A join phase without a possible leader starts again, and then lasts at least 100 ms."""
    leader, follower = static_group(world)
    hasty: dict[str, Any] = {"session_ms": 1_000_000, "rebalance_ms": 0}
    for member_id, instance in [(leader, "one"), (follower, "two")]:
        world.join(member_id, instance=instance, protocols=[("range", b"n")], **hasty)
    world.sync(leader, 3, {}, instance="one")
    world.sync(follower, 3, instance="two")
    dynamic, _ = world.enter(**hasty)
    world.leave(dynamic)
    world.wait(1_000)
    assert world.state() is S.PREPARING_REBALANCE
    answer = world.join(follower, instance="two", **hasty)
    world.wait(100)
    assert answer.result().leader == follower


def test_g43_only_the_leader_gets_the_members_with_the_selected_protocols_metadata(
    world: GroupWorld,
) -> None:
    one, _ = world.enter(protocols=[("a", b"1a"), ("b", b"1b")])
    two, second = world.enter(protocols=[("b", b"2b")])
    first = world.join(one, protocols=[("a", b"1a"), ("b", b"1b")])
    leader, follower = first.result(), second.result()
    assert leader.protocol_name == follower.protocol_name == "b"
    assert leader.protocol_type == "consumer"
    assert leader.leader == follower.leader == one
    assert [(m.member_id, m.metadata) for m in leader.members] == [(one, b"1b"), (two, b"2b")]
    assert follower.members == []
    assert (leader.member_id, follower.member_id) == (one, two)


def test_g43_a_join_is_answered_when_its_generation_is_durable(world: GroupWorld) -> None:
    """If JoinGroup were answered earlier, a restart could give the same generation to another set
    of members."""
    member_id = world.new_id()
    world.log.hold = True
    answer = world.join(member_id)
    assert not answer.done
    world.log.flush()
    assert answer.result().generation_id == 1
    world.restart()
    assert world.group().generation == 1


def test_g43_a_generation_that_cannot_be_written_is_not_counted(world: GroupWorld) -> None:
    member_id = world.new_id()
    world.log.refuse = E.MESSAGE_TOO_LARGE
    assert world.join(member_id).result().error_code == E.UNKNOWN_SERVER_ERROR
    assert world.state() is S.PREPARING_REBALANCE
    world.log.refuse = E.NONE
    assert world.join(member_id).result().generation_id == 1


def test_g44_an_empty_group_waits_for_the_whole_initial_rebalance_delay() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    _, first = world.enter()
    world.wait(2_999)
    assert not first.done
    world.wait(1)
    assert first.result().generation_id == 1


def test_g44_a_new_member_extends_the_delay_up_to_the_rebalance_timeout() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    _, first = world.enter(rebalance_ms=7_000)
    world.wait(1_000)
    world.enter(rebalance_ms=7_000)
    world.wait(2_000)
    assert not first.done  # a member joined, so the delay of 3 s is extended to 6 s
    world.wait(2_000)
    world.enter(rebalance_ms=7_000)
    world.wait(1_000)
    assert not first.done  # a member joined, but the rebalance timeout is 7 s
    world.wait(999)
    assert not first.done
    world.wait(1)
    assert first.result().generation_id == 1
    assert len(first.result().members) == 3


def test_g44_a_group_with_members_has_no_initial_rebalance_delay() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    one, first = world.enter()
    world.wait(3_000)
    assert first.done
    _, second = world.enter()
    world.join(one)
    assert second.result().generation_id == 2


def test_g45_a_removed_members_parked_join_is_answered(world: GroupWorld) -> None:
    world.stable(1)
    new, parked = world.enter()
    assert world.leave(new) == [E.NONE]
    assert parked.result().error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("leader_syncs", [False, True])
def test_g46_a_member_that_does_not_sync_in_time_is_removed(
    world: GroupWorld, leader_syncs: bool
) -> None:
    one, _ = world.enter(session_ms=1_000_000)
    two, second = world.enter(session_ms=1_000_000)
    world.join(one, session_ms=1_000_000)
    assert second.result().generation_id == 2
    if leader_syncs:
        assert world.sync(one, 2, {}).result().error_code == E.NONE
        world.wait(59_999)
        assert world.state() is S.STABLE
    else:
        parked = world.sync(two, 2)
        world.wait(59_999)
        assert world.state() is S.COMPLETING_REBALANCE
    world.wait(1)
    assert world.state() is S.PREPARING_REBALANCE
    assert list(world.group().members) == ([one] if leader_syncs else [two])
    if not leader_syncs:
        assert parked.result().error_code == E.REBALANCE_IN_PROGRESS


def test_g46_no_sync_deadline_is_left_once_all_members_have_synced(world: GroupWorld) -> None:
    members = world.stable(2, session_ms=1_000_000)
    world.wait(500_000)
    assert world.state() is S.STABLE
    assert list(world.group().members) == members


def test_a_repeated_join_of_a_member_answers_its_parked_join_at_once(world: GroupWorld) -> None:
    """A client repeats its JoinGroup on a new connection. The broker must answer the first
    JoinGroup nevertheless, although its connection is closed."""
    one, two = world.stable(2)
    first = world.join(one)
    second = world.join(one)
    assert first.result().error_code == E.REBALANCE_IN_PROGRESS
    world.join(two)
    assert second.result().generation_id == 3


def test_g90_an_offsets_partition_is_loaded_when_its_topic_is_created() -> None:
    world = GroupWorld(topic=False)
    world.ensure_internal_topic(OFFSETS_TOPIC)
    assert isinstance(world.log, ListPartition)
    assert world.new_id()
