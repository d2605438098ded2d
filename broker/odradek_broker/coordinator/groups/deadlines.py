"""The names of the timers of groups, and the deadlines of members of modern groups. Deadlines are
not stored."""

from __future__ import annotations

from enum import Enum
from typing import Any

from odradek_broker.coordinator.groups.modern.group import ModernGroup, ModernMember
from odradek_broker.coordinator.groups.settings import (
    CoordinatorMetadata,
    GroupSettings,
    group_setting,
)
from odradek_broker.coordinator.runtime import Instant
from odradek_broker.coordinator.timers import Timers
from odradek_broker.slices import in_pieces
from odradek_protocol.lazy_tuple import NamedTuple


class GroupTimer(Enum):
    """The kinds of timers of a group."""

    SESSION = "a member must be heard of"
    PENDING = "an id that was handed out must join"
    JOIN = "the join phase ends"
    SYNC = "every member must have fetched its assignment"
    EXPIRY = "look for offsets that nobody wants any more"
    MEMBER_SESSION = "a member of a modern group must be heard of"
    MEMBER_REVOCATION = "the member must have revoked its partitions"
    MEMBER_REJOIN = "it speaks the classic protocol, and must have joined again"
    MEMBER_SYNC = "it speaks the classic protocol, and must have fetched its assignment"
    STREAMS_DELAY = "the tasks of a streams group are assigned for the first time"


class GroupTimerName(NamedTuple):
    """A deadline of a group, or of one member."""

    kind: GroupTimer
    group_id: str = ""
    member_id: str = ""


#: The deadlines that a member of a modern group may have.
MEMBER_DEADLINES = (
    GroupTimer.MEMBER_SESSION,
    GroupTimer.MEMBER_REVOCATION,
    GroupTimer.MEMBER_REJOIN,
    GroupTimer.MEMBER_SYNC,
)

Group = ModernGroup[Any, Any]


class MemberDeadlines:
    """Sets and cancels the timers of modern groups of one type and their members."""

    def __init__(
        self,
        config: GroupSettings,
        topics: CoordinatorMetadata,
        timers: Timers[GroupTimerName],
        group_type: str,
    ) -> None:
        self._config = config
        self._topics = topics
        self._timers = timers
        self._session_setting = f"{group_type}.session.timeout.ms"

    def restart_session(self, group: Group, member: ModernMember, now: Instant) -> None:
        """Restart the member's session (H-16, J-19)."""
        timeout_ms = member.own_session_timeout_ms
        if timeout_ms is None:
            timeout_ms = group_setting(
                self._config, self._topics, group.group_id, self._session_setting
            )
        name = GroupTimerName(GroupTimer.MEMBER_SESSION, group.group_id, member.member_id)
        self._timers.set(name, now.monotonic_ms + timeout_ms)

    def update_revocation(self, group: Group, member: ModernMember, now: Instant) -> None:
        """Set the revocation timer of a member that must revoke partitions or tasks; cancel it
        otherwise.

        The deadlines for rejoining and syncing are cancelled unless the member uses the classic
        protocol.
        """
        if member.own_session_timeout_ms is None:
            self.cancel(group, member.member_id, GroupTimer.MEMBER_REJOIN)
            self.cancel(group, member.member_id, GroupTimer.MEMBER_SYNC)
        timeout_ms = member.revocation_timeout_ms
        if timeout_ms is None:
            self.cancel(group, member.member_id, GroupTimer.MEMBER_REVOCATION)
        else:
            self.set(group, member.member_id, GroupTimer.MEMBER_REVOCATION, timeout_ms, now)

    def set(
        self, group: Group, member_id: str, kind: GroupTimer, timeout_ms: int, now: Instant
    ) -> None:
        self._timers.set(
            GroupTimerName(kind, group.group_id, member_id), now.monotonic_ms + timeout_ms
        )

    def is_set(self, group: Group, member_id: str, kind: GroupTimer) -> bool:
        return GroupTimerName(kind, group.group_id, member_id) in self._timers

    def cancel(self, group: Group, member_id: str, kind: GroupTimer) -> None:
        self._timers.cancel(GroupTimerName(kind, group.group_id, member_id))

    def forget(self, group: Group, member_id: str) -> None:
        """Cancel all timers of a member that was removed."""
        for kind in MEMBER_DEADLINES:
            self.cancel(group, member_id, kind)

    def forget_all(self, group: Group) -> None:
        """Cancel all timers of a group that was removed."""
        self.cancel(group, "", GroupTimer.STREAMS_DELAY)
        for member_id in group.members:
            self.forget(group, member_id)

    async def forget_members(self, group: Group) -> None:
        """Cancel all timers of the members of a group that is being converted."""
        async for some in in_pieces(group.members):
            for member_id in some:
                self.forget(group, member_id)

    async def restored(self, group: Group, now: Instant) -> None:
        """Begin the sessions and the revocation timers of all members of a group that was loaded or
        converted."""
        async for some in in_pieces(group.members.values()):
            for member in some:
                self._begin(group, member, now)

    def _begin(self, group: Group, member: ModernMember, now: Instant) -> None:
        self.restart_session(group, member, now)
        self.update_revocation(group, member, now)

    async def restore(self, group: Group, member_id: str, now: Instant) -> None:
        """Restore the deadlines after a heartbeat of `member_id` was undone: begin again the
        session of this member, and the sessions that the heartbeat has cancelled. If `member_id` is
        "", a removal was undone: begin again the sessions of all members."""
        async for some in in_pieces(group.members.items()):
            for each, member in some:
                if member_id in (each, "") or not self.is_set(
                    group, each, GroupTimer.MEMBER_SESSION
                ):
                    self._begin(group, member, now)
