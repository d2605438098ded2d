"""The connections of an HTTP server: one request of each is read and answered, within limits.

A connection is closed after its answer. A peer that sends nothing, or that stays after its answer,
keeps nobody else out: at the limit of waiting connections the oldest one is closed, first of the
same address. Probes are answered even while as many requests are in progress as may be.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from odradek_broker.server.host import Acceptor, Handshakes
from odradek_broker.server.http_messages import (
    HEAD_BYTES_MAX,
    JSON,
    HttpError,
    HttpRequest,
    Order,
    check_order,
    parse_head,
    response,
)
from odradek_protocol.repeated_lines import RepeatedLines
from odradek_protocol.waiting_peers import WaitingPeers, counted_as

log = structlog.get_logger("odradek.http")

#: The time for the head of a request and for its body, and for taking an answer.
_REQUEST_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 10.0
_LINGER_S = 1.0
_LINGER_READS_MAX = 64
_BACKLOG = 1024
#: The limits of connections without a complete head.
_WAITING_MAX = 40
_WAITING_PER_ADDRESS_MAX = 32
_LINES_MAX = 60


class HttpExchange:
    """A request whose head has arrived, and its answer."""

    def __init__(
        self, request: HttpRequest, reader: asyncio.StreamReader, limit: asyncio.Timeout
    ) -> None:
        self.request = request
        self._reader = reader
        self._limit = limit
        #: Called if the answer cannot be sent.
        self.on_unsent: Callable[[], Awaitable[None]] | None = None

    async def order(self, limit_s: float) -> Order:
        """Read the body of an order. The order and its answer may then take `limit_s`. Raises
        Refused."""
        body_bytes = check_order(self.request)
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                body = await self._reader.readexactly(body_bytes)
        except asyncio.IncompleteReadError:
            raise HttpError(400, "the request is incomplete") from None
        except TimeoutError:
            raise HttpError(408, "the request did not come in time") from None
        self._limit.reschedule(asyncio.get_running_loop().time() + limit_s)
        try:
            content = json.loads(body) if body else None
        except (ValueError, RecursionError) as problem:
            raise HttpError(400, f"the order is no JSON: {problem}") from problem
        return Order(self.request.method, self.request.path, content)


class HttpConnections:
    """The connections of a server.

    `check` refuses requests that the server must not answer, and `answer` makes the parts of a
    response; both may raise Refused. `probes`: the paths that are answered at any time. `most`: the
    limit of other requests in progress, of which one address may have `most_per_address`.
    """

    def __init__(
        self,
        check: Callable[[HttpRequest], None],
        answer: Callable[[HttpExchange], Awaitable[Sequence[bytes]]],
        *,
        probes: tuple[str, ...] = (),
        most: int,
        most_per_address: int,
    ) -> None:
        self._check = check
        self._answer = answer
        self._probes = probes
        self._most = most
        self._most_per_address = most_per_address
        self._waiting = WaitingPeers(_WAITING_PER_ADDRESS_MAX, _WAITING_MAX)
        #: The connections whose answer is being sent, or was. They are counted apart: requests that
        #: get the same metrics are all answered at the same time, and would push out new peers.
        self._leaving = WaitingPeers(2 * most_per_address, 2 * most)
        #: The number of requests in progress by address.
        self._in_progress: Counter[str] = Counter()
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._acceptor: Acceptor | None = None

    def listen(self, host: str, port: int, tls: Handshakes | None = None) -> tuple[str, int]:
        """Listen; returns the bound address. Raises OSError."""
        listener = _listening(host, port)
        self._acceptor = Acceptor(listener, self._protocol, tls)
        bound = listener.getsockname()
        return bound[0], bound[1]

    async def close(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        for task, writer in list(self._open.items()):
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, self._connection)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        close = writer.transport.abort
        peer = (writer.get_extra_info("peername") or ("",))[0]
        self._waiting.begin(peer, close)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S) as limit:
                try:
                    head: bytes | HttpError = await _read_head(reader)
                except HttpError as refused:
                    head = refused
                self._waiting.ended(close)
                counted = counted_as(peer)
                self._in_progress[counted] += 1
                try:
                    exchange, parts = await self._answered(head, peer, reader, limit)
                finally:
                    self._in_progress[counted] -= 1
                    if not self._in_progress[counted]:
                        del self._in_progress[counted]
                self._leaving.begin(peer, close)
                await _send(exchange, parts, writer)
                await _linger(reader, writer)
        except (ConnectionError, TimeoutError):
            # A socket that is closed otherwise stays until its peer has taken the answer.
            close()
        finally:
            self._waiting.ended(close)
            self._leaving.ended(close)
            del self._open[task]
            writer.close()

    async def _answered(
        self,
        head: bytes | HttpError,
        peer: str,
        reader: asyncio.StreamReader,
        limit: asyncio.Timeout,
    ) -> tuple[HttpExchange | None, Sequence[bytes]]:
        """The request that begins with `head`, if it is one, and the answer or refusal."""
        exchange = None
        try:
            if isinstance(head, HttpError):
                raise head
            exchange = HttpExchange(parse_head(head, peer), reader, limit)
            self._check_room(exchange.request)
            self._check(exchange.request)
            return exchange, await self._answer(exchange)
        except HttpError as refused:
            answer = response(refused.status, f"{refused}\n".encode(), extra=refused.extra)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - logged, and others are served
            answer = response(500, f"{_failed(error)}\n".encode())
        return exchange, answer

    def _check_room(self, request: HttpRequest) -> None:
        """Refuse a request if too many others are in progress."""
        if request.path in self._probes:
            return
        if (
            self._in_progress[counted_as(request.peer)] > self._most_per_address
            or self._in_progress.total() > self._most
        ):
            raise HttpError(503, "too many requests are in progress; try again later")


async def answer_order(
    exchange: HttpExchange,
    carry_out: Callable[[Order], Awaitable[tuple[int, Any]]],
    limit_s: float,
) -> tuple[bytes, ...]:
    """The response to an order, as JSON. The response to a refused order is `{"error": text}`.
    `limit_s`: the time for the order and its answer."""
    try:
        status, answer = await carry_out(await exchange.order(limit_s))
    except HttpError as refused:
        status, answer = refused.status, {"error": str(refused)}
    except (ConnectionError, TimeoutError):
        raise
    except Exception as error:  # noqa: BLE001 - logged, and others are served
        status, answer = 500, {"error": _failed(error)}
    return response(status, json.dumps(answer).encode() + b"\n", content_type=JSON)


#: The lines about requests that failed. Clients cause them, so their number is limited.
_failures = RepeatedLines(log, _LINES_MAX, time.monotonic)


def _failed(error: Exception) -> str:
    """Log an unexpected error, and return the answer. The answer lacks the error's text, which may
    have paths and names."""
    name = type(error).__name__
    _failures.say("exception", "an HTTP request failed unexpectedly", (name, str(error)), {})
    return f"the broker failed to answer ({name}); its log has the cause"


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket; if the host is empty, on all addresses. Raises OSError."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    elif socket.has_dualstack_ipv6():
        listener = socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
        )
    else:
        listener = socket.create_server(("", port), backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """The head of a request, up to its empty line. Raises Refused."""
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT_S):
            return await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise HttpError(408, "the request did not come in time") from None
    except asyncio.LimitOverrunError:
        raise HttpError(431, "the request is too large") from None
    except asyncio.IncompleteReadError:
        raise HttpError(400, "the request is incomplete") from None


async def _send(
    exchange: HttpExchange | None, parts: Sequence[bytes], writer: asyncio.StreamWriter
) -> None:
    """Send the answer. Raises ConnectionError."""
    is_head = exchange is not None and exchange.request.method == "HEAD"
    try:
        # Written part by part, because the metrics of many partitions have megabytes.
        for part in parts[:1] if is_head else parts:
            _check_open(writer)
            writer.write(part)
            await writer.drain()
            # `drain` returns at once while the peer's buffers have room, which may be megabytes,
            # and all who have waited for the same metrics are answered in one turn.
            await asyncio.sleep(0)
    except ConnectionError:
        if exchange is not None and exchange.on_unsent is not None:
            await exchange.on_unsent()
        raise


def _check_open(writer: asyncio.StreamWriter) -> None:
    """Raise ConnectionError for a closed connection; uvloop's write raises RuntimeError."""
    if writer.transport.is_closing():
        raise ConnectionResetError("the connection is closed")


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read the remaining bytes of the peer, because closing a socket with unread bytes resets the
    connection."""
    _check_open(writer)
    if writer.can_write_eof():
        writer.write_eof()
    else:
        # TLS closes both directions together.
        await writer.drain()
        return
    async with asyncio.timeout(_LINGER_S):
        for _ in range(_LINGER_READS_MAX):
            if not await reader.read(HEAD_BYTES_MAX):
                break
