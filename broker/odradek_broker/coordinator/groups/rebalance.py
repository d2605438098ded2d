"""The join phase: how it starts, when it is complete, what becomes of those that are late.

Nothing here reads a request. `classic` decides what a request means and calls in; deadlines come in
through `on_timer`. Everything that is to be written or answered is added to the outcome at hand.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from odradek_broker.coordinator.groups.answers import (
    join_answer,
    join_refused,
    join_reply,
    sync_refused,
)
from odradek_broker.coordinator.groups.consumer.settings import ConsumerGroupSettings
from odradek_broker.coordinator.groups.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.states import GroupState
from odradek_broker.coordinator.runtime import Moment, Outcome
from odradek_broker.coordinator.timers import Timers
from odradek_broker.history import History
from odradek_broker.history_words import What, span
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.group_metadata import encode_key, encode_value

#: How long a member is kept whose first join is parked: it cannot heartbeat yet (G-27).
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class GroupSettings(ConsumerGroupSettings, Protocol):
    """What the group coordinator reads of the broker's configuration."""

    @property
    def group_min_session_timeout_ms(self) -> int: ...
    @property
    def group_max_session_timeout_ms(self) -> int: ...
    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...
    @property
    def offset_metadata_max_bytes(self) -> int: ...
    @property
    def offsets_retention_minutes(self) -> int: ...
    @property
    def offsets_retention_check_interval_ms(self) -> int: ...


class Deadline(Enum):
    """What a timer of a group is for."""

    SESSION = "a member must be heard of"
    PENDING = "an id that was handed out must join"
    JOIN = "the join phase ends"
    SYNC = "every member must have fetched its assignment"
    EXPIRY = "look for offsets that nobody wants any more"
    MEMBER_SESSION = "a member of a consumer group must be heard of"
    MEMBER_REVOCATION = "it must have given its partitions back"
    MEMBER_REJOIN = "it speaks the classic protocol, and must have joined again"
    MEMBER_SYNC = "it speaks the classic protocol, and must have fetched its assignment"


class TimerName(NamedTuple):
    """Which deadline, of which group or member."""

    kind: Deadline
    group_id: str = ""
    member_id: str = ""


class Rebalances:
    """Moves groups through their join phases."""

    def __init__(self, config: GroupSettings, timers: Timers[TimerName], history: History) -> None:
        self.history = history
        self._config = config
        self._timers = timers

    # --- Timers ---

    def restart_session(self, group: ClassicGroup, member: Member, moment: Moment) -> None:
        """The member was heard of, or was answered (G-65)."""
        name = TimerName(Deadline.SESSION, group.group_id, member.member_id)
        self._timers.set(name, moment.now_ms + self._session_ms(member))

    @staticmethod
    def _session_ms(member: Member) -> int:
        return NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms

    def restored(self, group: ClassicGroup, moment: Moment) -> None:
        """Set the deadlines of a group that was loaded (G-90)."""
        for member in group.members.values():
            self.restart_session(group, member, moment)
        if group.state is GroupState.PREPARING_REBALANCE:
            group.rebalance_since_ms = moment.now_ms
            self._set_join_deadline(group, group.max_rebalance_timeout_ms, moment)
        if group.members:
            self.history.record(
                group.group_id,
                What.GROUP_RESTORED,
                generation=group.generation,
                state=group.state.value,
                protocol=group.protocol,
                leader=group.leader_id,
                members=tuple(group.members),
            )

    def on_session_end(
        self, group: ClassicGroup, member_id: str, out: Outcome, moment: Moment
    ) -> None:
        """G-70: expiry removes, unless the member waits for us and knows its id (G-27)."""
        member = group.members.get(member_id)
        if member is None:
            return
        if member.awaits and not member.is_new:
            self.restart_session(group, member, moment)
            return
        silent = f"nothing was heard of it for {span(self._session_ms(member))}"
        self.remove(group, member, out, f"{silent} (session timeout)")
        self.after_removal(group, out, moment, f"{member.member_id} timed out")

    def on_pending_end(
        self, group: ClassicGroup, member_id: str, out: Outcome, moment: Moment
    ) -> None:
        """G-26: silently; but the join phase may now be complete."""
        if member_id in group.pending:
            del group.pending[member_id]
            self.history.record(group.group_id, What.MEMBER_ID_UNUSED, member=member_id)
        self.recheck(group, out, moment)

    def on_join_end(self, group: ClassicGroup, out: Outcome, moment: Moment) -> None:
        """The join phase, or a step of the initial wait, is over (G-42, G-44)."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        left_ms = group.initial_wait_left_ms
        if left_ms is not None and left_ms > 0 and group.added_during_wait:
            step_ms = min(self._config.group_initial_rebalance_delay_ms, left_ms)
            group.initial_wait_left_ms = left_ms - step_ms
            group.added_during_wait = False
            self._set_join_deadline(group, step_ms, moment)
            return
        self._complete(group, out, moment)

    def on_sync_end(self, group: ClassicGroup, out: Outcome, moment: Moment) -> None:
        """G-46: whoever has not synced is removed, and the others rebalance."""
        late = [group.members[member_id] for member_id in sorted(group.pending_syncs)]
        group.pending_syncs.clear()
        if not late:
            return
        waited = span(group.max_rebalance_timeout_ms)
        for member in late:
            self.remove(group, member, out, f"it sent no SyncGroup within {waited}")
        who = late[0].member_id if len(late) == 1 else f"{len(late)} members"
        why = f"{who} did not fetch the assignment of generation {group.generation}"
        self.start(group, out, moment, why)

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """The member has sent its SyncGroup; after the last one nothing is waited for."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._timers.cancel(TimerName(Deadline.SYNC, group.group_id))

    def forget_timers(self, group: ClassicGroup) -> None:
        """The group is gone."""
        for kind in (Deadline.JOIN, Deadline.SYNC):
            self._timers.cancel(TimerName(kind, group.group_id))
        for member_id in group.members:
            self._timers.cancel(TimerName(Deadline.SESSION, group.group_id, member_id))
        self._cancel_pending(group)

    def forget_pending(self, group: ClassicGroup) -> None:
        """Whoever has an id and has not joined must ask for another one."""
        self._cancel_pending(group)
        group.pending.clear()

    def _cancel_pending(self, group: ClassicGroup) -> None:
        for member_id in group.pending:
            self._timers.cancel(TimerName(Deadline.PENDING, group.group_id, member_id))

    def _set_join_deadline(self, group: ClassicGroup, delay_ms: int, moment: Moment) -> None:
        self._timers.set(TimerName(Deadline.JOIN, group.group_id), moment.now_ms + delay_ms)

    # --- Members ---

    def add_pending(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, moment: Moment
    ) -> None:
        """Hand out an id; its owner is expected to join with it (G-25)."""
        group.pending[member_id] = None
        name = TimerName(Deadline.PENDING, group.group_id, member_id)
        self._timers.set(name, moment.now_ms + session_timeout_ms)

    def take_pending(self, group: ClassicGroup, member_id: str) -> None:
        """The id joins, or leaves."""
        del group.pending[member_id]
        self._timers.cancel(TimerName(Deadline.PENDING, group.group_id, member_id))

    def add(self, group: ClassicGroup, member: Member, moment: Moment) -> None:
        """A new member, parked on its first join."""
        member.is_new = True
        member.joined_ms = moment.now_ms
        group.add(member)
        self.history.record(
            group.group_id,
            What.MEMBER_JOINED,
            member=member.member_id,
            instance=member.instance_id,
            client=member.client,
            protocols=tuple(name for name, _ in member.protocols),
        )
        if group.initial_wait_left_ms is not None:
            group.added_during_wait = True
        self.restart_session(group, member, moment)

    def remove(
        self, group: ClassicGroup, member: Member, out: Outcome, why: str | None = None
    ) -> None:
        """A member is gone; what it is parked on is answered with 25 (G-45).

        `why` is for people; None if it left by itself.
        """
        self.history.record(
            group.group_id,
            What.MEMBER_LEFT if why is None else What.MEMBER_REMOVED,
            member=member.member_id,
            instance=member.instance_id,
            client=member.client,
            reason=why,
        )
        self._timers.cancel(TimerName(Deadline.SESSION, group.group_id, member.member_id))
        group.drop(member)
        self.release(member, ErrorCode.UNKNOWN_MEMBER_ID, out)

    def rename_session(
        self, group: ClassicGroup, member: Member, member_id: str, moment: Moment
    ) -> None:
        """A static member has another id now; its session begins anew (G-28)."""
        self._timers.cancel(TimerName(Deadline.SESSION, group.group_id, member.member_id))
        group.rename(member, member_id)
        member.is_new = False
        self.restart_session(group, member, moment)

    def release(self, member: Member, error: ErrorCode, out: Outcome) -> None:
        """Answer whatever the member is parked on with an error."""
        if member.parked_join is not None:
            gone = error is ErrorCode.UNKNOWN_MEMBER_ID
            answer = join_refused(member.parked_join, error, "" if gone else member.member_id)
            out.replies.append(answer)
            member.parked_join = None
        self.release_sync(member, error, out)

    def release_sync(self, member: Member, error: ErrorCode, out: Outcome) -> None:
        if member.parked_sync is not None:
            out.replies.append(sync_refused(member.parked_sync, error))
            member.parked_sync = None

    def after_removal(self, group: ClassicGroup, out: Outcome, moment: Moment, why: str) -> None:
        """G-70, G-80: a group that had settled rebalances; in a join phase that may have been all."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.start(group, out, moment, why)
        else:
            self.recheck(group, out, moment)

    # --- The join phase ---

    def start(self, group: ClassicGroup, out: Outcome, moment: Moment, why: str) -> None:
        """Enter PreparingRebalance: everyone has to join (again). `why` is for people."""
        for member in group.members.values():
            self.release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, out)
        self._timers.cancel(TimerName(Deadline.SYNC, group.group_id))
        group.pending_syncs.clear()
        group.storing_generation = None
        before = group.state
        if before is GroupState.COMPLETING_REBALANCE:
            group.last_assignments = {}
        was_empty = before is GroupState.EMPTY
        group.become(GroupState.PREPARING_REBALANCE, moment)
        group.rebalance_since_ms = moment.now_ms
        self._tell_start(group, before, why)
        if not was_empty:
            self._set_join_deadline(group, group.max_rebalance_timeout_ms, moment)
            self.recheck(group, out, moment)
            return
        delay_ms = self._config.group_initial_rebalance_delay_ms
        group.initial_wait_left_ms = max(group.max_rebalance_timeout_ms - delay_ms, 0)
        group.added_during_wait = False
        if delay_ms > 0:
            self._set_join_deadline(group, delay_ms, moment)
        else:
            self._complete(group, out, moment)

    def _tell_start(self, group: ClassicGroup, before: GroupState, why: str) -> None:
        waiting_for = (*group.pending, *_not_joined(group))
        timeout_ms = group.max_rebalance_timeout_ms
        if before is GroupState.EMPTY:
            timeout_ms = self._config.group_initial_rebalance_delay_ms
            if timeout_ms > 0:
                waiting_for = ("more members (group.initial.rebalance.delay.ms)",)
        self.history.record(
            group.group_id,
            What.REBALANCE_BEGAN,
            before=before.value,
            after=group.state.value,
            reason=why,
            waiting_for=waiting_for or None,
            timeout=span(timeout_ms) if waiting_for else None,
        )

    def recheck(self, group: ClassicGroup, out: Outcome, moment: Moment) -> None:
        """G-40: complete when everyone is parked; the initial wait is always waited for (G-44)."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_wait_left_ms is None
            and group.all_joined
        ):
            self._complete(group, out, moment)

    def _complete(self, group: ClassicGroup, out: Outcome, moment: Moment) -> None:
        """G-42, G-43: who is not here is out; the others get the next generation."""
        for member in list(group.members.values()):
            if member.parked_join is None and member.instance_id is None:
                waited = span(moment.now_ms - group.rebalance_since_ms)
                self.remove(group, member, out, f"it did not join again within {waited}")
        if group.members and not self._elect_leader(group):
            # Static members only, and none of them came: they may still.
            group.initial_wait_left_ms = None
            self._set_join_deadline(group, group.max_rebalance_timeout_ms, moment)
            return
        self._timers.cancel(TimerName(Deadline.JOIN, group.group_id))
        group.initial_wait_left_ms = None
        if group.members:
            self._begin_generation(group, out, moment)
        else:
            before, generation = group.state, group.generation + 1
            group.become(GroupState.EMPTY, moment)
            self.write(group, generation, None, None, {}, out, moment)
            self.history.record(
                group.group_id,
                What.GROUP_EMPTIED,
                before=before.value,
                after=group.state.value,
                generation=generation,
            )

    def _elect_leader(self, group: ClassicGroup) -> bool:
        """The leader stays if it came; else the first that did leads (G-42, G-51)."""
        leader = group.members.get(group.leader_id or "")
        if leader is not None and leader.parked_join is not None:
            return True
        for member in group.members.values():
            if member.parked_join is not None:
                group.leader_id = member.member_id
                return True
        return False

    def _begin_generation(self, group: ClassicGroup, out: Outcome, moment: Moment) -> None:
        generation = group.generation + 1
        protocol = group.select_protocol()
        before = group.state
        group.become(GroupState.COMPLETING_REBALANCE, moment)
        self._tell_generation(group, before, generation, protocol, moment)
        # Without a leader: no assignment yet (see `group`).
        self.write(group, generation, protocol, None, {}, out, moment)
        for member in group.members.values():
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self.restart_session(group, member, moment)
            if member.parked_join is not None:
                answer = join_answer(group, member, generation, protocol)
                out.replies.append(join_reply(member.parked_join, answer))
                member.parked_join = None
        self._timers.set(
            TimerName(Deadline.SYNC, group.group_id),
            moment.now_ms + group.max_rebalance_timeout_ms,
        )

        def settled(error: ErrorCode, then: Moment) -> Outcome:
            # Refused, so there is no such generation: the members are told, and join again.
            again = Outcome()
            if error is not ErrorCode.NONE:
                why = f"generation {generation} could not be recorded ({error.name})"
                self.start(group, again, then, why)
            return again

        out.settled = settled

    def _tell_generation(
        self,
        group: ClassicGroup,
        before: GroupState,
        generation: int,
        protocol: str,
        moment: Moment,
    ) -> None:
        joined = [member for member in group.members.values() if member.parked_join is not None]
        last = max(joined, key=lambda member: member.joined_ms)
        waited_ms = last.joined_ms - group.rebalance_since_ms
        told = f"{last.member_id}, {span(waited_ms)} after the rebalance had begun"
        self.history.record(
            group.group_id,
            What.GENERATION_BEGAN,
            generation=generation,
            waited=span(moment.now_ms - group.rebalance_since_ms),
            before=before.value,
            after=group.state.value,
            leader=group.leader_id,
            protocol=protocol,
            members=tuple(group.members),
            last=told if waited_ms > 0 and len(joined) > 1 else None,
        )

    def write(
        self,
        group: ClassicGroup,
        generation: int,
        protocol: str | None,
        leader: str | None,
        assignments: dict[str, bytes],
        out: Outcome,
        moment: Moment,
    ) -> None:
        """Add the group's record to an outcome."""
        value = group.record(generation, protocol, leader, assignments, moment.wall_ms)
        out.records.append((encode_key(group.group_id), encode_value(value)))


def _not_joined(group: ClassicGroup) -> tuple[str, ...]:
    """The members that a join phase waits for."""
    return tuple(
        member.member_id for member in group.members.values() if member.parked_join is None
    )
