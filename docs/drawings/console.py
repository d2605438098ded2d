"""Pictures of the console's pages, light and dark, for its document:

    python -m docs.drawings.console

It starts a broker with a console, has producers, a group and a transaction work on it, and takes
the pictures with the system's Chromium, or the one that ODRADEK_CHROMIUM names.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from odradek import Admin, Consumer, NewTopic, Producer

if TYPE_CHECKING:
    from playwright.async_api import Page

FOLDER = Path(__file__).resolve().parents[1] / "operate" / "console"
_WIDTH, _HEIGHT = 1280, 640
#: The time for charts and histories to have something to show.
_WORK_S = 20.0
#: The name of each picture, and the address of the page.
_PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topic?name=orders",
    "records": "/topic/records?name=orders",
    "groups": "/groups",
    "group": "/group?name=billing",
    "transactions": "/transactions",
    "producers": "/producers",
    "timeline": "/timeline?s=group:billing&s=transaction:payments",
    "connections": "/connections",
    "requests": "/requests",
    "settings": "/settings",
    "access": "/access",
    "change": "/write",
}
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """(bootstrap, console) of a broker with a console, as a process."""
    command = [sys.executable, "-m", "odradek", "serve", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(folder), "--console", "127.0.0.1:0", "--console-write"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        words = (await process.stdout.readline()).decode().split()
        yield words[words.index("on") + 1], words[-1]
    finally:
        process.terminate()
        await process.wait()


async def _produce(bootstrap: str) -> None:
    chance = random.Random(1)
    async with Producer(bootstrap_servers=bootstrap, client_id="shop") as producer:
        number = 0
        while True:
            for _ in range(chance.randrange(5, 60)):
                number += 1
                order = {"id": number, "item": chance.choice(["apples", "pears", "plums"])}
                await producer.send(
                    "orders", json.dumps(order).encode(), f"customer-{number % 7}".encode()
                )
            await producer.flush()
            await asyncio.sleep(0.2)


async def _consume(bootstrap: str, client_id: str) -> None:
    async with Consumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="billing",
        client_id=client_id,
        auto_offset_reset="earliest",
    ) as consumer:
        while True:
            await consumer.poll(500)


async def _transactions(bootstrap: str) -> None:
    async with Producer(
        bootstrap_servers=bootstrap, client_id="bank", transactional_id="payments"
    ) as producer:
        await producer.init_transactions()
        while True:
            async with producer.transaction():
                await producer.send("payments", b"4 apples", b"customer-1")
                await asyncio.sleep(2.0)


async def _picture(page: Page, address: str, name: str, scheme: str) -> None:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.goto(address.rstrip("/") + _PAGES[name])
    # Charts and live pages have no end that could be waited for.
    await page.wait_for_timeout(5_000 if name in ("overview", "requests", "group") else 1_800)
    await page.screenshot(path=FOLDER / f"{name}-{scheme}.png")


async def _take(address: str) -> None:
    from playwright.async_api import async_playwright

    program = os.environ.get("ODRADEK_CHROMIUM") or next(filter(None, map(shutil.which, _CHROMIUM)))
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=arguments)
        page = await browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        await page.goto(address)
        await asyncio.sleep(_WORK_S)
        for name in _PAGES:
            for scheme in ("light", "dark"):
                await _picture(page, address, name, scheme)
        await browser.close()


async def main() -> None:
    """Take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        bootstrap, console = await stack.enter_async_context(_served(Path(folder)))
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic("orders", 3), NewTopic("payments", 1)])
        work = [
            asyncio.create_task(_produce(bootstrap)),
            asyncio.create_task(_transactions(bootstrap)),
            asyncio.create_task(_consume(bootstrap, "billing-a")),
        ]
        await asyncio.sleep(4.0)
        work.append(asyncio.create_task(_consume(bootstrap, "billing-b")))
        await _take(console)
        for task in work:
            task.cancel()
        for ended in await asyncio.gather(*work, return_exceptions=True):
            if ended is not None and not isinstance(ended, asyncio.CancelledError):
                raise ended


if __name__ == "__main__":
    asyncio.run(main())
