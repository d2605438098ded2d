"""The classic group by the rules of section G: votes, assignments, sessions, leaving, reload
(G-50 to G-91)."""

from __future__ import annotations

import pytest

from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.coordinator import GroupCoordinator
from odradek_broker.coordinator.groups.states import GroupState
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from odradek_protocol.stored.group_metadata import decode_key, decode_value

E = ErrorCode
S = GroupState


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def _records(world: GroupWorld) -> int:
    return len(world.log.records)


# --- Leader and protocol ---


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
    # Static members, whose answers can be had without the id handshake.
    parked = [
        world.join(instance=str(index), protocols=offer) for index, offer in enumerate(protocols)
    ]
    first = parked[0].result().member_id
    answer = world.join(first, instance="0", protocols=protocols[0]).result()
    assert answer.protocol_name == selected
    assert len(answer.members) == len(offers)


def test_g51_the_first_to_join_leads_and_then_the_next_in_order(world: GroupWorld) -> None:
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


# --- SyncGroup ---


def test_g60_a_protocol_that_is_named_must_be_the_groups(world: GroupWorld) -> None:
    leader, _ = world.enter()
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "roundrobin"}):
        answer = world.sync(leader, 1, {}, **wrong).result()
        assert answer.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    right = world.sync(leader, 1, {}, protocol_type="consumer", protocol_name="range").result()
    assert right.error_code == E.NONE
    assert (right.protocol_type, right.protocol_name) == ("consumer", "range")


def test_g61_the_assignment_is_one_record_and_durable_before_anyone_has_it(
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
    assert parked.result().assignment == b""  # the leader left it out
    assert parked.result().error_code == E.NONE


def test_g61_until_then_the_group_behaves_as_completing(world: GroupWorld) -> None:
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


def test_g61_a_rebalance_in_between_drops_the_result(world: GroupWorld) -> None:
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


def test_g61_a_write_failure_is_answered_and_rebalances(world: GroupWorld) -> None:
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


def test_g61_when_the_disk_fails_every_request_is_sent_elsewhere(world: GroupWorld) -> None:
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


def test_g65_after_a_parked_sync_is_refused_the_session_still_ends(world: GroupWorld) -> None:
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


# --- Sessions ---


def test_g70_a_member_that_is_not_heard_of_is_removed(world: GroupWorld) -> None:
    one, two = world.stable(2, session_ms=10_000)
    world.wait(9_999)
    assert world.heartbeat(one, 2) is E.NONE
    assert len(world.group().members) == 2
    world.wait(1)
    assert list(world.group().members) == [one]
    assert world.heartbeat(two, 2) is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(one, 2) is E.REBALANCE_IN_PROGRESS


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


def test_g71_silence_fails_nothing_by_itself(world: GroupWorld) -> None:
    (one,) = world.stable(1, session_ms=10_000)
    world.wait(9_000)
    assert world.commit(member_id=one, generation=1) is E.NONE
    world.wait(9_000)
    assert world.heartbeat(one, 1) is E.NONE


@pytest.mark.parametrize("generation", [-1, 0, 1, 3])
def test_g71_another_generation_is_illegal(world: GroupWorld, generation: int) -> None:
    one, _ = world.stable(2)
    assert world.heartbeat(one, generation) is E.ILLEGAL_GENERATION
    assert world.sync(one, generation).result().error_code == E.ILLEGAL_GENERATION


def test_g72_the_poll_interval_is_the_clients_business(world: GroupWorld) -> None:
    """To the broker it is only how long a join phase may last."""
    (one,) = world.stable(1, rebalance_ms=1_000)
    for _ in range(10):
        world.wait(5_000)
        assert world.heartbeat(one, 1) is E.NONE


# --- LeaveGroup ---


@pytest.mark.parametrize("version", [0, 1, 2])
def test_g80_up_to_version_2_one_member_and_a_top_level_error(
    world: GroupWorld, version: int
) -> None:
    one, two = world.stable(2)
    request = LeaveGroupRequest(group_id=GROUP, member_id=two)
    assert world.groups.leave(request, version).result().error_code == E.NONE
    assert list(world.group().members) == [one]
    answer = world.groups.leave(request, version).result()
    assert (answer.error_code, answer.members) == (E.UNKNOWN_MEMBER_ID, [])


def test_g80_a_batch_causes_one_rebalance(world: GroupWorld) -> None:
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


def test_g80_no_group_no_members(world: GroupWorld) -> None:
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


# --- Reload (G-90) ---


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


def test_g90_sessions_begin_anew_at_the_load(world: GroupWorld) -> None:
    world.stable(1, session_ms=10_000)
    world.wait(9_000)
    world.restart()
    world.wait(9_999)
    assert world.state() is S.STABLE
    world.wait(1)
    assert world.state() is S.EMPTY


def test_g90_an_empty_group_stays_empty_and_its_generation_goes_on(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    world.leave(one)
    world.restart()
    assert world.state() is S.EMPTY
    assert world.enter()[1].result().generation_id == 3


def test_g90_no_generation_is_given_out_twice(world: GroupWorld) -> None:
    """Killed between the join answers and the leader's sync: the members join again."""
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


def test_g90_members_of_an_unfinished_generation_that_do_not_return_are_out(
    world: GroupWorld,
) -> None:
    one, _ = world.enter()
    two, _ = world.enter()
    world.join(one)
    world.restart()
    again = world.join(two)
    world.wait(9_999)
    assert not again.done
    world.wait(1)  # the session of the other one, which began at the load
    assert again.result().generation_id == 3
    assert list(world.group().members) == [two]


def test_g90_static_members_keep_their_instances(world: GroupWorld) -> None:
    leader = world.join(instance="one").result().member_id
    world.sync(leader, 1, {leader: b"1"}, instance="one")
    world.restart()
    assert world.group().static_ids == {"one": leader}
    answer = world.join(instance="one").result()
    assert (answer.generation_id, answer.skip_assignment) == (1, True)


def test_g90_during_the_load_everything_is_answered_with_14(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    world.groups = GroupCoordinator(world, world.config)
    world.groups.begin_load()
    assert world.join(one).result().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.sync(one, 1).result().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.heartbeat(one, 1) is E.COORDINATOR_LOAD_IN_PROGRESS
    leave = world.groups.leave(LeaveGroupRequest(group_id=GROUP, member_id=one), 2)
    assert leave.result().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.commit() is E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.fetch(everything=True).error is E.COORDINATOR_LOAD_IN_PROGRESS
    while not world.groups.load_some():
        pass
    assert world.heartbeat(one, 1) is E.NONE


def test_a_record_that_cannot_be_read_closes_that_partition_only() -> None:
    world = GroupWorld(partitions=2)
    for name in ("a", "b"):  # hashes 97 and 98: one in each partition
        world.commit(group=name)
    broken = world.topic_partitions[1]
    broken.records.append((b"\x00\x02\x00\x01x", b"\x00"))
    broken.durable += 1
    world.restart()
    assert world.fetch(("topic", 0), group="a").error is E.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat("m", 1, group="a") is E.COORDINATOR_NOT_AVAILABLE
    assert world.committed("b") == 5


def test_n15_closing_answers_all_that_is_parked(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    _, join = world.enter()
    world.enter(group="other")
    (member_id,) = world.group("other").members
    second, _ = world.enter(group="other")
    world.join(member_id, group="other")
    sync = world.sync(second, 2, group="other")
    world.groups.close()
    assert join.result().error_code == E.NOT_COORDINATOR
    assert sync.result().error_code == E.NOT_COORDINATOR
    assert world.heartbeat(one, 1) is E.NOT_COORDINATOR
    assert world.states[-1] is S.DEAD
    assert world.groups.next_deadline_ms() is None


def test_the_node_is_asked_to_wake_the_coordinator_in_time(world: GroupWorld) -> None:
    world.stable(1, session_ms=10_000)
    at_ms, wake = world.timers[-1]
    assert at_ms == world.groups.next_deadline_ms() == world.clock.now_ms + 10_000
    world.clock.now_ms += 10_000
    wake()
    assert world.state() is S.EMPTY


def test_o02_what_is_written_of_a_group(world: GroupWorld) -> None:
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
