"""Requests for changes, as a page of the console sends them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.applications import Starlette

from odradek_console.server import Console, ConsoleOptions

WRITE = {"origin": "http://127.0.0.1:8080", "X-Odradek-Console": "1"}
Answer = tuple[int, dict[str, Any]]


def confirmation(planned: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """The fields with which a page confirms a plan."""
    return {**planned["send"], **{name: body[name] for name in planned["again"]}}


class ChangingPage:
    """Requests changes as a page does: first the plan, then the change."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def post(self, what: str, body: dict[str, Any]) -> Answer:
        answer = await self._client.post(f"/api/change/{what}", json=body)
        return answer.status_code, answer.json()

    async def plan(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        status, answer = await self.post(what, body)
        assert status == 200, answer
        return answer

    async def do(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        status, answer = await self.post(what, confirmation(await self.plan(what, body), body))
        assert status == 200, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def refused(self, what: str, body: dict[str, Any]) -> tuple[int, str]:
        status, answer = await self.post(what, body)
        return status, answer["error"]["title"]


@asynccontextmanager
async def changing_page(bootstrap: str, **settings: Any) -> AsyncIterator[ChangingPage]:
    """A page of a console that may make changes. `settings`: those of the console's clients."""
    settings = {"bootstrap_servers": bootstrap, **settings}
    clients = {"admin": settings, "consumer": settings, "producer": settings}
    app = Console(ConsoleOptions({"one": clients}, write=True)).app()
    assert isinstance(app, Starlette)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080", headers=WRITE
        ) as client,
    ):
        yield ChangingPage(client)
