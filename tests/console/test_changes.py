"""Lines of the audit log about changes."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek_console.changes import PageChange, perform
from odradek_console.sessions import ConsoleSession


async def _ordered(change: PageChange, sent: dict[str, Any]) -> list[Any]:
    session = ConsoleSession({}, user="alice")
    planned = await perform("settings", change, session, dict(sent))
    with capture_logs() as lines:
        await perform("settings", change, session, planned["send"])
    return list(lines)


async def _plan(_session: ConsoleSession, _sent: Any) -> dict[str, Any]:
    return {}


async def _done(_session: ConsoleSession, _sent: Any, _planned: Any) -> dict[str, Any]:
    return {}


async def test_the_audit_log_has_no_values_of_settings() -> None:
    change = PageChange(_plan, _done, frozenset({"changes"}))
    sent = {"type": "broker", "changes": {"ssl.keystore.password": "swordfish"}}
    (line,) = await _ordered(change, sent)
    assert line["of"] == {"type": "broker", "changes": "ssl.keystore.password"}
    assert "swordfish" not in str(line)


async def test_the_audit_log_has_a_line_for_an_unexpected_failure() -> None:
    async def act(_session: ConsoleSession, _sent: Any, _plan: Any) -> dict[str, Any]:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    session = ConsoleSession({}, user="alice")
    change = PageChange(_plan, act)
    planned = await perform("record", change, session, {"topic": "orders"})
    with capture_logs() as lines, pytest.raises(UnicodeEncodeError):
        await perform("record", change, session, planned["send"])
    assert [(line["event"], line["user"]) for line in lines] == [("a change failed", "alice")]
