"""Pages about groups, transactions and producers in a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from console_process import console_process
from groups_of_all_kinds import groups_of_all_kinds
from odradek import Consumer, Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.full

HOSTILE = "<img src=x onerror=alert(1)>&amp;\u202e/../.."
#: The name as the page shows it: the character that would reverse text is an escape.
SHOWN = "<img src=x onerror=alert(1)>&amp;\\u202e/../.."
MANY = 10_000


@asynccontextmanager
async def _member(bootstrap: str, group: str, name: str, protocol: Any) -> AsyncIterator[None]:
    """A running group member that reads the topic with the group's name."""
    stop = asyncio.Event()

    async def read(consumer: Consumer) -> None:
        while not stop.is_set():
            await consumer.poll(100)

    async with Consumer(
        group,
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=name,
        group_protocol=protocol,
    ) as consumer:
        reading = asyncio.create_task(read(consumer))
        try:
            yield
        finally:
            stop.set()
            await reading


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_rebalance_shows_on_the_open_page(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str, protocol: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=4))

    def member(name: str) -> AbstractAsyncContextManager[None]:
        return _member(live_bootstrap, unique_topic, name, protocol)

    async with member("first"):
        await page.goto(f"{console_address}group?id={unique_topic}")
        picture = page.get_by_role("img", name=f"Assignment of {unique_topic}")
        await expect(page.get_by_role("cell", name="first").first).to_be_visible()
        await expect(picture.locator(".cell.owned")).to_have_count(4)
        await expect(picture.get_by_text("1", exact=True)).to_have_count(4)
        async with member("second"):
            await expect(page.get_by_role("cell", name="second").first).to_be_visible()
            # Each number, like each colour, stands for a member: each member has two partitions.
            await expect(picture.get_by_text("1", exact=True)).to_have_count(2)
            await expect(picture.get_by_text("2", exact=True)).to_have_count(2)
            await expect(page.get_by_text("joined").first).to_be_visible()
            # The cells of the second member stay, and the others fade.
            await page.get_by_label("Show the partitions of member 2").click()
            await expect(picture.locator(".cell.dim")).to_have_count(2)
    await expect(page.get_by_text("The group has no members")).to_be_visible()


async def test_lag_is_updated_live_and_a_reload_keeps_its_chart(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    async with (
        Admin(bootstrap_servers=live_bootstrap) as admin,
        Producer(bootstrap_servers=live_bootstrap) as producer,
    ):
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
        await admin.alter_group_offsets(unique_topic, {(unique_topic, 0): 0})
        await page.goto(f"{console_address}group?id={unique_topic}")
        lag = page.locator(".figure", has_text="Lag, records").locator(".figure-value")
        await expect(lag).to_have_text("0")
        for _ in range(7):
            await producer.send_and_wait(unique_topic, b"x")
        await expect(lag).to_have_text("7")
        chart = page.get_by_role("figure", name="Lag over time")
        await expect(chart.locator("canvas")).to_be_visible()
        await page.reload()
        await expect(chart.locator("canvas")).to_be_visible()
        points = await page.request.get(f"{console_address}api/group/lag?id={unique_topic}")
        assert {point[1] for point in (await points.json())["points"]} == {0, 7}


async def test_a_read_only_console_offers_no_move_of_offsets(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
        await admin.alter_group_offsets(unique_topic, {(unique_topic, 0): 0})
    await page.goto(f"{console_address}group?name={unique_topic}")
    await expect(page.get_by_text("classic group")).to_be_visible()
    await expect(page.get_by_role("link", name="Move offsets")).to_have_count(0)


async def test_a_writing_console_links_from_a_group_to_moving_its_offsets(
    live_bootstrap: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
        await admin.alter_group_offsets(unique_topic, {(unique_topic, 0): 0})
    with console_process(live_bootstrap, "--write") as address:
        await page.goto(f"{address}group?name={unique_topic}")
        await page.get_by_role("link", name="Move offsets").click()
        await expect(page.get_by_role("textbox", name="Group")).to_have_value(unique_topic)


async def test_groups_of_all_kinds_have_their_pages(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    async with groups_of_all_kinds(live_bootstrap, unique_topic):
        for kind, text in (
            ("classic", "classic-app"),
            ("consumer", "consumer-app"),
            ("share", "share.auto.offset.reset"),
            ("streams", "words"),
        ):
            await page.goto(f"{console_address}group?id={unique_topic}-{kind}")
            await expect(page.get_by_text(f"{kind} group").first).to_be_visible()
            await expect(page.get_by_text(text).first).to_be_visible()
            await expect(page.locator(".assigned .cell.owned")).to_have_count(3)


@pytest.fixture
def own_console(odradek_broker: SubprocessBroker) -> Iterator[str]:
    """The address of a console for the test's own broker."""
    with console_process(odradek_broker.bootstrap) as address:
        yield address


async def test_ten_thousand_groups_with_hostile_names_are_shown(
    odradek_broker: SubprocessBroker, own_console: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    async with Admin(bootstrap_servers=odradek_broker.bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
        names = [HOSTILE, *(f"many-{number:05d}" for number in range(MANY))]
        for start in range(0, len(names), 100):
            await asyncio.gather(
                *(
                    admin.alter_group_offsets(name, {(unique_topic, 0): 0})
                    for name in names[start : start + 100]
                )
            )
    await page.goto(f"{own_console}groups?filter=many-")
    await expect(page.get_by_text("10,000 in all")).to_be_visible()
    assert await page.locator("tbody tr").count() < 100
    await page.get_by_role("region", name="Groups").press("End")
    await expect(page.get_by_role("cell", name="many-09999")).to_be_visible()
    await page.goto(f"{own_console}groups?filter=onerror&lag_min=0&sort=-lag")
    await page.get_by_role("link", name=SHOWN).click()
    await expect(page.get_by_role("heading", name=SHOWN)).to_be_visible()
    await expect(page.get_by_text("The group has no members")).to_be_visible()
    assert await page.locator("img[src=x]").count() == 0


async def test_a_transaction_is_found_with_the_records_that_it_holds_back(
    live_bootstrap: str, console_address: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    async with (
        Admin(bootstrap_servers=live_bootstrap) as admin,
        Producer(bootstrap_servers=live_bootstrap, transactional_id=unique_topic) as producer,
    ):
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(unique_topic, b"x")
        await page.goto(f"{console_address}transactions?filter={unique_topic}")
        row = page.get_by_role("row", name=unique_topic)
        await expect(row).to_contain_text("Ongoing")
        await row.get_by_role("link", name=unique_topic).click()
        await expect(
            page.get_by_text(f"odradek txn abort {unique_topic} --execute")
        ).to_be_visible()
        await page.get_by_role("link", name="Producers", exact=True).click()
        await expect(page.get_by_text("since offset 0")).to_be_visible()
        await page.go_back()
        await producer.abort_transaction()
        # The open page gets the change without a reload.
        await expect(page.get_by_text("this id holds nothing back")).to_be_visible()
        await page.goto(f"{console_address}transaction?id=nothing")
        await expect(page.get_by_text("There is no such transactional id")).to_be_visible()
