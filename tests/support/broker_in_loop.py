"""A broker that runs in the test's own event loop, so that a test can inspect it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from odradek_broker.server.server import Server
from raw_client import RawClient


class RunningBroker:
    """A broker in this event loop. `server` is the product's server; a test may inspect its
    node."""

    def __init__(self, server: Server, host: str, port: int) -> None:
        self.server, self.host, self.port = server, host, port

    @property
    def node(self) -> Any:
        return self.server.node

    async def client(self) -> RawClient:
        return RawClient(*await asyncio.open_connection(self.host, self.port))

    async def stop(self) -> None:
        while RawClient.opened:
            with suppress(RuntimeError):  # of the closed loop of an earlier test
                RawClient.opened.pop().close()
        await self.server.stop()


StartBroker = Callable[..., Awaitable[RunningBroker]]
