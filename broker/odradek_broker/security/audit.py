"""The audit log: one line for each denial, and for each permission if that is wanted.

Who asks decides what is denied, so there are limits: the same line comes once in a while, with how often it was
repeated, and all lines of that time are counted.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

log = structlog.get_logger("odradek.authorizer")

#: The same decision is told again after so long.
_AGAIN_MS = 60_000
#: Lines about all clients in that time.
_DENIED_LINES_MAX = 200
_ALLOWED_LINES_MAX = 6_000
#: Decisions that are remembered.
_REMEMBERED_MAX = 1_000
#: Names in a line: what is denied need not exist, and may be long.
_NAME_MAX = 249

#: principal, host, operation, resource, what decided.
_Decision = tuple[str, str, str, str, str]


class _Lines:
    """The lines about one kind of decision."""

    def __init__(self, event: str, lines_max: int, now_ms: Callable[[], float]) -> None:
        self._event = event
        self._lines_max = lines_max
        self._now_ms = now_ms
        #: When a decision was told, and how often it came since.
        self._told: dict[_Decision, tuple[float, int]] = {}
        self._began_ms = now_ms()
        self._lines = 0
        self._left_out = 0

    def say(self, decision: _Decision, request: str) -> None:
        now_ms = self._now_ms()
        told_ms, more = self._told.pop(decision, (now_ms - _AGAIN_MS, 0))
        if now_ms - told_ms < _AGAIN_MS:
            self._told[decision] = told_ms, more + 1
            return
        if now_ms - self._began_ms >= _AGAIN_MS:
            self._began_ms, self._lines = now_ms, 0
        if self._lines >= self._lines_max:
            self._left_out += 1
            return
        self._lines += 1
        while len(self._told) >= _REMEMBERED_MAX:
            del self._told[next(iter(self._told))]
        self._told[decision] = now_ms, 0
        principal, host, operation, resource, rule = decision
        details: dict[str, object] = {
            "principal": principal,
            "host": host,
            "operation": operation,
            "resource": resource,
            "request": request,
            "rule": rule,
        }
        if more:
            details["repeated"] = more
        if self._left_out:
            details["lines_left_out"], self._left_out = self._left_out, 0
        log.info(self._event, **details)


class AuditLog:
    """`logs_allowed`: whether permissions are told too. `now_ms`: a clock that does not go back."""

    def __init__(self, now_ms: Callable[[], float], logs_allowed: Callable[[], bool]) -> None:
        self._denied = _Lines("denied", _DENIED_LINES_MAX, now_ms)
        self._allowed = _Lines("allowed", _ALLOWED_LINES_MAX, now_ms)
        self._logs_allowed = logs_allowed

    @property
    def tells_allowed(self) -> bool:
        return self._logs_allowed()

    def denied(
        self, principal: str, host: str, operation: str, resource: str, rule: str, request: str
    ) -> None:
        """A request was denied something."""
        self._denied.say((principal, host, operation, _cut(resource), rule), request)

    def allowed(
        self, principal: str, host: str, operation: str, resource: str, rule: str, request: str
    ) -> None:
        """A request was allowed something."""
        self._allowed.say((principal, host, operation, _cut(resource), rule), request)


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[:_NAME_MAX]}..."
