"""Pages of a topic and its records in a browser: scans, hostile content, tails."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from console_process import console_process
from odradek import Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.full

_HOSTILE: dict[str, bytes] = {
    "markup": b"<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">",
    "address": b"javascript:document.title='taken'",
    "not UTF-8": b"\xff\xfe\x00\xc3\x28",
    "controls": b"esc \x1b[31mred\x07\x00\x9b",
    "direction": "left \u202egnp.exe\u2066 \u200bhidden \u2028 line".encode(),
    "deep": b"[" * 200_000 + b"]" * 200_000,
    "template": b"${alert(1)} {{alert(1)}} <!-- --> ]]> </pre></td>",
    "one line": b"w" * 50_000,
}


async def _create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        configs = {"max.message.bytes": "20000000"}
        await admin.create_topics(NewTopic(topic, partitions=partitions, configs=configs))


async def test_a_scan_is_filtered_and_a_record_opens_in_a_panel(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    await _create(live_bootstrap, unique_topic, 3)
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        for number in range(3_000):
            value = json.dumps({"n": number}).encode()
            await producer.send(unique_topic, value, key=b"k%d" % number, partition=number % 3)
        await producer.flush()
    await page.goto(f"{console_address}topics?filter={unique_topic}")
    await page.get_by_role("link", name=unique_topic).click()
    await expect(page.get_by_role("heading", name=unique_topic)).to_be_visible()
    await page.get_by_role("navigation", name="Parts of the topic").get_by_text("Records").click()
    status = page.get_by_role("region", name="What was read").get_by_role("status")
    await expect(status).to_contain_text("of 3 partitions (500 records,")
    await expect(status).to_contain_text("500 hits")
    await page.get_by_role("button", name="Records before these").click()
    await expect(status).to_contain_text("1,000 hits")
    await page.get_by_role("combobox", name="Read", exact=True).select_option("all")
    await page.get_by_label("Filter").fill("$.n=77")
    await page.get_by_label("Filter").press("Enter")
    await expect(status).to_contain_text("Read offsets 0 to 999 of 3 partitions (3,000 records,")
    await expect(status).to_contain_text("1 hit.")
    await page.get_by_role("button", name="Offset 25 of partition 2").click()
    panel = page.get_by_role("complementary", name="Record")
    await expect(panel.get_by_label("Value", exact=True)).to_have_text('{\n  "n": 77\n}')
    # The address has the whole state of the page.
    await page.reload()
    await expect(panel.get_by_label("Value", exact=True)).to_have_text('{\n  "n": 77\n}')
    await expect(status).to_contain_text("1 hit.")
    await panel.get_by_label("Shown as").last.select_option("hex")
    await expect(panel.get_by_label("Value", exact=True)).to_contain_text("7b 22 6e")
    await page.keyboard.press("Escape")
    await expect(panel).not_to_be_visible()


async def test_hostile_content_of_records_is_shown_as_text(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    await _create(live_bootstrap, unique_topic)
    async with Producer(bootstrap_servers=live_bootstrap, max_request_size=20_000_000) as producer:
        for data in _HOSTILE.values():
            headers: list[tuple[str, bytes | None]] = [(f"<b>{unique_topic}", data[:1_000])]
            await producer.send(unique_topic, data, key=data[:1_000], headers=headers)
        await producer.send(unique_topic, b"z" * 10_000_000, key=b"ten megabytes")
        huge: list[tuple[str, bytes | None]] = [("h" * 500, b"\x1b" * 20_000) for _ in range(100)]
        await producer.send(unique_topic, b"huge headers", headers=huge)
        await producer.flush()
    await page.goto(f"{console_address}topic/records?name={unique_topic}&order=oldest")
    table = page.get_by_role("region", name="Records")
    await expect(page.get_by_text("10 in all")).to_be_visible()
    await expect(table.get_by_text("<script>document").first).to_be_visible()
    for number in range(len(_HOSTILE) + 2):
        await page.get_by_role("button", name=f"Offset {number} of partition 0").click()
        panel = page.get_by_role("complementary", name="Record")
        await expect(panel.get_by_text(f"Partition 0, offset {number}")).to_be_visible()
        await expect(panel.get_by_role("heading", name="Record and batch")).to_be_visible()
    text = await page.locator("body").inner_text()
    # Characters that hide or reorder text, or control a terminal, are shown as escapes.
    assert not {"\x1b", "\x00", "\x9b", "\u202e", "\u2066", "\u200b", "\u2028"} & set(text)
    assert "\\u202e" in text
    assert not await page.locator(
        "table script, table img, table b, aside script, aside img"
    ).count()
    assert "taken" not in await page.title()
    # The page has only the beginning of a value of ten megabytes, and more on request.
    await page.get_by_role("button", name=f"Offset {len(_HOSTILE)} of partition 0").click()
    value = page.get_by_role("complementary", name="Record").get_by_label("Value", exact=True)
    await expect(value).to_have_text("z" * 65_536)
    await page.get_by_role("button", name="Show more").click()
    await expect(value).to_have_text("z" * 1_048_576)
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Save as a file").last.click()
    file = await (await download.value).path()
    assert await asyncio.to_thread(file.stat) is not None
    assert file.stat().st_size == 10_000_000


async def test_a_tail_pauses_and_resumes_and_survives_a_restart(
    odradek_broker: SubprocessBroker, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    bootstrap = odradek_broker.bootstrap
    await _create(bootstrap, unique_topic)

    async def write(*values: bytes) -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for value in values:
                await producer.send(unique_topic, value)
            await producer.flush()

    with console_process(bootstrap) as address:
        await page.goto(f"{address}topic/tail?name={unique_topic}")
        await expect(page.get_by_text("Live", exact=True)).to_be_visible()
        await write(b"first")
        await expect(page.get_by_role("cell", name="first")).to_be_visible()
        await page.get_by_role("button", name="Pause").click()
        await write(*(b"more %d" % number for number in range(12)))
        await expect(page.get_by_text("12 records since you paused")).to_be_visible()
        await expect(page.get_by_role("cell", name="more 11")).not_to_be_visible()
        await page.get_by_role("button", name="Resume").last.click()
        await expect(page.get_by_role("cell", name="more 11")).to_be_visible()
        # After a burst of records the page says that it shows a sample.
        await write(*(b"burst %d" % number for number in range(5_000)))
        await expect(page.get_by_text("this is a sample")).to_be_visible()
        # The table cannot be scrolled until it has enough rows.
        await page.get_by_role("region", name="New records").evaluate(
            """async element => {
                while (element.scrollTop < 200) {
                    element.scrollTop = 200;
                    await new Promise(drawn => setTimeout(drawn, 50));
                }
            }"""
        )
        await expect(page.get_by_text("because you scrolled")).to_be_visible()
        await page.get_by_role("button", name="Resume").last.click()
        await asyncio.to_thread(odradek_broker.kill)
        await expect(page.get_by_text("No connection", exact=True)).to_be_visible()
        await asyncio.to_thread(odradek_broker.restart)
        await expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=30_000)
        await write(b"after all")
        await expect(page.get_by_role("cell", name="after all")).to_be_visible()
