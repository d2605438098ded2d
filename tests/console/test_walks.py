"""The number of clicks from the overview to the answers to two questions, if only links are
used."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from console_process import console_process
from odradek import Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic
from waiting import DEADLINE_S, deadline_in

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

pytestmark = pytest.mark.full

GROUP = "readers"
TOPIC = "orders"
OPEN, ENDED = "payments", "invoices"
SESSION_TIMEOUT_MS = 1_000


@pytest.fixture(scope="session")
def odradek_broker_settings() -> Mapping[str, object]:
    return {"group.min.session.timeout.ms": SESSION_TIMEOUT_MS}


@pytest.fixture
def console_of_one_broker(odradek_broker: SubprocessBroker) -> Iterator[str]:
    """The address of a console for the test's own broker."""
    with console_process(odradek_broker.bootstrap) as address:
        yield address


class Walk:
    """A person who has opened the overview, and clicks only on visible links; the clicks are
    counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    async def follow(self, link: Locator) -> None:
        await link.click()
        self.clicks += 1

    async def menu(self, name: str) -> None:
        pages = self.page.get_by_role("navigation", name="Pages")
        await self.follow(pages.get_by_role("link", name=name, exact=True))


async def walk_from_the_overview(page: Page, address: str) -> Walk:
    from playwright.async_api import expect

    await page.goto(address)
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    return Walk(page)


@contextmanager
def member(bootstrap: str, client: str) -> Iterator[subprocess.Popen[bytes]]:
    """A member of the group, in a process that can be killed."""
    command = [sys.executable, "-m", "odradek", "consume", TOPIC, "--bootstrap", bootstrap]
    command += ["--group", GROUP, "-X", f"client.id={client}", "-X", "heartbeat.interval.ms=300"]
    command += ["-X", f"session.timeout.ms={SESSION_TIMEOUT_MS}"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def stable_with(admin: Admin, clients: set[str]) -> None:
    """Wait until the group is stable with a member of each of these clients."""
    check = deadline_in(DEADLINE_S)
    seen: object = None
    while seen != ("Stable", clients):
        check(f"the group is {seen}, and is to be stable with {clients}")
        found = (await admin.describe_groups([GROUP], raise_errors=False)).get(GROUP)
        if found is not None:
            seen = (found.state, {each.client_id for each in found.members})
        await asyncio.sleep(0.05)


async def test_the_reason_for_a_rebalance_is_three_clicks_away(
    odradek_broker: SubprocessBroker, console_of_one_broker: str, browser_page: Page
) -> None:
    from playwright.async_api import expect

    page = browser_page
    bootstrap = odradek_broker.bootstrap
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(NewTopic(TOPIC, partitions=2))
        with member(bootstrap, "stays"), member(bootstrap, "dies") as process:
            await stable_with(admin, {"stays", "dies"})
            process.send_signal(signal.SIGKILL)
            await stable_with(admin, {"stays"})

            walk = await walk_from_the_overview(page, console_of_one_broker)
            await walk.menu("Groups")
            await walk.follow(page.get_by_role("link", name=GROUP, exact=True))
            # The menu has another link with this name.
            main = page.get_by_role("main")
            await walk.follow(main.get_by_role("link", name="Timeline", exact=True))
            words = page.get_by_role("complementary", name="Events in words")
            reason = re.compile("dies.*session timeout")
            await expect(words.get_by_role("listitem").filter(has_text=reason)).to_be_visible()
            assert walk.clicks <= 3


async def test_the_transaction_that_holds_back_a_consumer_is_four_clicks_away(
    odradek_broker: SubprocessBroker, console_of_one_broker: str, browser_page: Page
) -> None:
    from playwright.async_api import expect

    page = browser_page
    bootstrap = odradek_broker.bootstrap
    async with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(bootstrap_servers=bootstrap, transactional_id=ENDED) as ended,
        Producer(bootstrap_servers=bootstrap, transactional_id=OPEN) as producer,
    ):
        await admin.create_topics(NewTopic(TOPIC, partitions=1))
        await ended.init_transactions()
        async with ended.transaction():
            await ended.send_and_wait(TOPIC, b"x")
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"x")

        walk = await walk_from_the_overview(page, console_of_one_broker)
        await walk.menu("Topics")
        await walk.follow(page.get_by_role("link", name=TOPIC, exact=True))
        # The committed transaction has offsets 0 (the record) and 1 (the marker).
        await walk.follow(page.get_by_role("link", name="1 from 2", exact=True))
        row = page.get_by_role("row").filter(has_text="Ongoing")
        await expect(row).to_have_count(1)
        await walk.follow(row.get_by_role("link", name=OPEN, exact=True))
        await expect(page.get_by_role("heading", name=OPEN, exact=True)).to_be_visible()
        partitions = page.get_by_role("region", name="Partitions of the transaction")
        await expect(partitions.get_by_role("row").filter(has_text=f"{TOPIC}-0")).to_be_visible()
        assert walk.clicks <= 4
        await producer.abort_transaction()
