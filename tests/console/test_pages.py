"""Pages of the console in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sasl_brokers
from console_process import console_process
from odradek.broker import Broker
from odradek_client.admin import Admin, NewTopic

_PATIENCE_MS = 60_000
STATIC = Path(__file__).parents[2] / "console/odradek_console/static"

if TYPE_CHECKING:
    from playwright.async_api import Page


async def _create(bootstrap: str, *names: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions=2) for name in names])


async def test_the_overview_leads_to_the_list_of_topics(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    await _create(live_bootstrap, unique_topic, f"{unique_topic}-other")
    await page.goto(console_address)
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    # keyboard shortcuts of the menu
    await page.keyboard.press("g")
    await page.keyboard.press("t")
    await expect(page.get_by_role("searchbox", name="Search topics")).to_be_visible()
    await page.keyboard.press("/")
    # Other tests have topics at this broker, and only the rows in view are drawn.
    await page.keyboard.type(unique_topic)
    await expect(page.get_by_text("2 in all")).to_be_visible()
    await expect(page.get_by_role("cell", name=unique_topic, exact=True)).to_be_visible()
    await page.keyboard.type("-o")
    await expect(page.get_by_text("1 in all")).to_be_visible()
    await expect(page.get_by_role("cell", name=unique_topic, exact=True)).not_to_be_visible()
    # The address has the whole state of the page, so that it can be passed on.
    assert f"filter={unique_topic}-o" in page.url
    await page.get_by_label("Times").select_option("Europe/Berlin")
    assert "zone=Europe%2FBerlin" in page.url
    await page.reload()
    await expect(page.get_by_text("1 in all")).to_be_visible()
    await expect(page.get_by_label("Times")).to_have_value("Europe/Berlin")


@pytest.mark.full
async def test_a_user_signs_in_and_out(browser_page: Page, tmp_path: Path) -> None:
    from playwright.async_api import expect

    page = browser_page
    with (
        Broker.subprocess(data_dir=tmp_path / "data", settings=sasl_brokers.LISTENER) as broker,
        console_process(broker.bootstrap, "-X", "security.protocol=SASL_PLAINTEXT") as address,
    ):
        await page.goto(f"{address}topics")
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await page.get_by_label("Mechanism").select_option("PLAIN")
        await page.get_by_label("User").fill("admin")
        await page.get_by_label("Password").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("does not accept")
        await page.get_by_label("Password").fill(sasl_brokers.ADMIN_PASSWORD)
        await page.keyboard.press("Enter")
        # After the sign-in the browser shows the page that was requested first.
        await expect(page.get_by_text("No topics to show")).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.full
async def test_a_long_name_in_a_problem_does_not_widen_the_page(
    console_address: str, browser_page: Page
) -> None:
    page = browser_page
    overview = {"feed": "overview", "error": None, "data": {
        "cluster": None, "groups": None, "disks": [], "open_transactions": 0, "missing": [],
        "topics": {"topics": 0, "internal_topics": 0, "partitions": 0},
        "problems": [{"level": "error", "text": f"Group {'x' * 249} is STOPPED.", "to": "/groups"}],
    }}  # fmt: skip
    answer = f"data: {json.dumps(overview)}\n\n"
    events = {"content-type": "text/event-stream"}
    await page.route("**/api/live*", lambda route: route.fulfill(body=answer, headers=events))
    await page.set_viewport_size({"width": 360, "height": 700})
    await page.goto(console_address)
    await page.get_by_text("is STOPPED").wait_for()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.full
async def test_a_page_says_when_the_broker_is_gone(browser_page: Page, tmp_path: Path) -> None:
    from playwright.async_api import expect

    page = browser_page
    with Broker.subprocess(data_dir=tmp_path / "data") as broker:
        with console_process(broker.bootstrap) as address:
            await page.goto(address)
            await expect(page.get_by_text("Good", exact=True)).to_be_visible()
            await expect(page.get_by_text("Live", exact=True)).to_be_visible()
            broker.stop()
            gone = page.get_by_text("Broker gone", exact=True)
            await expect(gone).to_be_visible(timeout=_PATIENCE_MS)
            await expect(page.get_by_text("The broker cannot be reached")).to_be_visible()
            await expect(page.get_by_text("Good", exact=True)).not_to_be_visible()
        lost = page.get_by_text("No connection", exact=True)
        await expect(lost).to_be_visible(timeout=_PATIENCE_MS)
        await expect(page.get_by_text("The console does not answer")).to_be_visible()


#: The pages of the menu; the other pages are opened for topics and groups that do not exist.
_PAGES = [
    *re.findall(r'path: "([^"]+)"[^}]*nav:', (STATIC / "routes.mjs").read_text()),
    "/topic?name=none",
    "/topic/records?name=none",
    "/topic/tail?name=none",
    "/group?id=none",
    "/transaction?id=none",
    "/producers?topic=none",
    "/timeline?s=group:none",
    "/client-metrics?id=none",
    "/nowhere",
]


@pytest.mark.full
@pytest.mark.parametrize("path", _PAGES)
async def test_every_page_is_accessible(
    console_address: str, browser_page: Page, path: str
) -> None:
    from axe_playwright_python.async_playwright import Axe
    from playwright.async_api import expect

    page = browser_page
    await page.goto(console_address.rstrip("/") + path)
    await expect(page.locator("main h1, main .empty").first).to_be_visible()
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    # In a narrow window only tables scroll sideways, never the page.
    await page.set_viewport_size({"width": 360, "height": 700})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.full
async def test_hostile_client_names_are_shown_as_text(
    live_bootstrap: str, console_address: str, browser_page: Page
) -> None:
    from playwright.async_api import expect

    page = browser_page
    name = '<img src=x onerror="document.title=1">\u202e\u0007'
    async with Admin(bootstrap_servers=live_bootstrap, client_id=name):
        await page.goto(f"{console_address}connections?filter=%3Cimg")
        cell = page.get_by_role("cell", name="<img src=x").first
        await expect(cell).to_have_text('<img src=x onerror="document.title=1">\\u202e\\u0007')
        assert await page.locator("main img").count() == 0


@pytest.mark.full
async def test_a_page_recovers_when_its_broker_restarts(browser_page: Page, tmp_path: Path) -> None:
    from playwright.async_api import expect

    page = browser_page
    with (
        Broker.subprocess(data_dir=tmp_path / "data") as broker,
        console_process(
            broker.bootstrap,
            *("-X", "default.api.timeout.ms=2000", "-X", "request.timeout.ms=1000"),
        ) as address,
    ):
        await page.goto(address)
        await expect(page.get_by_text("Nothing is wrong")).to_be_visible()
        broker.kill()
        await expect(page.get_by_role("alert")).to_contain_text("broker", timeout=_PATIENCE_MS)
        await expect(page.get_by_text("What is shown is of")).to_be_visible()
        broker.restart()
        await expect(page.get_by_role("alert")).to_have_count(0, timeout=_PATIENCE_MS)


@pytest.mark.full
async def test_many_topics_are_scrolled_without_requesting_all(
    browser_page: Page, tmp_path: Path
) -> None:
    from playwright.async_api import expect

    page = browser_page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with (
        Broker.subprocess(data_dir=tmp_path / "data") as broker,
        console_process(broker.bootstrap) as address,
    ):
        async with Admin(bootstrap_servers=broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(f"t{n:04}", partitions=10) for n in range(1_000)])
        await page.goto(f"{address}topics")
        await expect(page.get_by_role("cell", name="t0000")).to_be_visible()
        await expect(page.get_by_text("1,000 in all")).to_be_visible()
        assert await page.locator("tbody tr").count() < 100
        await page.get_by_role("region", name="Topics").focus()
        await page.keyboard.press("End")
        await expect(page.get_by_role("cell", name="t0999")).to_be_visible()
        offsets = {url for url in asked if "offset=" in url}
        assert offsets and not any("offset=500&" in url for url in offsets)


@pytest.mark.full
async def test_settings_are_changed_with_a_plan_if_the_console_may_write(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    await _create(live_bootstrap, unique_topic)
    where = f"settings?type=topic&name={unique_topic}&filter=retention.ms"
    await page.goto(console_address + where)
    row = page.get_by_role("row", name="delete.retention.ms")
    await expect(row).to_be_visible()
    await expect(page.get_by_role("button", name="Change")).to_have_count(0)
    with console_process(live_bootstrap, "--write") as address:
        await page.goto(address + where)
        await row.get_by_role("button", name="Change").click()
        await page.get_by_label("New value of delete.retention.ms").fill("777")
        await page.get_by_role("button", name="Plan").click()
        await expect(page.get_by_role("dialog")).to_contain_text("becomes 777")
        await page.get_by_role("button", name="Change it").click()
        await expect(row).to_contain_text("this topic")
        await expect(row).to_contain_text("777")


@pytest.mark.full
async def test_errors_and_empty_states_lead_to_the_page_that_helps(
    live_bootstrap: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    await _create(live_bootstrap, unique_topic)
    with console_process(live_bootstrap, "--write") as address:
        for path, words, heading in (
            (f"topic?name={unique_topic}-gone", "list of topics", "Topics"),
            (f"group?id={unique_topic}-gone", "list of groups", "Groups"),
            (f"transaction?id={unique_topic}-gone", "list of transactions", "Transactions"),
        ):
            await page.goto(f"{address}{path}&zone=local")
            await page.get_by_role("alert").get_by_role("link", name=words).click()
            await expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
            assert "zone=local" in page.url
        await page.goto(f"{address}topic/tail?name={unique_topic}")
        await page.get_by_role("link", name="Write one").click()
        await expect(page.get_by_role("textbox", name="Topic")).to_have_value(unique_topic)
