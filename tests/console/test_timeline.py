"""The timeline with a real broker: its answers, its requests to the broker, and its page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from broker_process import BrokerProcess
from odradek import Producer
from odradek_client.admin import Admin
from odradek_client.admin.broker import Section
from odradek_console.sessions import ConsoleSession
from odradek_console.timeline import timeline
from waiting import DEADLINE_S

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.own_broker


async def commit(bootstrap: str, name: str, client_id: str = "shop") -> None:
    """Run one transaction."""
    async with Producer(
        bootstrap_servers=bootstrap, transactional_id=name, client_id=client_id
    ) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send_and_wait(f"topic-of-{name}", b"x")


def session_for(bootstrap: str) -> ConsoleSession:
    return ConsoleSession({"admin": {"bootstrap_servers": bootstrap}})


@pytest.fixture
async def session(live_bootstrap: str) -> AsyncIterator[ConsoleSession]:
    session = session_for(live_bootstrap)
    yield session
    await session.close()


async def test_a_transaction_has_its_states_and_the_connections_of_its_client(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await commit(live_bootstrap, unique_topic, f"client-of-{unique_topic}")
    answer = await console_client.get(
        "/api/timeline", params={"subject": f"transaction:{unique_topic}"}
    )
    body = answer.json()
    state, connections = body["lanes"]
    assert [band["state"] for band in state["bands"]][-1] == "CompleteCommit"
    assert state["bands"][-1]["end_ms"] is None
    assert connections["label"] == f"client-of-{unique_topic} connections"
    assert connections["bands"][-1]["end_ms"] is not None
    times = [event["time_ms"] for event in body["events"]]
    assert times == sorted(times)
    assert {event["lane"] for event in body["events"]} == {
        "state",
        f"client client-of-{unique_topic}",
    }
    assert body["nothing"] == ""
    assert body["states"][0].startswith("CompleteCommit")


async def test_timeline_subjects_are_those_of_recent_events(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await commit(live_bootstrap, unique_topic, f"client-of-{unique_topic}")
    body = (await console_client.get("/api/timeline/subjects")).json()
    transactions = {each["name"]: each for each in body["subjects"]["transaction"]}
    assert transactions[unique_topic]["state"] == "CompleteCommit"
    assert transactions[unique_topic]["time_ms"] > 0 and transactions[unique_topic]["text"]
    clients = {each["name"]: each for each in body["subjects"]["client"]}
    assert clients[f"client-of-{unique_topic}"]["state"] is None
    assert body["missing"] == []


async def test_an_unknown_subject_of_a_timeline_is_reported(
    console_client: httpx.AsyncClient,
) -> None:
    body = (await console_client.get("/api/timeline", params={"subject": "group:none"})).json()
    assert body["lanes"] == body["events"] == []
    assert "none" in body["nothing"]


@pytest.mark.parametrize("subject", ["", "group", "group:", "planet:mars", ":x"])
async def test_a_timeline_subject_without_type_and_name_is_refused(
    console_client: httpx.AsyncClient, subject: str
) -> None:
    answer = await console_client.get("/api/timeline", params={"subject": subject})
    assert answer.status_code == 400
    assert answer.json()["error"]["title"] == "The subject is wrong"


async def histories_asked(admin: Admin) -> int:
    described = await admin.describe_broker_status(Section.REQUESTS)
    return sum(each.requests for each in described.requests if each.name == "DescribeHistory")


async def test_an_unchanged_history_is_not_requested_again(
    session: ConsoleSession, live_bootstrap: str, unique_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek_console.timeline._KEEP_MS", 0)
    monkeypatch.setattr("odradek_console.timeline._STATES_S", 600)
    await commit(live_bootstrap, unique_topic)
    subject = f"transaction:{unique_topic}"
    first = await timeline(session, subject)
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        # The client's disconnection may be recorded a little later.
        await timeline(session, subject)
        before = await histories_asked(admin)
        for _ in range(20):
            assert (await timeline(session, subject))["lanes"][0] == first["lanes"][0]
        assert await histories_asked(admin) <= before + 2
        await commit(live_bootstrap, unique_topic)
        async with asyncio.timeout(DEADLINE_S):
            # The timeline asks for new events only after some time.
            while len((await timeline(session, subject))["events"]) == len(first["events"]):
                pass


@pytest.mark.full
async def test_a_broker_that_was_killed_shows_its_new_history(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path)
    process.start()
    session = session_for(process.address)
    try:
        await commit(process.address, "payments")
        before = await timeline(session, "transaction:payments")
        assert len(before["events"]) > 3
        process.kill()
        process.start()
        found = before
        async with asyncio.timeout(DEADLINE_S):
            while found["started_ms"] == before["started_ms"]:
                found = await timeline(session, "transaction:payments")
        assert found["states"][0].startswith("CompleteCommit")
    finally:
        await session.close()
        process.stop()


async def test_two_subjects_share_one_time_axis(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    await commit(live_bootstrap, unique_topic)
    await page.goto(f"{console_address}timeline")
    await page.get_by_role("combobox", name="Show").select_option("transaction")
    await page.get_by_role("combobox", name="Name").fill(unique_topic)
    await page.get_by_role("button", name="Show").click()
    lanes = page.get_by_role("img", name=f"Lanes of transaction:{unique_topic}")
    await expect(lanes).to_be_visible()
    await expect(lanes.get_by_text("CompleteCommit", exact=True)).to_be_visible()
    words = page.get_by_role("complementary", name="Events in words")
    ended = words.get_by_text("all markers are written")
    await expect(ended).to_have_count(1)
    # The open page shows another transaction without a reload.
    await commit(live_bootstrap, unique_topic)
    await expect(ended).to_have_count(2)
    # A second subject is added below the first, and the address names both.
    await page.get_by_role("combobox", name="Show").select_option("client")
    await page.get_by_role("combobox", name="Name").fill("shop")
    await page.get_by_role("button", name="Add below").click()
    await expect(page.get_by_role("img", name="Lanes of client:shop")).to_be_visible()
    assert f"s=transaction%3A{unique_topic}&s=client%3Ashop" in page.url
    # Keys select events and zoom; the address has the visible range of time.
    await page.get_by_role("application").focus()
    await page.keyboard.press("ArrowUp")
    await expect(words.locator("[aria-current]")).to_have_count(1)
    await page.keyboard.press("+")
    assert "since=" in page.url
    await page.keyboard.press("0")
    assert "since=" not in page.url
    await page.get_by_label("Take client:shop away").click()
    await expect(page.get_by_role("img", name="Lanes of client:shop")).not_to_be_visible()


@pytest.mark.full
async def test_hostile_names_on_a_timeline_are_shown_as_text(
    live_bootstrap: str, console_address: str, browser_page: Page
) -> None:
    from playwright.async_api import expect

    name = "<img src=x onerror=alert(1)>\u202e\x07 & more"
    async with Producer(
        bootstrap_servers=live_bootstrap, transactional_id=name, client_id="<b>bold</b>"
    ) as producer:
        await producer.init_transactions()
    page = browser_page
    await page.goto(f"{console_address}timeline")
    link = page.get_by_role("link", name="<img src=x onerror=alert(1)>")
    await link.first.click()
    await expect(page.get_by_role("heading", name="\\u202e\\u0007 & more")).to_be_visible()
    label = page.get_by_text("<b>bold</b> connections", exact=True)
    await expect(label.last).to_be_visible()
