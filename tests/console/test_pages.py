"""Pages of the console in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sasl_brokers
from console_process import console_process
from odradek.broker import Broker
from odradek_client.admin import Admin, NewTopic

if TYPE_CHECKING:
    from playwright.async_api import Page


async def _create(bootstrap: str, *names: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions=2) for name in names])


async def test_overview_and_topics(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    await _create(live_bootstrap, unique_topic, f"{unique_topic}-other")
    await page.goto(console_address)
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    # Keys lead through the menu.
    await page.keyboard.press("g")
    await page.keyboard.press("t")
    await expect(page.get_by_role("cell", name=unique_topic, exact=True)).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type(f"{unique_topic}-o")
    await expect(page.get_by_text("1 in all")).to_be_visible()
    await expect(page.get_by_role("cell", name=unique_topic, exact=True)).not_to_be_visible()
    # The address has it all, for somebody else.
    assert f"filter={unique_topic}-o" in page.url
    await page.get_by_label("Times").select_option("Europe/Berlin")
    assert "zone=Europe%2FBerlin" in page.url
    await page.reload()
    await expect(page.get_by_text("1 in all")).to_be_visible()
    await expect(page.get_by_label("Times")).to_have_value("Europe/Berlin")


@pytest.mark.full
async def test_signing_in_and_out(browser_page: Page, tmp_path: Path) -> None:
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
        # The address is the one that was asked for.
        await expect(page.get_by_text("There are no topics yet")).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
