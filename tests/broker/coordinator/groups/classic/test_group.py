"""A classic group: its states, its leader and protocol, and its state after a restart (G-02 to
G-04, G-50 to G-52, G-90)."""

from __future__ import annotations

import pytest

from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.classic.group import (
    GroupState,
    IllegalGroupTransition,
    check_transition,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import LeaveGroupRequest
from odradek_protocol.stored.group_metadata import decode_key, decode_value

E = ErrorCode
S = GroupState


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_g02_a_parked_join_does_not_hold_up_the_group(world: GroupWorld) -> None:
    first, _ = world.enter()
    _, parked = world.enter()
    assert not parked.done
    assert world.heartbeat(first, 1) is E.REBALANCE_IN_PROGRESS


def test_g03_an_illegal_state_transition_of_a_group_raises() -> None:
    check_transition("g", S.STABLE, S.PREPARING_REBALANCE)
    for source, target in [
        (S.EMPTY, S.STABLE),
        (S.STABLE, S.COMPLETING_REBALANCE),
        (S.STABLE, S.EMPTY),
        (S.COMPLETING_REBALANCE, S.EMPTY),
        (S.PREPARING_REBALANCE, S.STABLE),
        (S.DEAD, S.EMPTY),
    ]:
        with pytest.raises(IllegalGroupTransition, match="group g"):
            check_transition("g", source, target)
    for source in S:
        check_transition("g", source, S.DEAD)


def test_g04_the_last_member_to_leave_empties_the_group(world: GroupWorld) -> None:
    (member,) = world.stable(1)
    world.states.clear()
    assert world.leave(member) == [E.NONE]
    assert world.states == [S.PREPARING_REBALANCE, S.EMPTY]
    assert world.group().generation == 2


@pytest.mark.parametrize(
    ("offers", "selected"),
    [
        ([["a", "b"], ["a", "b"], ["b", "a"]], "a"),
        ([["b", "a"], ["b", "a"], ["a", "b"]], "b"),
        ([["a", "b"], ["b", "a"]], "a"),
        ([["b"], ["a", "b"]], "b"),
        ([["x", "b", "a"], ["a", "b"], ["y", "b", "a"]], "b"),
    ],
)
def test_g50_each_member_votes_for_its_first_common_protocol(
    world: GroupWorld, offers: list[list[str]], selected: str
) -> None:
    protocols = [[(name, b"") for name in names] for names in offers]
    # Static members, unlike dynamic ones, need no earlier JoinGroup to get a member id.
    parked = [
        world.join(instance=str(index), protocols=offer) for index, offer in enumerate(protocols)
    ]
    first = parked[0].result().member_id
    answer = world.join(first, instance="0", protocols=protocols[0]).result()
    assert answer.protocol_name == selected
    assert len(answer.members) == len(offers)


def test_g51_the_first_member_leads_and_the_next_in_join_order_succeeds_it(
    world: GroupWorld,
) -> None:
    one, two, three = world.stable(3)
    assert world.group().leader_id == one
    world.leave(one)
    assert world.group().leader_id == two
    world.join(three)
    assert world.join(two).result().leader == two


def test_g52_metadata_and_assignments_are_opaque(world: GroupWorld) -> None:
    junk = bytes(range(256))
    leader = world.join(instance="i", protocols=[("p", junk)]).result()
    assert leader.members[0].metadata == junk
    answer = world.sync(leader.member_id, 1, {leader.member_id: junk[::-1]}, instance="i")
    assert answer.result().assignment == junk[::-1]


def test_g90_a_stable_group_survives_a_restart(world: GroupWorld) -> None:
    one, two = world.stable(2)
    stored = world.group().stored
    world.restart()
    assert world.group().stored == stored
    assert world.state() is S.STABLE
    assert world.heartbeat(one, 2) is E.NONE
    for member_id in (one, two):
        assert world.sync(member_id, 2).result().assignment == member_id.encode()
    assert world.group().leader_id == one
    assert world.join(two).result().generation_id == 2


def test_g90_sessions_restart_when_the_group_is_loaded(world: GroupWorld) -> None:
    world.stable(1, session_ms=10_000)
    world.wait(9_000)
    world.restart()
    world.wait(9_999)
    assert world.state() is S.STABLE
    world.wait(1)
    assert world.state() is S.EMPTY


def test_g90_an_empty_group_keeps_its_generation_over_a_restart(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    world.leave(one)
    world.restart()
    assert world.state() is S.EMPTY
    assert world.enter()[1].result().generation_id == 3


def test_g90_no_generation_number_is_used_twice_after_a_restart(world: GroupWorld) -> None:
    """The broker is killed between the answers to JoinGroup and the leader's sync: the members join
    again."""
    one, _ = world.enter()
    two, second = world.enter()
    first = world.join(one)
    assert first.result().generation_id == second.result().generation_id == 2
    world.restart()
    assert world.state() is S.PREPARING_REBALANCE
    assert world.heartbeat(one, 2) is E.REBALANCE_IN_PROGRESS
    assert world.sync(one, 2, {one: b"1"}).result().error_code == E.REBALANCE_IN_PROGRESS
    again = world.join(two)
    world.join(one)
    assert again.result().generation_id == 3
    assert again.result().leader == one
    world.complete([one, two])


def test_g90_members_of_an_unfinished_generation_must_rejoin_after_a_restart(
    world: GroupWorld,
) -> None:
    one, _ = world.enter()
    two, _ = world.enter()
    world.join(one)
    world.restart()
    again = world.join(two)
    world.wait(9_999)
    assert not again.done
    world.wait(1)  # the session of `one`, which began at the restart, expires
    assert again.result().generation_id == 3
    assert list(world.group().members) == [two]


def test_g90_static_members_keep_their_instance_ids_over_a_restart(world: GroupWorld) -> None:
    leader = world.join(instance="one").result().member_id
    world.sync(leader, 1, {leader: b"1"}, instance="one")
    world.restart()
    assert world.group().static_ids == {"one": leader}
    answer = world.join(instance="one").result()
    assert (answer.generation_id, answer.skip_assignment) == (1, True)


def test_g90_requests_during_the_load_get_coordinator_load_in_progress(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    world.groups = world.new_groups()
    world.groups.shards.begin_load()
    assert world.join(one).result().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.sync(one, 1).result().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.heartbeat(one, 1) is E.COORDINATOR_LOAD_IN_PROGRESS
    leave = world.groups.leave(LeaveGroupRequest(group_id=GROUP, member_id=one), 2)
    assert leave.result().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.commit() is E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.fetch(everything=True).error is E.COORDINATOR_LOAD_IN_PROGRESS
    while not world.groups.shards.load_some():
        pass
    assert world.heartbeat(one, 1) is E.NONE


def test_an_unreadable_record_closes_only_its_own_offsets_partition() -> None:
    world = GroupWorld(partitions=2)
    for name in ("a", "b"):  # the hashes of the names are 97 and 98: each partition has one group
        world.commit(group=name)
    broken = world.topic_partitions[1]
    broken.records.append((b"\x00\x02\x00\x01x", b"\x00"))
    broken.durable += 1
    world.restart()
    assert world.fetch(("topic", 0), group="a").error is E.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat("m", 1, group="a") is E.COORDINATOR_NOT_AVAILABLE
    assert world.committed("b") == 5


def test_n15_closing_the_coordinator_answers_all_parked_requests(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    _, join = world.enter()
    world.enter(group="other")
    (member_id,) = world.group("other").members
    second, _ = world.enter(group="other")
    world.join(member_id, group="other")
    sync = world.sync(second, 2, group="other")
    world.groups.shards.close()
    assert join.result().error_code == E.NOT_COORDINATOR
    assert sync.result().error_code == E.NOT_COORDINATOR
    assert world.heartbeat(one, 1) is E.NOT_COORDINATOR
    assert world.states[-1] is S.DEAD
    assert world.groups.shards.next_deadline_ms() is None


def test_the_coordinator_sets_a_timer_for_its_next_deadline(world: GroupWorld) -> None:
    world.stable(1, session_ms=10_000)
    at_ms, wake = world.timers[-1]
    assert at_ms == world.groups.shards.next_deadline_ms() == world.clock.now_ms + 10_000
    world.clock.now_ms += 10_000
    wake()
    assert world.state() is S.EMPTY


def test_o02_the_group_metadata_record_has_kafkas_fields(world: GroupWorld) -> None:
    (one,) = world.stable(1, client="app", session_ms=7_000, rebalance_ms=9_000)
    key, value = world.log.records[-1]
    assert key is not None
    assert value is not None
    assert key[:2] == b"\x00\x02"
    assert value[:2] == b"\x00\x03"
    assert decode_key(key).group == GROUP
    stored = decode_value(value)
    assert (stored.protocol_type, stored.generation, stored.protocol) == ("consumer", 1, "range")
    assert stored.leader == one
    assert stored.current_state_timestamp == world.clock.wall_ms()
    (member,) = stored.members
    assert (member.member_id, member.group_instance_id) == (one, None)
    assert (member.client_id, member.client_host) == ("app", "/127.0.0.1")
    assert (member.session_timeout, member.rebalance_timeout) == (7_000, 9_000)
    assert (member.subscription, member.assignment) == (b"meta", one.encode())
