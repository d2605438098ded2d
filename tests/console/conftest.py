"""Fixtures: a client of the console's API, and the console's pages in a browser."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette

from console_process import PATIENCE_S, browser_program, console_process, options_for
from odradek_console.server import Console

if TYPE_CHECKING:
    from playwright.async_api import Browser, ConsoleMessage, Page


@pytest.fixture
async def console_client(live_bootstrap: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls a console's application directly, without a server."""
    app = Console(options_for(live_bootstrap)).app()
    assert isinstance(app, Starlette)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080"
        ) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def console_address(live_bootstrap: str) -> Iterator[str]:
    """The address of a console that runs as a process."""
    with console_process(live_bootstrap) as address:
        yield address


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """The system's Chromium; a test is skipped if there is none."""
    program = browser_program()
    if program is None:
        pytest.skip("no Chromium here: install one, or name it in ODRADEK_CHROMIUM")
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=PATIENCE_S * 1_000)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        await browser.close()


@pytest.fixture
async def browser_page(browser: Browser) -> AsyncIterator[Page]:
    """A browser page with its own cookies.

    At the end of the test, script errors, violated policies and requests to other hosts make it
    fail.
    """
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    page = await context.new_page()
    wrong: list[str] = []
    hosts: set[str | None] = set()

    def note(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            wrong.append(message.text)

    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", note)
    page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
    yield page
    await context.close()
    assert wrong == []
    assert hosts <= {"127.0.0.1"}
