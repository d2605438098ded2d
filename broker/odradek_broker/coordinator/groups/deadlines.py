"""The deadlines of groups, and the timers of all protocols. None of it is stored."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from odradek_broker.coordinator.groups.classic.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from odradek_broker.coordinator.groups.settings import (
    ConsumerGroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    Topics,
    session_timeout_ms,
    share_session_timeout_ms,
    streams_session_timeout_ms,
)
from odradek_broker.coordinator.groups.share.group import ShareGroup
from odradek_broker.coordinator.groups.streams.group import (
    StreamsGroup,
    StreamsMember,
    StreamsMemberState,
)
from odradek_broker.coordinator.runtime import Instant
from odradek_broker.coordinator.timers import Timers


class Deadline(Enum):
    """The kinds of timers of a group."""

    SESSION = "a member must be heard of"
    PENDING = "an id that was handed out must join"
    JOIN = "the join phase ends"
    SYNC = "every member must have fetched its assignment"
    EXPIRY = "look for offsets that nobody wants any more"
    MEMBER_SESSION = "a member of a consumer group must be heard of"
    MEMBER_REVOCATION = "it must have given its partitions back"
    MEMBER_REJOIN = "it speaks the classic protocol, and must have joined again"
    STREAMS_SESSION = "a member of a streams group must be heard of"
    STREAMS_REVOCATION = "it must have given its tasks back"
    STREAMS_DELAY = "the tasks of a streams group are assigned for the first time"
    MEMBER_SYNC = "it speaks the classic protocol, and must have fetched its assignment"
    SHARE_SESSION = "a member of a share group must be heard of"


class TimerName(NamedTuple):
    """A deadline of a group, or of one member."""

    kind: Deadline
    group_id: str = ""
    member_id: str = ""


#: The time for which a member with a parked first JoinGroup stays: it cannot heartbeat yet (G-27).
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def classic_session_timeout_ms(member: Member) -> int:
    """The longest silence of a member, in ms: that of its session, or of its first join."""
    return NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms


class ClassicTimers:
    """Sets and cancels the timers of groups and their members."""

    def __init__(self, timers: Timers[TimerName]) -> None:
        self._timers = timers

    def restart_session(self, group: ClassicGroup, member: Member, now: Instant) -> None:
        """Restart the session of the member, which has sent a request or got an answer (G-65)."""
        name = TimerName(Deadline.SESSION, group.group_id, member.member_id)
        self._timers.set(name, now.monotonic_ms + classic_session_timeout_ms(member))

    def cancel_session(self, group: ClassicGroup, member: Member) -> None:
        self._timers.cancel(TimerName(Deadline.SESSION, group.group_id, member.member_id))

    # --- The phases of a rebalance ---

    def set_join(self, group: ClassicGroup, delay_ms: int, now: Instant) -> None:
        """Set the deadline of the join phase, or of a step of its initial delay."""
        self._timers.set(TimerName(Deadline.JOIN, group.group_id), now.monotonic_ms + delay_ms)

    def cancel_join(self, group: ClassicGroup) -> None:
        self._timers.cancel(TimerName(Deadline.JOIN, group.group_id))

    def set_sync(self, group: ClassicGroup, now: Instant) -> None:
        """Set the deadline for the SyncGroup of every member: the rebalance timeout (G-46)."""
        deadline_ms = now.monotonic_ms + group.max_rebalance_timeout_ms
        self._timers.set(TimerName(Deadline.SYNC, group.group_id), deadline_ms)

    def cancel_sync(self, group: ClassicGroup) -> None:
        self._timers.cancel(TimerName(Deadline.SYNC, group.group_id))

    # --- Ids that were handed out ---

    def add_pending(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: Instant
    ) -> None:
        """Add a pending member id, with the deadline for its JoinGroup (G-25)."""
        group.pending[member_id] = None
        name = TimerName(Deadline.PENDING, group.group_id, member_id)
        self._timers.set(name, now.monotonic_ms + session_timeout_ms)

    def take_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a pending id: its owner joins, or leaves."""
        del group.pending[member_id]
        self._timers.cancel(TimerName(Deadline.PENDING, group.group_id, member_id))

    def forget_pending(self, group: ClassicGroup) -> None:
        """Remove all pending ids: their owners must request new ones."""
        self._cancel_pending(group)
        group.pending.clear()

    def _cancel_pending(self, group: ClassicGroup) -> None:
        for member_id in group.pending:
            self._timers.cancel(TimerName(Deadline.PENDING, group.group_id, member_id))

    def forget(self, group: ClassicGroup) -> None:
        """Cancel all timers of a group that was removed."""
        self.cancel_join(group)
        self.cancel_sync(group)
        for member in group.members.values():
            self.cancel_session(group, member)
        self._cancel_pending(group)


#: The deadlines that a member of a consumer group may have.
MEMBER_DEADLINES = (
    Deadline.MEMBER_SESSION,
    Deadline.MEMBER_REVOCATION,
    Deadline.MEMBER_REJOIN,
    Deadline.MEMBER_SYNC,
)


class ConsumerDeadlines:
    """Sets and cancels the timers of members."""

    def __init__(
        self, config: ConsumerGroupSettings, topics: Topics, timers: Timers[TimerName]
    ) -> None:
        self._config = config
        self._topics = topics
        self._timers = timers

    def restart_session(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """Restart the member's session."""
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = session_timeout_ms(self._config, self._topics, group.group_id)
        self.set(group, member, Deadline.MEMBER_SESSION, timeout_ms, now)

    def update_revocation(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """Set the revocation timer of a member that must give partitions back; cancel it otherwise.

        A member that uses the classic protocol has the deadlines for rejoining and syncing instead.
        """
        if member.classic is None:
            self.cancel(group, member.member_id, Deadline.MEMBER_REJOIN)
            self.cancel(group, member.member_id, Deadline.MEMBER_SYNC)
        revokes = member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch >= 0
        if revokes and member.classic is None:
            timeout_ms = member.rebalance_timeout_ms
            self.set(group, member, Deadline.MEMBER_REVOCATION, timeout_ms, now)
        else:
            self.cancel(group, member.member_id, Deadline.MEMBER_REVOCATION)

    def set(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        kind: Deadline,
        timeout_ms: int,
        now: Instant,
    ) -> None:
        """Set a timer of a member."""
        name = TimerName(kind, group.group_id, member.member_id)
        self._timers.set(name, now.monotonic_ms + timeout_ms)

    def is_set(self, group: ConsumerGroup, member_id: str, kind: Deadline) -> bool:
        return TimerName(kind, group.group_id, member_id) in self._timers

    def cancel(self, group: ConsumerGroup, member_id: str, kind: Deadline) -> None:
        self._timers.cancel(TimerName(kind, group.group_id, member_id))

    def forget(self, group: ConsumerGroup, member_id: str) -> None:
        """Cancel all timers of a member that was removed."""
        for kind in MEMBER_DEADLINES:
            self.cancel(group, member_id, kind)

    def forget_all(self, group: ConsumerGroup) -> None:
        """Cancel all timers of a group that was removed."""
        for member_id in group.members:
            self.forget(group, member_id)

    def restored(self, group: ConsumerGroup, now: Instant) -> None:
        """Begin the sessions of all members of a group that was loaded."""
        for member in group.members.values():
            self.restart_session(group, member, now)
            self.update_revocation(group, member, now)


class ShareDeadlines:
    """Sets and cancels the timers of members of share groups."""

    def __init__(
        self, config: ShareGroupSettings, topics: Topics, timers: Timers[TimerName]
    ) -> None:
        self._config = config
        self._topics = topics
        self._timers = timers

    def restart_session(self, group: ShareGroup, member_id: str, now: Instant) -> None:
        """Restart the member's session (H-16)."""
        timeout_ms = share_session_timeout_ms(self._config, self._topics, group.group_id)
        self._timers.set(self._name(group, member_id), now.monotonic_ms + timeout_ms)

    def forget(self, group: ShareGroup, member_id: str) -> None:
        """Cancel the timer of a member that was removed."""
        self._timers.cancel(self._name(group, member_id))

    def forget_all(self, group: ShareGroup) -> None:
        """Cancel all timers of a group that was removed."""
        for member_id in group.members:
            self.forget(group, member_id)

    def restored(self, group: ShareGroup, now: Instant) -> None:
        """Begin the sessions of all members of a group that was loaded."""
        for member_id in group.members:
            self.restart_session(group, member_id, now)

    @staticmethod
    def _name(group: ShareGroup, member_id: str) -> TimerName:
        return TimerName(Deadline.SHARE_SESSION, group.group_id, member_id)


#: The deadlines of a streams group and its members.
STREAMS_DEADLINES = (
    Deadline.STREAMS_SESSION,
    Deadline.STREAMS_REVOCATION,
    Deadline.STREAMS_DELAY,
)


class StreamsDeadlines:
    """Sets and cancels the timers of streams groups and their members."""

    def __init__(
        self, config: StreamsGroupSettings, topics: Topics, timers: Timers[TimerName]
    ) -> None:
        self._config = config
        self._topics = topics
        self._timers = timers

    def restart_session(self, group: StreamsGroup, member_id: str, now: Instant) -> None:
        """Restart the member's session (J-19)."""
        timeout_ms = streams_session_timeout_ms(self._config, self._topics, group.group_id)
        name = TimerName(Deadline.STREAMS_SESSION, group.group_id, member_id)
        self._timers.set(name, now.monotonic_ms + timeout_ms)

    def update_revocation(self, group: StreamsGroup, member: StreamsMember, now: Instant) -> None:
        """Set the revocation timer of a member that must give tasks back; cancel it otherwise."""
        name = TimerName(Deadline.STREAMS_REVOCATION, group.group_id, member.member_id)
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            self._timers.set(name, now.monotonic_ms + member.rebalance_timeout_ms)
        else:
            self._timers.cancel(name)

    def delay_assignment(self, group: StreamsGroup, delay_ms: int, now: Instant) -> None:
        """Begin the initial rebalance delay, if it has not begun (J-06)."""
        name = TimerName(Deadline.STREAMS_DELAY, group.group_id)
        if delay_ms > 0 and name not in self._timers:
            self._timers.set(name, now.monotonic_ms + delay_ms)

    def is_delayed(self, group: StreamsGroup) -> bool:
        """True during the initial rebalance delay."""
        return TimerName(Deadline.STREAMS_DELAY, group.group_id) in self._timers

    def forget(self, group: StreamsGroup, member_id: str) -> None:
        """Cancel the timers of a member that was removed."""
        for kind in (Deadline.STREAMS_SESSION, Deadline.STREAMS_REVOCATION):
            self._timers.cancel(TimerName(kind, group.group_id, member_id))

    def forget_all(self, group: StreamsGroup) -> None:
        """Cancel all timers of a group that was removed."""
        self._timers.cancel(TimerName(Deadline.STREAMS_DELAY, group.group_id))
        for member_id in group.members:
            self.forget(group, member_id)

    def restored(self, group: StreamsGroup, now: Instant) -> None:
        """Begin the sessions of all members of a group that was loaded."""
        for member_id, member in group.members.items():
            self.restart_session(group, member_id, now)
            self.update_revocation(group, member, now)
