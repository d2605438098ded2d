"""SyncGroup of the classic protocol (rules G-60 to G-65)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.classic.checks import find_group, request_refused
from odradek_broker.coordinator.groups.classic.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.classic.rebalance import Rebalances
from odradek_broker.coordinator.groups.classic.states import ANSWERS, Action, GroupState, Request
from odradek_broker.coordinator.groups.events import (
    GroupStabilized,
    Observer,
    RebalanceCause,
    RebalanceReason,
)
from odradek_broker.coordinator.groups.responses import sync_refused, sync_reply
from odradek_broker.coordinator.runtime import Instant, Outcome
from odradek_broker.deferred import Deferred
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse


class SyncGroup:
    """Answers SyncGroups. `groups` is the shard's."""

    def __init__(
        self, groups: dict[str, ClassicGroup], rebalances: Rebalances, observer: Observer
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._timers = rebalances.timers
        self._observer = observer

    def decide(
        self, request: SyncGroupRequest, deferred: Deferred[SyncGroupResponse], now: Instant
    ) -> Outcome:
        """Give the member its assignment, or park it until the leader brings it."""
        out = Outcome()
        error, group = find_group(self._groups, request)
        if group is not None and not (
            _matches(request.protocol_type, group.protocol_type)
            and _matches(request.protocol_name, group.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group is None or error is not ErrorCode.NONE:
            out.replies.append(sync_refused(deferred, error))
            self._observer(request_refused(self._groups, "SyncGroup", request, error))
            return out
        member = group.members[request.member_id]
        action = ANSWERS[group.state, Request.SYNC]
        if action is Action.ANSWER_SYNC:
            out.replies.append(sync_reply(deferred, group, member))
            self._rebalances.synced(group, member)
            self._timers.restart_session(group, member, now)
        elif action is Action.PARK_SYNC:
            self._park_sync(group, member, request, deferred, out, now)
        else:
            out.replies.append(sync_refused(deferred, ErrorCode[action.name]))
        return out

    def _park_sync(
        self,
        group: ClassicGroup,
        member: Member,
        request: SyncGroupRequest,
        deferred: Deferred[SyncGroupResponse],
        out: Outcome,
        now: Instant,
    ) -> None:
        # An earlier one of its own that still waits comes from a connection that it gave up.
        self._rebalances.release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, out)
        member.parked_sync = deferred
        self._rebalances.synced(group, member)
        self._timers.restart_session(group, member, now)
        if group.leader_id == member.member_id and group.storing_generation is None:
            self._store(group, request, out, now)

    def _store(
        self, group: ClassicGroup, request: SyncGroupRequest, out: Outcome, now: Instant
    ) -> None:
        """G-61: write the leader's assignment; the state moves when it is durable."""
        given = {part.member_id: part.assignment for part in request.assignments}
        generation = group.generation
        group.storing_generation = generation
        self._rebalances.write(group, generation, group.protocol, group.leader_id, given, out, now)

        def settled(error: ErrorCode, then: Instant) -> Outcome:
            done = Outcome()
            if group.storing_generation != generation:
                # A rebalance came between; the parked syncs were told so.
                return done
            group.storing_generation = None
            if error is ErrorCode.NONE:
                before = group.state
                group.transition_to(GroupState.STABLE, then)
                self._observer(GroupStabilized(group, before, generation))
                self._answer_syncs(group, done, then)
            else:
                for member in group.members.values():
                    self._rebalances.release_sync(member, error, done)
                cause = RebalanceCause(RebalanceReason.ASSIGNMENT_NOT_WRITTEN, error=error)
                self._rebalances.start(group, done, then, cause)
            return done

        out.settled = settled

    def _answer_syncs(self, group: ClassicGroup, out: Outcome, now: Instant) -> None:
        for member in group.members.values():
            self._timers.restart_session(group, member, now)
            if member.parked_sync is not None:
                out.replies.append(sync_reply(member.parked_sync, group, member))
                member.parked_sync = None


def _matches(given: str | None, held: str | None) -> bool:
    """G-60: a protocol type or name counts only where it is given."""
    return given is None or given == held
