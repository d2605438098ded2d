"""The HTTP endpoint for monitoring: /metrics, /healthz and /readyz, and in a broker under test also
/faults and /clusters.

HTTP/1.1, one request per connection, with TLS and a token if they are configured (N-35), for the
endpoint's own names only (N-60).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.node import Node
from odradek_broker.server.host import Handshakes
from odradek_broker.server.http_connections import HttpConnections, HttpExchange, answer_order
from odradek_broker.server.http_messages import (
    JSON,
    TEXT,
    HttpError,
    HttpRequest,
    check_host,
    response,
)
from odradek_protocol.http_hosts import OwnHosts

if TYPE_CHECKING:
    from odradek_broker.config.broker import BrokerConfig
    from odradek_broker.metrics.exposition import Exposition
    from odradek_broker.server.under_test import TakesOrders, UnderTest

log = structlog.get_logger("odradek.http")

#: The maximum time for an order. It is long because an order for a virtual cluster may have to wait
#: for the start of the process that makes clusters.
_ORDER_TIMEOUT_S = 100.0
#: The limit of requests in progress, and what one address may have of them, besides probes.
_REQUESTS_MAX = 80
_REQUESTS_PER_ADDRESS_MAX = 64
#: The time after which a scrape lets other work of the event loop run.
_SLICE_US = 1_000
#: The most partitions that `/readyz` looks at in one turn of the loop.
_LOOKED_AT_MAX = 1_000
#: The paths that orchestrators request. They need no token.
_PROBES = ("/healthz", "/readyz")
_OTHER_HOST = (
    "ask for the broker's address, or, if {name} is a name of the broker, add it to the setting"
    " http.allowed.hosts"
)
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def names_of(config: BrokerConfig, advertised: Mapping[str, tuple[str, int]]) -> list[str]:
    """The host names by which the endpoint may be asked: those that its operator has chosen.
    `advertised`: the addresses for clients."""
    hosts = [host for host, _ in advertised.values()]
    listen = [] if config.http_address is None else [config.http_address[0]]
    return [socket.gethostname(), *listen, *hosts, *config.http_allowed_hosts]


class HttpServer:
    """Serves `metrics` and the health of `node`. `start` and `stop` are called once each.

    `under_test`: takes orders, in a broker under test. `token`: the token
    that metrics and the details of readiness require; empty if none is required. `tls`: the TLS
    settings of the connections. `names`: the host names by which the endpoint may be asked.
    """

    def __init__(
        self,
        node: Node,
        metrics: BrokerMetrics,
        under_test: UnderTest | None = None,
        *,
        token: str = "",
        tls: Handshakes | None = None,
        names: Iterable[str] = (),
    ) -> None:
        self._node = node
        self._metrics = metrics
        self._under_test = under_test
        self._token = token.encode()
        self._tls = tls
        self._own_hosts = OwnHosts(names)
        self.connections = HttpConnections(
            self._check,
            self._answer,
            probes=_PROBES,
            most=_REQUESTS_MAX,
            most_per_address=_REQUESTS_PER_ADDRESS_MAX,
        )
        #: The metrics, while they are being made.
        self._scrape: asyncio.Future[list[bytes]] | None = None
        self._exposition: Exposition | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the bound address. Raises OSError."""
        bound = self.connections.listen(host, port, self._tls)
        log.info("serving metrics", host=bound[0], port=bound[1], tls=self._tls is not None)
        return bound

    async def stop(self) -> None:
        """Close all connections immediately."""
        if self._scrape is not None:
            self._scrape.cancel()
        await self.connections.close()

    def _check(self, request: HttpRequest) -> None:
        # No page of another site has the token.
        if not (self._token and self._is_known(request)):
            check_host(request, self._own_hosts, _OTHER_HOST)

    async def _answer(self, exchange: HttpExchange) -> Sequence[bytes]:
        request = exchange.request
        carry_out = self._taker_of(request.path)
        if carry_out is not None:
            return await answer_order(exchange, carry_out, _ORDER_TIMEOUT_S)
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, "only GET and HEAD", "Allow: GET, HEAD\r\n")
        known = self._is_known(request)
        if not known and request.path not in _PROBES:
            raise HttpError(
                401,
                "the request needs the broker's http.token: Authorization: Bearer TOKEN",
                "WWW-Authenticate: Bearer\r\n",
            )
        status, body, content_type = await self._resource(request.path, told_all=known)
        return response(status, *body, content_type=content_type)

    def _taker_of(self, path: str) -> TakesOrders | None:
        return None if self._under_test is None else self._under_test.taker_of(path)

    def _is_known(self, request: HttpRequest) -> bool:
        """True if the request has the token, or if no token is required."""
        if not self._token:
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(token.strip().encode("latin-1"), self._token)
        return same and scheme.lower() == "bearer"

    async def _resource(self, path: str, *, told_all: bool) -> tuple[int, list[bytes], str]:
        if path == "/metrics":
            return 200, await self._scraped(), _METRICS
        if path == "/healthz":
            # The answer itself shows that the loop runs.
            return 200, [b"ok\n"], TEXT
        if path == "/readyz":
            return await self._readiness(told_all=told_all)
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

    async def _readiness(self, *, told_all: bool) -> tuple[int, list[bytes], str]:
        """The readiness: the broker is ready if no partition is offline and all disks can be read
        and written. `told_all`: true if the answer has all details, including the names of
        partitions."""
        offline: list[str] = []
        for number, (topic, index, partition) in enumerate(self._node.replicas.partitions(), 1):
            if partition.log.offline:
                offline.append(f"{topic}-{index}")
            if number % _LOOKED_AT_MAX == 0:
                await asyncio.sleep(0)
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
