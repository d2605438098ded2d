"""Lines of the audit log about changes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from console_changes import confirmation
from odradek_console.answers import HttpProblem
from odradek_console.changes import PageChange, perform
from odradek_console.sessions import ConsoleSession


async def _ordered(change: PageChange, sent: dict[str, Any]) -> list[Any]:
    session = ConsoleSession({}, user="alice")
    planned = await perform("settings", change, session, dict(sent))
    with capture_logs() as lines:
        await perform("settings", change, session, confirmation(planned, sent))
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


async def test_no_answer_has_a_secret_or_a_hash_of_it() -> None:
    change = PageChange(_plan, _done, frozenset({"password"}))
    sent = {"user": "bob", "password": "swordfish"}
    planned = await perform("user", change, ConsoleSession({}), dict(sent))
    assert (planned["again"], planned["send"]["user"]) == (["password"], "bob")
    assert "swordfish" not in str(planned)
    whole = json.dumps(["user", sent, planned["plan"]], sort_keys=True)
    assert planned["send"]["plan"] != hashlib.sha256(whole.encode()).hexdigest()
    confirmed = {**confirmation(planned, sent), "password": "another"}
    with pytest.raises(HttpProblem, match="has changed"):
        await perform("user", change, ConsoleSession({}), confirmed)


async def test_the_audit_log_has_a_line_for_an_unexpected_failure() -> None:
    async def act(_session: ConsoleSession, _sent: Any, _plan: Any) -> dict[str, Any]:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    session = ConsoleSession({}, user="alice")
    change = PageChange(_plan, act)
    planned = await perform("record", change, session, {"topic": "orders"})
    with capture_logs() as lines, pytest.raises(UnicodeEncodeError):
        await perform("record", change, session, planned["send"])
    assert [(line["event"], line["user"]) for line in lines] == [("a change failed", "alice")]
