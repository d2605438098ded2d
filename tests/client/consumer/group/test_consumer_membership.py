"""Membership of KIP-848 without a loop: states, heartbeats, and the effects of answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from odradek_client.consumer.errors import CommitFailed, IllegalState
from odradek_client.consumer.group.consumer_membership import (
    HEARTBEATING,
    MEMBER_STATE_STEPS,
    ConsumerMembership,
    ConsumerMembershipSettings,
    MemberState,
    MemberSubscription,
    Reconciliation,
)
from odradek_client.consumer.group.membership import MembershipAction
from odradek_client.consumer.group.offset_requests import CoordinatorRetry, read_offset_commit
from odradek_client.errors import (
    FencedInstance,
    GroupAuthorizationFailed,
    OdradekError,
    RebalanceInProgress,
)
from odradek_client.structs import TopicPartition
from odradek_protocol.common_structs import (
    GroupAssignment,
    PartitionError,
    PartitionsOfTopicId,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)

T, U = b"T" * 16, b"U" * 16
NAMES = {T: "t", U: "u"}
WISH = MemberSubscription(topics=frozenset({"t"}))
INTERVAL_MS = 5_000


def answer(
    epoch: int = 1, partitions: dict[bytes, list[int]] | None = None, **more: Any
) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if partitions is not None:
        assignment = GroupAssignment(
            topic_partitions=[
                PartitionsOfTopicId(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in partitions.items()
            ]
        )
    more.setdefault("error_code", ErrorCode.NONE)
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        member_epoch=epoch,
        heartbeat_interval_ms=INTERVAL_MS,
        assignment=assignment,
        **more,
    )


class Driven:
    """A member whose heartbeats and clock the test drives."""

    def __init__(self, **settings: Any) -> None:
        self.member = ConsumerMembership(ConsumerMembershipSettings("g", **settings), "m")
        self.now_ms = 1_000

    def ask(
        self, wish: MemberSubscription = WISH, version: int = 1
    ) -> ConsumerGroupHeartbeatRequest:
        return self.member.heartbeat_request(wish, version, self.now_ms)

    def beat(self, response: ConsumerGroupHeartbeatResponse, **more: Any) -> MembershipAction:
        return self.member.on_heartbeat(self.ask(**more), response, self.now_ms)

    def state(self) -> MemberState:
        return self.member.state

    def step(self) -> Reconciliation:
        step = self.member.reconcile(NAMES)
        assert step is not None
        return step


def joined(*numbers: int, **settings: Any) -> Driven:
    """A stable member with these partitions of t."""
    driven = Driven(**settings)
    driven.member.join()
    driven.beat(answer(1, {T: list(numbers)} if numbers else {}))
    if numbers:
        driven.member.reconciled(driven.step())
        driven.beat(answer(1))
    assert driven.state() is MemberState.STABLE
    return driven


def said(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: each.partitions for each in request.topic_partitions}


def test_a_target_waits_for_the_answer_to_a_report_of_fewer_partitions() -> None:
    """If a report leaves out partitions, the coordinator immediately assigns them to other members.
    If the member took its next target before the answer, two members would have the same
    partitions."""
    driven = Driven()
    driven.member.join()
    driven.beat(answer(1, {T: [0, 1]}))
    first = driven.step()
    driven.beat(answer(2, {T: [0, 1, 2, 3]}))  # a new target while the first is reconciled
    driven.member.reconciled(first)
    report = driven.ask()
    assert said(report) == {T: [0, 1]}
    assert driven.state() is MemberState.RECONCILING
    assert driven.member.reconcile(NAMES) is None
    driven.member.on_no_answer(report, driven.now_ms)
    assert driven.member.reconcile(NAMES) is None
    driven.beat(answer(3, {T: [0, 1, 2]}))
    assert driven.step().owned == {T: frozenset({0, 1, 2})}


def test_a_full_heartbeat_reports_partitions_being_reconciled() -> None:
    """Listeners may already know these partitions. If a heartbeat did not report the partitions,
    they would be assigned to other members."""
    driven = Driven()
    driven.member.join()
    driven.beat(answer(1, {T: [0, 1]}))
    step = driven.step()
    refused = driven.ask()
    assert said(refused) is None
    driven.member.on_heartbeat(refused, answer(error_code=ErrorCode.NOT_COORDINATOR), driven.now_ms)
    assert said(driven.ask()) == {T: [0, 1]}
    assert said(driven.ask()) is None
    driven.member.reconciled(step)
    assert said(driven.ask()) is None
    assert driven.state() is MemberState.STABLE


# --- joining --------------------------------------------------------------------------------------


def test_a_joining_heartbeat_has_all_fields() -> None:
    driven = Driven(group_instance_id="i", rack_id="r", remote_assignor="range")
    assert driven.member.heartbeat_due_ms(0) == -1
    driven.member.join()
    assert driven.member.heartbeat_due_ms(0) == 0
    request = driven.ask()
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "m", 0)
    assert (request.instance_id, request.rack_id, request.server_assignor) == ("i", "r", "range")
    assert request.rebalance_timeout_ms == 300_000
    assert request.subscribed_topic_names == ["t"]
    assert request.subscribed_topic_regex == ""
    assert said(request) == {}


def test_later_heartbeats_have_only_changed_fields() -> None:
    driven = joined(0, group_instance_id="i", rack_id="r")
    request = driven.ask()
    assert (request.member_epoch, request.instance_id) == (1, "i")
    assert request.rack_id is None
    assert request.rebalance_timeout_ms == -1
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (None, None)
    assert said(request) is None
    request = driven.ask(MemberSubscription(topics=frozenset({"t", "u"})))
    assert request.subscribed_topic_names == ["t", "u"]


def test_a_pattern_is_sent_to_the_broker_and_can_be_withdrawn() -> None:
    driven = Driven()
    driven.member.join()
    request = driven.ask(MemberSubscription(regex="t.*"))
    assert (request.subscribed_topic_regex, request.subscribed_topic_names) == ("t.*", [])
    request = driven.ask(WISH)
    assert (request.subscribed_topic_regex, request.subscribed_topic_names) == ("", ["t"])


def test_heartbeats_of_version_0_have_no_pattern() -> None:
    driven = Driven()
    driven.member.join()
    request = driven.member.heartbeat_request(WISH, 0, 0)
    assert request.subscribed_topic_regex is None
    assert request.subscribed_topic_names == ["t"]


def test_all_fields_are_sent_again_after_a_lost_heartbeat_answer() -> None:
    driven = joined(0)
    request = driven.ask(MemberSubscription(topics=frozenset({"u"})))
    driven.member.on_no_answer(request, driven.now_ms)
    again = driven.ask(MemberSubscription(topics=frozenset({"u"})))
    assert again.subscribed_topic_names == ["u"]
    assert again.rebalance_timeout_ms == 300_000
    assert said(again) == {T: [0]}


def test_a_member_answered_with_epoch_0_keeps_joining() -> None:
    driven = Driven()
    driven.member.join()
    driven.beat(answer(0))
    assert driven.state() is MemberState.JOINING
    assert driven.member.heartbeat_due_ms(driven.now_ms) == INTERVAL_MS
    again = driven.ask()
    assert (again.member_epoch, again.subscribed_topic_names) == (0, ["t"])


# --- reconciling ----------------------------------------------------------------------------------


def test_a_target_assignment_is_reconciled_and_acknowledged_at_once() -> None:
    driven = Driven()
    member = driven.member
    member.join()
    assert driven.beat(answer(3, {T: [0, 1]})) is MembershipAction.GO_ON
    assert (member.state, member.epoch) == (MemberState.RECONCILING, 3)
    assert member.heartbeat_due_ms(driven.now_ms) == INTERVAL_MS
    step = driven.step()
    assert step.assigned == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert step.complete
    # Heartbeats during the reconciliation do not report the new partitions yet.
    assert said(driven.ask()) is None
    member.reconciled(step)
    assert driven.state() is MemberState.ACKNOWLEDGING
    assert member.heartbeat_due_ms(driven.now_ms) == 0
    assert said(driven.ask()) == {T: [0, 1]}
    assert driven.state() is MemberState.STABLE
    assert member.in_group


def test_a_late_heartbeat_answer_does_not_delay_the_acknowledgement() -> None:
    driven = joined(0)
    member = driven.member
    driven.beat(answer(2, {T: [0, 1]}))
    late = driven.ask()
    member.reconciled(driven.step())
    member.on_heartbeat(late, answer(2), driven.now_ms)
    assert member.heartbeat_due_ms(driven.now_ms) == 0
    assert said(driven.ask()) == {T: [0, 1]}


def test_an_unchanged_target_assignment_changes_nothing() -> None:
    driven = joined(0)
    driven.beat(answer(5, {T: [0]}))
    assert (driven.member.state, driven.member.epoch) == (MemberState.STABLE, 5)
    assert driven.member.reconcile(NAMES) is None


def test_an_empty_target_makes_a_member_without_partitions_stable() -> None:
    driven = Driven()
    driven.member.join()
    driven.beat(answer(1, {}))
    assert driven.state() is MemberState.STABLE


def test_a_new_target_is_reconciled_after_the_current_one() -> None:
    driven = joined(0)
    driven.beat(answer(2, {T: [0, 1]}))
    step = driven.step()
    driven.beat(answer(3, {T: [1]}))
    driven.member.reconciled(step)
    assert said(driven.ask()) == {T: [0, 1]}
    assert driven.state() is MemberState.RECONCILING
    assert driven.step().assigned == {TopicPartition("t", 1)}


def test_a_target_reverted_during_reconciliation_is_reconciled_next() -> None:
    driven = joined(0)
    driven.beat(answer(2, {T: [0, 1]}))
    step = driven.step()
    driven.beat(answer(3, {T: [0]}))
    assert driven.state() is MemberState.RECONCILING
    driven.member.reconciled(step)
    assert said(driven.ask()) == {T: [0, 1]}
    assert driven.step().assigned == {TopicPartition("t", 0)}


def test_assigned_topic_ids_without_a_known_name_wait_for_metadata() -> None:
    driven = joined()
    member = driven.member
    driven.beat(answer(2, {T: [0], U: [1]}))
    assert member.unnamed({T: "t"})
    step = member.reconcile({T: "t"})
    assert step is not None
    assert step.assigned == {TopicPartition("t", 0)}
    assert not step.complete
    member.reconciled(step)
    report = driven.ask()
    assert said(report) == {T: [0]}
    assert driven.state() is MemberState.RECONCILING
    member.on_heartbeat(report, answer(2), driven.now_ms)
    assert member.reconcile({T: "t"}) is None
    assert driven.step().assigned == {TopicPartition("t", 0), TopicPartition("u", 1)}


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND],
)
def test_k35_a_fenced_member_joins_again_with_its_id(code: ErrorCode) -> None:
    driven = joined(0)
    member = driven.member
    assert driven.beat(answer(error_code=code)) is MembershipAction.JOIN
    assert driven.state() is MemberState.FENCED
    assert not member.in_group
    assert member.heartbeat_due_ms(0) == -1
    member.rejoin()
    request = driven.ask()
    assert (request.member_id, request.member_epoch) == ("m", 0)
    assert said(request) == {}


def test_k35_an_answer_from_before_the_fencing_is_ignored() -> None:
    driven = joined(0)
    old = driven.ask()
    driven.beat(answer(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    driven.member.rejoin()
    assert driven.member.on_heartbeat(old, answer(9, {T: [5]}), 0) is MembershipAction.IGNORE
    assert driven.member.epoch == 0
    assert driven.state() is MemberState.JOINING


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ErrorCode.NOT_COORDINATOR, MembershipAction.REDISCOVER),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, MembershipAction.REDISCOVER),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, MembershipAction.BACK_OFF),
    ],
)
def test_k35_retriable_heartbeat_errors_are_retried(
    code: ErrorCode, action: MembershipAction
) -> None:
    driven = joined(0)
    assert driven.beat(answer(error_code=code)) is action
    assert driven.state() is MemberState.STABLE
    assert driven.member.heartbeat_due_ms(driven.now_ms) == 0
    assert said(driven.ask()) == {T: [0]}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstance),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, Exception),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, Exception),
        (ErrorCode.UNRELEASED_INSTANCE_ID, Exception),
    ],
)
def test_k35_fatal_heartbeat_errors_are_kept_for_the_next_poll(
    code: ErrorCode, error: type[Exception]
) -> None:
    driven = joined(0)
    driven.beat(answer(error_code=code, error_message="so it is"))
    assert driven.state() is MemberState.FATAL
    assert isinstance(driven.member.failure, error)
    assert "so it is" in str(driven.member.failure)
    assert driven.member.heartbeat_due_ms(0) == -1


# --- leaving --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_k34_a_leaving_member_sends_its_leave_at_once(instance_id: str | None, epoch: int) -> None:
    driven = joined(0, group_instance_id=instance_id)
    member = driven.member
    assert member.prepare_leaving()
    assert not member.in_group
    # Heartbeats are sent while listeners run; a new assignment is ignored.
    assert driven.beat(answer(9, {T: [0, 1]})) is MembershipAction.IGNORE
    assert driven.state() is MemberState.PREPARE_LEAVING
    member.leave()
    assert member.heartbeat_due_ms(driven.now_ms) == 0
    request = driven.ask()
    assert (request.member_epoch, request.subscribed_topic_names) == (epoch, None)
    assert driven.state() is MemberState.UNSUBSCRIBED
    assert driven.member.on_heartbeat(request, answer(epoch), 0) is MembershipAction.IGNORE


def test_k34_a_member_whose_leave_was_not_sent_is_unsubscribed_anyway() -> None:
    driven = joined(0)
    driven.member.prepare_leaving()
    driven.member.leave()
    driven.member.left()
    assert driven.state() is MemberState.UNSUBSCRIBED
    driven.member.join()
    request = driven.ask()
    assert (request.member_epoch, request.subscribed_topic_names) == (0, ["t"])


def test_k34_a_consumer_outside_of_the_group_sends_no_leave() -> None:
    assert not Driven().member.prepare_leaving()
    driven = joined(0)
    driven.beat(answer(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    assert not driven.member.prepare_leaving()
    assert driven.state() is MemberState.UNSUBSCRIBED


def test_k35_a_member_that_is_not_polled_leaves_and_joins_again() -> None:
    driven = joined(0, max_poll_interval_ms=100)
    member = driven.member
    member.polled(1_000)
    assert not member.poll_overdue(1_099)
    assert member.poll_overdue(1_100)
    member.prepare_leaving()
    member.leave(stale=True)
    assert driven.ask().member_epoch == -1
    assert driven.state() is MemberState.STALE
    assert not member.poll_overdue(9_999)
    member.rejoin()
    assert driven.ask().member_epoch == 0


def test_k35_a_late_heartbeat_answer_to_a_leaving_member_is_ignored() -> None:
    driven = joined(0)
    late = driven.ask()
    driven.member.prepare_leaving()
    driven.member.leave()
    refusal = answer(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert driven.member.on_heartbeat(late, refusal, 0) is MembershipAction.IGNORE
    assert driven.ask().member_epoch == -1
    driven.member.fail(OdradekError("no connection"))
    assert driven.state() is MemberState.UNSUBSCRIBED
    assert driven.member.failure is None


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_k38_a_commit_with_a_stale_member_epoch_is_retried(code: ErrorCode) -> None:
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="t",
                partitions=[PartitionError(partition_index=0, error_code=code)],
            )
        ]
    )
    stale = code is ErrorCode.STALE_MEMBER_EPOCH
    if stale:
        verdict = read_offset_commit(response, "g", lambda _: False, lambda each: each is code)
        assert verdict is CoordinatorRetry.BACK_OFF
    with pytest.raises(CommitFailed):
        read_offset_commit(response, "g", lambda _: False, lambda _: False)
    with pytest.raises(RebalanceInProgress):
        read_offset_commit(response, "g", lambda _: True)


# --- the table ------------------------------------------------------------------------------------


def test_illegal_steps_of_a_consumer_member_raise() -> None:
    driven = Driven()
    for illegal in (
        driven.ask,
        driven.member.leave,
        driven.member.rejoin,
        lambda: driven.member.reconciled(Reconciliation(frozenset(), {}, 0, True)),
    ):
        with pytest.raises(IllegalState):
            illegal()
    driven.member.join()
    with pytest.raises(IllegalState):
        driven.member.join()


def test_every_state_can_be_reached_and_left() -> None:
    reached = {state for steps in MEMBER_STATE_STEPS.values() for state in steps}
    assert reached == set(MemberState) == set(MEMBER_STATE_STEPS)
    assert all(MEMBER_STATE_STEPS.values())


@pytest.mark.parametrize("seed", range(30))
def test_random_events_take_legal_steps_and_report_the_owned_partitions(seed: int) -> None:
    """Random events cause no illegal step, and reported partitions are always the owned ones."""
    rng = random.Random(seed)
    driven = joined(0)
    member = driven.member
    codes = [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    ]
    epoch, step, in_flight = 1, None, None
    for _ in range(400):
        match rng.randrange(6):
            case 0 if member.state in HEARTBEATING and in_flight is None:
                in_flight = driven.ask()
            case 1 if in_flight is not None:
                epoch += 1
                target = {T: rng.sample(range(4), rng.randrange(4))} if rng.random() < 0.5 else None
                member.on_heartbeat(in_flight, answer(epoch, target), driven.now_ms)
                in_flight = None
            case 2 if in_flight is not None and rng.random() < 0.3:
                error = answer(error_code=rng.choice(codes))
                member.on_heartbeat(in_flight, error, driven.now_ms)
                in_flight = None
            case 3 if in_flight is not None and rng.random() < 0.3:
                member.on_no_answer(in_flight, driven.now_ms)
                in_flight = None
            case 4 if driven.state() is MemberState.RECONCILING:
                if step is None:
                    step = member.reconcile(NAMES)
                else:
                    member.reconciled(step)
                    step = None
                    request = driven.ask()
                    owned = {number for some in (said(request) or {}).values() for number in some}
                    expected = {number for some in member._owned.values() for number in some}
                    assert said(request) is None or owned == expected
                    member.on_no_answer(request, driven.now_ms)
            case 5 if member.state in (MemberState.FENCED, MemberState.STALE):
                step = None
                member.rejoin()
            case 5 if rng.random() < 0.05 and member.prepare_leaving():
                member.leave(stale=True)
                driven.ask()
                in_flight = step = None
