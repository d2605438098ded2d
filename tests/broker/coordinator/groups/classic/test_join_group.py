"""JoinGroup of the classic protocol, rule by rule (G-20 to G-32)."""

from __future__ import annotations

import pytest

from group_world import GROUP, GroupWorld, static_group
from odradek_broker.coordinator.groups.classic import membership
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity

E = ErrorCode
S = GroupState
A_AND_B = [("a", b"1"), ("b", b"2")]
B_AND_A = [("b", b"2"), ("a", b"1")]


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_g20_the_coordinator_is_not_available_without_the_offsets_topic() -> None:
    world = GroupWorld(topic=False)
    assert world.join().result().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat("m", 1) is E.COORDINATOR_NOT_AVAILABLE
    assert world.sync("m", 1).result().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert world.commit() is E.COORDINATOR_NOT_AVAILABLE
    assert world.fetch(("topic", 0)).error is E.COORDINATOR_NOT_AVAILABLE
    world.ensure_internal_topic(OFFSETS_TOPIC)
    assert world.join().result().error_code == E.MEMBER_ID_REQUIRED


def test_g20_a_group_of_another_broker_gets_not_coordinator() -> None:
    world = GroupWorld()
    world.metadata.leader = 2
    world.groups = world.new_groups()
    world.groups.shards.load()
    assert world.join().result().error_code == E.NOT_COORDINATOR


def test_g20_group_id_and_session_timeout_are_checked_before_the_member_id(
    world: GroupWorld,
) -> None:
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


def test_g21_a_join_with_an_unknown_member_id_is_refused(world: GroupWorld) -> None:
    answer = world.join("somebody").result()
    assert (answer.error_code, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "somebody")
    assert world.groups.group(GROUP) is None
    world.stable(1)
    assert world.join("somebody").result().error_code == E.UNKNOWN_MEMBER_ID


def test_g22_a_full_group_accepts_no_more_members() -> None:
    world = GroupWorld(group_max_size=2)
    members = world.stable(2)
    answer = world.join().result()
    assert (answer.error_code, answer.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    assert world.state() is S.STABLE
    assert not world.join(members[0]).done
    assert world.state() is S.PREPARING_REBALANCE


def test_g22_parked_joins_count_for_the_maximum_size_in_the_join_phase() -> None:
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


def test_g22_an_empty_group_gives_ids_to_more_members_than_its_maximum_size() -> None:
    world = GroupWorld(group_max_size=1, group_initial_rebalance_delay_ms=3_000)
    first, second = world.new_id(), world.new_id()
    parked = world.join(first)
    assert world.join(second).result().error_code == E.GROUP_MAX_SIZE_REACHED
    world.wait(3_000)
    assert parked.result().error_code == E.NONE


def test_d11_the_number_of_pending_member_ids_is_limited(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "PENDING_MEMBERS_MAX", 2)
    first, _ = world.new_id(), world.new_id()
    assert world.join().result().error_code == E.GROUP_MAX_SIZE_REACHED
    assert world.join(first).result().error_code == E.NONE


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", [("range", b"")]), ("consumer", [])],
)
def test_g23_the_first_member_must_name_a_protocol_type_and_protocols(
    world: GroupWorld, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    answer = world.join(protocol_type=protocol_type, protocols=protocols).result()
    assert answer.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert list(world.groups.groups()) == []


def test_g23_a_member_must_share_protocol_type_and_a_protocol_with_the_group(
    world: GroupWorld,
) -> None:
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


def test_g24_a_member_id_is_the_client_or_instance_id_and_a_uuid(world: GroupWorld) -> None:
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


def test_g25_a_static_member_joins_without_fetching_an_id_first(world: GroupWorld) -> None:
    assert world.join(instance="i", version=5).result().error_code == E.NONE


def test_g25_a_join_with_a_pending_id_and_an_instance_id_is_refused(world: GroupWorld) -> None:
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


def test_g26_a_group_with_only_pending_ids_is_removed_when_they_expire(world: GroupWorld) -> None:
    world.new_id()
    assert world.state() is S.EMPTY
    world.wait(10_000)
    assert world.groups.group(GROUP) is None
    assert world.log.records == []


def test_g27_a_new_parked_member_is_kept_for_300_seconds(
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


def test_g28_a_static_member_comes_back_to_a_stable_group_without_a_rebalance(
    world: GroupWorld,
) -> None:
    leader, follower = static_group(world)
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


def test_g28_the_new_id_of_a_static_member_is_durable_before_the_answer(world: GroupWorld) -> None:
    static_group(world)
    world.log.hold = True
    answer = world.join(instance="two")
    assert not answer.done
    world.log.flush()
    member_id = answer.result().member_id
    world.restart()
    assert world.sync(member_id, 2, instance="two").result().assignment == b"F"


def test_g28_a_static_member_keeps_its_old_id_if_the_new_one_cannot_be_stored(
    world: GroupWorld,
) -> None:
    _, follower = static_group(world)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    assert world.join(instance="two").result().error_code == E.NOT_COORDINATOR
    world.log.refuse = E.NONE
    assert world.heartbeat(follower, 2, instance="two") is E.NONE


def test_g28_a_returning_leader_is_told_to_skip_the_assignment(world: GroupWorld) -> None:
    leader, follower = static_group(world)
    answer = world.join(instance="one", version=9).result()
    assert answer.skip_assignment
    assert answer.leader == answer.member_id != leader
    assert [member.member_id for member in answer.members] == [answer.member_id, follower]
    assert world.sync(answer.member_id, 2, instance="one").result().assignment == b"L"


def test_g28_a_returning_leader_of_version_8_is_answered_with_its_old_id_as_leader(
    world: GroupWorld,
) -> None:
    leader, _ = static_group(world, version=8)
    answer = world.join(instance="one", version=8).result()
    assert answer.leader == leader != answer.member_id
    assert answer.members == []
    assert not answer.skip_assignment
    assert world.group().leader_id == answer.member_id


def test_g28_a_returning_member_that_changes_the_protocol_rebalances_the_group(
    world: GroupWorld,
) -> None:
    leader = world.join(instance="one", protocols=A_AND_B).result().member_id
    world.sync(leader, 1, {}, instance="one")
    assert world.group().protocol == "a"
    answer = world.join(instance="one", protocols=B_AND_A).result()
    assert answer.generation_id == 2
    assert answer.protocol_name == "b"


def test_g28_the_parked_requests_of_the_old_id_are_fenced(world: GroupWorld) -> None:
    leader, follower = static_group(world)
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


def test_g28_a_returned_static_member_still_has_to_sync(world: GroupWorld) -> None:
    leader = world.join(instance="one", session_ms=1_000_000).result().member_id
    second = world.join(instance="two", session_ms=1_000_000)
    world.join(leader, instance="one", session_ms=1_000_000)
    world.sync(leader, 2, {}, instance="one")
    assert second.done
    member_id = world.join(instance="two", session_ms=1_000_000).result().member_id
    assert world.group().pending_syncs == {member_id}
    world.wait(60_000)
    assert list(world.group().members) == [leader]


def test_g29_every_request_checks_the_instance_id(world: GroupWorld) -> None:
    leader, follower = static_group(world)
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


def test_g31_a_leader_that_never_syncs_is_removed_when_its_session_ends(world: GroupWorld) -> None:
    leader, _ = world.enter(session_ms=6_000)
    follower, _ = world.enter(session_ms=20_000)
    world.join(leader, session_ms=6_000)
    sync = world.sync(follower, 2)
    world.wait(6_000)
    assert sync.result().error_code == E.REBALANCE_IN_PROGRESS
    assert world.state() is S.PREPARING_REBALANCE
    assert world.join(follower).result().leader == follower


def test_g32_a_heartbeat_in_completing_rebalance_is_accepted(world: GroupWorld) -> None:
    leader, _ = world.enter()
    assert world.state() is S.COMPLETING_REBALANCE
    assert world.heartbeat(leader, 1) is E.NONE
