"""Orders for virtual clusters over HTTP.

GET /clusters lists the clusters, POST /clusters creates a cluster, and DELETE /clusters deletes all
clusters. GET and DELETE /clusters/ID describe and delete one cluster, and POST /clusters/ID/stop,
/kill, /start and /restart stop and start its broker.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from functools import partial
from typing import Any

from odradek_broker.server.http_connections import HttpConnections, HttpExchange, answer_order
from odradek_broker.server.http_messages import HttpError, HttpRequest, Order, check_host, number_of
from odradek_protocol.http_hosts import OwnHosts
from odradek_testkit.virtual_clusters.host import (
    ClusterHost,
    HostedCluster,
    NotPossible,
    StartFailed,
)
from odradek_testkit.virtual_clusters.settings import BadSettings, read_settings

PATH = "/clusters"
_ORDERS_MAX = 256
_ORDER_S = 90.0
_OWN_HOSTS = OwnHosts()
_CREATED = 201
_CHANGES = ("stop", "kill", "start", "restart")


class ClusterServer:
    """The server of orders for the clusters of `host`."""

    def __init__(self, host: ClusterHost) -> None:
        self._host = host
        self._connections = HttpConnections(
            self._check, self._answer, most=_ORDERS_MAX, most_per_address=_ORDERS_MAX
        )
        #: The orders in progress. An order is completed even if its connection is lost.
        self._orders: set[asyncio.Task[tuple[int, Any]]] = set()

    def start(self) -> tuple[str, int]:
        """Listen on a free port of this machine's own address; returns the address."""
        return self._connections.listen("127.0.0.1", 0)

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    @staticmethod
    def _check(request: HttpRequest) -> None:
        check_host(request, _OWN_HOSTS, "ask for 127.0.0.1")

    async def _answer(self, exchange: HttpExchange) -> Sequence[bytes]:
        made: list[int] = []

        async def delete() -> None:
            # The client has not received the number of its new cluster, and so could not delete it.
            for cluster in filter(None, map(self._host.find, made)):
                await self._host.delete(cluster)

        exchange.on_unsent = delete
        return await answer_order(exchange, partial(self._carry_out, made), _ORDER_S)

    async def _carry_out(self, made: list[int], order: Order) -> tuple[int, Any]:
        task = asyncio.ensure_future(carry_out(self._host, order))
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)
        status, answer = await asyncio.shield(task)
        if status == _CREATED:
            made.append(answer["id"])
        return status, answer


async def carry_out(host: ClusterHost, order: Order) -> tuple[int, Any]:
    """(status, answer as JSON) of an order. Raises Refused."""
    try:
        return await _carried_out(host, order)
    except BadSettings as problem:
        raise HttpError(400, str(problem)) from problem
    except NotPossible as problem:
        raise HttpError(409, str(problem)) from problem
    except StartFailed as problem:
        raise HttpError(500, str(problem)) from problem


async def _carried_out(host: ClusterHost, order: Order) -> tuple[int, Any]:
    path, _, change = order.path.rpartition("/")
    if change not in _CHANGES:
        path, change = order.path, ""
    number = number_of(path, PATH)
    allowed = (
        ("POST",)
        if change
        else ("GET", "DELETE")
        if number is not None
        else ("GET", "POST", "DELETE")
    )
    if order.method not in allowed or (change and number is None):
        changes = ", ".join(f"/{each}" for each in _CHANGES)
        raise HttpError(
            405,
            "GET, POST and DELETE of /clusters, GET and DELETE of /clusters/ID, POST of"
            f" /clusters/ID with {changes}",
        )
    if number is None:
        return await _all(host, order)
    cluster = host.find(number)
    if cluster is None:
        raise HttpError(404, f"there is no cluster {number}")
    if order.method == "DELETE":
        await host.delete(cluster)
        return 200, {}
    if change:
        await _change(host, cluster, change)
    return 200, cluster.described()


async def _all(host: ClusterHost, order: Order) -> tuple[int, Any]:
    if order.method == "POST":
        cluster = await host.create(read_settings(order.body))
        return _CREATED, cluster.described()
    if order.method == "DELETE":
        for cluster in host.all():
            await host.delete(cluster)
        return 200, {}
    return 200, {"clusters": [cluster.described() for cluster in host.all()]}


async def _change(host: ClusterHost, cluster: HostedCluster, change: str) -> None:
    if change == "kill":
        await host.stop(cluster, signal.SIGKILL)
    elif change in ("stop", "restart"):
        await host.stop(cluster, signal.SIGTERM)
    if change in ("start", "restart"):
        await host.start(cluster)
