"""The HTTP endpoint for monitoring: /metrics, /healthz, /readyz; of a broker under test /faults
too.

HTTP/1.1, one request per connection, with TLS and a token if they are configured (N-35). The server
is small rather than general; requests are limited in size, time and number.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.node import Node
from odradek_broker.server.host import Acceptor, Handshakes

if TYPE_CHECKING:
    from odradek_broker.metrics.exposition import Exposition
    from odradek_broker.server.fault_control import FaultControl

log = structlog.get_logger("odradek.http")

_REQUEST_BYTES_MAX = 8 * 1024
_REQUEST_TIMEOUT_S = 5.0
_CONNECTIONS_MAX = 64
#: The longest time for which a scrape keeps the loop at a time.
_SLICE_US = 2_000
_LINGER_S = 1.0
_LINGER_READS_MAX = 64
#: The paths of orchestrators, which have no token.
_PROBES = (b"/healthz", b"/readyz")
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HttpServer:
    """Serves `metrics` and the health of `node`. `start` and `stop` are called once each.

    `faults`: takes orders for faults, in a broker under test. `token`: needed for metrics and for
    the details of readiness; empty: not required. `tls`: the TLS settings of its connections.
    """

    def __init__(
        self,
        node: Node,
        metrics: BrokerMetrics,
        faults: FaultControl | None = None,
        *,
        token: str = "",
        tls: Handshakes | None = None,
    ) -> None:
        self._node = node
        self._metrics = metrics
        self._faults = faults
        self._token = token.encode()
        self._tls = tls
        self._acceptor: Acceptor | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        #: The metrics that are being made.
        self._scrape: asyncio.Future[list[bytes]] | None = None
        self._exposition: Exposition | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the bound address. Raises OSError."""
        listener = _listening(host, port)
        self._acceptor = Acceptor(listener, self._protocol, self._tls)
        bound = listener.getsockname()
        log.info("serving metrics", host=bound[0], port=bound[1], tls=self._tls is not None)
        return bound[0], bound[1]

    async def stop(self) -> None:
        """Close all connections at once."""
        if self._acceptor is None:
            return
        self._acceptor.close()
        if self._scrape is not None:
            self._scrape.cancel()
        for writer in list(self._open.values()):
            writer.transport.abort()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=_REQUEST_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, self._connection)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(2 * _REQUEST_TIMEOUT_S):
                    # Part by part: the metrics of many partitions have megabytes.
                    for part in await self._answer(reader, writer):
                        writer.write(part)
                        await writer.drain()
                    await _linger(reader, writer)
        finally:
            del self._open[task]
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> list[bytes]:
        if len(self._open) > _CONNECTIONS_MAX:
            return _response(503, b"too many connections\n")
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return _response(408, b"the request did not come in time\n")
        except asyncio.LimitOverrunError:
            return _response(431, b"the request is too large\n")
        except asyncio.IncompleteReadError:
            return _response(400, b"the request is incomplete\n")
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            return _response(400, b"this is no HTTP/1.1 request\n")
        method, target, _ = parts
        if self._faults is not None and target.startswith(b"/faults"):
            return await self._answer_order(self._faults, reader, writer, head)
        if method not in (b"GET", b"HEAD"):
            return _response(405, b"only GET and HEAD\n", extra="Allow: GET, HEAD\r\n")
        path = target.split(b"?", 1)[0]
        known = self._is_known(head)
        if not known and path not in _PROBES:
            return _response(
                401,
                b"the request needs the broker's http.token: Authorization: Bearer TOKEN\n",
                extra="WWW-Authenticate: Bearer\r\n",
            )
        try:
            status, body, content_type = await self._resource(path, told_all=known)
        except Exception:
            log.exception("an HTTP request failed unexpectedly", target=target.decode("latin-1"))
            return _response(500, b"the broker failed to answer; see its log\n")
        return _response(status, *body, content_type=content_type, head_only=method == b"HEAD")

    async def _answer_order(
        self,
        faults: FaultControl,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        head: bytes,
    ) -> list[bytes]:
        from odradek_broker.server import http_faults

        peer = writer.get_extra_info("peername")
        try:
            request = http_faults.parse_request(head, peer[0] if peer else "")
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                body = await reader.readexactly(request.body_bytes)
            status, answer = http_faults.answer(faults, request, body)
        except http_faults.Refused as refused:
            status, answer = refused.status, {"error": str(refused)}
        except asyncio.IncompleteReadError:
            return _response(400, b"the request is incomplete\n")
        except TimeoutError:
            return _response(408, b"the request did not come in time\n")
        return _response(status, json.dumps(answer).encode() + b"\n", content_type=_JSON)

    def _is_known(self, head: bytes) -> bool:
        """True if the request has the token, or none is required."""
        if not self._token:
            return True
        given = b""
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"authorization":
                given = value.strip()
        scheme, _, token = given.partition(b" ")
        same = hmac.compare_digest(token.strip(), self._token)
        return same and scheme.lower() == b"bearer"

    async def _resource(self, path: bytes, *, told_all: bool) -> tuple[int, list[bytes], str]:
        if path == b"/metrics":
            return 200, await self._scraped(), _METRICS
        if path == b"/healthz":
            # The answer itself shows that the loop runs.
            return 200, [b"ok\n"], _TEXT
        if path == b"/readyz":
            return self._readiness(told_all=told_all)
        return 404, [b"there are /metrics, /healthz and /readyz\n"], _TEXT

    async def _scraped(self) -> list[bytes]:
        """The metrics. Those who ask while they are being made get the same ones."""
        if self._scrape is None:
            self._scrape = asyncio.ensure_future(self._make_metrics())
            self._scrape.add_done_callback(self._scrape_ended)
        return await asyncio.shield(self._scrape)

    async def _make_metrics(self) -> list[bytes]:
        """All metrics, made in slices between which other work goes on. Samples of different slices
        are from different moments."""
        # Imported here, because most brokers are never scraped, and all must start fast.
        from odradek_broker.metrics.exposition import Exposition
        from odradek_broker.metrics.families import Family

        if self._exposition is None:
            self._exposition = Exposition(self._metrics, self._node)
        now_us = self._metrics.now_us
        found = []
        until_us = now_us() + _SLICE_US

        async def pause() -> None:
            nonlocal until_us
            if now_us() >= until_us:
                # As long as a slice, so that a scrape takes at most half of the loop's time.
                await asyncio.sleep(_SLICE_US / 1_000_000)
                until_us = now_us() + _SLICE_US

        for each in self._exposition.families():
            if isinstance(each, Family):
                for part in each.parts():
                    found.append(part)
                    await pause()
            elif each is not None:
                await asyncio.to_thread(each)
                until_us = now_us() + _SLICE_US
            elif now_us() >= until_us:
                await pause()
        return found

    def _scrape_ended(self, _: asyncio.Future[list[bytes]]) -> None:
        self._scrape = None

    def _readiness(self, *, told_all: bool) -> tuple[int, list[bytes], str]:
        """The readiness: no offline partitions, most of which need a restart, and disks that can be
        read and written. `told_all`: with all details, including the names of partitions."""
        offline = [
            f"{topic}-{index}"
            for topic, index, partition in self._node.replicas.partitions()
            if partition.log.offline
        ]
        directories = self._node.logs.directories
        failed = {each.path: each.failure for each in directories if each.failure}
        disks = {each.path: each.disk for each in directories}
        problems = {path: disk.problem for path, disk in disks.items() if disk.problem}
        problem = "; ".join(
            f"{path}: {problem}" if len(disks) > 1 else problem
            for path, problem in problems.items()
        )
        unreadable = sorted(name for disk in disks.values() for name in disk.unreadable)
        content: dict[str, object] = {
            "ready": not (offline or unreadable or problem or failed),
        }
        if told_all:
            content |= {
                "offline_partitions": offline,
                "unreadable_partitions": unreadable,
                "disk_problem": problem,
                "failed_directories": failed,
            }
        body = json.dumps(content).encode() + b"\n"
        return (200 if content["ready"] else 503), [body], _JSON


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket; without a host for all addresses. Raises OSError."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    elif socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listener = socket.create_server(("", port))
    listener.setblocking(False)
    return listener


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what the peer still sends: closing with unread bytes would reset the connection."""
    if writer.can_write_eof():
        writer.write_eof()
    else:
        # TLS ends both directions at once.
        await writer.drain()
        return
    async with asyncio.timeout(_LINGER_S):
        for _ in range(_LINGER_READS_MAX):
            if not await reader.read(_REQUEST_BYTES_MAX):
                break


def _response(
    status: int,
    *body: bytes,
    content_type: str = _TEXT,
    head_only: bool = False,
    extra: str = "",
) -> list[bytes]:
    """The parts of a response."""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {sum(map(len, body))}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    ).encode()
    return [head] if head_only else [head, *body]
