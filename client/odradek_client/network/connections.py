"""The connections to the brokers of a cluster: opened when needed, and opened again with a backoff.

There is one connection for each broker and channel, because a request that the broker answers late
must not delay requests of other channels (N-04).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from odradek_client.backoff import Backoff
from odradek_client.config.common import ClientConfig
from odradek_client.config.definition import split_address
from odradek_client.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionLost,
    OdradekError,
    RequestTimedOut,
    TaskCancelled,
    TlsFailed,
)
from odradek_client.network.broker_connection import (
    BrokerConnection,
    Channel,
    ConnectionSettings,
    ConnectionState,
)
from odradek_client.network.cluster import BrokerAddress, ClusterView
from odradek_client.network.throttle_times import ThrottleTimes
from odradek_client.tasks import begin, failure_of
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message
from odradek_protocol.tls.contexts import client_context
from odradek_protocol.tls.settings import TlsError
from odradek_protocol.visible import visible

if TYPE_CHECKING:
    from odradek_client.sasl.login import Login
    from odradek_client.sasl.settings import SaslSettings

#: The limit of brokers to which connections are attempted in parallel.
_REACH_MAX = 8
#: The interval between two checks of a connection that is throttled or full.
_BUSY_CHECK_S = 0.02
#: The order in which nodes are used for metadata: connected nodes, nodes not tried yet, nodes with
#: waiting requests, bootstrap addresses, and nodes that are late with an answer about metadata.
_READY, _NEW, _BUSY, _BOOTSTRAP, _SILENT = range(5)

log = logging.getLogger("odradek.client")


def unreachable(reasons: Mapping[str, bool]) -> ConnectionLost:
    """The error if no broker was reached. `reasons`: each cause, with true if it is a problem of
    TLS."""
    text = "; ".join(reasons) or "there is no broker to connect to"
    return TlsFailed(text) if reasons and all(reasons.values()) else ConnectionLost(text)


def _login(settings: SaslSettings, random: Random) -> Login:
    # The module imports an HTTP client for token endpoints. Clients without SASL start faster
    # without that import.
    from odradek_client.sasl.login import Login

    return Login(settings, random)


class RequestSender(Protocol):
    """The methods of the network client that the client's other parts use."""

    cluster: ClusterView

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop; Closed if there is none."""
        ...

    async def send(
        self,
        node_id: int,
        request: Message,
        *,
        channel: Channel = "main",
        max_version: int | None = None,
    ) -> Any:
        """The response of a broker."""
        ...

    async def version_for(self, node_id: int, key: ApiKey, *, channel: Channel = "main") -> int:
        """The version that `send` would choose."""
        ...

    def ready(self, node_id: int, channel: Channel) -> BrokerConnection | None:
        """The connection to a node if it is ready, otherwise None."""
        ...


class NodeConnection:
    """The connection to one broker over one channel, and its last failure."""

    __slots__ = (
        "begun_at",
        "connection",
        "failure",
        "failures",
        "refusal",
        "requested",
        "retry_at",
    )

    def __init__(self) -> None:
        self.connection: BrokerConnection | None = None
        self.failures = 0
        self.failure = ""
        self.retry_at = 0.0
        #: The time at which the last attempt began.
        self.begun_at = 0.0
        #: True while an attempt that `connect_soon` began has not succeeded.
        self.requested = False
        #: The error of the last attempt, if `connect_soon` began the attempt and the authentication
        #: failed.
        self.refusal: AuthenticationFailed | None = None


class Connections:
    """All connections of one client.

    Node ids below 0 are the addresses of `bootstrap_servers`. These addresses are used as long as
    no brokers are known. `loop()` returns the running loop, or raises Closed. `request_metadata()`
    is called after events that suggest that the metadata is old.
    """

    def __init__(
        self,
        config: ClientConfig,
        cluster: ClusterView,
        *,
        random: Random,
        loop: Callable[[], asyncio.AbstractEventLoop],
        request_metadata: Callable[[], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self.random = random
        self._loop = loop
        self._request_metadata = request_metadata
        self._bootstrap: dict[int, BrokerAddress] = {
            -1 - index: BrokerAddress(-1 - index, *split_address(address))
            for index, address in enumerate(config.bootstrap_servers)
        }
        self._reconnect = Backoff(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, random
        )
        #: The throttle times of this client.
        self.throttle_times = ThrottleTimes()
        self.nodes: dict[tuple[int, Channel], NodeConnection] = {}
        #: The finalized level of each feature, and the epoch of these levels, from the newest
        #: connection (C-70).
        self.features: dict[str, int] = {}
        self._features_epoch = -1
        #: The attempts to connect that are in progress (including those of closed connections), and
        #: other tasks of connections.
        self._attempts: dict[asyncio.Task[None], None] = {}
        self._closed = False
        self.reached = False
        try:
            tls = None if config.tls is None else client_context(config.tls)
        except TlsError as error:
            raise ConfigError(str(error)) from None
        self._login = None if config.sasl is None else _login(config.sasl, random)
        self._settings = ConnectionSettings(
            client_id=config.client_id,
            max_in_flight=config.max_in_flight_requests_per_connection,
            receive_max_bytes=config.receive_max_bytes,
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            tls=tls,
            login=self._login,
        )

    def close(self) -> None:
        """Close every connection; unanswered requests fail."""
        self._closed = True
        for attempt in self._attempts:
            attempt.cancel()
        for node in list(self.nodes.values()):
            if node.connection is not None:
                node.connection.close()
        self.nodes.clear()

    async def wait_closed(self) -> None:
        """Wait until no attempt to connect is in progress."""
        await asyncio.gather(*self._attempts, return_exceptions=True)

    # --- nodes ------------------------------------------------------------------------------------

    def address(self, node_id: int) -> BrokerAddress | None:
        """The address of a node; None if it is not known."""
        return self._bootstrap.get(node_id) if node_id < 0 else self._cluster.brokers.get(node_id)

    def _name(self, node_id: int) -> str:
        address = self.address(node_id)
        return f"node {node_id}" if address is None else f"{address.host}:{address.port}"

    def candidates(self) -> list[int]:
        """The nodes to try, the best node first. Each address occurs once."""
        by_address: dict[tuple[str, int], list[int]] = {}
        for node_id, at in (*self._cluster.brokers.items(), *self._bootstrap.items()):
            by_address.setdefault((at.host, at.port), []).append(node_id)
        chosen = []
        for names in by_address.values():
            ranked = sorted((self._rank(node_id), node_id) for node_id in names)
            # A broker and a bootstrap address may be two nodes with one address. If one of these
            # nodes is busy or late with an answer, the address is tried later.
            late = [each for each in ranked if each[0][0] in (_BUSY, _SILENT)]
            chosen.append((late or ranked)[0])
        return [node_id for _, node_id in sorted(chosen)]

    def _rank(self, node_id: int) -> tuple[int, bool, float, float]:
        nodes = [self.nodes.get((node_id, channel)) for channel in ("main", "metadata")]
        main, extra = (None if node is None else node.connection for node in nodes)
        jitter = self.random.random()
        if extra is not None and extra.is_late:
            return _SILENT, False, 0.0, jitter
        if main is not None and main.is_late:
            silent = main.state is ConnectionState.OPENING
            return _SILENT if silent else _BUSY, False, 0.0, jitter
        if main is not None and main.state is ConnectionState.READY:
            # The node id from the metadata is preferred to the bootstrap address of the same
            # broker.
            return _READY, node_id < 0, main.in_flight, jitter
        retry_at = nodes[0].retry_at if nodes[0] is not None else 0.0
        return _BOOTSTRAP if node_id < 0 else _NEW, False, retry_at, jitter

    async def least_loaded_node(self, timeout_ms: float | None = None) -> int:
        """The connected broker with the fewest unanswered requests. If no broker is connected, the
        first broker to which a connection can be made.

        Each broker is tried once, then each bootstrap address. Raises ConnectionLost, with the
        reason for each broker, if none is reached.
        """
        ready = [
            (node.connection.in_flight, node_id)
            for (node_id, channel), node in self.nodes.items()
            if channel == "main"
            and node.connection is not None
            and node.connection.state is ConnectionState.READY
            and not node.connection.is_late
            and self.address(node_id) is not None
        ]
        if ready:
            # Node ids from the metadata are preferred to bootstrap addresses.
            return min(ready, key=lambda pair: (pair[1] < 0, *pair))[1]
        limit_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        failures: dict[str, bool] = {}
        for node_id in self.candidates():
            try:
                await self.connected(node_id, "main", limit_ms)
            except (ConnectionLost, RequestTimedOut) as error:
                failures[str(error)] = isinstance(error, TlsFailed)
            else:
                return node_id
        raise unreachable(failures)

    async def reach_a_broker(self, timeout_ms: float) -> None:
        """Check that a broker is reachable at the address that it advertises.

        The address of `bootstrap_servers` may work although the advertised address does not, for
        example if the broker runs in a container or is reached through a tunnel. Raises
        ConnectionLost, with the reason for each broker, if none is reachable.
        """
        nodes = list(self._cluster.brokers)
        self.random.shuffle(nodes)
        tries = [
            asyncio.ensure_future(self.connected(node_id, "main", timeout_ms))
            for node_id in nodes[:_REACH_MAX]
        ]
        reasons: dict[str, bool] = {}
        left = set(tries)
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    failure = failure_of(task, "an attempt to connect")
                    if failure is None:
                        return
                    if not isinstance(failure, ConnectionLost | RequestTimedOut | TaskCancelled):
                        raise failure
                    reasons[str(failure)] = isinstance(failure, TlsFailed)
        finally:
            for each in tries:
                each.cancel()
            await asyncio.gather(*tries, return_exceptions=True)
        if reasons:
            raise unreachable(reasons)

    # --- connections of nodes ---

    async def connected(
        self, node_id: int, channel: Channel, timeout_ms: float
    ) -> BrokerConnection:
        """A ready connection, after the backoff if needed. Raises ConnectionLost, RequestTimedOut,
        AuthenticationFailed."""
        node = self._node(node_id, channel)
        called_at = self._loop().time()
        connection: BrokerConnection | None = None
        try:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                while connection is None:
                    connection = await self._ready_or_refused(node_id, channel, node, called_at)
        except TimeoutError:
            raise RequestTimedOut(
                f"no connection to {self._name(node_id)} within {timeout_ms:.0f} ms"
            ) from None
        except (ConnectionLost, AuthenticationFailed) as error:
            # Every waiter gets a new exception, because a traceback belongs to one raise.
            raise type(error)(str(error), code=error.code) from None
        return connection

    async def _ready_or_refused(
        self, node_id: int, channel: Channel, node: NodeConnection, called_at: float
    ) -> BrokerConnection | None:
        """The connection, once it is ready. None if the broker refused the authentication of an
        attempt that began before `called_at`."""
        while node.connection is None:
            wait = node.retry_at - self._loop().time()
            if wait <= 0:
                self._open(node_id, channel, node)
                break
            await asyncio.sleep(wait)
        connection, begun_at = node.connection, node.begun_at
        assert connection is not None
        try:
            await asyncio.shield(connection.ready)
        except AuthenticationFailed:
            if begun_at >= called_at:
                raise
            # The refused credentials were read before the call, and may have been replaced.
            return None
        return connection

    def connect_soon(
        self, node_id: int, on_ready: Callable[[], None], channel: Channel = "main"
    ) -> float | None:
        """Begin to connect. `on_ready` is called when a request can be sent, or when connecting has
        failed.

        Returns the seconds to wait if the backoff does not allow a connection yet: then no
        connection is begun, and `on_ready` is not called. After a failed authentication, calls
        raise AuthenticationFailed until the backoff has passed; at least one call raises (C-75).
        """
        node = self._node(node_id, channel)
        connection = node.connection
        if connection is None:
            wait = node.retry_at - self._loop().time()
            if node.refusal is not None:
                refusal = node.refusal
                if wait <= 0:
                    node.refusal = None
                raise AuthenticationFailed(str(refusal), code=refusal.code)
            if wait > 0:
                return wait
            connection = self._open(node_id, channel, node)
            node.requested = True
        if not connection.ready.done():
            connection.ready.add_done_callback(lambda _: on_ready())
        elif not connection.is_ready:
            # The connection is throttled or full: the caller checks it again.
            return _BUSY_CHECK_S
        return None

    # --- opening connections ---

    def _node(self, node_id: int, channel: Channel) -> NodeConnection:
        node = self.nodes.get((node_id, channel))
        if node is None:
            node = self.nodes[(node_id, channel)] = NodeConnection()
        return node

    def _open(self, node_id: int, channel: Channel, node: NodeConnection) -> BrokerConnection:
        address = self.address(node_id)
        if address is None:
            self.nodes.pop((node_id, channel), None)
            self._request_metadata()
            raise ConnectionLost(f"node {node_id} is not in the cluster's metadata (any more)")
        connection = BrokerConnection(
            self._settings, self, self._loop(), (node_id, channel), address.host, address.port
        )
        node.connection = connection
        node.begun_at = self._loop().time()
        node.requested, node.refusal = False, None
        self.spawn(connection, self._opening(node, connection))
        return connection

    async def _opening(self, node: NodeConnection, connection: BrokerConnection) -> None:
        await connection.open()
        if node.connection is connection and connection.state is ConnectionState.READY:
            node.failures, node.requested = 0, False
        if connection.features_epoch >= max(self._features_epoch, 0):
            self.features, self._features_epoch = connection.features, connection.features_epoch

    # --- called by connections ---

    def spawn(self, connection: BrokerConnection, work: Coroutine[Any, Any, None]) -> None:
        """Run work for a connection in a task that `close` cancels and `wait_closed` awaits. If the
        work fails, the connection is closed."""

        def ended(failure: OdradekError | None) -> None:
            if failure is not None:
                connection.close(f"no connection to {connection.host}:{connection.port}: {failure}")

        what = f"the work of the connection to {connection.host}:{connection.port}"
        task = begin(self._loop(), work, what, ended, name="odradek-connection")
        self._attempts[task] = None
        task.add_done_callback(self._attempts.pop)

    def connection_late(self, connection: BrokerConnection) -> None:
        """Request metadata from other brokers, because they may know that this broker has left the
        cluster.
        """
        self._request_metadata()

    def connection_closed(self, connection: BrokerConnection, reason: str) -> None:
        """Note the failure. The number of failures determines the backoff, and `reason` is shown in
        errors."""
        node = self.nodes.get(connection.node)
        if node is None or node.connection is not connection or self._closed:
            return
        log.info("%s", visible(reason))
        node.connection = None
        node.failures += 1
        node.failure = reason
        node.refusal = connection.refusal if node.requested else None
        if connection.refusal is not None and self._login is not None:
            self._login.refused()
        node.retry_at = self._loop().time() + self._reconnect.delay_ms(node.failures) / 1000
        # The metadata that led to this broker may be wrong (N-16).
        self._request_metadata()

    # --- closing connections ---

    def follow_metadata(self) -> None:
        """Close the connections to brokers that have left the cluster or have a new address."""
        for key, node in list(self.nodes.items()):
            address = self.address(key[0])
            connection = node.connection
            if address is None:
                self._drop(key, node, "the broker has left the cluster")
            elif connection is not None and (connection.host, connection.port) != (
                address.host,
                address.port,
            ):
                connection.close("the broker has moved")

    def drop_all(self, reason: str) -> None:
        """Close every connection, and forget failures."""
        for key, node in list(self.nodes.items()):
            self._drop(key, node, reason)

    def close_idle(self) -> None:
        """Close connections that were not used for connections_max_idle_ms."""
        oldest = self._loop().time() - self._config.connections_max_idle_ms / 1000
        for key, node in list(self.nodes.items()):
            connection = node.connection
            if (
                connection is not None
                and connection.state is ConnectionState.READY
                and connection.in_flight == 0
                and connection.last_used <= oldest
            ):
                self._drop(key, node, "the connection was not used")

    def _drop(self, key: tuple[int, Channel], node: NodeConnection, reason: str) -> None:
        self.nodes.pop(key, None)
        if node.connection is not None:
            node.connection.close(reason)
