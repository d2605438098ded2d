"""The membership in a group: the common part of the classic and the consumer protocol (KIP-848)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from odradek_client.consumer.errors import IllegalState
from odradek_client.errors import OdradekError

NO_MEMBER_ID = ""


class MembershipAction(Enum):
    """The group loop's next step after an answer of the coordinator."""

    GO_ON = "the step succeeded"
    JOIN = "join, at once"
    BACK_OFF = "wait retry_backoff_ms, then join"
    REDISCOVER = "find the coordinator again, then join"
    IGNORE = "nothing: the answer is of another generation"


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """The constants of a membership. The rebalance timeout is max.poll.interval.ms."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    max_poll_interval_ms: int = 300_000


#: The shortest interval between heartbeats that is accepted from a coordinator.
HEARTBEAT_MS_MIN = 50


class Membership(ABC):
    """The membership of a consumer in its group: the part that both group protocols share.

    The group loop sends the requests, passes the answers on, and carries out the
    `MembershipAction`.
    """

    state: Enum

    def __init__(
        self,
        settings: MembershipSettings,
        member_id: str,
        steps: Mapping[Any, Collection[Enum]],
        heartbeating: Collection[Enum],
    ) -> None:
        """`steps`: the states that may follow each state. `heartbeating`: the states in which
        heartbeats are sent."""
        self.group_id = settings.group_id
        self.group_instance_id = settings.group_instance_id
        self.member_id = member_id
        #: The error that ended the heartbeats, to be raised by the next poll.
        self.failure: OdradekError | None = None
        self._session_timeout_ms = settings.session_timeout_ms
        self.max_poll_interval_ms = settings.max_poll_interval_ms
        self._steps = steps
        self._heartbeating = heartbeating
        self._last_poll_ms = 0
        self._last_heard_ms = 0
        self._next_heartbeat_ms = 0

    def _step(self, state: Enum) -> None:
        """Enter a state. IllegalState for a step that is not in the table."""
        if state not in self._steps[self.state]:
            raise IllegalState(f"a member cannot go from {self.state.value} to {state.value}")
        self.state = state

    @property
    def about(self) -> str:
        """The name of the group in messages."""
        return f"group {self.group_id!r}"

    @property
    @abstractmethod
    def generation_or_epoch(self) -> int:
        """The generation of the classic protocol, or the member epoch of the consumer protocol."""

    @property
    @abstractmethod
    def in_group(self) -> bool:
        """True if the member owns its partitions, unless the session has expired."""

    @property
    @abstractmethod
    def may_commit(self) -> bool:
        """True if the coordinator accepts commits of this member."""

    # --- polls ---

    def polled(self, now_ms: int) -> None:
        """Called when the application has polled (K-35)."""
        self._last_poll_ms = now_ms

    def poll_overdue(self, now_ms: int) -> bool:
        """True if the application has not polled for max.poll.interval.ms, so that the member must
        leave."""
        return now_ms - self._last_poll_ms >= self.max_poll_interval_ms

    # --- heartbeats and the session ---

    def heartbeat_due_ms(self, now_ms: int) -> int:
        """The time until the next heartbeat may be sent, in ms; -1 in a state without
        heartbeats."""
        if self.state not in self._heartbeating:
            return -1
        return max(0, self._next_heartbeat_ms - now_ms)

    def session_left_ms(self, now_ms: int) -> int:
        """The time until the coordinator removes this member, in ms, assuming that the coordinator
        has received no request since its last answer."""
        return max(0, self._last_heard_ms + self._session_timeout_ms - now_ms)


class EpochMembership(Membership):
    """A membership whose only request is the heartbeat (KIP-848, KIP-932)."""

    epoch: int

    @property
    def generation_or_epoch(self) -> int:
        return self.epoch

    @abstractmethod
    def on_no_answer(self, request: Any, now_ms: int) -> None:
        """Send every field again, because the request or its answer was lost."""

    @abstractmethod
    def fail(self, failure: OdradekError) -> None:
        """Called when the group has refused this member; the next poll raises `failure`. No effect
        if the member is not in the group."""

    @abstractmethod
    def left(self) -> None:
        """End the membership after the attempt to leave. If no request could be sent, the member is
        removed when its session expires."""
