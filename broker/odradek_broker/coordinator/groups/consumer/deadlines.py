"""The timers of members of consumer groups (rules G-123, G-124). All of it is soft state."""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.consumer.settings import (
    ConsumerGroupSettings,
    Topics,
    session_timeout_ms,
)
from odradek_broker.coordinator.groups.consumer.states import MemberState
from odradek_broker.coordinator.groups.deadlines import Deadline, TimerName
from odradek_broker.coordinator.runtime import Instant
from odradek_broker.coordinator.timers import Timers

#: All that a member of a consumer group may be waited for with.
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
        """Begin the member's session anew: it was heard of."""
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = session_timeout_ms(self._config, self._topics, group.group_id)
        self.set(group, member, Deadline.MEMBER_SESSION, timeout_ms, now)

    def update_revocation(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """Set the revocation timer of a member that must give partitions back; cancel it for others.

        Who speaks the classic protocol has its deadlines for rejoining and syncing instead.
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
        """Cancel all timers of a member that is gone."""
        for kind in MEMBER_DEADLINES:
            self.cancel(group, member_id, kind)

    def forget_all(self, group: ConsumerGroup) -> None:
        """Cancel all timers of a group that is gone."""
        for member_id in group.members:
            self.forget(group, member_id)

    def restored(self, group: ConsumerGroup, now: Instant) -> None:
        """Begin the sessions of all members: the group was loaded."""
        for member in group.members.values():
            self.restart_session(group, member, now)
            self.update_revocation(group, member, now)
