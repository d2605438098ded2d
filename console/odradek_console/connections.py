"""The connections of browsers: limits for peers that send nothing or take nothing, and for the log
lines that peers cause.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from odradek_protocol.foreign_lines import limit_lines_of
from odradek_protocol.waiting_peers import WaitingPeers, counted_as

#: The limits of connections that wait for a request, of all addresses and of one. Twenty browsers
#: behind one address keep six each.
WAITING_MAX = 256
WAITING_PER_ADDRESS_MAX = 192
#: The limits of requests in progress. Pages of a browser keep up to six open.
REQUESTS_MAX = 256
REQUESTS_PER_ADDRESS_MAX = 128
#: The time for the head of the first request, and for that of a later one, from the answer before.
HEAD_S = 10.0
LATER_HEAD_S = 30.0
#: The time in which a peer has to take some of its answer.
STALLED_S = 60.0
_FOREIGN = ("uvicorn.error", "asyncio")


class PeerLimits:
    """The connections that wait for a request. `proxies`: the addresses and networks of proxies;
    the limit for one address is not for them, because many people share their addresses."""

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        self.waiting = WaitingPeers(WAITING_PER_ADDRESS_MAX, WAITING_MAX)
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]

    def counted(self, host: str, port: int) -> str:
        """The text by which a peer's connections are counted: its address, or for a proxy address
        and port."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return host
        return f"{host} {port}" if any(address in each for each in self._proxies) else host


class BrowserConnection(H11Protocol):
    """A browser's connection. It is closed if no request arrives in time, if its peer does not take
    the answer, or as the oldest of too many that wait for a request."""

    def __init__(self, *arguments: Any, limits: PeerLimits, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits = limits
        self._counted = ""
        self._in_progress = False
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        # The keys of `waiting` are compared, and each access makes another bound method.
        self._end: Callable[[], None] = self._abort

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by asyncio."""
        super().connection_made(transport)
        host, port = self.client or ("", 0)
        self._counted = self._limits.counted(host, port)
        self._wait(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Called by uvicorn when bytes have arrived."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete and not self._in_progress:
            self._in_progress = True
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Called by uvicorn when an answer is complete, though not yet sent."""
        self._in_progress = False
        self._wait(LATER_HEAD_S)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Called by asyncio when the peer takes less than is written."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(STALLED_S, self._end)

    def resume_writing(self) -> None:
        """Called by asyncio when the peer has taken what was written."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._limits.waiting.begin(self._counted, self._end)
        self._deadline = self.loop.call_later(seconds, self._end)

    def _stop_waiting(self) -> None:
        self._limits.waiting.ended(self._end)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort(self) -> None:
        # A connection that is closed politely stays until its peer has taken all that was written.
        self._stop_waiting()
        self.transport.abort()


class RequestAdmission:
    """The middleware that limits the requests in progress. `refusal`: the answer to others."""

    def __init__(self, app: ASGIApp, refusal: ASGIApp) -> None:
        self._app = app
        self._refusal = refusal
        self._in_progress: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = counted_as((scope.get("client") or ("",))[0])
        if (
            self._in_progress[host] >= REQUESTS_PER_ADDRESS_MAX
            or self._in_progress.total() >= REQUESTS_MAX
        ):
            await self._refusal(scope, receive, send)
            return
        self._in_progress[host] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_progress[host] -= 1
            if not self._in_progress[host]:
                del self._in_progress[host]


def limit_foreign_lines() -> None:
    """Limit the lines of libraries, because peers cause them."""
    for name in _FOREIGN:
        logging.getLogger(name).setLevel(logging.WARNING)
        log = structlog.get_logger(f"odradek.console.{name.partition('.')[0]}")
        limit_lines_of(name, log)
