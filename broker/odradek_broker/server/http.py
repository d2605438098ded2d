"""The HTTP endpoint for monitoring: /metrics, /healthz and /readyz, and in a broker under test also
/faults and /clusters.

HTTP/1.1, one request per connection, with TLS and a token if they are configured (N-35). The server
has only the needed parts of HTTP, and limits the size, time and number of requests.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.node import Node
from odradek_broker.server.host import Acceptor, Handshakes
from odradek_broker.server.http_messages import (
    HEAD_BYTES_MAX,
    JSON,
    TEXT,
    Order,
    Refused,
    check_head,
    check_order,
    response,
    target_of,
)

if TYPE_CHECKING:
    from odradek_broker.metrics.exposition import Exposition
    from odradek_broker.server.fault_control import FaultControl
    from odradek_broker.server.http_clusters import ClusterRelay

log = structlog.get_logger("odradek.http")

#: The maximum time for an order. It is long because an order for a virtual cluster may have to wait
#: for the start of the process that makes clusters.
_ORDER_TIMEOUT_S = 100.0
_REQUEST_TIMEOUT_S = 5.0
_LINGER_S = 1.0
_LINGER_READS_MAX = 64
_CONNECTIONS_MAX = 64
#: The time after which a scrape lets other work of the event loop run.
_SLICE_US = 1_000
#: The paths that orchestrators request. They need no token.
_PROBES = (b"/healthz", b"/readyz")
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class HttpServer:
    """Serves `metrics` and the health of `node`. `start` and `stop` are called once each.

    `faults`: the object that takes orders for faults, in a broker under test. `token`: the token
    that metrics and the details of readiness require; empty if none is required. `tls`: the TLS
    settings of the connections.
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
        #: The metrics, while they are being made.
        self._scrape: asyncio.Future[list[bytes]] | None = None
        self._exposition: Exposition | None = None
        #: The relay to the host process of clusters; None until the first order for a cluster.
        self._clusters: ClusterRelay | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the bound address. Raises OSError."""
        listener = _listening(host, port)
        self._acceptor = Acceptor(listener, self._protocol, self._tls)
        bound = listener.getsockname()
        log.info("serving metrics", host=bound[0], port=bound[1], tls=self._tls is not None)
        return bound[0], bound[1]

    async def stop(self) -> None:
        """Close all connections immediately."""
        if self._acceptor is None:
            return
        self._acceptor.close()
        if self._scrape is not None:
            self._scrape.cancel()
        for writer in list(self._open.values()):
            writer.transport.abort()
        await asyncio.gather(*self._open, return_exceptions=True)
        if self._clusters is not None:
            await self._clusters.close()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, self._connection)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(2 * _REQUEST_TIMEOUT_S) as limit:
                    # Written part by part, because the metrics of many partitions have megabytes.
                    for part in await self._answer(reader, writer, limit):
                        writer.write(part)
                        await writer.drain()
                    await linger(reader, writer)
        finally:
            del self._open[task]
            writer.close()

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limit: asyncio.Timeout,
    ) -> list[bytes]:
        if len(self._open) > _CONNECTIONS_MAX:
            return response(503, b"too many connections\n")
        try:
            head = await read_head(reader)
        except Refused as refused:
            return response(refused.status, f"{refused}\n".encode())
        method, target = target_of(head)
        carry_out = self._taker_of(target)
        if carry_out is not None:
            limit.reschedule(asyncio.get_running_loop().time() + _ORDER_TIMEOUT_S)
            return await answer_order(head, reader, writer, carry_out)
        if method not in (b"GET", b"HEAD"):
            return response(405, b"only GET and HEAD\n", extra="Allow: GET, HEAD\r\n")
        path = target.split(b"?", 1)[0]
        known = self._is_known(head)
        if not known and path not in _PROBES:
            return response(
                401,
                b"the request needs the broker's http.token: Authorization: Bearer TOKEN\n",
                extra="WWW-Authenticate: Bearer\r\n",
            )
        try:
            status, body, content_type = await self._resource(path, told_all=known)
        except Exception:
            log.exception("an HTTP request failed unexpectedly", target=target.decode("latin-1"))
            return response(500, b"the broker failed to answer; see its log\n")
        return response(status, *body, content_type=content_type, head_only=method == b"HEAD")

    def _taker_of(self, target: bytes) -> Callable[[Order], Awaitable[tuple[int, Any]]] | None:
        """The function that carries out orders to this target; None for any other target, and in a
        broker that is not under test."""
        if self._faults is None:
            return None
        if target.startswith(b"/faults"):
            return self._faults.carry_out
        if target.startswith(b"/clusters"):
            if self._clusters is None:
                from odradek_broker.config.virtual_cluster import inherited
                from odradek_broker.server.http_clusters import ClusterRelay

                self._clusters = ClusterRelay(inherited(self._node.metadata.config))
            return self._clusters.carry_out
        return None

    def _is_known(self, head: bytes) -> bool:
        """True if the request has the token, or if no token is required."""
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
            return 200, [b"ok\n"], TEXT
        if path == b"/readyz":
            return self._readiness(told_all=told_all)
        return 404, [b"there are /metrics, /healthz and /readyz\n"], TEXT

    async def _scraped(self) -> list[bytes]:
        """The metrics. Requests that arrive while metrics are being made all get these metrics."""
        if self._scrape is None:
            self._scrape = asyncio.ensure_future(self._make_metrics())
            self._scrape.add_done_callback(self._scrape_ended)
        return await asyncio.shield(self._scrape)

    async def _make_metrics(self) -> list[bytes]:
        """All metrics, made in slices, with pauses for other work between them. Samples of
        different slices are from different moments."""
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
                # The pause is as long as a slice, so that a scrape takes at most half of the loop's
                # time.
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
        """The readiness: the broker is ready if no partition is offline and all disks can be read
        and written. `told_all`: true if the answer has all details, including the names of
        partitions."""
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
        return (200 if content["ready"] else 503), [body], JSON


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket; if the host is empty, on all addresses. Raises OSError."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    elif socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listener = socket.create_server(("", port))
    listener.setblocking(False)
    return listener


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """The head of a request, up to its empty line. Raises Refused."""
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise Refused(408, "the request did not come in time") from None
    except asyncio.LimitOverrunError:
        raise Refused(431, "the request is too large") from None
    except asyncio.IncompleteReadError:
        raise Refused(400, "the request is incomplete") from None
    check_head(head)
    return head


async def read_order(head: bytes, reader: asyncio.StreamReader, peer: str) -> Order:
    """Read the body of an order after its head. `peer`: the address of the sender. Raises
    Refused."""
    method, path, body_bytes = check_order(head, peer)
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT_S):
            body = await reader.readexactly(body_bytes)
    except asyncio.IncompleteReadError:
        raise Refused(400, "the request is incomplete") from None
    except TimeoutError:
        raise Refused(408, "the request did not come in time") from None
    try:
        return Order(method, path, json.loads(body) if body else None)
    except (ValueError, RecursionError) as problem:
        raise Refused(400, f"the order is no JSON: {problem}") from problem


async def answer_order(
    head: bytes,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    carry_out: Callable[[Order], Awaitable[tuple[int, Any]]],
) -> list[bytes]:
    """The response to an order, as JSON. The response to a refused order is `{"error": text}`."""
    peer = writer.get_extra_info("peername")
    try:
        status, answer = await carry_out(await read_order(head, reader, peer[0] if peer else ""))
    except Refused as refused:
        status, answer = refused.status, {"error": str(refused)}
    except (ConnectionError, TimeoutError):
        raise
    except Exception as error:
        log.exception("an HTTP request with an order failed unexpectedly")
        status, answer = 500, {"error": f"the order failed: {type(error).__name__}: {error}"}
    return response(status, json.dumps(answer).encode() + b"\n", content_type=JSON)


async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read the remaining bytes of the peer, because closing a socket with unread bytes resets the
    connection."""
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
