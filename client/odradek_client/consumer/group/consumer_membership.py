"""The membership in a group in the consumer protocol (KIP-848), whose only request is the
heartbeat; the answers have the assignment.

The broker computes the assignment. Each member gets its target, revokes partitions that are not in
the target, takes over new partitions, and acknowledges the target. The group as a whole never
waits. A member is in one of these states; `MEMBER_STATE_STEPS` has the legal steps::

    UNSUBSCRIBED     not in the group, and does not want to join
    JOINING          its next heartbeat requests to join, with epoch 0
    RECONCILING      its target differs from the partitions it owns, and is not acknowledged yet
    ACKNOWLEDGING    owns its target; its next heartbeat, due immediately, acknowledges the target
    STABLE           owns its target, and has acknowledged it
    PREPARE_LEAVING  revokes all its partitions before it leaves
    LEAVING          its next heartbeat, due immediately, leaves the group
    FENCED           was removed from the group; its partitions are lost, then it joins again
    STALE            left because the application did not poll; joins again at the next poll
    FATAL            the group refuses the member, and would refuse it again

Unlike a classic member, a member of the consumer protocol sends heartbeats in every state inside
the group, even while listeners are running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from odradek_client.consumer.errors import IllegalState
from odradek_client.consumer.group.membership import (
    HEARTBEAT_MS_MIN,
    EpochMembership,
    MembershipAction,
    MembershipSettings,
)
from odradek_client.errors import OdradekError, error_for
from odradek_client.structs import TopicPartition
from odradek_protocol.common_structs import PartitionsOfTopicId
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_heartbeat import (
    REGULAR_EXPRESSION_SINCE,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription of a member: topics by name, or a pattern that the broker resolves."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


class HeartbeatFields:
    """The fields of a member that were last sent to the coordinator. A heartbeat leaves out fields
    that have not changed."""

    def __init__(self, rebalance_timeout_ms: int, server_assignor: str | None) -> None:
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._server_assignor = server_assignor
        self._sent: dict[str, object] = {}

    def send_all(self) -> None:
        self._sent.clear()

    @property
    def owned_sent(self) -> Mapping[bytes, frozenset[int]] | None:
        """The owned partitions that were last sent; None if the next heartbeat must send them."""
        return self._sent.get("topic_partitions")  # type: ignore[return-value]

    def fill(
        self,
        request: ConsumerGroupHeartbeatRequest,
        subscription: MemberSubscription,
        owned: Mapping[bytes, frozenset[int]],
        version: int,
    ) -> None:
        """Set the fields of `request` that have changed. `owned`: the owned partitions, by topic
        id."""
        subscribed: dict[str, object] = {"subscribed_topic_names": sorted(subscription.topics)}
        if version >= REGULAR_EXPRESSION_SINCE:
            # An empty pattern ends the subscription by pattern, because null would mean
            # "unchanged".
            subscribed["subscribed_topic_regex"] = subscription.regex or ""
        # If one field with the subscription changes, the other field is sent, too, because
        # librdkafka's mock broker requires both fields or none.
        together: list[dict[str, object]] = [
            {"rebalance_timeout_ms": self._rebalance_timeout_ms},
            {"server_assignor": self._server_assignor},
            subscribed,
        ]
        for fields in together:
            if any(name not in self._sent or self._sent[name] != fields[name] for name in fields):
                self._sent |= fields
                for name, value in fields.items():
                    setattr(request, name, value)
        if self._sent.get("topic_partitions") != owned:
            self._sent["topic_partitions"] = dict(owned)
            request.topic_partitions = [
                PartitionsOfTopicId(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in sorted(owned.items())
                if numbers
            ]


TopicNames = Mapping[bytes, str]
"""Topic ids to the names that metadata has for them."""


class MemberState(Enum):
    """The state of a member, consumer protocol."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    PREPARE_LEAVING = "preparing to leave"
    LEAVING = "leaving"
    FENCED = "fenced"
    STALE = "stale"
    FATAL = "fatal"


_S = MemberState
_ANY_IN_GROUP = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE})

#: The states that may follow each state.
MEMBER_STATE_STEPS: dict[MemberState, frozenset[MemberState]] = {
    _S.UNSUBSCRIBED: frozenset({_S.JOINING}),
    _S.JOINING: frozenset({_S.RECONCILING, _S.STABLE, _S.PREPARE_LEAVING, _S.FENCED, _S.FATAL}),
    _S.RECONCILING: frozenset(
        {_S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.PREPARE_LEAVING, _S.FENCED, _S.FATAL}
    ),
    _S.ACKNOWLEDGING: frozenset(
        {_S.STABLE, _S.RECONCILING, _S.PREPARE_LEAVING, _S.FENCED, _S.FATAL}
    ),
    _S.STABLE: frozenset({_S.RECONCILING, _S.PREPARE_LEAVING, _S.FENCED, _S.FATAL}),
    _S.PREPARE_LEAVING: frozenset({_S.LEAVING, _S.FATAL}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED, _S.STALE, _S.FATAL}),
    _S.FENCED: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
    _S.STALE: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
    _S.FATAL: frozenset({_S.UNSUBSCRIBED}),
}

#: The states in which heartbeats are sent at intervals. In the states of `HEARTBEAT_AT_ONCE` the
#: first heartbeat is sent immediately.
HEARTBEATING = _ANY_IN_GROUP | {_S.PREPARE_LEAVING, _S.LEAVING}
HEARTBEAT_AT_ONCE = frozenset({_S.JOINING, _S.ACKNOWLEDGING, _S.LEAVING})

#: Errors after which the member is fenced and joins again; other errors, unless retriable, are
#: fatal.
_FENCING = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        # The group itself was deleted; the member creates it again.
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_REDISCOVER = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True)
class ConsumerMembershipSettings(MembershipSettings):
    """The constants of a membership. `remote_assignor` None: the broker chooses the assignor.

    `session_timeout_ms` is an assumption: only the broker knows the group's session timeout.
    """

    rack_id: str | None = None
    remote_assignor: str | None = None


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """The partitions that the coordinator has assigned, by topic id. `serial`: the number of this
    target."""

    partitions: Mapping[bytes, frozenset[int]]
    serial: int = 0


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A step towards a target. `assigned`: all partitions that the member has after the step.
    `owned`: these partitions by topic id. `complete`: true if the step reaches the target; false if
    some topic names of the target are unknown."""

    assigned: frozenset[TopicPartition]
    owned: Mapping[bytes, frozenset[int]]
    serial: int
    complete: bool


class ConsumerMembership(EpochMembership):
    """The membership of a consumer in its group, consumer protocol.

    The group loop sends each request when it is due, reports the answer or its absence, assigns
    what `reconcile` returns, and calls `reconciled`; in FENCED and STALE it calls the
    listener for the lost partitions, and then `rejoin`.
    """

    state: MemberState

    def __init__(self, settings: ConsumerMembershipSettings, member_id: str) -> None:
        super().__init__(settings, member_id, MEMBER_STATE_STEPS, HEARTBEATING)
        self._rack_id = settings.rack_id
        self._fields = HeartbeatFields(settings.max_poll_interval_ms, settings.remote_assignor)
        self.state = MemberState.UNSUBSCRIBED
        self.epoch = JOIN_EPOCH
        self.target = TargetAssignment({})
        self._owned: Mapping[bytes, frozenset[int]] = {}
        self._owned_serial = 0
        #: The partitions that the member will own after the present step, while the group loop is
        #: carrying it out.
        self._taking_over: Mapping[bytes, frozenset[int]] | None = None
        #: True while a heartbeat that reports the owned partitions has no answer.
        self._report_unanswered = False
        self._stale = False
        self._interval_ms = 0

    def _step(self, state: Enum) -> None:
        super()._step(state)
        if state in HEARTBEAT_AT_ONCE:
            self._next_heartbeat_ms = 0

    @property
    def in_group(self) -> bool:
        """True if the member owns its partitions."""
        return self.epoch > JOIN_EPOCH and self.state in _ANY_IN_GROUP

    @property
    def may_commit(self) -> bool:
        """True if the coordinator accepts commits of this member, including those before it
        leaves."""
        return self.in_group or (self.epoch > JOIN_EPOCH and self.state is _S.PREPARE_LEAVING)

    # --- joining and leaving ---

    def join(self) -> None:
        """Make the next heartbeat join the group. The heartbeat is due immediately. Raises
        IllegalState if the member is in the group."""
        self._step(MemberState.JOINING)
        self.epoch = JOIN_EPOCH
        self._forget()

    def rejoin(self) -> None:
        """Give up all partitions and join again, from FENCED or STALE."""
        if self.state not in (MemberState.FENCED, MemberState.STALE):
            raise IllegalState(f"a member that is {self.state.value} has nothing to join again for")
        self.join()

    def _forget(self) -> None:
        self.target = TargetAssignment({}, self.target.serial + 1)
        self._owned, self._owned_serial = {}, self.target.serial
        self._taking_over = None
        self._report_unanswered = False
        self._fields.send_all()

    def prepare_leaving(self) -> bool:
        """Begin to leave. False if the consumer is not in the group and need not send a request."""
        if self.state in _ANY_IN_GROUP:
            self._step(MemberState.PREPARE_LEAVING)
            return True
        if self.state is not MemberState.UNSUBSCRIBED:
            self._step(MemberState.UNSUBSCRIBED)
        self._forget()
        return False

    def leave(self, *, stale: bool = False) -> None:
        """Make the next heartbeat leave the group. The heartbeat is due immediately. The caller has
        already revoked all partitions. `stale`: the member leaves because the application did not
        poll, and joins again at the next poll."""
        self._step(MemberState.LEAVING)
        static = self.group_instance_id is not None
        self.epoch = LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH
        self._stale = stale

    def left(self) -> None:
        if self.state is MemberState.LEAVING:
            self._step(MemberState.UNSUBSCRIBED)
            self._forget()

    def poll_overdue(self, now_ms: int) -> bool:
        return self.state in _ANY_IN_GROUP and super().poll_overdue(now_ms)

    # --- heartbeats ---

    def hasten_heartbeat(self) -> None:
        """Make the next heartbeat due immediately, because something has changed."""
        self._next_heartbeat_ms = 0

    def heartbeat_request(
        self, subscription: MemberSubscription, version: int, now_ms: int
    ) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat. It has all fields when the member joins, otherwise only the fields
        that changed since the last heartbeat with an answer. So the caller has to report every
        answer, and every heartbeat that got no answer."""
        state = self.state
        if state not in HEARTBEATING:
            raise IllegalState(f"a heartbeat while {state.value}")
        self._next_heartbeat_ms = now_ms + max(self._interval_ms, 1)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.group_instance_id,
        )
        if state is MemberState.LEAVING:
            self._step(MemberState.STALE if self._stale else MemberState.UNSUBSCRIBED)
            self._forget()
            return request
        if state is MemberState.JOINING:
            self._fields.send_all()
            request.rack_id = self._rack_id
        self._fields.fill(request, subscription, self._claimed(), version)
        self._report_unanswered |= request.topic_partitions is not None
        if state is MemberState.ACKNOWLEDGING:
            owns_all = self._owned_serial == self.target.serial
            self._step(MemberState.STABLE if owns_all else MemberState.RECONCILING)
        return request

    def _claimed(self) -> Mapping[bytes, frozenset[int]]:
        """The partitions to report as owned. A heartbeat with all fields also reports the
        partitions that are being taken over: listeners may know of these partitions already, and
        the broker would assign unreported partitions to other members."""
        if not self._taking_over:
            return self._owned
        both = dict(self._owned)
        for topic_id, some in self._taking_over.items():
            both[topic_id] = both.get(topic_id, frozenset()) | some
        return both if self._fields.owned_sent in (None, both) else self._owned

    def on_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
        now_ms: int,
    ) -> MembershipAction:
        """Take the answer to a heartbeat. A fatal error is stored in `failure` for the next
        poll."""
        if self._is_old(request):
            return MembershipAction.IGNORE
        code = ErrorCode.of(response.error_code)
        if self.state is MemberState.PREPARE_LEAVING and code is ErrorCode.NONE:
            # The last commits need the epoch; the rest of the answer is not needed.
            self.epoch = max(self.epoch, response.member_epoch)
        if self.state not in _ANY_IN_GROUP:
            return MembershipAction.IGNORE
        if code is not ErrorCode.NONE:
            return self._on_error(code, response.error_message, now_ms)
        self._report_unanswered = False
        self._interval_ms = max(response.heartbeat_interval_ms, HEARTBEAT_MS_MIN)
        self._last_heard_ms = now_ms
        if response.member_epoch <= JOIN_EPOCH:
            # The member is not admitted yet: librdkafka's mock broker makes new members wait until
            # others have revoked partitions.
            self._fields.send_all()
            self._next_heartbeat_ms = now_ms + self._interval_ms
            return MembershipAction.GO_ON
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self._on_target(
                {
                    topic.topic_id: frozenset(topic.partitions)
                    for topic in response.assignment.topic_partitions
                    if topic.partitions
                }
            )
        elif self.state is MemberState.JOINING:
            self._on_target({})
        if self.state not in HEARTBEAT_AT_ONCE:
            self._next_heartbeat_ms = now_ms + self._interval_ms
        return MembershipAction.GO_ON

    def _is_old(self, request: ConsumerGroupHeartbeatRequest) -> bool:
        """True if the request was sent before this member was fenced and joined again (K-35)."""
        if request.member_epoch < 0:
            return True
        if request.member_epoch == JOIN_EPOCH:
            return self.epoch != JOIN_EPOCH
        return self.epoch == JOIN_EPOCH

    def _on_target(self, partitions: dict[bytes, frozenset[int]]) -> None:
        if partitions != self.target.partitions:
            self.target = TargetAssignment(partitions, self.target.serial + 1)
        if partitions == self._owned and self._taking_over is None:
            self._owned_serial = self.target.serial
            if self.state in (MemberState.JOINING, MemberState.RECONCILING):
                self._step(MemberState.STABLE)
        elif self.state is not MemberState.RECONCILING:
            self._step(MemberState.RECONCILING)

    def _on_error(self, code: ErrorCode, message: str | None, now_ms: int) -> MembershipAction:
        self._fields.send_all()
        if code in _FENCING:
            self._step(MemberState.FENCED)
            return MembershipAction.JOIN
        if code in _REDISCOVER or code.retriable:
            self._next_heartbeat_ms = now_ms  # the request is repeated, after a pause
            return MembershipAction.REDISCOVER if code in _REDISCOVER else MembershipAction.BACK_OFF
        self.failure = error_for(code, message, about=self.about)
        self._step(MemberState.FATAL)
        return MembershipAction.GO_ON

    def on_no_answer(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> None:
        if request.member_epoch >= 0:
            self._fields.send_all()
            self._next_heartbeat_ms = now_ms

    def fail(self, failure: OdradekError) -> None:
        if MemberState.FATAL not in MEMBER_STATE_STEPS[self.state]:
            return
        self.failure = failure
        self._step(MemberState.FATAL)

    # --- reconciling ---

    def reconcile(self, names: TopicNames) -> Reconciliation | None:
        """The next step to the target, as far as the names of its topics are known; None if there
        is no step, or if it would change nothing. The step lasts until `reconciled` is called or
        the state changes.

        While a heartbeat that reports the owned partitions has no answer, no partition is added:
        the coordinator may have assigned unreported partitions of the target to other members.
        """
        if self.state is not MemberState.RECONCILING:
            return None
        known = {
            topic_id: some for topic_id, some in self.target.partitions.items() if topic_id in names
        }
        complete = len(known) == len(self.target.partitions)
        if not complete and known == self._owned:
            return None
        if self._report_unanswered and self._adds(known):
            return None
        assigned = frozenset(
            TopicPartition(names[topic_id], number)
            for topic_id, some in known.items()
            for number in some
        )
        self._taking_over = known
        return Reconciliation(assigned, known, self.target.serial, complete)

    def _adds(self, known: Mapping[bytes, frozenset[int]]) -> bool:
        nothing: frozenset[int] = frozenset()
        return any(some - self._owned.get(topic_id, nothing) for topic_id, some in known.items())

    def unnamed(self, names: TopicNames) -> bool:
        """True if a topic of the target has no name in the metadata yet."""
        return any(topic_id not in names for topic_id in self.target.partitions)

    def reconciled(self, step: Reconciliation) -> None:
        """Called when the member has the partitions of the step: acknowledge them with the next
        heartbeat."""
        if self.state is not MemberState.RECONCILING:
            raise IllegalState(f"partitions were taken over while {self.state.value}")
        self._taking_over = None
        self._owned = step.owned
        if step.complete and step.serial == self.target.serial:
            self._owned_serial = step.serial
        self._step(MemberState.ACKNOWLEDGING)
