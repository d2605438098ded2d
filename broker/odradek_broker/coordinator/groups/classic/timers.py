"""The timers of classic groups: sessions, handed-out ids, join and sync phases. All of it is soft state."""

from __future__ import annotations

from odradek_broker.coordinator.groups.classic.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.deadlines import Deadline, TimerName
from odradek_broker.coordinator.runtime import Instant
from odradek_broker.coordinator.timers import Timers

#: How long a member is kept whose first join is parked: it cannot heartbeat yet (G-27).
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def session_timeout_ms(member: Member) -> int:
    """How long the member may be silent."""
    return NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms


class ClassicTimers:
    """Sets and cancels the timers of groups and their members."""

    def __init__(self, timers: Timers[TimerName]) -> None:
        self._timers = timers

    def restart_session(self, group: ClassicGroup, member: Member, now: Instant) -> None:
        """The member was heard of, or was answered (G-65)."""
        name = TimerName(Deadline.SESSION, group.group_id, member.member_id)
        self._timers.set(name, now.monotonic_ms + session_timeout_ms(member))

    def cancel_session(self, group: ClassicGroup, member: Member) -> None:
        self._timers.cancel(TimerName(Deadline.SESSION, group.group_id, member.member_id))

    # --- The phases of a rebalance ---

    def set_join(self, group: ClassicGroup, delay_ms: int, now: Instant) -> None:
        """The join phase, or this step of its initial delay, ends then."""
        self._timers.set(TimerName(Deadline.JOIN, group.group_id), now.monotonic_ms + delay_ms)

    def cancel_join(self, group: ClassicGroup) -> None:
        self._timers.cancel(TimerName(Deadline.JOIN, group.group_id))

    def set_sync(self, group: ClassicGroup, now: Instant) -> None:
        """Every member must have sent its SyncGroup within the rebalance timeout (G-46)."""
        deadline_ms = now.monotonic_ms + group.max_rebalance_timeout_ms
        self._timers.set(TimerName(Deadline.SYNC, group.group_id), deadline_ms)

    def cancel_sync(self, group: ClassicGroup) -> None:
        self._timers.cancel(TimerName(Deadline.SYNC, group.group_id))

    # --- Ids that were handed out ---

    def add_pending(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: Instant
    ) -> None:
        """Hand out an id; its owner is expected to join with it (G-25)."""
        group.pending[member_id] = None
        name = TimerName(Deadline.PENDING, group.group_id, member_id)
        self._timers.set(name, now.monotonic_ms + session_timeout_ms)

    def take_pending(self, group: ClassicGroup, member_id: str) -> None:
        """An id is no longer pending: its owner joins, or leaves."""
        del group.pending[member_id]
        self._timers.cancel(TimerName(Deadline.PENDING, group.group_id, member_id))

    def forget_pending(self, group: ClassicGroup) -> None:
        """Forget all pending ids: their owners must ask for others."""
        self._cancel_pending(group)
        group.pending.clear()

    def _cancel_pending(self, group: ClassicGroup) -> None:
        for member_id in group.pending:
            self._timers.cancel(TimerName(Deadline.PENDING, group.group_id, member_id))

    def forget(self, group: ClassicGroup) -> None:
        """Cancel all timers of a group that is gone."""
        self.cancel_join(group)
        self.cancel_sync(group)
        for member in group.members.values():
            self.cancel_session(group, member)
        self._cancel_pending(group)
