"""Membership in a group, next protocol (KIP-848): one request, whose answers carry the assignment.

The broker computes who reads what. Each member is told its target, gives up and takes over what that
asks for, says so, and goes on; there is no moment at which the whole group waits. A member is in one
of these states; `STATE_STEPS` has the legal steps::

    UNSUBSCRIBED     not in the group, and not to be
    JOINING          its next heartbeat asks to be let in, with epoch 0
    RECONCILING      has a target that differs from what it holds; reports without acknowledging
    ACKNOWLEDGING    holds what it was told to; its next heartbeat, due at once, says so
    STABLE           holds what it was told to, and has said so
    PREPARE_LEAVING  is giving up everything before it leaves
    LEAVING          its next heartbeat says good-bye
    FENCED           was put out of the group; its partitions are lost, then it joins again
    STALE            left because the application did not poll; joins again when it does
    FATAL            the group will not have it; asking again will not help

Unlike a classic member's, heartbeats go on in every state that is in the group, also while listeners
are running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from odradek_client.consumer.coordinator import Action
from odradek_client.consumer.errors import IllegalState
from odradek_client.consumer.types import TopicPartition
from odradek_client.errors import OdradekError, error_for
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""What is said instead of a member epoch when joining, leaving, and leaving as one who returns."""

#: The first version of ConsumerGroupHeartbeat that takes a regular expression.
REGEX_SINCE = 1

TopicNames = Mapping[bytes, str]
"""Topic ids to the names that metadata has for them."""


class MemberState(Enum):
    """Where a member stands."""

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

#: From each state, those that may follow it.
STATE_STEPS: dict[MemberState, frozenset[MemberState]] = {
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

#: The states in which heartbeats are sent; in the second set at once, not when it is time.
BEATING = _ANY_IN_GROUP | {_S.PREPARE_LEAVING, _S.LEAVING}
HURRIED = frozenset({_S.JOINING, _S.ACKNOWLEDGING, _S.LEAVING})

#: Answers that are not fatal.
_FENCING = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        # The group itself is gone; the member makes it anew.
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_REDISCOVER = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """What is constant about a membership. `remote_assignor` None: the broker's choice."""

    group_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    remote_assignor: str | None = None
    max_poll_interval_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Wish:
    """What a member wants to read: names, or a pattern that the broker matches."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What a member is to hold, by topic id; `serial` tells one from the next."""

    partitions: Mapping[bytes, frozenset[int]]
    serial: int = 0


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A step towards a target: `assigned` is everything to hold after it, `held` the same by topic id.
    `complete`: whether it is all of the target, or names of some topics are not known yet."""

    assigned: frozenset[TopicPartition]
    held: Mapping[bytes, frozenset[int]]
    serial: int
    complete: bool


class ConsumerMembership:
    """One consumer's membership in its group.

    The shell sends each request when it is due, brings the answer or that there was none, takes the
    partitions over as `reconcile` says and tells with `reconciled`; in FENCED and STALE it tells the
    listener of the loss, and then `rejoin`.
    """

    def __init__(self, settings: ConsumerGroupSettings, member_id: str) -> None:
        self._settings = settings
        self.member_id = member_id
        self.state = MemberState.UNSUBSCRIBED
        self.epoch = JOIN_EPOCH
        #: For the next poll to raise.
        self.failure: OdradekError | None = None
        #: What the group last said that this member is to hold.
        self.target = Target({})
        self._held: Mapping[bytes, frozenset[int]] = {}
        self._held_serial = 0
        self._taking_over = False
        self._sent: dict[str, object] = {}
        self._stale = False
        self._interval_ms = 0
        self._next_heartbeat_ms = 0
        self._last_heard_ms = 0
        self._last_poll_ms = 0

    def _step(self, state: MemberState) -> None:
        if state not in STATE_STEPS[self.state]:
            raise IllegalState(f"a member cannot go from {self.state.value} to {state.value}")
        self.state = state
        if state in HURRIED:
            self._next_heartbeat_ms = 0

    @property
    def in_group(self) -> bool:
        """Whether the partitions it holds are its own."""
        return self.epoch > JOIN_EPOCH and self.state in _ANY_IN_GROUP

    @property
    def may_commit(self) -> bool:
        """Whether commits are taken: also of a member that is giving up everything before it leaves."""
        return self.in_group or (self.epoch > JOIN_EPOCH and self.state is _S.PREPARE_LEAVING)

    # --- joining and leaving ---

    def join(self) -> None:
        """Enter the group with the next heartbeat, which is due now. IllegalState if in it."""
        self._step(MemberState.JOINING)
        self.epoch = JOIN_EPOCH
        self._forget()

    def rejoin(self) -> None:
        """What was held is given up: join again, from FENCED or STALE."""
        if self.state not in (MemberState.FENCED, MemberState.STALE):
            raise IllegalState(f"a member that is {self.state.value} has nothing to join again for")
        self.join()

    def _forget(self) -> None:
        self.target = Target({}, self.target.serial + 1)
        self._held, self._held_serial = {}, self.target.serial
        self._taking_over = False
        self._sent.clear()

    def prepare_leaving(self) -> bool:
        """Begin to leave. False if there is nobody to tell: it is not in the group."""
        if self.state in _ANY_IN_GROUP:
            self._step(MemberState.PREPARE_LEAVING)
            return True
        if self.state is not MemberState.UNSUBSCRIBED:
            self._step(MemberState.UNSUBSCRIBED)
        self._forget()
        return False

    def leave(self, *, stale: bool = False) -> None:
        """Everything is given up: the next heartbeat, due at once, says good-bye. `stale`: because the
        application did not poll, so that it comes back when it does."""
        self._step(MemberState.LEAVING)
        static = self._settings.group_instance_id is not None
        self.epoch = LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH
        self._stale = stale

    # --- polls ---

    def polled(self, now_ms: int) -> None:
        """The application is alive (K-35)."""
        self._last_poll_ms = now_ms

    def poll_overdue(self, now_ms: int) -> bool:
        """Whether the application has not polled for max.poll.interval.ms: time to leave."""
        return (
            self.state in _ANY_IN_GROUP
            and now_ms - self._last_poll_ms >= self._settings.max_poll_interval_ms
        )

    # --- heartbeats ---

    def heartbeat_due_ms(self, now_ms: int) -> int:
        """How long until the next heartbeat may be sent; -1 when there is none to send."""
        if self.state not in BEATING:
            return -1
        return max(0, self._next_heartbeat_ms - now_ms)

    def hurry(self) -> None:
        """There is news to tell the coordinator."""
        self._next_heartbeat_ms = 0

    def silent_for_ms(self, now_ms: int) -> int:
        """How long nothing was heard of the coordinator."""
        return now_ms - self._last_heard_ms

    def heartbeat_request(
        self, wish: Wish, version: int, now_ms: int
    ) -> ConsumerGroupHeartbeatRequest:
        """The next one. Only what changed since the last answered one is said, everything when
        joining; so bring every answer, and that there was none."""
        settings, state = self._settings, self.state
        if state not in BEATING:
            raise IllegalState(f"a heartbeat while {state.value}")
        self._next_heartbeat_ms = now_ms + max(self._interval_ms, 1)
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=settings.group_instance_id,
        )
        if state is MemberState.LEAVING:
            self._step(MemberState.STALE if self._stale else MemberState.UNSUBSCRIBED)
            self._forget()
            return request
        if state is MemberState.JOINING:
            self._sent.clear()
            request.rack_id = settings.rack_id
        news = self._news(wish, version)
        for name, value in news.items():
            setattr(request, name, value)
        self._sent |= {
            name: self._held_now() if name == "topic_partitions" else value
            for name, value in news.items()
        }
        if state is MemberState.ACKNOWLEDGING:
            held_all = self._held_serial == self.target.serial
            self._step(MemberState.STABLE if held_all else MemberState.RECONCILING)
        return request

    def _news(self, wish: Wish, version: int) -> dict[str, object]:
        """What the coordinator has not been told, by field."""
        wished: dict[str, object] = {"subscribed_topic_names": sorted(wish.topics)}
        if version >= REGEX_SINCE:
            # Null would mean "as before": a pattern is taken back by an empty one.
            wished["subscribed_topic_regex"] = wish.regex or ""
        # Both or none, as other clients have it: librdkafka's mock broker insists.
        together: list[dict[str, object]] = [
            {"rebalance_timeout_ms": self._settings.max_poll_interval_ms},
            {"server_assignor": self._settings.remote_assignor},
            wished,
        ]
        news: dict[str, object] = {}
        for fields in together:
            if any(name not in self._sent or self._sent[name] != fields[name] for name in fields):
                news |= fields
        if self._sent.get("topic_partitions") != self._held_now():
            news["topic_partitions"] = [
                OwnedTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in sorted(self._held.items())
                if numbers
            ]
        return news

    def _held_now(self) -> dict[bytes, frozenset[int]]:
        return dict(self._held)

    def on_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
        now_ms: int,
    ) -> Action:
        """Learn the answer. What is fatal is left in `failure` for the next poll."""
        if self._is_old(request):
            return Action.IGNORE
        code = ErrorCode.of(response.error_code)
        if self.state is MemberState.PREPARE_LEAVING and code is ErrorCode.NONE:
            # Of no interest any more but for the epoch, under which the last commits go.
            self.epoch = max(self.epoch, response.member_epoch)
        if self.state not in _ANY_IN_GROUP:
            return Action.IGNORE
        if code is not ErrorCode.NONE:
            return self._on_error(code, response.error_message, now_ms)
        self._interval_ms = response.heartbeat_interval_ms
        self._last_heard_ms = now_ms
        if response.member_epoch <= JOIN_EPOCH:
            # Not let in yet: librdkafka's mock broker has newcomers wait until others have given up.
            self._sent.clear()
            self._next_heartbeat_ms = now_ms + self._interval_ms
            return Action.GO_ON
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
        if self.state not in HURRIED:
            self._next_heartbeat_ms = now_ms + self._interval_ms
        return Action.GO_ON

    def _is_old(self, request: ConsumerGroupHeartbeatRequest) -> bool:
        """Whether it was sent in an earlier life of this member: fenced and back since (K-35)."""
        if request.member_epoch < 0:
            return True
        if request.member_epoch == JOIN_EPOCH:
            return self.epoch != JOIN_EPOCH
        return self.epoch == JOIN_EPOCH

    def _on_target(self, partitions: dict[bytes, frozenset[int]]) -> None:
        if partitions != self.target.partitions:
            self.target = Target(partitions, self.target.serial + 1)
        if partitions == self._held and not self._taking_over:
            self._held_serial = self.target.serial
            if self.state in (MemberState.JOINING, MemberState.RECONCILING):
                self._step(MemberState.STABLE)
        elif self.state is not MemberState.RECONCILING:
            self._step(MemberState.RECONCILING)

    def _on_error(self, code: ErrorCode, message: str | None, now_ms: int) -> Action:
        self._sent.clear()
        if code in _FENCING:
            self._step(MemberState.FENCED)
            return Action.JOIN
        if code in _REDISCOVER or code.retriable:
            self._next_heartbeat_ms = now_ms  # the same again, after a pause
            return Action.REDISCOVER if code in _REDISCOVER else Action.BACK_OFF
        self.failure = error_for(code, message, about=f"group {self._settings.group_id!r}")
        self._step(MemberState.FATAL)
        return Action.GO_ON

    def on_no_answer(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> None:
        """The request or its answer was lost: say everything again."""
        if request.member_epoch >= 0:
            self._sent.clear()
            self._next_heartbeat_ms = now_ms

    def fail(self, failure: OdradekError) -> None:
        """Nothing can be asked at all; the next poll raises it. Of no matter outside of the group."""
        if MemberState.FATAL not in STATE_STEPS[self.state]:
            return
        self.failure = failure
        self._step(MemberState.FATAL)

    # --- reconciling ---

    def reconcile(self, names: TopicNames) -> Reconciliation | None:
        """The next step to the target, as far as names of its topics are known; None if there is
        none, or nothing would change. It goes on until `reconciled`, or until the state is another."""
        if self.state is not MemberState.RECONCILING:
            return None
        known = {
            topic_id: some for topic_id, some in self.target.partitions.items() if topic_id in names
        }
        complete = len(known) == len(self.target.partitions)
        if not complete and known == self._held:
            return None
        assigned = frozenset(
            TopicPartition(names[topic_id], number)
            for topic_id, some in known.items()
            for number in some
        )
        self._taking_over = True
        return Reconciliation(assigned, known, self.target.serial, complete)

    def unnamed(self, names: TopicNames) -> bool:
        """Whether metadata is missing for the target."""
        return any(topic_id not in names for topic_id in self.target.partitions)

    def reconciled(self, step: Reconciliation) -> None:
        """The partitions of a step are held now: acknowledge them with the next heartbeat."""
        if self.state is not MemberState.RECONCILING:
            raise IllegalState(f"partitions were taken over while {self.state.value}")
        self._taking_over = False
        self._held = step.held
        if step.complete and step.serial == self.target.serial:
            self._held_serial = step.serial
        self._step(MemberState.ACKNOWLEDGING)
