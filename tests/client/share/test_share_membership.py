"""The member of a share group, without a loop: joining, assignments, errors, leaving."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from odradek_client.consumer.group.membership import MembershipAction, MembershipSettings
from odradek_client.errors import (
    GroupAuthorizationFailed,
    IllegalState,
    InvalidGroup,
    UnsupportedByBroker,
)
from odradek_client.share.membership import SHARE_STEPS, ShareMembership, ShareMemberState
from odradek_protocol.common_structs import GroupAssignment, PartitionsOfTopicId
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatResponse

TOPIC = bytes(range(16))
TOPICS = frozenset({"t"})


def answer(epoch: int = 1, partitions: list[int] | None = None, **more: Any) -> Any:
    assignment = None
    if partitions is not None:
        assignment = GroupAssignment(
            topic_partitions=[PartitionsOfTopicId(topic_id=TOPIC, partitions=partitions)]
        )
    return ShareGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assignment, **more
    )


@pytest.fixture
def member() -> ShareMembership:
    return ShareMembership(MembershipSettings("g", max_poll_interval_ms=1_000), "m", "rack")


def beat(member: ShareMembership, response: Any, now_ms: int = 0) -> tuple[Any, MembershipAction]:
    request = member.heartbeat_request(TOPICS, now_ms)
    return request, member.on_heartbeat(request, response, now_ms)


@pytest.fixture
def joined(member: ShareMembership) -> ShareMembership:
    member.join()
    beat(member, answer(3, [0, 1]))
    return member


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.product(ShareMemberState, ShareMemberState))
)
def test_a_share_member_takes_only_the_steps_of_its_state_table(
    member: ShareMembership, before: ShareMemberState, after: ShareMemberState
) -> None:
    member.state = before
    if after in SHARE_STEPS[before]:
        member._step(after)
        assert member.state is after
    else:
        with pytest.raises(IllegalState):
            member._step(after)


def test_k80_a_join_sends_all_fields_and_later_heartbeats_only_changes(
    member: ShareMembership,
) -> None:
    member.join()
    request, action = beat(member, answer(3, [0, 1]))
    assert (request.member_epoch, request.rack_id) == (0, "rack")
    assert request.subscribed_topic_names == ["t"]
    assert action is MembershipAction.GO_ON and member.in_group
    assert member.assignment == {TOPIC: {0, 1}}
    assert member.heartbeat_due_ms(0) == 5_000
    request, _ = beat(member, answer(4))
    assert request.subscribed_topic_names is None and request.rack_id is None
    assert request.member_epoch == 3
    assert member.epoch == 4 and member.assignment == {TOPIC: {0, 1}}


def test_k80_an_empty_assignment_revokes_all_partitions(joined: ShareMembership) -> None:
    beat(joined, answer(4, []))
    assert joined.assignment == {}


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND],
)
def test_k81_a_removed_member_joins_again(joined: ShareMembership, code: ErrorCode) -> None:
    _, action = beat(joined, answer(error_code=code))
    assert action is MembershipAction.JOIN and joined.state is ShareMemberState.JOINING
    assert joined.assignment == {} and joined.heartbeat_due_ms(0) == 0
    request, action = beat(joined, answer(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    assert request.member_epoch == 0 and request.subscribed_topic_names == ["t"]
    assert action is MembershipAction.BACK_OFF


def test_k81_a_group_of_another_kind_is_a_final_error(member: ShareMembership) -> None:
    member.join()
    beat(member, answer(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    assert isinstance(member.failure, InvalidGroup)
    assert "another kind" in str(member.failure)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ErrorCode.NOT_COORDINATOR, MembershipAction.REDISCOVER),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, MembershipAction.REDISCOVER),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, MembershipAction.BACK_OFF),
    ],
)
def test_k81_a_coordinator_that_cannot_answer_is_asked_again(
    joined: ShareMembership, code: ErrorCode, action: MembershipAction
) -> None:
    assert beat(joined, answer(error_code=code))[1] is action
    assert joined.state is ShareMemberState.STABLE and joined.assignment
    assert joined.heartbeat_request(TOPICS, 0).subscribed_topic_names == ["t"]


def test_k81_a_refusal_is_final_until_the_member_leaves(joined: ShareMembership) -> None:
    beat(joined, answer(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert isinstance(joined.failure, GroupAuthorizationFailed)
    states = [joined.state]
    assert joined.heartbeat_due_ms(0) == -1
    assert not joined.leave()
    states.append(joined.state)
    assert states == [ShareMemberState.FATAL, ShareMemberState.UNSUBSCRIBED]


def test_k81_a_cluster_without_share_groups_names_the_missing_feature(
    member: ShareMembership,
) -> None:
    member.join()
    beat(member, answer(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert isinstance(member.failure, UnsupportedByBroker)
    assert "share.version" in str(member.failure)


def test_k80_topics_are_sent_again_after_a_lost_answer(joined: ShareMembership) -> None:
    request = joined.heartbeat_request(frozenset({"t", "u"}), 0)
    assert request.subscribed_topic_names == ["t", "u"]
    joined.on_no_answer(request, 0)
    assert joined.heartbeat_request(frozenset({"t", "u"}), 0).subscribed_topic_names == ["t", "u"]


def test_k82_leaving_is_one_heartbeat(joined: ShareMembership) -> None:
    assert joined.leave()
    request = joined.heartbeat_request(TOPICS, 0)
    assert request.member_epoch == -1
    assert joined.state is ShareMemberState.UNSUBSCRIBED and joined.assignment == {}
    assert joined.on_heartbeat(request, answer(-1), 0) is MembershipAction.IGNORE


def test_k82_a_member_that_is_not_polled_leaves_and_joins_on_the_next_poll(
    joined: ShareMembership,
) -> None:
    joined.polled(0)
    assert not joined.poll_overdue(999) and joined.poll_overdue(1_000)
    joined.leave(stale=True)
    joined.heartbeat_request(TOPICS, 0)
    assert joined.state is ShareMemberState.STALE
    joined.join()
    assert joined.epoch == 0


def test_k81_an_answer_to_an_earlier_membership_is_ignored(joined: ShareMembership) -> None:
    request = joined.heartbeat_request(TOPICS, 0)
    joined.leave()
    joined.left()
    joined.join()
    assert joined.on_heartbeat(request, answer(4, [5]), 0) is MembershipAction.IGNORE
    assert joined.assignment == {}
