"""The membership in a group in the classic protocol: requests to the coordinator, and the reactions
to its answers.

A member is in one of these states; `JOIN_STATE_STEPS` has the legal steps (K-30)::

    UNJOINED   not in the group's current generation: the next poll joins
    JOINING    JoinGroup was sent; heartbeats pause (K-31)
    SYNCING    in the new generation; SyncGroup was sent, or the leader is assigning before it
    STABLE     the assignment has arrived; heartbeats are sent, even while `rejoin_reason` is set

Every answer of an older generation than the current one is ignored (K-35).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from odradek_client.consumer.assignors import Assignor, GroupMember
from odradek_client.consumer.errors import IllegalState
from odradek_client.consumer.group.membership import (
    NO_MEMBER_ID,
    Membership,
    MembershipAction,
    MembershipSettings,
)
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.errors import OdradekError, error_for
from odradek_client.network.cluster import ClusterView
from odradek_client.structs import TopicPartition, numbers_by_topic
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.constants import NO_GENERATION
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek_protocol.schemas.leave_group import (
    MEMBERS_SINCE,
    REASON_SINCE,
    LeaveGroupRequest,
    MemberIdentity,
)
from odradek_protocol.schemas.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek_protocol.stored.assignment import (
    ConsumerAssignment,
    decode_assignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import (
    PROTOCOL_TYPE,
    ConsumerSubscription,
    OwnedPartitions,
    decode_subscription,
    encode_subscription,
)

LEAVE_GROUP_NEWEST = 5

#: The time that a JoinGroup may take in addition to the rebalance timeout (K-36).
JOIN_SLACK_MS = 5_000


class JoinState(Enum):
    """The state of a member, classic protocol."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


JOIN_STATE_STEPS: dict[JoinState, frozenset[JoinState]] = {
    JoinState.UNJOINED: frozenset({JoinState.UNJOINED, JoinState.JOINING}),
    JoinState.JOINING: frozenset({JoinState.UNJOINED, JoinState.SYNCING}),
    JoinState.SYNCING: frozenset({JoinState.UNJOINED, JoinState.STABLE}),
    JoinState.STABLE: frozenset({JoinState.UNJOINED, JoinState.JOINING}),
}


@dataclass(frozen=True, slots=True)
class ClassicGroupSettings(MembershipSettings):
    """The constants of a membership in the classic protocol."""

    heartbeat_interval_ms: int = 3_000


class ClassicMembership(Membership):
    """The membership of a consumer in its group, classic protocol.

    Each request has the generation at the time of the request. The caller passes this generation
    back together with the answer, so that answers of an older generation are recognized.
    """

    state: JoinState

    def __init__(
        self,
        settings: ClassicGroupSettings,
        subscription: SubscriptionState,
        assignors: Mapping[str, Assignor],
    ) -> None:
        super().__init__(settings, NO_MEMBER_ID, JOIN_STATE_STEPS, {JoinState.STABLE})
        self._heartbeat_interval_ms = settings.heartbeat_interval_ms
        self._subscription = subscription
        self._assignors = assignors
        self.state = JoinState.UNJOINED
        self.generation = NO_GENERATION
        #: True if the partitions may already belong to other members, so that the listener's
        #: `on_partitions_lost` is called instead of `on_partitions_revoked`.
        self.lost = False
        #: The reason why the next poll has to join; None if it need not join.
        self.rejoin_reason: str | None = "the first join"
        self._protocol = ""
        #: The assignment that this member makes while it is the leader; None otherwise.
        self._leader_assignment: LeaderAssignment | None = None
        self._joined_topics: frozenset[str] = frozenset()
        self._assigned: list[TopicPartition] = []
        self._user_data: bytes | None = None

    @property
    def generation_or_epoch(self) -> int:
        return self.generation

    @property
    def in_group(self) -> bool:
        """True if the member owns its partitions, unless the session has expired."""
        return self.generation != NO_GENERATION and not self.lost

    @property
    def may_commit(self) -> bool:
        """True only in a generation whose assignment has arrived."""
        return self.state is JoinState.STABLE

    @property
    def is_leader(self) -> bool:
        """True if this member is the leader of the current generation, including a static leader
        that has rejoined after a restart."""
        return self._leader_assignment is not None

    @property
    def cooperative(self) -> bool:
        """True if partitions are kept during a rebalance: every offered assignor is cooperative
        (K-54)."""
        return all(assignor.cooperative for assignor in self._assignors.values())

    @property
    def rebalancing(self) -> bool:
        """True if a join is needed or under way."""
        return self.state is not JoinState.STABLE or self.rejoin_reason is not None

    def request_rejoin(self, reason: str) -> None:
        """Join at the next poll; the first reason stays."""
        if self.rejoin_reason is None:
            self.rejoin_reason = reason

    # --- JoinGroup ---

    def join_request(self) -> JoinGroupRequest:
        """The JoinGroup with the present subscription."""
        subscription = self._subscription
        topics = sorted(subscription.topics)
        # Assignors of the application are called before the state changes, because they may raise.
        protocols = [
            JoinGroupRequestProtocol(
                name=name, metadata=self._metadata(topics, subscription.assigned(), assignor)
            )
            for name, assignor in self._assignors.items()
        ]
        self._step(JoinState.JOINING)
        self._joined_topics = subscription.topics
        self._leader_assignment = None
        reason, self.rejoin_reason = self.rejoin_reason, None
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=reason,
        )

    def _metadata(
        self, topics: list[str], owned: Iterable[TopicPartition], assignor: Assignor
    ) -> bytes:
        return encode_subscription(
            ConsumerSubscription(
                topics=topics,
                user_data=assignor.user_data(frozenset(topics)),
                owned_partitions=[
                    OwnedPartitions(topic=topic, partitions=numbers)
                    for topic, numbers in numbers_by_topic(owned).items()
                ],
                generation_id=self.generation,
            )
        )

    def on_join(self, response: JoinGroupResponse) -> MembershipAction:
        """Take the answer to JoinGroup: enter the new generation, or react to the error. Raises
        errors that another join does not resolve."""
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._step(JoinState.UNJOINED)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            return self._act_on(code, JOIN_ERRORS, "JoinGroup")
        self.member_id = response.member_id
        self.generation = response.generation_id
        self._protocol = response.protocol_name or ""
        if self._protocol not in self._assignors:
            self._step(JoinState.UNJOINED)
            raise error_for(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"chose {self._protocol!r}",
                about=self.about,
            )
        self._step(JoinState.SYNCING)
        leads = response.leader == response.member_id
        # A static leader that has rejoined need not assign partitions, but has to detect new
        # partitions.
        skips = response.skip_assignment
        self._leader_assignment = LeaderAssignment(response.members, skips) if leads else None
        return MembershipAction.GO_ON

    def on_join_failure(self) -> None:
        """Return to UNJOINED after a JoinGroup or SyncGroup that was not answered."""
        if self.state in (JoinState.JOINING, JoinState.SYNCING):
            self._step(JoinState.UNJOINED)
            self.request_rejoin("an answer of the coordinator was lost")

    # --- SyncGroup ---

    def topics_to_know(self) -> frozenset[str]:
        """The topics whose metadata the leader needs to assign: the topics of every member."""
        led = self._leader_assignment
        return frozenset() if led is None else led.topics

    def sync_request(self, cluster: ClusterView) -> SyncGroupRequest:
        """The SyncGroup, with the assignment of all members if this member is the leader.
        IllegalState unless SYNCING."""
        if self.state is not JoinState.SYNCING:
            raise IllegalState(f"SyncGroup while {self.state.value}")
        led = self._leader_assignment
        assignments = [] if led is None else led.assign(self._assignors[self._protocol], cluster)
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=assignments,
        )

    def on_sync(self, response: SyncGroupResponse, now_ms: int) -> MembershipAction:
        """Take the answer to SyncGroup: become stable, or react to the error. Raises errors that
        another join does not resolve."""
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._step(JoinState.UNJOINED)
            return self._act_on(code, SYNC_ERRORS, "SyncGroup")
        decoded = decode_assignment(response.assignment)
        self._assigned = [
            TopicPartition(given.topic, number)
            for given in decoded.assigned_partitions
            for number in given.partitions
        ]
        self._user_data = decoded.user_data
        self._step(JoinState.STABLE)
        self._heard(now_ms)
        return MembershipAction.GO_ON

    def take_assignment(self) -> list[TopicPartition]:
        """The partitions of this member, after `on_sync`. The group loop passes them to the
        subscription.

        Partitions of topics that are not subscribed any more are left out, and the member joins
        again (K-32).
        """
        self.lost = False
        wanted = self._subscription.topics
        if self._joined_topics != wanted:
            self.request_rejoin("the subscription changed during the rebalance")
        if any(each.topic not in wanted for each in self._assigned):
            self.request_rejoin("assigned partitions of topics that are not subscribed")
        return [each for each in self._assigned if each.topic in wanted]

    def notify_assignor(self) -> None:
        """Call `on_assignment` of the group's assignor. Raises its exceptions."""
        self._assignors[self._protocol].on_assignment(
            self._assigned, self._user_data, self.generation
        )

    # --- what the subscription and the metadata say ---

    def check_subscription(self, cluster: ClusterView) -> None:
        """Rejoin if topics or, for the leader, partition counts changed since the join (K-41)."""
        if self.state is not JoinState.STABLE:
            return
        if self._joined_topics != self._subscription.topics:
            self.request_rejoin("the subscription changed")
        elif self._leader_assignment is not None and self._leader_assignment.is_outdated(cluster):
            self.request_rejoin("the partitions of subscribed topics changed")

    # --- Heartbeat ---

    def session_left_ms(self, now_ms: int) -> int:
        """The time until the coordinator removes this member, in ms. While a JoinGroup or SyncGroup
        is unanswered, the member is not removed (G-70)."""
        if self.state in (JoinState.JOINING, JoinState.SYNCING):
            return self._session_timeout_ms
        return super().session_left_ms(now_ms)

    def session_expired(self, now_ms: int) -> bool:
        """True if the coordinator has not answered for the whole session timeout, so that the
        coordinator must be looked up again."""
        return self.session_left_ms(now_ms) == 0

    def heartbeat_request(self, now_ms: int) -> HeartbeatRequest:
        """The next heartbeat; the caller passes its `generation_id` back together with the
        answer.
        """
        self._next_heartbeat_ms = now_ms + self._heartbeat_interval_ms
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
        )

    def _heard(self, now_ms: int) -> None:
        self._last_heard_ms = now_ms
        self._next_heartbeat_ms = now_ms + self._heartbeat_interval_ms

    def on_heartbeat(self, error_code: int, generation: int, now_ms: int) -> MembershipAction:
        """Take the answer to a heartbeat. A fatal error is stored in `failure` for the next
        poll."""
        if generation != self.generation or self.state is not JoinState.STABLE:
            return MembershipAction.IGNORE
        code = ErrorCode.of(error_code)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._last_heard_ms = (
                now_ms  # in both cases the coordinator restarts the session (G table)
            )
        if code is ErrorCode.NONE:
            return MembershipAction.GO_ON
        try:
            return self._act_on(code, HEARTBEAT_ERRORS, "Heartbeat")
        except OdradekError as failure:
            self.failure = failure
            return MembershipAction.GO_ON

    # --- errors ---

    def _act_on(
        self, code: ErrorCode, errors: Mapping[ErrorCode, ErrorMeaning], request: str
    ) -> MembershipAction:
        meaning = errors.get(code, ErrorMeaning.FATAL)
        reason = f"{request} was answered {code.name}"
        match meaning:
            case ErrorMeaning.RETRY:
                if request != "Heartbeat":
                    self.request_rejoin(reason)
                return MembershipAction.BACK_OFF
            case ErrorMeaning.REDISCOVER:
                if request != "Heartbeat":
                    self.request_rejoin(reason)
                return MembershipAction.REDISCOVER
            case ErrorMeaning.REJOIN | ErrorMeaning.NEW_ID:
                self.request_rejoin(reason)
                return MembershipAction.JOIN
            case ErrorMeaning.GENERATION_LOST:
                self.reset_generation(reason)
                return MembershipAction.JOIN
            case ErrorMeaning.MEMBER_LOST:
                self.reset_member(reason)
                return MembershipAction.JOIN
            case ErrorMeaning.FENCED:
                self.reset_member(reason)
                raise error_for(code, about=self.about)
            case ErrorMeaning.FATAL:
                raise error_for(code, about=self.about)

    def reset_generation(self, reason: str) -> None:
        """React to ILLEGAL_GENERATION: the group has a newer generation; the next join may use the
        same member id."""
        self.generation = NO_GENERATION
        self.lost = True
        self._leader_assignment = None
        self._step(JoinState.UNJOINED)
        self.request_rejoin(reason)

    def reset_member(self, reason: str) -> None:
        """React to UNKNOWN_MEMBER_ID: the group does not know this member's id."""
        self.reset_generation(reason)
        self.member_id = NO_MEMBER_ID

    # --- LeaveGroup ---

    def leave_request(self, reason: str) -> LeaveGroupRequest | None:
        """Leave the group; returns the request to send. Returns None if the consumer is not in the
        group, or if it is a static member, because a static member stays in the group until its
        session expires (G-29, K-34)."""
        member_id = self.member_id
        static = self.group_instance_id is not None
        if self.state is JoinState.UNJOINED and member_id == NO_MEMBER_ID:
            return None
        if static:
            self.reset_generation(reason)
            return None
        self.reset_member(reason)
        return LeaveGroupRequest(group_id=self.group_id, member_id=member_id)


def leave_in_version(request: LeaveGroupRequest, version: int, reason: str) -> LeaveGroupRequest:
    """The request of `leave_request` in the form that a version needs. `reason` is for people who
    read the group's history (KIP-800)."""
    if version < MEMBERS_SINCE:
        return request
    identity = MemberIdentity(member_id=request.member_id)
    if version >= REASON_SINCE:
        identity.reason = reason
    return LeaveGroupRequest(group_id=request.group_id, members=[identity])


class LeaderAssignment:
    """The assignment of one generation: made by the group's leader for the members in the answer to
    its JoinGroup.

    `skips`: true if the generation already has an assignment, so that the leader only watches the
    topics for changes (KIP-814).
    """

    def __init__(self, members: Sequence[JoinGroupResponseMember], skips: bool = False) -> None:
        self._listed = members
        self._skips = skips
        self._partition_counts: dict[str, int] | None = None

    @cached_property
    def _members(self) -> list[GroupMember]:
        return [_member(each) for each in self._listed]

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics of all members. Raises DecodeError for invalid metadata of a member."""
        return frozenset(topic for member in self._members for topic in member.topics)

    def assign(self, assignor: Assignor, cluster: ClusterView) -> list[SyncGroupRequestAssignment]:
        """The assignment by member. Topics without metadata are left out (K-55)."""
        self._partition_counts = counts = _partition_counts(cluster, self.topics)
        if self._skips:
            return []
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=_encode_partitions(partitions)
            )
            for member_id, partitions in assignor.assign(counts, self._members).items()
        ]

    def is_outdated(self, cluster: ClusterView) -> bool:
        """True if, since `assign`, topics were created or deleted, or their number of partitions
        changed."""
        counts = self._partition_counts
        return counts is not None and _partition_counts(cluster, self.topics) != counts


def _member(listed: JoinGroupResponseMember) -> GroupMember:
    subscription = decode_subscription(listed.metadata)
    return GroupMember(
        member_id=listed.member_id,
        group_instance_id=listed.group_instance_id,
        topics=tuple(subscription.topics),
        owned_partitions=tuple(
            TopicPartition(owned.topic, number)
            for owned in subscription.owned_partitions
            for number in owned.partitions
        ),
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
        user_data=subscription.user_data,
    )


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    return encode_assignment(
        ConsumerAssignment(
            assigned_partitions=[
                PartitionsOfTopic(topic=topic, partitions=numbers)
                for topic, numbers in numbers_by_topic(partitions).items()
            ]
        )
    )


def _partition_counts(cluster: ClusterView, topics: Iterable[str]) -> dict[str, int]:
    counts = {}
    for topic in topics:
        partitions = cluster.partitions_of(topic)
        if partitions:
            counts[topic] = len(partitions)
    return counts


class ErrorMeaning(Enum):
    """The meaning of a coordinator's error for the membership."""

    RETRY = "nothing; the same again"
    REDISCOVER = "another broker, or none, coordinates the group"
    REJOIN = "a rebalance is in progress"
    NEW_ID = "the coordinator has given a member id to join with"
    GENERATION_LOST = "the group went on; the member id is still good"
    MEMBER_LOST = "the group does not know the member"
    FENCED = "another member took the instance id"
    FATAL = "asking again will not help"


#: The meanings of error codes that are not fatal, by request (K-35, K-36, K-37).
_ANYWHERE = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorMeaning.REDISCOVER,
    ErrorCode.NOT_COORDINATOR: ErrorMeaning.REDISCOVER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorMeaning.RETRY,
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorMeaning.MEMBER_LOST,
    ErrorCode.FENCED_INSTANCE_ID: ErrorMeaning.FENCED,
}
JOIN_ERRORS = _ANYWHERE | {
    ErrorCode.MEMBER_ID_REQUIRED: ErrorMeaning.NEW_ID,
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorMeaning.RETRY,
}
SYNC_ERRORS = _ANYWHERE | {
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorMeaning.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: ErrorMeaning.GENERATION_LOST,
}
HEARTBEAT_ERRORS = SYNC_ERRORS
