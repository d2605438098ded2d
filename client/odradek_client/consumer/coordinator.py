"""Membership in a group, classic protocol: what to ask the coordinator, and what its answer means.

A member is in one of these stages; `STAGE_STEPS` has the legal steps (K-30)::

    UNJOINED   not in the group's current generation: the next poll joins
    JOINING    JoinGroup was sent; heartbeats pause (K-31)
    SYNCING    in the new generation; as leader, to assign; SyncGroup was sent or is about to be
    STABLE     the assignment has come; heartbeats go out, also while `rejoin_reason` waits for a poll

Every answer of an older generation than the current one is ignored (K-35).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from odradek_client.assignors import Assignor, GroupMember
from odradek_client.cluster import ClusterView
from odradek_client.consumer.errors import IllegalState
from odradek_client.consumer.subscription import SubscriptionState
from odradek_client.consumer.types import TopicPartition
from odradek_client.errors import OdradekError, error_for
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from odradek_protocol.schemas.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek_protocol.stored.assignment import (
    AssignedPartitions,
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

NO_GENERATION = -1
NO_MEMBER = ""

LEAVE_GROUP_NEWEST = 5
#: From these versions on LeaveGroup names members in a list, and says why they leave.
_LEAVE_LIST_SINCE, _LEAVE_REASON_SINCE = 3, 5
#: What a JoinGroup may take on the wire beyond the rebalance timeout (K-36).
JOIN_SLACK_MS = 5_000


class Stage(Enum):
    """Where a member stands."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


STAGE_STEPS: dict[Stage, frozenset[Stage]] = {
    Stage.UNJOINED: frozenset({Stage.UNJOINED, Stage.JOINING}),
    Stage.JOINING: frozenset({Stage.UNJOINED, Stage.SYNCING}),
    Stage.SYNCING: frozenset({Stage.UNJOINED, Stage.STABLE}),
    Stage.STABLE: frozenset({Stage.UNJOINED, Stage.JOINING}),
}


class Action(Enum):
    """What the shell does next."""

    GO_ON = "the step succeeded"
    JOIN = "join, at once"
    BACK_OFF = "wait retry_backoff_ms, then join"
    REDISCOVER = "find the coordinator again, then join"
    IGNORE = "nothing: the answer is of another generation"


class Trouble(Enum):
    """What a coordinator's error says about the membership."""

    RETRY = "nothing; the same again"
    REDISCOVER = "another broker, or none, coordinates the group"
    REJOIN = "a rebalance is going on"
    NEW_ID = "the coordinator has given a member id to join with"
    GENERATION_LOST = "the group went on; the member id is still good"
    MEMBER_LOST = "the group does not know the member"
    FENCED = "another member took the instance id"
    FATAL = "asking again will not help"


#: Per request, the codes that are not fatal (K-35, K-36, K-37).
_ANYWHERE = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Trouble.REDISCOVER,
    ErrorCode.NOT_COORDINATOR: Trouble.REDISCOVER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Trouble.RETRY,
    ErrorCode.UNKNOWN_MEMBER_ID: Trouble.MEMBER_LOST,
    ErrorCode.FENCED_INSTANCE_ID: Trouble.FENCED,
}
JOIN_TROUBLES = _ANYWHERE | {
    ErrorCode.MEMBER_ID_REQUIRED: Trouble.NEW_ID,
    ErrorCode.REBALANCE_IN_PROGRESS: Trouble.RETRY,
}
SYNC_TROUBLES = _ANYWHERE | {
    ErrorCode.REBALANCE_IN_PROGRESS: Trouble.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Trouble.GENERATION_LOST,
}
HEARTBEAT_TROUBLES = SYNC_TROUBLES


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What is constant about a membership. The rebalance timeout is max.poll.interval.ms."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000


class Membership:
    """One consumer's membership in its group.

    The shell asks for requests, brings the answers, and does what the `Action` says. Requests carry
    the generation of their time; answers are brought with it.
    """

    def __init__(
        self,
        settings: GroupSettings,
        subscription: SubscriptionState,
        assignors: Mapping[str, Assignor],
    ) -> None:
        self._settings = settings
        self._subscription = subscription
        self._assignors = assignors
        self.stage = Stage.UNJOINED
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION
        #: Set when the partitions held may be others' already: on_lost instead of on_revoked.
        self.lost = False
        #: Why the next poll joins; None if it need not.
        self.rejoin_reason: str | None = "the first join"
        #: Found by the heartbeat task, for the next poll to raise.
        self.failure: OdradekError | None = None
        self._protocol = ""
        self._led: list[JoinGroupResponseMember] | None = None
        self._joined_topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] | None = None
        self._assigned: list[TopicPartition] = []
        self._user_data: bytes | None = None
        self._last_heard_ms = 0
        self._next_heartbeat_ms = 0
        self._last_poll_ms = 0

    def _step(self, stage: Stage) -> None:
        if stage not in STAGE_STEPS[self.stage]:
            raise IllegalState(f"a member cannot go from {self.stage.value} to {stage.value}")
        self.stage = stage

    @property
    def is_leader(self) -> bool:
        """Whether this member assigned the current generation, or is to."""
        return self._led is not None

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept over a rebalance: only if no assignor offered is eager (K-54)."""
        return all(assignor.cooperative for assignor in self._assignors.values())

    @property
    def rebalancing(self) -> bool:
        """Whether a join is needed or going on."""
        return self.stage is not Stage.STABLE or self.rejoin_reason is not None

    def request_rejoin(self, reason: str) -> None:
        """Join at the next poll; the first reason stays."""
        if self.rejoin_reason is None:
            self.rejoin_reason = reason

    # --- JoinGroup ---

    def join_request(self) -> JoinGroupRequest:
        """Enter the join phase with the subscription as it is now."""
        subscription = self._subscription
        topics = sorted(subscription.topics)
        # An assignor of the application may raise: before anything has changed.
        protocols = [
            JoinGroupRequestProtocol(
                name=name, metadata=self._metadata(topics, subscription.assigned(), assignor)
            )
            for name, assignor in self._assignors.items()
        ]
        self._step(Stage.JOINING)
        self._joined_topics = subscription.topics
        self._led = None
        reason, self.rejoin_reason = self.rejoin_reason, None
        settings = self._settings
        return JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=settings.group_instance_id,
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
                    for topic, numbers in _by_topic(owned).items()
                ],
                generation_id=self.generation,
            )
        )

    def on_join(self, response: JoinGroupResponse) -> Action:
        """In the new generation, or why not. Raises what no further join can help."""
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._step(Stage.UNJOINED)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            return self._act_on(code, JOIN_TROUBLES, "JoinGroup")
        self.member_id = response.member_id
        self.generation = response.generation_id
        self._protocol = response.protocol_name or ""
        if self._protocol not in self._assignors:
            self._step(Stage.UNJOINED)
            raise error_for(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"chose {self._protocol!r}",
                about=f"group {self._settings.group_id!r}",
            )
        self._step(Stage.SYNCING)
        leads = response.leader == response.member_id and not response.skip_assignment
        self._led = response.members if leads else None
        return Action.GO_ON

    def on_join_failure(self) -> None:
        """No answer to JoinGroup or SyncGroup: begin again."""
        self._step(Stage.UNJOINED)
        self.request_rejoin("an answer of the coordinator was lost")

    # --- SyncGroup ---

    def topics_to_know(self) -> frozenset[str]:
        """What the leader needs metadata of to assign: every member's topics."""
        members = self._group_members()
        return frozenset(topic for member in members for topic in member.topics)

    def _group_members(self) -> list[GroupMember]:
        """DecodeError if a member's metadata is none."""
        members = []
        for each in self._led or ():
            said = decode_subscription(each.metadata)
            owned = [
                TopicPartition(owned.topic, number)
                for owned in said.owned_partitions
                for number in owned.partitions
            ]
            members.append(
                GroupMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    topics=tuple(said.topics),
                    owned_partitions=tuple(owned),
                    generation_id=said.generation_id,
                    rack_id=said.rack_id,
                    user_data=said.user_data,
                )
            )
        return members

    def sync_request(self, cluster: ClusterView) -> SyncGroupRequest:
        """With everybody's assignment if this member leads, to get its own in any case."""
        if self.stage is not Stage.SYNCING:
            raise IllegalState(f"SyncGroup while {self.stage.value}")
        assignments = []
        if self._led is not None:
            members = self._group_members()
            wanted = {topic for member in members for topic in member.topics}
            # A topic that metadata does not have is left out (K-55).
            self._counts = counts = _partition_counts(cluster, wanted)
            divided = self._assignors[self._protocol].assign(counts, members)
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=_encode_partitions(partitions)
                )
                for member_id, partitions in divided.items()
            ]
        return SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=assignments,
        )

    def on_sync(self, response: SyncGroupResponse, now_ms: int) -> Action:
        """Stable, or why not. Raises what no further join can help."""
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._step(Stage.UNJOINED)
            return self._act_on(code, SYNC_TROUBLES, "SyncGroup")
        decoded = decode_assignment(response.assignment)
        self._assigned = [
            TopicPartition(given.topic, number)
            for given in decoded.assigned_partitions
            for number in given.partitions
        ]
        self._user_data = decoded.user_data
        self._step(Stage.STABLE)
        self._heard(now_ms)
        return Action.GO_ON

    def take_assignment(self) -> list[TopicPartition]:
        """After `on_sync`: what this member is to read now. The shell puts it into the subscription.

        Partitions of topics that are no longer subscribed are left out, and joined about again (K-32).
        """
        self.lost = False
        wanted = self._subscription.topics
        if self._joined_topics != wanted:
            self.request_rejoin("the subscription changed during the rebalance")
        if any(each.topic not in wanted for each in self._assigned):
            self.request_rejoin("assigned partitions of topics that are not subscribed")
        return [each for each in self._assigned if each.topic in wanted]

    def tell_assignor(self) -> None:
        """The assignor chosen learns what was assigned. Raises what it raises."""
        self._assignors[self._protocol].on_assignment(
            self._assigned, self._user_data, self.generation
        )

    # --- what the subscription and the metadata say ---

    def check_subscription(self, cluster: ClusterView) -> None:
        """Rejoin if topics or, for the leader, partition counts changed since the join (K-41)."""
        if self.stage is not Stage.STABLE:
            return
        if self._joined_topics != self._subscription.topics:
            self.request_rejoin("the subscription changed")
        elif self._led is not None and self._counts is not None:
            now = _partition_counts(cluster, self.topics_to_know())
            if now != self._counts:
                self.request_rejoin("the partitions of subscribed topics changed")

    # --- Heartbeat ---

    def polled(self, now_ms: int) -> None:
        """The application is alive (K-35)."""
        self._last_poll_ms = now_ms

    def poll_overdue(self, now_ms: int) -> bool:
        """Whether the application has not polled for max.poll.interval.ms: time to leave."""
        return now_ms - self._last_poll_ms >= self._settings.max_poll_interval_ms

    def session_left_ms(self, now_ms: int) -> int:
        """How long until the coordinator, if it has heard nothing either, drops this member. It keeps
        one whose join it has not answered (G-70)."""
        if self.stage in (Stage.JOINING, Stage.SYNCING):
            return self._settings.session_timeout_ms
        return max(0, self._last_heard_ms + self._settings.session_timeout_ms - now_ms)

    def session_expired(self, now_ms: int) -> bool:
        """Whether the coordinator has not been heard of for so long that it must be looked for."""
        return self.session_left_ms(now_ms) == 0

    def heartbeat_due_ms(self, now_ms: int) -> int:
        """How long until the next heartbeat may be sent; -1 when there is none to send."""
        if self.stage is not Stage.STABLE:
            return -1
        return max(0, self._next_heartbeat_ms - now_ms)

    def heartbeat_request(self, now_ms: int) -> HeartbeatRequest:
        """The next one; bring its `generation_id` with the answer."""
        self._next_heartbeat_ms = now_ms + self._settings.heartbeat_interval_ms
        return HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
        )

    def _heard(self, now_ms: int) -> None:
        self._last_heard_ms = now_ms
        self._next_heartbeat_ms = now_ms + self._settings.heartbeat_interval_ms

    def on_heartbeat(self, error_code: int, generation: int, now_ms: int) -> Action:
        """Alive, or why not. What is fatal is left in `failure` for the next poll."""
        if generation != self.generation or self.stage is not Stage.STABLE:
            return Action.IGNORE
        code = ErrorCode.of(error_code)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._last_heard_ms = now_ms  # either way the coordinator counts us alive (G table)
        if code is ErrorCode.NONE:
            return Action.GO_ON
        try:
            return self._act_on(code, HEARTBEAT_TROUBLES, "Heartbeat")
        except OdradekError as failure:
            self.failure = failure
            return Action.GO_ON

    # --- trouble ---

    def _act_on(
        self, code: ErrorCode, troubles: Mapping[ErrorCode, Trouble], request: str
    ) -> Action:
        trouble = troubles.get(code, Trouble.FATAL)
        reason = f"{request} was answered {code.name}"
        about = f"group {self._settings.group_id!r}"
        match trouble:
            case Trouble.RETRY:
                if request != "Heartbeat":
                    self.request_rejoin(reason)
                return Action.BACK_OFF
            case Trouble.REDISCOVER:
                if request != "Heartbeat":
                    self.request_rejoin(reason)
                return Action.REDISCOVER
            case Trouble.REJOIN | Trouble.NEW_ID:
                self.request_rejoin(reason)
                return Action.JOIN
            case Trouble.GENERATION_LOST:
                self.reset_generation(reason)
                return Action.JOIN
            case Trouble.MEMBER_LOST:
                self.reset_member(reason)
                return Action.JOIN
            case Trouble.FENCED:
                self.reset_member(reason)
                raise error_for(code, about=about)
            case Trouble.FATAL:
                raise error_for(code, about=about)

    def reset_generation(self, reason: str) -> None:
        """The group went on without us; the id may be used to join again (22)."""
        self.generation = NO_GENERATION
        self.lost = True
        self._led = None
        self._step(Stage.UNJOINED)
        self.request_rejoin(reason)

    def reset_member(self, reason: str) -> None:
        """The group does not know us (25)."""
        self.reset_generation(reason)
        self.member_id = NO_MEMBER

    # --- LeaveGroup ---

    def leave_request(self, reason: str) -> LeaveGroupRequest | None:
        """Out of the group, from now on; None if there is nothing to tell: not in it, or a static
        member, which keeps its place until it times out (G-29, K-34)."""
        member_id = self.member_id
        static = self._settings.group_instance_id is not None
        if self.stage is Stage.UNJOINED and member_id == NO_MEMBER:
            return None
        if static:
            self.reset_generation(reason)
            return None
        self.reset_member(reason)
        return LeaveGroupRequest(group_id=self._settings.group_id, member_id=member_id)


def leave_in_version(request: LeaveGroupRequest, version: int, reason: str) -> LeaveGroupRequest:
    """What `leave_request` gave, in the form of a version; `reason` is for those who look into the
    group's history (KIP-800)."""
    if version < _LEAVE_LIST_SINCE:
        return request
    identity = MemberIdentity(member_id=request.member_id)
    if version >= _LEAVE_REASON_SINCE:
        identity.reason = reason
    return LeaveGroupRequest(group_id=request.group_id, members=[identity])


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    return encode_assignment(
        ConsumerAssignment(
            assigned_partitions=[
                AssignedPartitions(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(partitions).items()
            ]
        )
    )


def _partition_counts(cluster: ClusterView, topics: Iterable[str]) -> dict[str, int]:
    """Of the topics that exist."""
    counts = {}
    for topic in topics:
        partitions = cluster.partitions_of(topic)
        if partitions:
            counts[topic] = len(partitions)
    return counts
