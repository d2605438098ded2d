"""Turns the classic groups of a shard into consumer groups and back, where that is asked for and allowed
(rules G-150 to G-156).

What becomes of members and assignments is in `consumer/upgrade.py` and `consumer/downgrade.py`. Records
and answers are returned; whoever asked adds them to its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek_broker.coordinator.groups.classic.group import ClassicGroup, StateObserver
from odradek_broker.coordinator.groups.classic.rebalance import Rebalances
from odradek_broker.coordinator.groups.classic.states import GroupState
from odradek_broker.coordinator.groups.consumer.deadlines import ConsumerDeadlines
from odradek_broker.coordinator.groups.consumer.downgrade import downgraded, emptied, may_downgrade
from odradek_broker.coordinator.groups.consumer.group import FIRST_EPOCH, ConsumerGroup
from odradek_broker.coordinator.groups.consumer.settings import Topics
from odradek_broker.coordinator.groups.consumer.upgrade import upgraded
from odradek_broker.coordinator.groups.events import (
    ConversionReason,
    GroupConverted,
    Observer,
    RebalanceCause,
    RebalanceReason,
)
from odradek_broker.coordinator.groups.settings import GroupSettings
from odradek_broker.coordinator.runtime import Instant, Outcome, Record, Reply
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored import group_metadata
from odradek_protocol.stored.group_metadata import GroupMetadataValue


@dataclass(frozen=True, slots=True)
class OpenedGroup:
    """The consumer group that a member speaks to.

    Where it was a classic one, `records` make it out of that, `ending` ends that, and `replies` go to
    those who were parked in it (G-150, G-156).
    """

    group: ConsumerGroup
    records: list[Record]
    ending: list[Record]
    replies: list[Reply[Any]]


class GroupConversion:
    """`groups` and `consumers` are the shard's."""

    def __init__(
        self,
        config: GroupSettings,
        topics: Topics,
        groups: dict[str, ClassicGroup],
        consumers: Mapping[str, ConsumerGroup],
        rebalances: Rebalances,
        deadlines: ConsumerDeadlines,
        observer: Observer,
        state_observer: StateObserver | None,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._rebalances = rebalances
        self._deadlines = deadlines
        self._observer = observer
        self._state_observer = state_observer

    # --- To a consumer group ---

    def open(self, group_id: str, now: Instant, *, joins: bool) -> OpenedGroup | None:
        """The group that a member of the consumer protocol speaks to; None if there is none, or one of
        another kind that cannot become one."""
        held = self._consumers.get(group_id)
        if held is not None:
            return OpenedGroup(held, [], [], [])
        if not joins:
            return None
        classic = self._groups.get(group_id)
        if classic is None:
            return OpenedGroup(ConsumerGroup(group_id), [], [], [])
        ending: list[Record] = []
        if classic.stored is not None:
            ending.append((group_metadata.encode_key(group_id), None))
        if classic.state is GroupState.EMPTY:
            self._observer(GroupConverted(group_id, "consumer", ConversionReason.GROUP_EMPTY))
            # Epochs go on from where generations ended: neither ever goes back.
            epoch = max(FIRST_EPOCH, classic.generation)
            return OpenedGroup(ConsumerGroup(group_id, epoch=epoch), [], ending, [])
        made = upgraded(classic, self._config, self._topics)
        if made is None:
            return None
        group, records = made
        self._observer(GroupConverted(group_id, "consumer", ConversionReason.MEMBER_JOINED))
        replies = self._release_all(classic)
        self._deadlines.restored(group, now)
        return OpenedGroup(group, records, ending, replies)

    def _release_all(self, classic: ClassicGroup) -> list[Reply[Any]]:
        """Nobody waits in a join phase any more: who knows its id joins again at once."""
        out = Outcome()
        classic.storing_generation = None
        for member in classic.members.values():
            known = not member.is_new
            error = ErrorCode.REBALANCE_IN_PROGRESS if known else ErrorCode.UNKNOWN_MEMBER_ID
            self._rebalances.release(member, error, out)
        return out.replies

    # --- To a classic group ---

    def downgrade(self, group: ConsumerGroup, gone: set[str], now: Instant) -> Outcome | None:
        """G-155: without its last members that speak the consumer protocol, a classic group again; None
        if it stays what it is.

        Its members are as they were in the record; they are told to join again.
        """
        if not may_downgrade(group, gone, self._config):
            return None
        reason = ConversionReason.LAST_CONSUMER_MEMBER_GONE
        self._observer(GroupConverted(group.group_id, "classic", reason))
        value, records = downgraded(group, gone, self._topics, now.wall_ms)
        self._deadlines.forget_all(group)
        classic = self._revive(group.group_id, value, now)
        for member in classic.members.values():
            side = group.members[member.member_id].classic
            if side is not None:
                member.protocols = list(side.protocols)
            self._rebalances.timers.restart_session(classic, member, now)
        out = Outcome()
        self._rebalances.start(classic, out, now, RebalanceCause(RebalanceReason.DOWNGRADED))
        out.records += records
        self._undo_if_refused(classic, group, out)
        return out

    def join_empty(
        self, group: ConsumerGroup, join: Callable[[], Outcome], now: Instant
    ) -> Outcome:
        """G-156: nobody speaks the consumer protocol here; the first to come decides. `join` joins the
        classic group that this one becomes."""
        self._observer(GroupConverted(group.group_id, "classic", ConversionReason.GROUP_EMPTY))
        value, records = emptied(group, now.wall_ms)
        classic = self._revive(group.group_id, value, now)
        out = join()
        out.records[:0] = records
        self._undo_if_refused(classic, group, out)
        return out

    def _revive(self, group_id: str, value: GroupMetadataValue, now: Instant) -> ClassicGroup:
        """As it will be by a record that is being written."""
        classic = ClassicGroup(group_id, state_since_ms=now.wall_ms, observer=self._state_observer)
        self._groups[group_id] = classic
        classic.replay(value)
        classic.restore(now)
        return classic

    def _undo_if_refused(self, classic: ClassicGroup, group: ConsumerGroup, out: Outcome) -> None:
        """The classic group is there before its records are: if they are refused, it never was."""
        before = out.settled

        def settled(error: ErrorCode, then: Instant) -> Outcome:
            if error is ErrorCode.NONE:
                return Outcome() if before is None else before(error, then)
            undone = Outcome()
            for member in classic.members.values():
                self._rebalances.release(member, error, undone)
            self._rebalances.timers.forget(classic)
            if self._groups.get(classic.group_id) is classic:
                del self._groups[classic.group_id]
            self._deadlines.restored(group, then)
            return undone

        out.settled = settled
