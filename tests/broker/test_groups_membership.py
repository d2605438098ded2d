"""The classic group by the rules of section G: joining, leaving, being late (G-02 to G-46)."""

from __future__ import annotations

from typing import Any

import pytest

from group_world import GROUP, GroupWorld, ListPartition
from odradek_broker.coordinator.groups import classic
from odradek_broker.coordinator.groups.coordinator import OFFSETS_TOPIC
from odradek_broker.coordinator.groups.states import GroupState, IllegalTransition, check_transition
from odradek_broker.coordinator.placement import java_hash, place
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity

E = ErrorCode
S = GroupState
A_AND_B = [("a", b"1"), ("b", b"2")]
B_AND_A = [("b", b"2"), ("a", b"1")]


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


# --- Objects, placement ---


def test_g02_a_parked_join_does_not_hold_up_the_group(world: GroupWorld) -> None:
    first, _ = world.enter()
    _, parked = world.enter()
    assert not parked.done
    assert world.heartbeat(first, 1) is E.REBALANCE_IN_PROGRESS


def test_g03_steps_outside_the_table_raise() -> None:
    check_transition("g", S.STABLE, S.PREPARING_REBALANCE)
    for source, target in [
        (S.EMPTY, S.STABLE),
        (S.STABLE, S.COMPLETING_REBALANCE),
        (S.STABLE, S.EMPTY),
        (S.COMPLETING_REBALANCE, S.EMPTY),
        (S.PREPARING_REBALANCE, S.STABLE),
        (S.DEAD, S.EMPTY),
    ]:
        with pytest.raises(IllegalTransition, match="group g"):
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
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Hello World", -862545276),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_g06_t01_the_hash_is_javas_over_utf16_units(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_g06_t01_the_smallest_hash_is_masked_to_zero() -> None:
    assert place("polygenelubricants", 50) == 0
    assert place("Hello World", 50) == (-862545276 & 0x7FFFFFFF) % 50


def test_g06_groups_live_in_the_partition_of_their_hash() -> None:
    world = GroupWorld(partitions=3)
    for name in ("x", "y", "z"):
        world.enter(group=name)
    for index, partition in enumerate(world.topic_partitions):
        names = [name for name in ("x", "y", "z") if place(name, 3) == index]
        assert all(any(n.encode() in (key or b"") for n in names) for key, _ in partition.records)
    assert sorted(listing.group_id for listing in world.groups.groups()) == ["x", "y", "z"]


# --- Preconditions ---


def test_g20_without_the_topic_no_coordinator_is_available() -> None:
    world = GroupWorld(topic=False)
    assert world.join().result().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat("m", 1) is E.COORDINATOR_NOT_AVAILABLE
    assert world.sync("m", 1).result().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert world.commit() is E.COORDINATOR_NOT_AVAILABLE
    assert world.fetch(("topic", 0)).error is E.COORDINATOR_NOT_AVAILABLE
    world.ensure_internal_topic(OFFSETS_TOPIC)
    assert world.join().result().error_code == E.MEMBER_ID_REQUIRED


def test_g20_another_brokers_group_is_refused() -> None:
    world = GroupWorld()
    world.metadata.leader = 2
    world.groups = type(world.groups)(world, world.config)
    world.groups.load()
    assert world.join().result().error_code == E.NOT_COORDINATOR


def test_g20_checks_come_in_order(world: GroupWorld) -> None:
    assert world.join(group="", session_ms=1).result().error_code == E.INVALID_GROUP_ID
    for session_ms in (5_999, 1_800_001, 0, -1):
        answer = world.join("m", session_ms=session_ms).result()
        assert answer.error_code == E.INVALID_SESSION_TIMEOUT
    for session_ms in (6_000, 1_800_000):
        assert world.join(session_ms=session_ms).result().error_code == E.MEMBER_ID_REQUIRED
    assert world.heartbeat("m", 1, group="") is E.INVALID_GROUP_ID
    assert world.sync("m", 1, group="").result().error_code == E.INVALID_GROUP_ID
    leave = world.groups.leave(LeaveGroupRequest(group_id=""), 5).result()
    assert leave.error_code == E.INVALID_GROUP_ID


def test_g21_an_id_that_no_group_knows_is_unknown(world: GroupWorld) -> None:
    answer = world.join("somebody").result()
    assert (answer.error_code, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "somebody")
    assert world.groups.group(GROUP) is None
    world.stable(1)
    assert world.join("somebody").result().error_code == E.UNKNOWN_MEMBER_ID


def test_g22_a_full_group_takes_nobody_else() -> None:
    world = GroupWorld(group_max_size=2)
    members = world.stable(2)
    answer = world.join().result()
    assert (answer.error_code, answer.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    assert world.state() is S.STABLE
    assert not world.join(members[0]).done
    assert world.state() is S.PREPARING_REBALANCE


def test_g22_in_the_join_phase_those_who_wait_count_and_the_surplus_is_dropped() -> None:
    world = GroupWorld(group_max_size=2)
    leader, follower = world.stable(2)
    late = world.join(version=3)
    assert late.result().error_code == E.GROUP_MAX_SIZE_REACHED
    world.join(follower, protocols=[("range", b"changed")])
    newcomer = world.join(version=3)
    assert not newcomer.done
    surplus = world.join(leader).result()
    assert surplus.error_code == E.GROUP_MAX_SIZE_REACHED
    assert leader not in world.group().members
    assert newcomer.result().error_code == E.NONE
    assert len(world.group().members) == 2


def test_g22_an_empty_group_takes_anyone() -> None:
    world = GroupWorld(group_max_size=1, group_initial_rebalance_delay_ms=3_000)
    first, second = world.new_id(), world.new_id()
    parked = world.join(first)
    assert world.join(second).result().error_code == E.GROUP_MAX_SIZE_REACHED
    world.wait(3_000)
    assert parked.result().error_code == E.NONE


def test_d11_ids_that_are_handed_out_are_limited(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classic, "PENDING_MEMBERS_MAX", 2)
    first, _ = world.new_id(), world.new_id()
    assert world.join().result().error_code == E.GROUP_MAX_SIZE_REACHED
    assert world.join(first).result().error_code == E.NONE


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", [("range", b"")]), ("consumer", [])],
)
def test_g23_the_first_member_names_type_and_protocols(
    world: GroupWorld, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    answer = world.join(protocol_type=protocol_type, protocols=protocols).result()
    assert answer.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert list(world.groups.groups()) == []


def test_g23_a_member_must_offer_what_all_others_do(world: GroupWorld) -> None:
    world.stable(2, protocols=A_AND_B)
    wrong_type = world.join(protocol_type="connect", protocols=A_AND_B).result()
    assert wrong_type.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    wrong_name = world.join(protocols=[("c", b"")]).result()
    assert wrong_name.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols=[("b", b""), ("c", b"")]).result().error_code == 79
    assert world.state() is S.STABLE


def test_g23_an_existing_member_cannot_take_the_common_protocol_away(world: GroupWorld) -> None:
    leader, _ = world.stable(2, protocols=[("a", b"")])
    answer = world.join(leader, protocols=[("z", b"")]).result()
    assert answer.error_code == E.INCONSISTENT_GROUP_PROTOCOL


def test_g24_ids_are_client_or_instance_and_a_uuid(world: GroupWorld) -> None:
    assert world.new_id(client="app") == "app-00000000-0000-0000-0000-000000000001"
    static = world.join(instance="i", group="static").result()
    assert static.member_id == "i-00000000-0000-0000-0000-000000000002"


@pytest.mark.parametrize("version", range(10))
def test_g25_from_version_4_a_member_first_fetches_its_id(world: GroupWorld, version: int) -> None:
    answer = world.join(version=version)
    if version < 4:
        assert answer.result().error_code == E.NONE
        assert answer.result().generation_id == 1
    else:
        assert answer.result().error_code == E.MEMBER_ID_REQUIRED
        assert answer.result().generation_id == -1
        member_id = answer.result().member_id
        assert list(world.group().pending) == [member_id]
        assert world.join(member_id, version=version).result().generation_id == 1
        assert not world.group().pending


def test_g25_a_static_member_is_never_asked(world: GroupWorld) -> None:
    assert world.join(instance="i", version=5).result().error_code == E.NONE


def test_g25_a_pending_id_does_not_go_with_an_instance(world: GroupWorld) -> None:
    answer = world.join(world.new_id(), instance="i").result()
    assert answer.error_code == E.UNKNOWN_MEMBER_ID


def test_g26_pending_members_hold_up_the_join_phase_until_they_time_out(world: GroupWorld) -> None:
    (leader,) = world.stable(1)
    world.new_id(session_ms=8_000)
    parked = world.join(leader)
    assert not parked.done
    world.wait(7_999)
    assert not parked.done
    world.wait(1)
    assert parked.result().generation_id == 2
    assert not world.group().pending


def test_g26_a_group_of_which_only_ids_were_handed_out_vanishes(world: GroupWorld) -> None:
    world.new_id()
    assert world.state() is S.EMPTY
    world.wait(10_000)
    assert world.groups.group(GROUP) is None
    assert world.log.records == []


def test_g27_a_new_parked_member_is_kept_300_seconds_whatever_its_session(
    world: GroupWorld,
) -> None:
    (leader,) = world.stable(1, rebalance_ms=1_000_000, session_ms=1_800_000)
    new, parked = world.enter(session_ms=6_000)
    world.wait(299_999)
    assert not parked.done
    world.wait(1)
    assert parked.result().error_code == E.UNKNOWN_MEMBER_ID
    assert list(world.group().members) == [leader]
    assert new not in world.group().members


def test_n10_a_parked_join_keeps_its_member_when_its_connection_is_gone(world: GroupWorld) -> None:
    (leader,) = world.stable(1)
    new, parked = world.enter()
    parked.abandon()
    world.join(leader)
    assert new in world.group().members
    assert world.state() is S.COMPLETING_REBALANCE


# --- Static members (G-28, G-29) ---


def _static(world: GroupWorld, version: int = 9) -> tuple[str, str]:
    """A stable group of two static members: ids of leader and follower."""
    leader = world.join(instance="one", version=version).result().member_id
    second = world.join(instance="two", version=version)
    world.join(leader, instance="one", version=version)
    follower = second.result().member_id
    world.sync(leader, 2, {leader: b"L", follower: b"F"}, instance="one")
    assert world.sync(follower, 2, instance="two").result().assignment == b"F"
    world.states.clear()
    return leader, follower


def test_g28_a_static_member_comes_back_to_a_stable_group_without_a_rebalance(
    world: GroupWorld,
) -> None:
    leader, follower = _static(world)
    answer = world.join(instance="two").result()
    assert answer.error_code == E.NONE
    assert answer.generation_id == 2
    assert answer.member_id not in ("", follower)
    assert answer.leader == leader
    assert answer.members == []
    assert not answer.skip_assignment
    assert world.states == []
    synced = world.sync(answer.member_id, 2, instance="two").result()
    assert synced.assignment == b"F"
    assert list(world.group().members) == [leader, answer.member_id]


def test_g28_the_returned_id_is_durable_before_the_answer(world: GroupWorld) -> None:
    _static(world)
    world.log.hold = True
    answer = world.join(instance="two")
    assert not answer.done
    world.log.flush()
    member_id = answer.result().member_id
    world.restart()
    assert world.sync(member_id, 2, instance="two").result().assignment == b"F"


def test_g28_if_it_cannot_be_recorded_the_old_id_stays(world: GroupWorld) -> None:
    _, follower = _static(world)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    assert world.join(instance="two").result().error_code == E.NOT_COORDINATOR
    world.log.refuse = E.NONE
    assert world.heartbeat(follower, 2, instance="two") is E.NONE


def test_g28_a_returning_leader_is_told_to_skip_the_assignment(world: GroupWorld) -> None:
    leader, follower = _static(world)
    answer = world.join(instance="one", version=9).result()
    assert answer.skip_assignment
    assert answer.leader == answer.member_id != leader
    assert [member.member_id for member in answer.members] == [answer.member_id, follower]
    assert world.sync(answer.member_id, 2, instance="one").result().assignment == b"L"


def test_g28_an_old_returning_leader_is_not_told_that_it_leads(world: GroupWorld) -> None:
    leader, _ = _static(world, version=8)
    answer = world.join(instance="one", version=8).result()
    assert answer.leader == leader != answer.member_id
    assert answer.members == []
    assert not answer.skip_assignment
    assert world.group().leader_id == answer.member_id


def test_g28_a_changed_selection_of_the_protocol_rebalances(world: GroupWorld) -> None:
    leader = world.join(instance="one", protocols=A_AND_B).result().member_id
    world.sync(leader, 1, {}, instance="one")
    assert world.group().protocol == "a"
    answer = world.join(instance="one", protocols=B_AND_A).result()
    assert answer.generation_id == 2
    assert answer.protocol_name == "b"


def test_g28_the_parked_requests_of_the_old_id_are_fenced(world: GroupWorld) -> None:
    leader, follower = _static(world)
    world.join(leader, instance="one", protocols=[("range", b"new")])
    parked = world.join(follower, instance="two")
    assert parked.result().error_code == E.NONE
    sync = world.sync(follower, 3, instance="two")
    assert not sync.done
    again = world.join(instance="two")
    assert sync.result().error_code == E.FENCED_INSTANCE_ID
    assert world.state() is S.PREPARING_REBALANCE
    assert not again.done
    third = world.join(instance="two")
    assert again.result().error_code == E.FENCED_INSTANCE_ID
    world.join(leader, instance="one")
    assert third.result().generation_id == 4


def test_g28_a_member_that_came_back_is_still_waited_for_to_sync(world: GroupWorld) -> None:
    leader = world.join(instance="one", session_ms=1_000_000).result().member_id
    second = world.join(instance="two", session_ms=1_000_000)
    world.join(leader, instance="one", session_ms=1_000_000)
    world.sync(leader, 2, {}, instance="one")
    assert second.done
    member_id = world.join(instance="two", session_ms=1_000_000).result().member_id
    assert world.group().pending_syncs == {member_id}
    world.wait(60_000)
    assert list(world.group().members) == [leader]


def test_g29_instance_ids_are_checked_everywhere(world: GroupWorld) -> None:
    leader, follower = _static(world)
    for instance, expected in [("one", E.FENCED_INSTANCE_ID), ("nobody", E.UNKNOWN_MEMBER_ID)]:
        assert world.heartbeat(follower, 2, instance=instance) is expected
        assert world.sync(follower, 2, instance=instance).result().error_code == expected
        assert world.join(follower, instance=instance).result().error_code == expected
        assert world.commit(member_id=follower, generation=2, instance=instance) is expected
        identity = MemberIdentity(member_id=follower, group_instance_id=instance)
        assert world.leave_as(identity) == [expected]
    assert world.heartbeat(follower, 2, instance="two") is E.NONE
    assert world.heartbeat(leader, 2) is E.NONE
    assert world.states == []


# --- Lost answers ---


def test_g30_a_followers_identical_join_is_answered_at_once(world: GroupWorld) -> None:
    leader, follower = world.stable(2)
    world.states.clear()
    answer = world.join(follower).result()
    assert (answer.error_code, answer.generation_id) == (E.NONE, 2)
    assert answer.leader == leader
    assert answer.members == []
    assert world.states == []


def test_g31_a_leaders_identical_join_in_completing_is_answered_with_the_members(
    world: GroupWorld,
) -> None:
    leader, _ = world.enter()
    assert world.state() is S.COMPLETING_REBALANCE
    answer = world.join(leader).result()
    assert answer.generation_id == 1
    assert [member.member_id for member in answer.members] == [leader]
    assert world.state() is S.COMPLETING_REBALANCE


def test_g31_a_leader_that_never_syncs_goes_with_its_session(world: GroupWorld) -> None:
    leader, _ = world.enter(session_ms=6_000)
    follower, _ = world.enter(session_ms=20_000)
    world.join(leader, session_ms=6_000)
    sync = world.sync(follower, 2)
    world.wait(6_000)
    assert sync.result().error_code == E.REBALANCE_IN_PROGRESS
    assert world.state() is S.PREPARING_REBALANCE
    assert world.join(follower).result().leader == follower


def test_g32_a_heartbeat_in_completing_is_fine(world: GroupWorld) -> None:
    leader, _ = world.enter()
    assert world.state() is S.COMPLETING_REBALANCE
    assert world.heartbeat(leader, 1) is E.NONE


# --- Completing the join phase ---


def test_g40_the_join_phase_ends_when_the_last_one_joins_leaves_or_expires(
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


def test_g41_the_deadline_is_the_longest_rebalance_timeout(world: GroupWorld) -> None:
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


def test_g41_version_0_has_its_session_timeout_for_both(world: GroupWorld) -> None:
    one = world.join(version=0, session_ms=10_000).result().member_id
    two = world.join(version=0, session_ms=6_000)
    world.join(one, version=0, session_ms=10_000)
    assert two.result().error_code == E.NONE
    assert world.group().max_rebalance_timeout_ms == 10_000


def test_g42_absent_dynamic_members_are_out_and_the_first_that_came_leads(
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
    leader, follower = _static(world)
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


def test_g42_if_only_static_members_are_absent_and_nobody_came_they_are_waited_for(
    world: GroupWorld,
) -> None:
    leader, follower = _static(world)
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


def test_g43_the_answer_waits_until_its_generation_is_durable(world: GroupWorld) -> None:
    """Otherwise a restart could give the same number to another set of members."""
    member_id = world.new_id()
    world.log.hold = True
    answer = world.join(member_id)
    assert not answer.done
    world.log.flush()
    assert answer.result().generation_id == 1
    world.restart()
    assert world.group().generation == 1


def test_g43_a_refused_generation_is_no_generation(world: GroupWorld) -> None:
    member_id = world.new_id()
    world.log.refuse = E.MESSAGE_TOO_LARGE
    assert world.join(member_id).result().error_code == E.UNKNOWN_SERVER_ERROR
    assert world.state() is S.PREPARING_REBALANCE
    world.log.refuse = E.NONE
    assert world.join(member_id).result().generation_id == 1


def test_g44_an_empty_group_waits_for_more_members_and_never_ends_early() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    _, first = world.enter()
    world.wait(2_999)
    assert not first.done
    world.wait(1)
    assert first.result().generation_id == 1


def test_g44_a_newcomer_extends_the_wait_up_to_the_rebalance_timeout() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    _, first = world.enter(rebalance_ms=7_000)
    world.wait(1_000)
    world.enter(rebalance_ms=7_000)
    world.wait(2_000)
    assert not first.done  # 3 s: somebody came, so 3 s more
    world.wait(2_000)
    world.enter(rebalance_ms=7_000)
    world.wait(1_000)
    assert not first.done  # 6 s: somebody came, but only 1 s is left
    world.wait(999)
    assert not first.done
    world.wait(1)
    assert first.result().generation_id == 1
    assert len(first.result().members) == 3


def test_g44_a_group_that_is_not_empty_does_not_wait() -> None:
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
def test_g46_who_does_not_sync_in_time_is_removed(world: GroupWorld, leader_syncs: bool) -> None:
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


def test_g46_once_everyone_has_synced_nothing_is_waited_for(world: GroupWorld) -> None:
    members = world.stable(2, session_ms=1_000_000)
    world.wait(500_000)
    assert world.state() is S.STABLE
    assert list(world.group().members) == members


def test_a_join_that_its_own_member_repeats_is_answered_once_each(world: GroupWorld) -> None:
    """The first came over a connection that the client gave up; it must not wait for ever."""
    one, two = world.stable(2)
    first = world.join(one)
    second = world.join(one)
    assert first.result().error_code == E.REBALANCE_IN_PROGRESS
    world.join(two)
    assert second.result().generation_id == 3


def test_g90_the_topics_partition_is_read_when_it_appears() -> None:
    world = GroupWorld(topic=False)
    world.ensure_internal_topic(OFFSETS_TOPIC)
    assert isinstance(world.log, ListPartition)
    assert world.new_id()
