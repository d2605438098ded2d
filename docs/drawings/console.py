"""Pictures of the console's pages for the documentation, light and dark.

    python -m docs.drawings.console [PAGE ...]

The pictures show a broker with the data of a small shop: producers, groups that rebalance, a
transaction of a fenced producer, and an open transaction. Needs the `dev` extra and Chromium.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import confluent_kafka

from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, ConfigResource, NewTopic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.producer import Producer

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from console_process import browser_program, console_process

if TYPE_CHECKING:
    from playwright.async_api import ViewportSize

FOLDER = Path(__file__).parents[1] / "operate" / "console"
_SIZE: ViewportSize = {"width": 1180, "height": 740}
_THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_WARM_UP_MS = 30_000
#: The name of each picture and the address of its page.
PAGES = {
    "overview": "",
    "topics": "topics",
    "topic": "topic?name=orders",
    "records": "topic/records?name=orders",
    "tail": "topic/tail?name=orders",
    "groups": "groups",
    "group": "group?id=billing",
    "transactions": "transactions",
    "transaction": "transaction?id=payments",
    "producers": "producers?topic=orders",
    "timeline": "timeline?s=group:billing&s=transaction:payments",
    "connections": "connections",
    "client-metrics": "client-metrics",
    "requests": "requests",
    "settings": "settings",
    "access": "access",
    "change": "write",
}


# --- The shop -------------------------------------------------------------------------------------


async def _orders(bootstrap: str) -> None:
    chance = random.Random(7)
    async with Producer(bootstrap_servers=bootstrap, client_id="shop") as producer:
        number = 0
        while True:
            number += 1
            value = f'{{"order": {number}, "total": {chance.randrange(5, 900)}, "paid": true}}'
            await producer.send(
                "orders",
                value.encode(),
                key=f"customer-{chance.randrange(40)}".encode(),
                headers=[("source", b"web")],
            )
            await asyncio.sleep(0.02)


async def _reader(bootstrap: str, group: str, client_id: str, protocol: Any, s: float) -> None:
    async with Consumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=client_id,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        async with asyncio.timeout(s):
            while True:
                await consumer.poll(500)


async def _payments(bootstrap: str) -> None:
    def worker(client_id: str) -> Producer:
        return Producer(
            bootstrap_servers=bootstrap, client_id=client_id, transactional_id="payments"
        )

    async with worker("worker-a") as first:
        await first.init_transactions()
        for _ in range(4):
            async with first.transaction():
                await first.send_and_wait("payments", b"10 EUR")
                await asyncio.sleep(1.2)
        await first.begin_transaction()
        await first.send_and_wait("payments", b"20 EUR")
        await asyncio.sleep(3)
        async with worker("worker-b") as second:
            await second.init_transactions()
            await second.begin_transaction()
            await second.send_and_wait("payments", b"20 EUR")
            await asyncio.sleep(600)


async def _mails(bootstrap: str, client_id: str) -> None:
    """Produce records with librdkafka's client, which pushes its metrics."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "client.id": client_id, "log_level": 0}
    )
    while True:
        producer.produce("mails-to-send", b'{"to": "customer-7"}')
        producer.poll(0)
        await asyncio.sleep(0.1)


async def _after(s: float, work: Awaitable[None]) -> None:
    await asyncio.sleep(s)
    with suppress(OdradekError, TimeoutError):
        await work


async def _shop(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(
            [
                NewTopic("orders", partitions=6),
                NewTopic("payments", partitions=3),
                NewTopic("customers", partitions=3, configs={"cleanup.policy": "compact"}),
                NewTopic("mails-to-send", partitions=2),
            ]
        )
        wanted = {"metrics": "org.apache.kafka.producer.", "interval.ms": "1000"}
        await admin.alter_configs({ConfigResource.client_metrics("producers"): wanted})
    await asyncio.gather(
        _orders(bootstrap),
        *(_mails(bootstrap, f"mailer-{number}") for number in (1, 2, 3)),
        _after(0, _payments(bootstrap)),
        _after(0, _reader(bootstrap, "billing", "billing-1", "classic", 600)),
        _after(4, _reader(bootstrap, "billing", "billing-2", "classic", 9)),
        _after(9, _reader(bootstrap, "billing", "billing-3", "classic", 600)),
        _after(1, _reader(bootstrap, "stock", "stock-1", "consumer", 600)),
        _after(6, _reader(bootstrap, "stock", "stock-2", "consumer", 600)),
        _after(1, _reader(bootstrap, "reports", "reports-1", "consumer", 5)),
    )


# --- Pictures -------------------------------------------------------------------------------------


async def _picture(address: str, names: list[str]) -> None:
    from playwright.async_api import async_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=browser_program(), args=arguments
        )
        # The pause lets charts and histories collect data.
        page = await browser.new_page()
        await page.goto(address)
        await page.wait_for_timeout(_WARM_UP_MS)
        for theme in _THEMES:
            context = await browser.new_context(viewport=_SIZE, color_scheme=theme)
            page = await context.new_page()
            for name in names:
                await page.goto(address + PAGES[name])
                await page.locator("h1").wait_for()
                await page.wait_for_timeout(6_000 if name in ("overview", "tail") else 3_000)
                path = FOLDER / f"{name}-{theme}.png"
                await page.screenshot(path=path)
                print(f"{path.name}: {path.stat().st_size // 1000} KB")
            await context.close()
        await browser.close()


async def _draw(bootstrap: str, names: list[str]) -> None:
    shop = asyncio.create_task(_shop(bootstrap))
    with console_process(bootstrap, "--write") as address:
        await _picture(address, names)
    shop.cancel()
    await asyncio.gather(shop, return_exceptions=True)


def main() -> None:
    """Draw the named pages, or all of them."""
    names = sys.argv[1:] or list(PAGES)
    if unknown := set(names) - PAGES.keys():
        raise SystemExit(f"there is no page {', '.join(sorted(unknown))}: {', '.join(PAGES)}")
    FOLDER.mkdir(exist_ok=True)
    with SubprocessBroker(settings={"http.listen": "127.0.0.1:0"}) as broker:
        asyncio.run(_draw(broker.bootstrap, names))


if __name__ == "__main__":
    main()
