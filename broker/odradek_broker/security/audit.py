"""The audit log: one line for each denial, and for each permission if that is wanted.

Who asks decides what is denied, so there are limits: the same line comes once in a while, with how
often it was repeated, and all lines of that time are counted.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from odradek_broker.platform.repeated_lines import RepeatedLines

log = structlog.get_logger("odradek.authorizer")

#: Lines a minute about all clients.
_DENIED_LINES_MAX = 200
_ALLOWED_LINES_MAX = 6_000
#: Names in a line: what is denied need not exist, and may be long.
_NAME_MAX = 249


class AuditLog:
    """`logs_allowed`: whether permissions are told too. `now_ms`: a clock that does not go back."""

    def __init__(self, now_ms: Callable[[], float], logs_allowed: Callable[[], bool]) -> None:
        self._denied = RepeatedLines(log, _DENIED_LINES_MAX, lambda: now_ms() / 1000)
        self._allowed = RepeatedLines(log, _ALLOWED_LINES_MAX, lambda: now_ms() / 1000)
        self._logs_allowed = logs_allowed

    @property
    def tells_allowed(self) -> bool:
        return self._logs_allowed()

    def denied(
        self, principal: str, host: str, operation: str, resource: str, rule: str, request: str
    ) -> None:
        """A request was denied something."""
        decision = (principal, host, operation, _cut(resource), rule)
        self._denied.say("info", "denied", decision, _details(*decision, request))

    def allowed(
        self, principal: str, host: str, operation: str, resource: str, rule: str, request: str
    ) -> None:
        """A request was allowed something."""
        decision = (principal, host, operation, _cut(resource), rule)
        self._allowed.say("info", "allowed", decision, _details(*decision, request))


def _details(
    principal: str, host: str, operation: str, resource: str, rule: str, request: str
) -> dict[str, str]:
    return {
        "principal": principal,
        "host": host,
        "operation": operation,
        "resource": resource,
        "request": request,
        "rule": rule,
    }


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[:_NAME_MAX]}..."
