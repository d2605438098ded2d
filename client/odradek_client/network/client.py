"""The network client: requests to the brokers of a cluster, over connections that are opened when
needed.

Producer, consumer and admin client use this module. `Connections` finds the brokers from
`bootstrap_servers` and keeps one connection per broker and channel, `MetadataUpdater` keeps the
cluster's metadata fresh, `Coordinators` caches the coordinators.

The callers check the error codes in responses; only `find_coordinator` checks the error code
itself.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Iterable
from typing import Any

from odradek_client.config.common import ClientConfig
from odradek_client.errors import (
    Closed,
    ConnectionLost,
    MetadataTimeout,
    NotStarted,
)
from odradek_client.network.broker_connection import BrokerConnection, Channel, ConnectionState
from odradek_client.network.cluster import ClusterView
from odradek_client.network.connections import Connections
from odradek_client.network.coordinators import Coordinators
from odradek_client.network.metadata import Listener, MetadataUpdater
from odradek_client.tasks import LastingTask, require_own, require_running
from odradek_protocol.constants import GROUP_COORDINATOR
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message
from odradek_protocol.primitives import uuid_text


class NetworkClient:
    """The connections, metadata and coordinators of one client. Call `start` first, `close` at the
    end.

    `random` makes jitter and the choice between equal brokers reproducible.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        random: random_module.Random | None = None,
    ) -> None:
        self.config = config
        self.cluster = ClusterView(config.metadata_max_age_ms)
        self._random = random or random_module.Random()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._lasting: list[LastingTask] = []
        self.connections = Connections(
            config,
            self.cluster,
            random=self._random,
            loop=lambda: self.loop,
            request_metadata=self.request_metadata_update,
        )
        self._coordinators = Coordinators(self, self.connections)
        self.metadata = MetadataUpdater(
            config, self, self.connections, self._random, self._coordinators.forget_all
        )
        # Looked up once, because they are used for every request.
        self._nodes = self.connections.nodes
        self._connected = self.connections.connected

    # --- life -------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connect to the cluster and get its metadata.

        MetadataTimeout, with the last failure as its cause, if no metadata arrives within
        `timeout_ms` (the setting `start_timeout_ms` if None).
        """
        if self._closed:
            raise Closed("this client was closed; make a new one")
        if self._loop is not None:
            return
        limit_ms = self.config.start_timeout_ms if timeout_ms is None else timeout_ms
        self._loop = asyncio.get_running_loop()
        self.metadata.start()
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self.refresh_metadata()
        except TimeoutError:
            servers = ", ".join(self.config.bootstrap_servers)
            failure = self.metadata.last_failure
            await self.close()
            raise MetadataTimeout(
                f"no broker of {servers} could be reached within {limit_ms:.0f} ms"
                f" ({failure or 'it does not answer'}); check bootstrap_servers, and that a broker "
                "runs there"
            ) from failure
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close every connection; unanswered requests fail. May be called again."""
        closed_loop = self.require_own_loop()
        self._closed = True
        if closed_loop:
            return  # tasks and connections have ended with it
        for task in self._lasting:
            task.stop()
        self.metadata.close()
        self.connections.close()
        await self.metadata.wait_closed()
        await self.connections.wait_closed()

    def stop_at_close(self, task: LastingTask) -> LastingTask:
        """Stop a task at the latest when this client is closed: whoever is to stop it before may
        have been cancelled."""
        self._lasting = [each for each in self._lasting if not each.is_stopped]
        self._lasting.append(task)
        return task

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of `start`. Raises NotStarted before that; Closed after `close`, or if the loop
        is closed."""
        if self._loop is None:
            raise NotStarted('this client was not started; use "async with" or call start()')
        if self._closed:
            raise Closed("this client was closed; make a new one")
        require_running(self._loop)
        return self._loop

    def require_own_loop(self) -> bool:
        """True if the event loop is closed, so that nothing can be sent or awaited. Raises
        IllegalState under another loop than that of `start`."""
        if self._loop is None:
            return False
        if self._loop.is_closed():
            return True
        require_own(self._loop)
        return False

    def require_loop(self) -> None:
        """Raise Closed if the event loop of a started client is closed."""
        if self._loop is not None:
            require_running(self._loop)

    def now_ms(self) -> float:
        """The time of the loop's monotonic clock, in milliseconds."""
        return self.loop.time() * 1000

    def throttle_metrics(self, prefix: str) -> dict[str, float]:
        now_ms = 0.0 if self._loop is None else self._loop.time() * 1000
        return self.connections.throttle_times.metrics(prefix, now_ms)

    async def pause(self, seconds: float) -> None:
        """Wait before a retry."""
        await asyncio.sleep(seconds)

    def new_uuid(self) -> str:
        """A random UUID in Kafka's form: 22 characters, the first of which is no dash."""
        while True:
            text = uuid_text(self._random.randbytes(16))
            if not text.startswith("-"):
                return text

    # --- requests ---------------------------------------------------------------------------------

    async def send(
        self,
        node_id: int,
        request: Message,
        *,
        timeout_ms: float | None = None,
        channel: Channel = "main",
        max_version: int | None = None,
    ) -> Any:
        """The response of a broker, to which the client connects if needed.

        The version is the highest that both sides have, at most `max_version`. `timeout_ms`
        includes the time to connect; `request_timeout_ms` if None. Raises ConnectionLost,
        RequestTimedOut (and closes the connection), UnsupportedByBroker, BadAnswer.
        """
        limit_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        started = self.now_ms()
        connection = self.ready(node_id, channel)
        if connection is None:
            connection = await self._connected(node_id, channel, limit_ms)
            limit_ms -= self.now_ms() - started
        return await connection.submit(request, limit_ms, max_version=max_version)

    def submit(
        self, node_id: int, request: Message, *, version: int | None = None
    ) -> asyncio.Future[Any]:
        """Send without a coroutine, to a node that `is_ready`; requests keep their order."""
        node = self._nodes.get((node_id, "main"))
        if node is None or node.connection is None:
            failed: asyncio.Future[Any] = self.loop.create_future()
            failed.set_exception(ConnectionLost(f"there is no connection to node {node_id}"))
            return failed
        return node.connection.submit(request, self.config.request_timeout_ms, version=version)

    def ready(self, node_id: int, channel: Channel) -> BrokerConnection | None:
        """The connection to a node if it is ready, otherwise None."""
        node = self._nodes.get((node_id, channel))
        if (
            node is None
            or node.connection is None
            or node.connection.state is not ConnectionState.READY
        ):
            return None
        return node.connection

    def is_ready(self, node_id: int, channel: Channel = "main") -> bool:
        """True if a request would be written immediately if it were submitted now."""
        connection = self.ready(node_id, channel)
        return connection is not None and connection.is_ready

    async def version_for(
        self,
        node_id: int,
        key: ApiKey,
        *,
        channel: Channel = "main",
        max_version: int | None = None,
    ) -> int:
        """The version that `send` would choose; connects if needed."""
        connection = self.ready(node_id, channel)
        if connection is None:
            connection = await self._connected(node_id, channel, self.config.request_timeout_ms)
        return connection.version_for(key, max_version)

    def version_now(self, node_id: int, key: ApiKey, *, max_version: int | None = None) -> int:
        """The version for a node that `is_ready`; raises ConnectionLost for any other node."""
        connection = self.ready(node_id, "main")
        if connection is None:
            raise ConnectionLost(f"there is no connection to node {node_id}")
        return connection.version_for(key, max_version)

    def in_flight(self, node_id: int, channel: Channel = "main") -> int:
        """The number of unanswered requests to a node."""
        connection = self.ready(node_id, channel)
        return 0 if connection is None else connection.in_flight

    # --- connections ------------------------------------------------------------------------------

    def connect_soon(self, node_id: int, on_ready: Callable[[], None]) -> float | None:
        """Begin to connect; `on_ready` is called when a request can be sent, or connecting has
        failed.

        Returns the seconds to wait if the backoff does not allow a connection yet; then no
        connection is begun, and `on_ready` is not called.
        """
        return self.connections.connect_soon(node_id, on_ready, "main")

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature such as "transaction.version"; 0 if the feature has no
        finalized level.

        The level is that of the newest connection. Levels that are supported but not finalized are
        ignored (C-70).
        """
        return self.connections.features.get(name, 0)

    def why_unreachable(self, node_id: int, channel: Channel = "main") -> str | None:
        """The error that broke or prevented the connection to a node; None if there is a
        connection, or if none was needed yet."""
        node = self._nodes.get((node_id, channel))
        if node is None or self.ready(node_id, channel) is not None:
            return None
        return node.failure or None

    def close_connection(self, node_id: int, reason: str, channel: Channel = "main") -> None:
        """Drop a connection; its unanswered requests fail with ConnectionLost."""
        node = self._nodes.get((node_id, channel))
        if node is not None and node.connection is not None:
            node.connection.close(reason)

    async def least_loaded_node(self, timeout_ms: float | None = None) -> int:
        """The connected broker with the fewest unanswered requests. If no broker is connected, the
        first broker to which a connection can be made.

        Raises ConnectionLost, with the reason for each broker, if none is reached.
        """
        return await self.connections.least_loaded_node(timeout_ms)

    async def reach_a_broker(self, timeout_ms: float) -> None:
        """Check that a broker is reachable at the address that it advertises.

        ConnectionLost, with the reason for each broker, if none is reachable.
        """
        await self.connections.reach_a_broker(timeout_ms)

    # --- metadata ---------------------------------------------------------------------------------

    def add_listener(self, listener: Listener) -> None:
        """Call `listener(cluster)` whenever the metadata changes."""
        self.metadata.add_listener(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo `add_listener`."""
        self.metadata.remove_listener(listener)

    def request_metadata_update(self) -> None:
        """Request new metadata soon, because something contradicts it. Does not wait."""
        self.metadata.request_update()

    async def refresh_metadata(self, timeout_ms: float | None = None) -> None:
        """Request metadata now, and wait for the answer to a request that was sent after this call.

        Raises MetadataTimeout if no answer arrives in time.
        """
        await self.metadata.refresh(timeout_ms)

    async def wait_for_metadata(
        self, topics: Iterable[str], timeout_ms: float, *, until_ms: float | None = None
    ) -> None:
        """Wait until the partitions of all these topics are known; their metadata is then kept
        fresh.

        Raises the broker's error of a topic if another request does not help (InvalidTopic,
        TopicAuthorizationFailed), else MetadataTimeout after `timeout_ms`.
        """
        await self.metadata.wait_for(topics, timeout_ms, until_ms=until_ms)

    # --- coordinators -----------------------------------------------------------------------------

    async def find_coordinator(self, key: str, key_type: int = GROUP_COORDINATOR) -> int:
        """The node id of the coordinator of a group (type 0) or a transactional id (type 1).

        Cached until `forget_coordinator`. Raises the error for the broker's code. After
        CoordinatorUnavailable or another Retriable error, the call may succeed after a backoff.
        """
        return await self._coordinators.find(key, key_type)

    async def find_coordinators(self, keys: Iterable[str], key_type: int) -> None:
        """Look up several coordinators in few requests, so that `find_coordinator` knows them."""
        await self._coordinators.find_many(keys, key_type)

    def forget_coordinator(self, key: str, key_type: int = GROUP_COORDINATOR) -> None:
        """Drop the coordinator from the cache, because it has changed; the next `find_coordinator`
        looks it up."""
        self._coordinators.forget(key, key_type)
