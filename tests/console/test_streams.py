"""Answers that are sent in pieces: downloads as files, and the end of the generators that make the
pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

import httpx
import pytest
from starlette.types import ASGIApp, Message

from odradek_console import topics
from odradek_console.answers import HttpProblem
from odradek_console.asked import Asked, Stream
from odradek_console.server import Console, ConsoleOptions

SETTINGS = {"bootstrap_servers": "127.0.0.1:1"}


class _Download:
    """A download whose beginning and end a test can see."""

    def __init__(self) -> None:
        self.ended = 0
        self.asked: Asked | None = None

    async def answer(self, asked: Asked) -> Stream:
        if asked.query.flag("refused"):
            raise HttpProblem(404, "There is no such topic")
        self.asked = asked
        return Stream("text/csv", self._pieces(), "orders\r\n\u2028.csv")

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"a\n"
            yield b"b\n"
        finally:
            self.ended += 1


@pytest.fixture
def download(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Download]:
    watched = _Download()
    monkeypatch.setattr(topics, "STREAMS", {"/download": watched.answer}, raising=False)
    yield watched


@pytest.fixture
def app(download: _Download) -> ASGIApp:
    return Console(
        ConsoleOptions({"one": {"admin": SETTINGS, "consumer": SETTINGS, "producer": SETTINGS}})
    ).app()


async def test_a_named_stream_is_downloaded_as_a_file(app: ASGIApp, download: _Download) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
    ) as client:
        answer = await client.get("/api/download", headers={"last-event-id": "7"})
        refused = await client.get("/api/download?refused=1")
    assert answer.content == b"a\nb\n"
    disposition = answer.headers["content-disposition"]
    assert disposition == "attachment; filename*=UTF-8''orders%0D%0A%E2%80%A8.csv"
    assert download.ended == 1
    assert download.asked is not None and download.asked.last_event_id == "7"
    assert refused.status_code == 404
    assert refused.json()["error"]["title"] == "There is no such topic"


async def test_a_stream_ends_when_its_browser_leaves(app: ASGIApp, download: _Download) -> None:
    begun = asyncio.Event()

    async def receive() -> Message:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message.get("body"):
            begun.set()
            await asyncio.Event().wait()

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/download",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
    }
    await app(scope, receive, send)
    assert download.ended == 1
