"""Settings with their sources, ACLs, users and quotas; and the change of a setting in two steps."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from console_changes import confirmation
from odradek_client.admin import Admin, NewTopic, QuotaEntity, QuotaName
from odradek_client.admin.users import UserScramCredentialUpsertion
from odradek_console.access import CHANGES
from odradek_console.answers import HttpProblem
from odradek_console.changes import perform
from odradek_console.sessions import ConsoleSession

_PATH = "/change/settings"


@pytest.fixture
async def topic(live_bootstrap: str, unique_topic: str) -> str:
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, configs={"retention.ms": "1000"}))
    return unique_topic


async def test_settings_have_values_and_sources(
    console_client: httpx.AsyncClient, topic: str
) -> None:
    answer = await console_client.get("/api/settings", params={"type": "topic", "name": topic})
    rows = {row["name"]: row for row in answer.json()["rows"]}
    assert (rows["retention.ms"]["value"], rows["retention.ms"]["source"]) == ("1000", "topic")
    assert rows["cleanup.policy"]["is_default"]
    (node,) = (await console_client.get("/api/nodes")).json()["nodes"]
    answer = await console_client.get("/api/settings", params={"type": "broker", "name": node})
    assert "log.retention.ms" in {row["name"] for row in answer.json()["rows"]}


@pytest.mark.parametrize(("kind", "name"), [("planet", "x"), ("broker", "x")])
async def test_settings_of_unknown_resources_are_refused(
    console_client: httpx.AsyncClient, kind: str, name: str
) -> None:
    answer = await console_client.get("/api/settings", params={"type": kind, "name": name})
    assert answer.status_code == 400


async def test_users_and_quotas_are_listed(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    user = f"user-{unique_topic}"
    entity = QuotaEntity(user=user, client_id=QuotaName.DEFAULT)
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, "secret")])
        await admin.alter_client_quotas({entity: {"producer_byte_rate": 1_000.0}})
    rows = (await console_client.get("/api/users")).json()["rows"]
    assert [row["credentials"] for row in rows if row["name"] == user] == [
        [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]
    ]
    rows = (await console_client.get("/api/quotas")).json()["rows"]
    assert {
        "user": user,
        "client_id": "",
        "ip": None,
        "quotas": {"producer_byte_rate": 1_000.0},
    } in rows


async def test_a_change_is_planned_and_then_made_once(live_bootstrap: str, topic: str) -> None:
    session = ConsoleSession({"admin": {"bootstrap_servers": live_bootstrap}})
    change = CHANGES[_PATH]

    def body(changes: dict[str, Any]) -> dict[str, Any]:
        return {"type": "topic", "name": topic, "changes": changes}

    async def order(changes: dict[str, Any]) -> dict[str, Any]:
        return await perform(_PATH, change, session, body(changes))

    async def confirm(planned: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        return await perform(_PATH, change, session, confirmation(planned, body(changes)))

    try:
        planned = await order({"retention.ms": "2000"})
        assert planned["plan"] == {
            "rows": [{"name": "retention.ms", "from": "1000", "source": "topic", "to": "2000"}]
        }
        done = await confirm(planned, {"retention.ms": "2000"})
        assert done["result"] == {"text": "1 setting changed"}
        # The setting has changed since the plan was made.
        with pytest.raises(HttpProblem, match="has changed") as refused:
            await confirm(planned, {"retention.ms": "2000"})
        assert refused.value.status == 409
        planned = await order({"retention.ms": None})
        await confirm(planned, {"retention.ms": None})
        assert (await order({"retention.ms": "1"}))["plan"]["rows"][0]["from"] != "2000"
    finally:
        await session.close()


@pytest.mark.parametrize("changes", [{}, None, {"a": 1}, ["a"], {"retention.ms": "soon"}])
async def test_a_wrong_change_is_refused_with_its_plan(
    live_bootstrap: str, topic: str, changes: Any
) -> None:
    from odradek_client.errors import OdradekError

    session = ConsoleSession({"admin": {"bootstrap_servers": live_bootstrap}})
    sent = {"type": "topic", "name": topic, "changes": changes}
    try:
        with pytest.raises((HttpProblem, OdradekError)):
            await perform(_PATH, CHANGES[_PATH], session, sent)
    finally:
        await session.close()
