"""Membership without a loop: states, requests, and the effects of answers (K-30 to K-41, G-52)."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.assignors import resolve
from odradek_client.consumer.errors import IllegalState
from odradek_client.consumer.group.classic_membership import (
    ClassicGroupSettings,
    ClassicMembership,
    JoinState,
    leave_in_version,
)
from odradek_client.consumer.group.membership import MembershipAction
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.errors import FencedInstance, GroupAuthorizationFailed, InvalidGroup
from odradek_client.network.cluster import ClusterView
from odradek_client.structs import TopicPartition
from odradek_protocol import frames
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.constants import NO_GENERATION
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import DecodeError
from odradek_protocol.schemas.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek_protocol.schemas.sync_group import SyncGroupResponse
from odradek_protocol.stored.assignment import (
    ConsumerAssignment,
    decode_assignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import (
    ConsumerSubscription,
    OwnedPartitions,
    decode_subscription,
    encode_subscription,
)


def a_cluster(**counts: int) -> ClusterView:
    cluster = ClusterView(300_000)
    cluster.update(
        MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    name=name,
                    partitions=[
                        MetadataResponsePartition(partition_index=n, leader_id=1)
                        for n in range(count)
                    ],
                )
                for name, count in counts.items()
            ]
        ),
        0,
    )
    return cluster


def a_member(*topics: str, **settings: Any) -> tuple[ClassicMembership, SubscriptionState]:
    subscription = SubscriptionState()
    subscription.subscribe_topics(topics or ["t"])
    return (
        ClassicMembership(
            ClassicGroupSettings("g", **settings), subscription, resolve(["range", "roundrobin"])
        ),
        subscription,
    )


def joined(
    member: ClassicMembership, member_id: str = "m", leader: str = "other", generation: int = 4
) -> MembershipAction:
    member.join_request()
    return member.on_join(
        JoinGroupResponse(
            generation_id=generation, protocol_name="range", leader=leader, member_id=member_id
        )
    )


def assignment(*partitions: tuple[str, int]) -> bytes:
    return encode_assignment(
        ConsumerAssignment(
            assigned_partitions=[
                PartitionsOfTopic(topic=topic, partitions=[number]) for topic, number in partitions
            ]
        )
    )


def a_stable_member(*topics: str, **settings: Any) -> tuple[ClassicMembership, SubscriptionState]:
    member, subscription = a_member(*topics, **settings)
    joined(member)
    member.sync_request(a_cluster())
    assert (
        member.on_sync(SyncGroupResponse(assignment=assignment(("t", 0))), 0)
        is MembershipAction.GO_ON
    )
    subscription.assign_by_group(member.take_assignment())
    return member, subscription


def test_k30_a_follower_joins_syncs_and_becomes_stable() -> None:
    member, subscription = a_member()
    request = member.join_request()
    assert (request.group_id, request.member_id, request.protocol_type) == ("g", "", "consumer")
    assert [each.name for each in request.protocols] == ["range", "roundrobin"]
    assert decode_subscription(request.protocols[0].metadata).topics == ["t"]
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)
    answer = JoinGroupResponse(generation_id=1, protocol_name="range", leader="a", member_id="b")
    assert member.on_join(answer) is MembershipAction.GO_ON
    assert not member.is_leader
    sync = member.sync_request(a_cluster())
    assert (sync.generation_id, sync.member_id, sync.assignments) == (1, "b", [])
    assert (
        member.on_sync(SyncGroupResponse(assignment=assignment(("t", 2))), 0)
        is MembershipAction.GO_ON
    )
    assert member.take_assignment() == [TopicPartition("t", 2)]
    assert member.state is JoinState.STABLE
    assert (
        subscription.assigned() == set()
    )  # the group loop reconciles between the calls of the listener


def test_k30_the_leader_assigns_partitions_to_all_members() -> None:
    member, _ = a_member("t", "u")
    member.join_request()
    others = encode_subscription(ConsumerSubscription(topics=["t"]), 0)
    mine = encode_subscription(ConsumerSubscription(topics=["t", "u", "missing"]))
    response = JoinGroupResponse(
        generation_id=1,
        protocol_name="range",
        leader="m1",
        member_id="m1",
        members=[
            JoinGroupResponseMember(member_id="m1", metadata=mine),
            JoinGroupResponseMember(member_id="m2", metadata=others),
        ],
    )
    assert member.on_join(response) is MembershipAction.GO_ON
    assert member.topics_to_know() == {"t", "u", "missing"}
    request = member.sync_request(a_cluster(t=3, u=1))
    given = {
        each.member_id: [
            (part.topic, part.partitions)
            for part in decode_assignment(each.assignment).assigned_partitions
        ]
        for each in request.assignments
    }
    assert given == {"m1": [("t", [0, 1]), ("u", [0])], "m2": [("t", [2])]}


def test_g28_a_leader_told_to_skip_the_assignment_does_not_assign() -> None:
    member, _ = a_member()
    member.join_request()
    member.on_join(
        JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            leader="m",
            member_id="m",
            skip_assignment=True,
        )
    )
    assert member.sync_request(a_cluster(t=1)).assignments == []


def test_k36_member_id_required_rejoins_with_the_id_at_once() -> None:
    member, _ = a_member()
    member.join_request()
    answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="given")
    assert member.on_join(answer) is MembershipAction.JOIN
    assert member.join_request().member_id == "given"
    assert not member.lost


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, MembershipAction.BACK_OFF),
        (ErrorCode.REBALANCE_IN_PROGRESS, MembershipAction.BACK_OFF),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, MembershipAction.REDISCOVER),
        (ErrorCode.NOT_COORDINATOR, MembershipAction.REDISCOVER),
        (ErrorCode.UNKNOWN_MEMBER_ID, MembershipAction.JOIN),
    ],
)
def test_k36_join_errors_that_lead_to_another_join(
    code: ErrorCode, action: MembershipAction
) -> None:
    member, _ = a_member()
    member.member_id = "old"
    member.join_request()
    assert member.on_join(JoinGroupResponse(error_code=code)) is action
    assert (member.state, member.rejoin_reason is not None) == (JoinState.UNJOINED, True)
    expected = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else "old"
    assert member.join_request().member_id == expected


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (23, InvalidGroup),
        (24, InvalidGroup),
        (26, InvalidGroup),
        (30, GroupAuthorizationFailed),
        (81, InvalidGroup),
        (82, FencedInstance),
    ],
)
def test_k36_join_errors_that_are_raised(code: int, error: type[Exception]) -> None:
    member, _ = a_member()
    member.join_request()
    with pytest.raises(error, match="group 'g'"):
        member.on_join(JoinGroupResponse(error_code=code))
    member.join_request()  # The next poll is allowed to retry.


@pytest.mark.parametrize(
    ("code", "lost", "keeps_id"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, False, True),
        (ErrorCode.ILLEGAL_GENERATION, True, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, True, False),
    ],
)
def test_k37_sync_errors_lead_to_another_join(code: ErrorCode, lost: bool, keeps_id: bool) -> None:
    member, _ = a_member()
    joined(member)
    member.sync_request(a_cluster())
    assert member.on_sync(SyncGroupResponse(error_code=code), 0) is MembershipAction.JOIN
    assert member.lost is lost
    assert member.join_request().member_id == ("m" if keeps_id else "")


def test_k37_a_fenced_sync_is_raised() -> None:
    member, _ = a_member()
    joined(member)
    with pytest.raises(FencedInstance):
        member.on_sync(SyncGroupResponse(error_code=82), 0)


def test_k35_heartbeats_pause_until_joined() -> None:
    member, _ = a_member()
    assert member.heartbeat_due_ms(0) == -1
    joined(member)
    assert member.heartbeat_due_ms(0) == -1
    member.on_sync(SyncGroupResponse(assignment=b""), 1_000)
    assert member.heartbeat_due_ms(1_000) == 3_000
    request = member.heartbeat_request(4_000)
    assert (request.generation_id, request.member_id) == (4, "m")
    assert member.heartbeat_due_ms(4_000) == 3_000
    member.join_request()
    assert member.heartbeat_due_ms(9_000) == -1


def test_k35_heartbeats_continue_while_a_rejoin_waits_for_a_poll() -> None:
    member, _ = a_stable_member()
    assert member.on_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS, 4, 0) is MembershipAction.JOIN
    assert member.rejoin_reason is not None
    assert member.state is JoinState.STABLE
    assert member.heartbeat_due_ms(3_000) == 0
    assert not member.lost


@pytest.mark.parametrize(
    ("code", "keeps_id"),
    [(ErrorCode.ILLEGAL_GENERATION, True), (ErrorCode.UNKNOWN_MEMBER_ID, False)],
)
def test_k35_a_member_refused_by_generation_or_id_joins_again(
    code: ErrorCode, keeps_id: bool
) -> None:
    member, _ = a_stable_member()
    assert member.on_heartbeat(code, 4, 0) is MembershipAction.JOIN
    assert (member.lost, member.generation) == (True, NO_GENERATION)
    assert member.join_request().member_id == ("m" if keeps_id else "")


@pytest.mark.parametrize("code", [15, 16])
def test_k35_a_moved_coordinator_is_looked_up_again(code: int) -> None:
    member, _ = a_stable_member()
    assert member.on_heartbeat(code, 4, 0) is MembershipAction.REDISCOVER
    assert member.state is JoinState.STABLE
    assert member.rejoin_reason is None


@pytest.mark.parametrize("code", [30, 82])
def test_k35_fatal_heartbeat_errors_are_kept_for_the_next_poll(code: int) -> None:
    member, _ = a_stable_member()
    member.on_heartbeat(code, 4, 0)
    assert member.failure is not None
    assert member.failure.code == code
    assert member.lost is (code == 82)


def test_k35_heartbeat_answers_of_an_older_generation_are_ignored() -> None:
    member, _ = a_stable_member()
    assert member.on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID, 3, 0) is MembershipAction.IGNORE
    assert (member.generation, member.member_id, member.lost) == (4, "m", False)


def test_k35_a_member_that_is_not_polled_leaves_the_group() -> None:
    member, _ = a_stable_member(max_poll_interval_ms=1_000)
    member.polled(5_000)
    assert not member.poll_overdue(5_999)
    assert member.poll_overdue(6_000)
    request = member.leave_request("too slow")
    assert request is not None
    assert request.member_id == "m"
    assert (member.state, member.lost, member.member_id) == (JoinState.UNJOINED, True, "")


@pytest.mark.parametrize("version", range(6))
def test_g81_leaving_ends_heartbeats_and_forgets_the_member(version: int) -> None:
    """The effect is the same in all versions of LeaveGroup. From version 5 on the request has the
    reason."""
    member, _ = a_stable_member()
    assert member.heartbeat_due_ms(0) >= 0
    asked = member.leave_request("closing")
    assert asked is not None
    assert (member.state, member.member_id, member.generation) == (JoinState.UNJOINED, "", -1)
    assert member.heartbeat_due_ms(0) == -1
    request = leave_in_version(asked, version, "closing")
    if version < 3:
        assert (request.member_id, request.members) == ("m", [])
    else:
        (identity,) = request.members
        assert (request.member_id, identity.member_id) == ("", "m")
        assert identity.reason == ("closing" if version == 5 else None)
    frames.encode_request(request, version, 1, "client")


def test_k34_a_static_member_does_not_leave() -> None:
    member, _ = a_stable_member(group_instance_id="i")
    assert member.leave_request("closing") is None
    assert member.member_id == "m"
    assert member.leave_request("again") is None


def test_k34_a_member_that_never_joined_sends_no_leave_request() -> None:
    assert a_member()[0].leave_request("closing") is None


def test_k35_a_session_expires_without_heartbeat_answers() -> None:
    member, _ = a_stable_member(session_timeout_ms=10_000)
    assert not member.session_expired(9_999)
    assert member.session_expired(10_000)
    member.on_heartbeat(0, 4, 9_000)
    assert not member.session_expired(10_000)


def test_k32_a_changed_subscription_causes_a_rejoin() -> None:
    member, subscription = a_member("t", "u")
    joined(member)
    subscription.subscribe_topics(["t"])
    member.on_sync(SyncGroupResponse(assignment=assignment(("t", 0), ("u", 0))), 0)
    assert member.take_assignment() == [TopicPartition("t", 0)]
    assert member.rejoin_reason is not None


def test_k41_the_leader_rejoins_when_partition_counts_change() -> None:
    member, _ = a_member()
    member.join_request()
    mine = encode_subscription(ConsumerSubscription(topics=["t"]))
    member.on_join(
        JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            leader="m",
            member_id="m",
            members=[JoinGroupResponseMember(member_id="m", metadata=mine)],
        )
    )
    member.sync_request(a_cluster(t=1))
    member.on_sync(SyncGroupResponse(assignment=assignment(("t", 0))), 0)
    member.take_assignment()
    member.check_subscription(a_cluster(t=1, u=5))
    assert member.rejoin_reason is None
    member.check_subscription(a_cluster(t=2))
    assert member.rejoin_reason is not None


def test_k41_a_leader_that_skips_the_assignment_watches_partition_counts() -> None:
    """The leader is a static member that has returned (KIP-814). No other member would watch
    the partition counts."""
    member, _ = a_member()
    member.join_request()
    mine = encode_subscription(ConsumerSubscription(topics=["t"]))
    member.on_join(
        JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            leader="m",
            member_id="m",
            skip_assignment=True,
            members=[JoinGroupResponseMember(member_id="m", metadata=mine)],
        )
    )
    assert member.sync_request(a_cluster(t=1)).assignments == []
    member.on_sync(SyncGroupResponse(assignment=assignment(("t", 0))), 0)
    member.take_assignment()
    member.check_subscription(a_cluster(t=1))
    assert member.rejoin_reason is None
    member.check_subscription(a_cluster(t=2))
    assert member.rejoin_reason is not None


def test_k41_followers_ignore_changed_partition_counts() -> None:
    member, _ = a_stable_member()
    member.check_subscription(a_cluster(t=9))
    assert member.rejoin_reason is None


@pytest.mark.parametrize(
    ("strategies", "cooperative"),
    [
        (["cooperative-sticky"], True),
        (["range", "cooperative-sticky"], False),
        (["sticky"], False),
        (list(ConsumerConfig.from_settings({}).partition_assignment_strategy), False),
    ],
)
def test_k54_one_eager_assignor_makes_the_member_eager(
    strategies: list[str], cooperative: bool
) -> None:
    member = ClassicMembership(ClassicGroupSettings("g"), SubscriptionState(), resolve(strategies))
    assert member.cooperative is cooperative


def test_k53_owned_partitions_and_their_generation_are_sent_when_joining_again() -> None:
    subscription = SubscriptionState()
    subscription.subscribe_topics(["t"])
    member = ClassicMembership(
        ClassicGroupSettings("g"), subscription, resolve(["cooperative-sticky"])
    )
    member.join_request()
    member.on_join(
        JoinGroupResponse(
            generation_id=4, protocol_name="cooperative-sticky", leader="x", member_id="m"
        )
    )
    member.on_sync(SyncGroupResponse(assignment=assignment(("t", 0), ("t", 2))), 0)
    subscription.assign_by_group(member.take_assignment())
    member.notify_assignor()
    member.request_rejoin("test")
    said = decode_subscription(member.join_request().protocols[0].metadata)
    assert [(each.topic, each.partitions) for each in said.owned_partitions] == [("t", [0, 2])]
    assert said.generation_id == 4
    assert said.user_data == (4).to_bytes(4, "big")


def test_illegal_steps_of_a_classic_member_raise() -> None:
    member, _ = a_member()
    with pytest.raises(IllegalState, match="SyncGroup while unjoined"):
        member.sync_request(a_cluster())
    member.join_request()
    with pytest.raises(IllegalState, match="from joining to joining"):
        member.join_request()


def test_an_assignor_that_no_member_offered_is_refused() -> None:
    member, _ = a_member()
    member.join_request()
    with pytest.raises(InvalidGroup, match="strange"):
        member.on_join(JoinGroupResponse(protocol_name="strange", leader="x", member_id="m"))
    assert member.state is JoinState.UNJOINED


# --- G-52 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_g52_subscriptions_of_every_version_are_encoded_and_decoded(version: int) -> None:
    full = ConsumerSubscription(
        topics=["a", "b"],
        user_data=b"u",
        owned_partitions=[OwnedPartitions(topic="a", partitions=[0, 2])],
        generation_id=7,
        rack_id="r",
    )
    data = encode_subscription(full, version)
    assert data[:2] == version.to_bytes(2, "big")
    found = decode_subscription(data)
    assert (found.topics, found.user_data) == (["a", "b"], b"u")
    assert found.owned_partitions == (full.owned_partitions if version >= 1 else [])
    assert found.generation_id == (7 if version >= 2 else -1)
    assert found.rack_id == ("r" if version >= 3 else None)


def test_g52_a_subscription_of_a_newer_version_is_read() -> None:
    data = encode_subscription(ConsumerSubscription(topics=["a"]))
    assert decode_subscription(b"\x00\x09" + data[2:] + b"more").topics == ["a"]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x00\x00\x00\x00\x05"])
def test_g52_an_invalid_subscription_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_subscription(data)


def test_g52_subscriptions_and_assignments_are_encoded_as_by_aiokafka() -> None:
    from aiokafka.coordinator.protocol import (
        ConsumerProtocolMemberAssignment,
        ConsumerProtocolMemberMetadata,
    )

    theirs = ConsumerProtocolMemberMetadata(0, ["a", "b"], b"x")
    assert encode_subscription(ConsumerSubscription(topics=["a", "b"], user_data=b"x"), 0) == bytes(
        theirs.encode()
    )
    assigned = ConsumerProtocolMemberAssignment(0, [("a", [0, 1])], b"")
    ours = decode_assignment(bytes(assigned.encode()))
    assert ours.assigned_partitions == [PartitionsOfTopic(topic="a", partitions=[0, 1])]
    assert encode_assignment(ours, 0) == bytes(assigned.encode())


def test_g52_no_bytes_are_an_empty_assignment() -> None:
    assert decode_assignment(b"").assigned_partitions == []
