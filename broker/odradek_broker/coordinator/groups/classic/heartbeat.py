"""Heartbeat of the classic protocol (rules G-32, G-70, G-71)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.classic.checks import find_group, request_refused
from odradek_broker.coordinator.groups.classic.group import ClassicGroup
from odradek_broker.coordinator.groups.classic.states import ANSWERS, Action, Request
from odradek_broker.coordinator.groups.classic.timers import ClassicTimers
from odradek_broker.coordinator.groups.events import Observer
from odradek_broker.coordinator.groups.responses import heartbeat_reply
from odradek_broker.coordinator.runtime import Instant, Outcome
from odradek_broker.deferred import Deferred
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse

_ERRORS: dict[Action, ErrorCode] = {
    Action.ALIVE: ErrorCode.NONE,
    Action.ALIVE_BUT_REJOIN: ErrorCode.REBALANCE_IN_PROGRESS,
    Action.UNKNOWN_MEMBER_ID: ErrorCode.UNKNOWN_MEMBER_ID,
    Action.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class Heartbeat:
    """Answers Heartbeats. `groups` is the shard's."""

    def __init__(
        self, groups: dict[str, ClassicGroup], timers: ClassicTimers, observer: Observer
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._observer = observer

    def decide(
        self, request: HeartbeatRequest, deferred: Deferred[HeartbeatResponse], now: Instant
    ) -> Outcome:
        """The member's session begins anew, if there is such a member."""
        error, group = find_group(self._groups, request)
        if group is not None:
            action = ANSWERS[group.state, Request.HEARTBEAT]
            if action in (Action.ALIVE, Action.ALIVE_BUT_REJOIN):
                self._timers.restart_session(group, group.members[request.member_id], now)
            error = _ERRORS[action]
        elif error is not ErrorCode.NONE:
            self._observer(request_refused(self._groups, "Heartbeat", request, error))
        return Outcome(replies=[heartbeat_reply(deferred, error)])
