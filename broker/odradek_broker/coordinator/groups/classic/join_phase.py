"""The join phase of a classic group, Kafka's delayed join: its start, its end, and the removal of
late members.

              a member joins with a change, leaves or is removed: `start`
    Stable, CompletingRebalance --> PreparingRebalance <-- Empty, with the initial delay (G-44)
                                           |
    every JoinGroup is parked:  [a joined] [b joined] [c has not] [id given out, not joined]
                                           |
          `complete_if_all_joined` (G-40)  or  the longest rebalance timeout is over (G-41)
                                           |
    `_complete`: c is removed (G-42) --> leader elected, protocol chosen, record written --> all
    parked joins answered: CompletingRebalance. Nobody left: Empty. Static members only: again.

The functions are called by the handlers of requests, and by the shard when a deadline has passed.
They return their records and answers.
"""

from __future__ import annotations

from typing import Any

from odradek_broker.coordinator.groups.classic.group import (
    ANSWERS,
    ClassicAction,
    ClassicGroup,
    ClassicRequest,
    GroupState,
    Member,
)
from odradek_broker.coordinator.groups.deadlines import GroupTimer, GroupTimerName
from odradek_broker.coordinator.groups.events import (
    GenerationStarted,
    GroupEmptied,
    GroupLoaded,
    MemberIdExpired,
    MemberJoined,
    MemberRemovalReason,
    MemberRemoved,
    Observer,
    RebalanceCause,
    RebalanceReason,
    RebalanceStarted,
    Removal,
)
from odradek_broker.coordinator.groups.responses import (
    join_answer,
    join_refused,
    join_reply,
    sync_refused,
)
from odradek_broker.coordinator.groups.settings import GroupSettings
from odradek_broker.coordinator.runtime import CoreOutcome, Instant, Record, Reply
from odradek_broker.coordinator.timers import Timers
from odradek_broker.slices import in_pieces, with_pauses
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.group_metadata import (
    GroupMetadataValue,
    encode_key,
    encode_value,
    encode_value_with_pauses,
)

#: The lower limit of the duration of a join phase that is started again: with a rebalance timeout
#: of 0, the phase would start again without a pause.
_JOIN_PHASE_AGAIN_MIN_MS = 100


#: The reactions of the table that begin a join phase.
_STARTS = frozenset(
    {
        ClassicAction.ADD_AND_REBALANCE,
        ClassicAction.UPDATE_AND_REBALANCE,
        ClassicAction.REMOVE_AND_REBALANCE,
    }
)

#: The answers to parked requests.
Replies = list[Reply[Any]]

#: The session timeout of a member whose first JoinGroup is parked. It is longer than usual, because
#: the member cannot heartbeat yet (G-27).
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def classic_session_timeout_ms(member: Member) -> int:
    """The time after which a silent member is removed: its session timeout, or
    NEW_MEMBER_JOIN_TIMEOUT_MS while its first JoinGroup is parked."""
    return NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms


async def stored_value(value: GroupMetadataValue) -> bytes:
    """The value of a group's record."""
    if len(value.members) <= in_pieces.SIZE:
        return encode_value(value)
    return await with_pauses(encode_value_with_pauses(value))


class ClassicTimers:
    """Sets and cancels the timers of groups and their members."""

    def __init__(self, timers: Timers[GroupTimerName]) -> None:
        self._timers = timers

    def restart_session(self, group: ClassicGroup, member: Member, now: Instant) -> None:
        """Restart the session of the member, which has sent a request or got an answer (G-65)."""
        name = GroupTimerName(GroupTimer.SESSION, group.group_id, member.member_id)
        self._timers.set(name, now.monotonic_ms + classic_session_timeout_ms(member))

    def cancel_session(self, group: ClassicGroup, member: Member) -> None:
        self._timers.cancel(GroupTimerName(GroupTimer.SESSION, group.group_id, member.member_id))

    # --- The phases of a rebalance ---

    def set_join(self, group: ClassicGroup, delay_ms: int, now: Instant) -> None:
        """Set the deadline of the join phase, or of a step of its initial delay."""
        self._timers.set(
            GroupTimerName(GroupTimer.JOIN, group.group_id), now.monotonic_ms + delay_ms
        )

    def cancel_join(self, group: ClassicGroup) -> None:
        self._timers.cancel(GroupTimerName(GroupTimer.JOIN, group.group_id))

    def set_sync(self, group: ClassicGroup, now: Instant) -> None:
        """Set the deadline for the SyncGroup of every member: the rebalance timeout (G-46)."""
        deadline_ms = now.monotonic_ms + group.max_rebalance_timeout_ms
        self._timers.set(GroupTimerName(GroupTimer.SYNC, group.group_id), deadline_ms)

    def cancel_sync(self, group: ClassicGroup) -> None:
        self._timers.cancel(GroupTimerName(GroupTimer.SYNC, group.group_id))

    # --- Ids that were handed out ---

    def add_pending(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: Instant
    ) -> None:
        """Add a pending member id, with the deadline for its JoinGroup (G-25)."""
        group.pending[member_id] = None
        name = GroupTimerName(GroupTimer.PENDING, group.group_id, member_id)
        self._timers.set(name, now.monotonic_ms + session_timeout_ms)

    def take_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a pending id, because its owner joins or leaves."""
        del group.pending[member_id]
        self._timers.cancel(GroupTimerName(GroupTimer.PENDING, group.group_id, member_id))

    def forget_pending(self, group: ClassicGroup) -> None:
        """Remove all pending ids, so that their owners must request new ones."""
        self._cancel_pending(group)
        group.pending.clear()

    def _cancel_pending(self, group: ClassicGroup) -> None:
        for member_id in group.pending:
            self._timers.cancel(GroupTimerName(GroupTimer.PENDING, group.group_id, member_id))

    def forget(self, group: ClassicGroup) -> None:
        """Cancel all timers of a group that was removed."""
        self.cancel_join(group)
        self.cancel_sync(group)
        for member in group.members.values():
            self.cancel_session(group, member)
        self._cancel_pending(group)


class Rebalances:
    """Begins and ends join phases, and adds and removes members."""

    def __init__(
        self, config: GroupSettings, timers: Timers[GroupTimerName], observer: Observer
    ) -> None:
        self.timers = ClassicTimers(timers)
        self._config = config
        self._observer = observer

    # --- Deadlines that have passed ---

    async def restored(self, group: ClassicGroup, now: Instant) -> None:
        """Set the deadlines of a group that was loaded (G-90)."""
        async for some in in_pieces(group.members.values()):
            for member in some:
                self.timers.restart_session(group, member, now)
        if group.state is GroupState.PREPARING_REBALANCE:
            group.rebalance_since_ms = now.monotonic_ms
            self.timers.set_join(group, group.max_rebalance_timeout_ms, now)
        if group.members:
            self._observer(GroupLoaded(group))

    async def on_session_end(
        self, group: ClassicGroup, member_id: str, now: Instant
    ) -> CoreOutcome:
        """Remove a silent member (G-70). If a request of the member is parked, but not its first
        JoinGroup, restart its session instead (G-27)."""
        member = group.members.get(member_id)
        if member is not None and (member.is_new or not member.awaits):
            removal = Removal(
                MemberRemovalReason.SESSION_TIMEOUT, classic_session_timeout_ms(member)
            )
            replies = self.remove(group, member, removal)
            cause = RebalanceCause(RebalanceReason.MEMBER_TIMED_OUT, [member.member_id])
            return (await self.proceed(group, ClassicRequest.LEAVE, now, cause)).after(replies)
        if member is not None:
            self.timers.restart_session(group, member, now)
        return CoreOutcome()

    async def on_pending_end(
        self, group: ClassicGroup, member_id: str, now: Instant
    ) -> CoreOutcome:
        """Drop a pending id that no member has used to join (G-26); the join phase may now be
        complete."""
        if member_id in group.pending:
            del group.pending[member_id]
            self._observer(MemberIdExpired(group.group_id, member_id))
        return await self.complete_if_all_joined(group, now)

    async def on_join_end(self, group: ClassicGroup, now: Instant) -> CoreOutcome:
        """Complete the join phase, or take the next step of the initial delay (G-42, G-44)."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return CoreOutcome()
        left_ms = group.initial_wait_left_ms
        if left_ms is not None and left_ms > 0 and group.added_during_wait:
            step_ms = min(self._config.group_initial_rebalance_delay_ms, left_ms)
            group.initial_wait_left_ms = left_ms - step_ms
            group.added_during_wait = False
            self.timers.set_join(group, step_ms, now)
            return CoreOutcome()
        return await self._complete(group, now)

    async def on_sync_end(self, group: ClassicGroup, now: Instant) -> CoreOutcome:
        """Remove the members that have not synced; the others rebalance (G-46)."""
        late = [group.members[member_id] for member_id in sorted(group.pending_syncs)]
        group.pending_syncs.clear()
        if not late:
            return CoreOutcome()
        removal = Removal(MemberRemovalReason.NO_SYNC_IN_GENERATION, group.max_rebalance_timeout_ms)
        replies: Replies = []
        async for some in in_pieces(late):
            for member in some:
                replies += self.remove(group, member, removal)
        ids = [member.member_id for member in late]
        cause = RebalanceCause(RebalanceReason.NO_SYNC, ids, generation=group.generation)
        return (await self.start(group, now, cause)).after(replies)

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """Called when the member has sent its SyncGroup; after the last one, cancel the
        deadline."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self.timers.cancel_sync(group)

    # --- Members ---

    def add(self, group: ClassicGroup, member: Member, now: Instant) -> None:
        """Add a new member, whose first JoinGroup is parked. Its id may be a pending one."""
        if member.member_id in group.pending:
            self.timers.take_pending(group, member.member_id)
        member.is_new = True
        member.joined_ms = now.monotonic_ms
        group.add(member)
        self._observer(MemberJoined(group.group_id, member))
        if group.initial_wait_left_ms is not None:
            group.added_during_wait = True
        self.timers.restart_session(group, member, now)

    def remove(self, group: ClassicGroup, member: Member, removal: Removal) -> Replies:
        """Remove a member. Its parked requests are answered with UNKNOWN_MEMBER_ID (G-45)."""
        self._observer(MemberRemoved(group.group_id, member, removal))
        self.timers.cancel_session(group, member)
        replies = self.release(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member)
        return replies

    async def drop_surplus(self, group: ClassicGroup, member_id: str, now: Instant) -> CoreOutcome:
        """Drop a member, or an id that was handed out, whose join finds the group full (G-22)."""
        out = CoreOutcome()
        if member_id in group.members:
            replies = self.remove(
                group, group.members[member_id], Removal(MemberRemovalReason.GROUP_FULL)
            )
            cause = RebalanceCause(RebalanceReason.MEMBER_REMOVED, [member_id])
            out = (await self.proceed(group, ClassicRequest.LEAVE, now, cause)).after(replies)
        elif member_id in group.pending:
            self.timers.take_pending(group, member_id)
            out = await self.complete_if_all_joined(group, now)
        return out

    def replace(self, group: ClassicGroup, member: Member, member_id: str, now: Instant) -> Replies:
        """Give a static member the id of its successor. Requests that are parked under its old id
        are fenced (G-28)."""
        replies = self.release(group, member, ErrorCode.FENCED_INSTANCE_ID)
        self.rename_session(group, member, member_id, now)
        return replies

    def rename_session(
        self, group: ClassicGroup, member: Member, member_id: str, now: Instant
    ) -> None:
        """Give a static member another id and restart its session."""
        self.timers.cancel_session(group, member)
        group.rename(member, member_id)
        member.is_new = False
        self.timers.restart_session(group, member, now)

    def release(self, group: ClassicGroup, member: Member, error: ErrorCode) -> Replies:
        """The answers with an error to the parked requests of the member."""
        replies: Replies = []
        if member.parked_join is not None:
            gone = error is ErrorCode.UNKNOWN_MEMBER_ID
            answer = join_refused(member.parked_join, error, "" if gone else member.member_id)
            replies.append(answer)
            group.unpark(member)
        return replies + self.release_sync(member, error)

    def release_sync(self, member: Member, error: ErrorCode) -> Replies:
        """The answer with an error to the parked SyncGroup of the member, if there is one."""
        parked, member.parked_sync = member.parked_sync, None
        return [] if parked is None else [sync_refused(parked, error)]

    # --- The join phase ---

    async def proceed(
        self, group: ClassicGroup, request: ClassicRequest, now: Instant, cause: RebalanceCause
    ) -> CoreOutcome:
        """Go on after a JoinGroup was parked or a member was removed, by the table: start the join
        phase, or check whether the present one is complete (G-70, G-80)."""
        if ANSWERS[group.state, request] in _STARTS:
            return await self.start(group, now, cause)
        return await self.complete_if_all_joined(group, now)

    async def start(self, group: ClassicGroup, now: Instant, cause: RebalanceCause) -> CoreOutcome:
        """Enter PreparingRebalance: every member has to join again."""
        replies: Replies = []
        async for some in in_pieces(group.members.values()):
            for member in some:
                replies += self.release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.timers.cancel_sync(group)
        group.pending_syncs.clear()
        group.storing_generation = None
        before = group.state
        if before is GroupState.COMPLETING_REBALANCE:
            group.last_assignments = {}
        was_empty = before is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, now)
        group.rebalance_since_ms = now.monotonic_ms
        self._observe_start(group, before, cause)
        delay_ms = self._config.group_initial_rebalance_delay_ms
        if was_empty:
            group.initial_wait_left_ms = max(group.max_rebalance_timeout_ms - delay_ms, 0)
            group.added_during_wait = False
        if was_empty and delay_ms <= 0:
            return (await self._complete(group, now)).after(replies)
        self.timers.set_join(group, delay_ms if was_empty else group.max_rebalance_timeout_ms, now)
        return (await self.complete_if_all_joined(group, now)).after(replies)

    def _observe_start(
        self, group: ClassicGroup, before: GroupState, cause: RebalanceCause
    ) -> None:
        awaited = [*group.pending]
        awaited += [each for each, member in group.members.items() if member.parked_join is None]
        timeout_ms = group.max_rebalance_timeout_ms
        if before is GroupState.EMPTY:
            timeout_ms = self._config.group_initial_rebalance_delay_ms
        self._observer(RebalanceStarted(group, before, cause, awaited, timeout_ms))

    async def complete_if_all_joined(self, group: ClassicGroup, now: Instant) -> CoreOutcome:
        """Complete the join phase if every member has joined (G-40), but not before the initial
        delay (G-44)."""
        complete = (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_wait_left_ms is None
            and group.all_joined
        )
        return await self._complete(group, now) if complete else CoreOutcome()

    async def _complete(self, group: ClassicGroup, now: Instant) -> CoreOutcome:
        """Remove members that have not joined; begin the next generation with the others (G-42,
        G-43)."""
        replies: Replies = []
        waited_ms = now.monotonic_ms - group.rebalance_since_ms
        async for some in in_pieces(group.members.values()):
            for member in some:
                if member.parked_join is None and member.instance_id is None:
                    removal = Removal(MemberRemovalReason.NO_JOIN_IN_JOIN_PHASE, waited_ms)
                    replies += self.remove(group, member, removal)
        if group.members and not self._elect_leader(group):
            # All members are static and none has joined: wait for them again.
            group.initial_wait_left_ms = None
            timeout_ms = max(group.max_rebalance_timeout_ms, _JOIN_PHASE_AGAIN_MIN_MS)
            self.timers.set_join(group, timeout_ms, now)
            return CoreOutcome(replies=replies)
        self.timers.cancel_join(group)
        group.initial_wait_left_ms = None
        if group.members:
            return (await self._begin_generation(group, now)).after(replies)
        before, generation = group.state, group.generation + 1
        group.transition_to(GroupState.EMPTY, now)
        record = await self.record(group, generation, None, None, {}, now)
        self._observer(GroupEmptied(group, before, generation))
        return CoreOutcome([record], replies)

    def _elect_leader(self, group: ClassicGroup) -> bool:
        """Keep the leader if it has joined; else elect the first member that has joined (G-42,
        G-51). False if no member has joined."""
        leader = group.members.get(group.leader_id or "")
        if leader is not None and leader.parked_join is not None:
            return True
        for member in group.members.values():
            if member.parked_join is not None:
                group.leader_id = member.member_id
                return True
        return False

    async def _begin_generation(self, group: ClassicGroup, now: Instant) -> CoreOutcome:
        generation = group.generation + 1
        protocol = await group.select_protocol()
        before = group.state
        group.transition_to(GroupState.COMPLETING_REBALANCE, now)
        self._observe_generation(group, before, generation, protocol, now)
        # The record has no leader, because there is no assignment yet (see `group`).
        record = await self.record(group, generation, protocol, None, {}, now)
        replies: Replies = []
        async for some in in_pieces(group.members.values()):
            for member in some:
                member.is_new = False
                member.knows_id = True
                group.pending_syncs.add(member.member_id)
                self.timers.restart_session(group, member, now)
                if member.parked_join is not None:
                    answer = await join_answer(group, member, generation, protocol)
                    replies.append(join_reply(member.parked_join, answer))
                    group.unpark(member)
        self.timers.set_sync(group, now)

        async def after_append(error: ErrorCode, then: Instant) -> CoreOutcome:
            # If the log refused the record, the generation does not exist, and a new rebalance
            # starts.
            if error is ErrorCode.NONE:
                return CoreOutcome()
            reason = RebalanceReason.GENERATION_NOT_WRITTEN
            cause = RebalanceCause(reason, generation=generation, error=error)
            return await self.start(group, then, cause)

        return CoreOutcome([record], replies, after_append)

    def _observe_generation(
        self,
        group: ClassicGroup,
        before: GroupState,
        generation: int,
        protocol: str,
        now: Instant,
    ) -> None:
        joined = [member for member in group.members.values() if member.parked_join is not None]
        joined_ms = max([member.joined_ms for member in joined])
        last = next(member for member in joined if member.joined_ms == joined_ms)
        last_ms = joined_ms - group.rebalance_since_ms
        waited_ms = now.monotonic_ms - group.rebalance_since_ms
        last_to_join = (last.member_id, last_ms) if last_ms > 0 and len(joined) > 1 else None
        self._observer(
            GenerationStarted(group, before, generation, protocol, waited_ms, last_to_join)
        )

    async def record(
        self,
        group: ClassicGroup,
        generation: int,
        protocol: str | None,
        leader: str | None,
        assignments: dict[str, bytes],
        now: Instant,
    ) -> Record:
        """The group's record with its present members."""
        value = await group.record(generation, protocol, leader, assignments, now.wall_ms)
        return encode_key(group.group_id), await stored_value(value)
