"""The client's way to a cluster: connections to its brokers, and metadata kept fresh.

Producer, consumer and admin share this. It finds the brokers from `bootstrap_servers`, keeps one
connection per broker and channel (N-04: a parked request must not hold up the others), reconnects
with backoff, asks for metadata when it is old or something does not fit it, and starts over from
`bootstrap_servers` when every broker it knew is gone. While a broker keeps somebody waiting the others are
asked for metadata: once it has left the cluster, what it has not answered fails, and is tried elsewhere.

Codes inside responses are the caller's business; only `find_coordinator` reads one.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random as random_module
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal

from odradek_client import errors
from odradek_client.broker_link import BrokerLink, LinkState
from odradek_client.cluster import TOPIC_REFUSALS, BrokerAddress, ClusterView
from odradek_client.config import ClientConfig
from odradek_client.errors import (
    Closed,
    ConnectionLost,
    MetadataTimeout,
    OdradekError,
    RequestTimedOut,
    error_for,
)
from odradek_client.retry import Backoff
from odradek_client.settings import split_address
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message
from odradek_protocol.primitives import WireError
from odradek_protocol.schemas.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek_protocol.schemas.metadata import MetadataResponse

Channel = Literal["main", "coordinator", "fetch", "metadata"]
Listener = Callable[[ClusterView], None]

GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1

_IDLE_CHECKS_S_MAX = 30.0
#: So many brokers are tried at once.
_REACH_MAX = 8
#: How long a broker has to answer about metadata before the next one is asked as well.
METADATA_PATIENCE_S = 1.0
#: The order in which nodes are asked: who answers, who was not asked yet, who keeps requests waiting, a
#: bootstrap address, who keeps us waiting for metadata.
_READY, _NEW, _BUSY, _BOOTSTRAP, _SILENT = range(5)
#: From this version on FindCoordinator takes many keys and answers each.
_BATCHED_COORDINATORS = 4

log = logging.getLogger("odradek.client")


class _Route:
    """The way to one broker over one channel: its link, and what failed before."""

    __slots__ = ("failure", "failures", "link", "opening", "retry_at")

    def __init__(self) -> None:
        self.link: BrokerLink | None = None
        self.opening: asyncio.Task[None] | None = None
        self.failures = 0
        self.failure = ""
        self.retry_at = 0.0


class Network:
    """Connections and metadata of one client. `start` first, `close` at the end.

    Node ids below 0 are the addresses of `bootstrap_servers`, for as long as nothing else is known.
    `random` makes jitter and the choice between equal brokers reproducible.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        random: random_module.Random | None = None,
        software_version: str = "0",
    ) -> None:
        self.config = config
        self.cluster = ClusterView(config.metadata_max_age_ms)
        self._random = random or random_module.Random()
        self._software_version = software_version
        self._bootstrap: dict[int, BrokerAddress] = {
            -1 - index: BrokerAddress(-1 - index, *split_address(address))
            for index, address in enumerate(config.bootstrap_servers)
        }
        self._routes: dict[tuple[int, Channel], _Route] = {}
        self._reconnect = Backoff(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, self._random
        )
        self._retry = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._random)
        self._listeners: list[Listener] = []
        self._coordinators: dict[tuple[int, str], int] = {}
        self._features: dict[str, int] = {}
        self._features_epoch = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._failures = 0
        self._last_failure: OdradekError | None = None
        self._closed = False

    # --- life -------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float | None = None) -> None:
        """Reach the cluster and learn its brokers.

        MetadataTimeout, with the last failure as its cause, if that takes longer than `timeout_ms`
        (the setting `start_timeout_ms` if None).
        """
        if self._closed:
            raise Closed("this client was closed; make a new one")
        if self._keeper is not None:
            return
        limit_ms = self.config.start_timeout_ms if timeout_ms is None else timeout_ms
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._keeper = self._loop.create_task(self._keep_fresh(), name="odradek-metadata")
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self.refresh_metadata()
        except TimeoutError:
            servers = ", ".join(self.config.bootstrap_servers)
            failure = self._last_failure
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
        """Close every connection; what is unanswered fails. May be called again."""
        self._closed = True
        tasks = [route.opening for route in self._routes.values() if route.opening is not None]
        if self._keeper is not None:
            tasks.append(self._keeper)
        for task in tasks:
            task.cancel()
        for route in list(self._routes.values()):
            if route.link is not None:
                route.link.close()
        self._routes.clear()
        await asyncio.gather(*tasks, return_exceptions=True)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(Closed("the client was closed"))
        self._waiters.clear()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that `start` ran on. Closed before that and after `close`."""
        if self._loop is None:
            raise Closed('this client was not started; use "async with" or call start()')
        if self._closed:
            raise Closed("this client was closed; make a new one")
        return self._loop

    def now_ms(self) -> float:
        """The loop's clock, in milliseconds: never goes back."""
        return self.loop.time() * 1000

    async def pause(self, seconds: float) -> None:
        """Wait before something is tried again."""
        await asyncio.sleep(seconds)

    def new_uuid(self) -> str:
        """A random UUID as Kafka writes them: 22 characters, the first of which is no dash."""
        while True:
            text = base64.urlsafe_b64encode(self._random.randbytes(16)).decode().rstrip("=")
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
        """The response of a broker, connecting first if need be.

        The version is the highest that both sides have, at most `max_version`. `timeout_ms` counts
        from now on and includes connecting; `request_timeout_ms` if None. Raises ConnectionLost,
        RequestTimedOut (and closes the connection), UnsupportedByBroker, BadAnswer.
        """
        limit_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        link = self._ready_link(node_id, channel)
        if link is None:
            started = self.now_ms()
            link = await self._connected(node_id, channel, limit_ms)
            limit_ms -= self.now_ms() - started
        return await link.submit(request, limit_ms, max_version=max_version)

    def submit(
        self,
        node_id: int,
        request: Message,
        *,
        timeout_ms: float | None = None,
        channel: Channel = "main",
        version: int | None = None,
    ) -> asyncio.Future[Any]:
        """`send` without a coroutine, for a node that `is_ready`; requests keep their order."""
        route = self._routes.get((node_id, channel))
        if route is None or route.link is None:
            failed: asyncio.Future[Any] = self.loop.create_future()
            failed.set_exception(ConnectionLost(f"there is no connection to node {node_id}"))
            return failed
        limit_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return route.link.submit(request, limit_ms, version=version)

    def is_ready(self, node_id: int, channel: Channel = "main") -> bool:
        """Whether a request submitted now is written at once."""
        link = self._ready_link(node_id, channel)
        return link is not None and link.is_ready

    def connect_soon(
        self, node_id: int, on_ready: Callable[[], None], channel: Channel = "main"
    ) -> float | None:
        """Begin connecting; `on_ready` is called when a request can be sent, or that failed.

        The seconds to wait before trying again, if the backoff forbids it now: nothing is begun and
        nothing is called then.
        """
        route = self._route(node_id, channel)
        link = route.link
        if link is None:
            wait = route.retry_at - self.loop.time()
            if wait > 0:
                return wait
            link = self._open(node_id, channel, route)
        if not link.ready.done():
            link.ready.add_done_callback(lambda _: on_ready())
        elif not link.is_ready:
            # Throttled or full: its next answer or the throttle's end will say.
            return 0.02
        return None

    async def version_for(
        self,
        node_id: int,
        key: ApiKey,
        *,
        channel: Channel = "main",
        max_version: int | None = None,
    ) -> int:
        """The version that `send` would choose; connects if need be."""
        link = self._ready_link(node_id, channel)
        if link is None:
            link = await self._connected(node_id, channel, self.config.request_timeout_ms)
        return link.version_for(key, max_version)

    def version_now(
        self,
        node_id: int,
        key: ApiKey,
        *,
        channel: Channel = "main",
        max_version: int | None = None,
    ) -> int:
        """`version_for` of a node that `is_ready`; ConnectionLost of one that is not."""
        link = self._ready_link(node_id, channel)
        if link is None:
            raise ConnectionLost(f"there is no connection to node {node_id}")
        return link.version_for(key, max_version)

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature such as "transaction.version", 0 if there is none.

        It is as new as the newest connection; what brokers merely support does not count (C-70).
        """
        return self._features.get(name, 0)

    def in_flight(self, node_id: int, channel: Channel = "main") -> int:
        """Requests to a node that are not answered yet."""
        link = self._ready_link(node_id, channel)
        return 0 if link is None else link.in_flight

    def why_unreachable(self, node_id: int, channel: Channel = "main") -> str | None:
        """What broke the connection to a node, or kept it from being made; None if there is one, or
        none was needed yet."""
        route = self._routes.get((node_id, channel))
        if route is None or self._ready_link(node_id, channel) is not None:
            return None
        return route.failure or None

    def close_link(self, node_id: int, reason: str, channel: Channel = "main") -> None:
        """Drop a connection; what is unanswered there fails with ConnectionLost."""
        route = self._routes.get((node_id, channel))
        if route is not None and route.link is not None:
            route.link.close(reason)

    async def least_loaded_node(self, timeout_ms: float | None = None) -> int:
        """A connected broker: the one with the fewest unanswered requests, or the first reached.

        Brokers are tried once each, then the bootstrap addresses. ConnectionLost, with the reason of
        each, if none answers.
        """
        ready = [
            (route.link.in_flight, node_id)
            for (node_id, channel), route in self._routes.items()
            if channel == "main"
            and route.link is not None
            and route.link.state is LinkState.READY
            and not route.link.is_late
            and self._address(node_id) is not None
        ]
        if ready:
            # A known broker is better than the same one under its bootstrap address.
            return min(ready, key=lambda pair: (pair[1] < 0, *pair))[1]
        limit_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        failures: dict[str, None] = {}
        for node_id in self._candidates():
            try:
                await self._connected(node_id, "main", limit_ms)
            except (ConnectionLost, RequestTimedOut) as error:
                failures[str(error)] = None
            else:
                return node_id
        raise ConnectionLost("; ".join(failures) or "there is no broker to connect to")

    async def reach_a_broker(self, timeout_ms: float) -> None:
        """See that clients come through to a broker under the address that it tells them.

        The address of `bootstrap_servers` may work where that one does not: in a container, behind a
        tunnel. ConnectionLost, with the reason of each, if no broker can be reached.
        """
        nodes = list(self.cluster.brokers)
        self._random.shuffle(nodes)
        tries = [
            asyncio.ensure_future(self._connected(node_id, "main", timeout_ms))
            for node_id in nodes[:_REACH_MAX]
        ]
        reasons: dict[str, None] = {}
        try:
            for each in asyncio.as_completed(tries):
                try:
                    await each
                    return
                except (ConnectionLost, RequestTimedOut) as error:
                    reasons[str(error)] = None
        finally:
            for each in tries:
                each.cancel()
            await asyncio.gather(*tries, return_exceptions=True)
        if reasons:
            raise ConnectionLost("; ".join(reasons))

    # --- metadata ---------------------------------------------------------------------------------

    def add_listener(self, listener: Listener) -> None:
        """Call `listener(cluster)` whenever metadata changed."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo `add_listener`."""
        self._listeners.remove(listener)

    def request_metadata_update(self) -> None:
        """Something does not fit the metadata: ask again soon. Does not wait."""
        self.cluster.needs_update = True
        if self._wake is not None:
            self._wake.set()

    async def refresh_metadata(self, timeout_ms: float | None = None) -> None:
        """Ask now and wait for an answer to a request that was sent after this call.

        Raises MetadataTimeout if there is none in time.
        """
        waiter = self.loop.create_future()
        self._waiters.append(waiter)
        self.request_metadata_update()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await waiter
        except TimeoutError:
            servers = ", ".join(self.config.bootstrap_servers)
            why = f": {self._last_failure}" if self._last_failure is not None else ""
            raise MetadataTimeout(
                f"no broker of {servers} answered within {timeout_ms:.0f} ms{why}"
            ) from None
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def wait_for_metadata(
        self, topics: Iterable[str], timeout_ms: float, *, until_ms: float | None = None
    ) -> None:
        """Until partitions of all these topics are known; they are kept fresh from then on.

        Raises what the broker says of a topic if asking again is of no use (InvalidTopic,
        TopicAuthorizationFailed), else MetadataTimeout after `timeout_ms`.
        """
        topics = list(topics)
        self.cluster.want(topics, until_ms=until_ms)
        missing = [topic for topic in topics if topic not in self.cluster.topics]
        if not missing:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while missing:
                    await self.refresh_metadata()
                    self._raise_for(missing)
                    missing = [topic for topic in missing if topic not in self.cluster.topics]
        except TimeoutError:
            self._metadata_timeout(missing, timeout_ms)

    def _raise_for(self, topics: Iterable[str]) -> None:
        for topic in topics:
            code = self.cluster.topic_errors.get(topic)
            if code in TOPIC_REFUSALS:
                raise error_for(code, about=f"topic {topic!r}")

    def _metadata_timeout(self, missing: list[str], timeout_ms: float) -> None:
        names = ", ".join(map(repr, missing))
        codes = [self.cluster.topic_errors.get(topic) for topic in missing]
        if self._last_failure is not None:
            why: object = self._last_failure
        elif codes[0] is not None:
            why = error_for(codes[0])
        else:
            why = "the broker does not mention it"
        raise MetadataTimeout(f"topic {names} not found within {timeout_ms:.0f} ms: {why}")

    async def _keep_fresh(self) -> None:
        """The metadata task: ask when it is time, tell who waits."""
        assert self._loop is not None and self._wake is not None
        while True:
            now_ms = self._loop.time() * 1000
            self.cluster.forget_expired(now_ms)
            if not self.cluster.is_stale(now_ms) and not self._waiters:
                self._close_idle()
                wait_s = (self.cluster.stale_at_ms(now_ms) - now_ms) / 1000
                await self._sleep_or_wake(min(wait_s, self._idle_check_s()))
                continue
            if not self._waiters and self._failures == 0:
                # Many hints in a row are one question per backoff.
                since_ms = now_ms - (self.cluster.updated_ms or -self.config.retry_backoff_ms)
                if since_ms < self.config.retry_backoff_ms:
                    await self._sleep_or_wake((self.config.retry_backoff_ms - since_ms) / 1000)
                    continue
            self._wake.clear()
            waiters, self._waiters = self._waiters, []
            failure = await self._ask_metadata()
            if failure is None:
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(None)
            else:
                self._waiters = [w for w in waiters if not w.done()] + self._waiters
            if failure is None and not self.cluster.needs_update:
                self._failures = 0
                continue
            # Also after an answer that leaves something open: nobody may hammer a broker.
            self._failures += 1
            await asyncio.sleep(self._retry.delay_ms(self._failures) / 1000)

    async def _sleep_or_wake(self, seconds: float) -> None:
        assert self._wake is not None
        self._wake.clear()
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _ask_metadata(self) -> OdradekError | None:
        """Ask until one broker answers; None, or the last failure."""
        failure: OdradekError | None = None
        try:
            response = await self._first_metadata()
            if response.error_code:
                failure = error_for(response.error_code, about="metadata")
                if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
                    self._rebootstrap()
            elif not response.brokers:
                failure = ConnectionLost("the broker knows of no brokers, not even of itself")
            else:
                self._learn(response)
        except OdradekError as error:
            failure = error
        except WireError as error:
            failure = errors.BadAnswer(f"metadata cannot be asked for or understood: {error}")
        if failure is not None and str(failure) != str(self._last_failure):
            log.warning("cannot get metadata: %s", failure)
        self._last_failure = failure
        return failure

    async def _first_metadata(self) -> MetadataResponse:
        """From the brokers in turn: the next one is asked when one has failed, or is late. ConnectionLost,
        with the reason of each, if none can be reached."""
        reasons: dict[str, None] = {}
        asked: set[asyncio.Task[MetadataResponse]] = set()
        done: set[asyncio.Task[MetadataResponse]] = set()
        candidates = deque(self._candidates())
        try:
            while candidates or asked:
                if candidates:
                    asked.add(self.loop.create_task(self._metadata_of(candidates.popleft())))
                done, asked = await asyncio.wait(
                    asked,
                    timeout=METADATA_PATIENCE_S if candidates else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    try:
                        return task.result()
                    except (ConnectionLost, RequestTimedOut) as error:
                        reasons[str(error)] = None
        finally:
            for task in asked:
                task.cancel()
            # Also of those that are done: of two that failed at once only one was looked at.
            await asyncio.gather(*asked, *done, return_exceptions=True)
        raise ConnectionLost("; ".join(reasons) or "there is no broker to connect to")

    async def _metadata_of(self, node_id: int) -> MetadataResponse:
        main = self._ready_link(node_id, "main")
        # Brokers answer in order: behind a request that waits for a hung replica we would wait too.
        channel: Channel = "metadata" if main is not None and main.is_late else "main"
        version = await self.version_for(node_id, ApiKey.METADATA, channel=channel)
        request = self.cluster.request(
            version, allow_auto_create=self.config.allow_auto_create_topics
        )
        response: MetadataResponse = await self.send(
            node_id, request, channel=channel, max_version=version
        )
        return response

    def _learn(self, response: MetadataResponse) -> None:
        changed = self.cluster.update(response, self.now_ms())
        if not changed:
            return
        for (node_id, channel), route in list(self._routes.items()):
            address = self._address(node_id)
            if address is None:
                self._drop((node_id, channel), route, "the broker has left the cluster")
            elif route.link is not None and (route.link.host, route.link.port) != (
                address.host,
                address.port,
            ):
                route.link.close("the broker has moved")
        for listener in list(self._listeners):
            try:
                listener(self.cluster)
            except Exception:
                log.exception("a listener of metadata failed")

    def _rebootstrap(self) -> None:
        """Forget the brokers; the next request goes to the bootstrap addresses."""
        log.warning("every known broker is gone; starting again from bootstrap_servers")
        for key, route in list(self._routes.items()):
            self._drop(key, route, "the cluster asks to start again")
        self.cluster.brokers = {}
        self._coordinators.clear()

    # --- coordinators -----------------------------------------------------------------------------

    async def find_coordinator(self, key: str, key_type: int = GROUP_COORDINATOR) -> int:
        """The node id of the coordinator of a group (type 0) or a transactional id (type 1).

        Remembered until `forget_coordinator`. Raises error_for the broker's code: CoordinatorUnavailable
        and other Retriable errors are worth another try after a backoff.
        """
        known = self._coordinators.get((key_type, key))
        if known is not None and self._address(known) is not None:
            return known
        node_id = await self.least_loaded_node()
        version = await self.version_for(node_id, ApiKey.FIND_COORDINATOR)
        if version == 0 and key_type != GROUP_COORDINATOR:
            raise errors.UnsupportedByBroker("the broker is too old for transactions")
        request = FindCoordinatorRequest(key_type=key_type)
        if version >= _BATCHED_COORDINATORS:
            request.coordinator_keys = [key]
        else:
            request.key = key
        response: FindCoordinatorResponse = await self.send(node_id, request, max_version=version)
        found: Any = response
        if version >= _BATCHED_COORDINATORS:
            found = next((c for c in response.coordinators if c.key == key), None)
            if found is None:
                raise errors.BadAnswer(f"FindCoordinator does not mention {key!r}")
        if found.error_code:
            raise error_for(found.error_code, found.error_message, about=f"coordinator of {key!r}")
        self.cluster.add_broker(BrokerAddress(found.node_id, found.host, found.port))
        self._coordinators[(key_type, key)] = found.node_id
        return int(found.node_id)

    def forget_coordinator(self, key: str, key_type: int = GROUP_COORDINATOR) -> None:
        """Ask again next time: the one known is not it any more."""
        self._coordinators.pop((key_type, key), None)

    # --- links ------------------------------------------------------------------------------------

    def _address(self, node_id: int) -> BrokerAddress | None:
        return self._bootstrap.get(node_id) if node_id < 0 else self.cluster.brokers.get(node_id)

    def _candidates(self) -> list[int]:
        """Nodes to ask, in order, each address once."""
        by_address: dict[tuple[str, int], list[int]] = {}
        for node_id, at in (*self.cluster.brokers.items(), *self._bootstrap.items()):
            by_address.setdefault((at.host, at.port), []).append(node_id)
        chosen = []
        for names in by_address.values():
            ranked = sorted((self._rank(node_id), node_id) for node_id in names)
            # What keeps us waiting under one of its names does so under the others.
            late = [each for each in ranked if each[0][0] in (_BUSY, _SILENT)]
            chosen.append((late or ranked)[0])
        return [node_id for _, node_id in sorted(chosen)]

    def _rank(self, node_id: int) -> tuple[int, bool, float, float]:
        routes = [self._routes.get((node_id, channel)) for channel in ("main", "metadata")]
        main, extra = (None if route is None else route.link for route in routes)
        jitter = self._random.random()
        if extra is not None and extra.is_late:
            return _SILENT, False, 0.0, jitter
        if main is not None and main.is_late:
            silent = main.state is LinkState.OPENING
            return _SILENT if silent else _BUSY, False, 0.0, jitter
        if main is not None and main.state is LinkState.READY:
            # A known broker is better than the same one under its bootstrap address.
            return _READY, node_id < 0, main.in_flight, jitter
        retry_at = routes[0].retry_at if routes[0] is not None else 0.0
        return _BOOTSTRAP if node_id < 0 else _NEW, False, retry_at, jitter

    def _route(self, node_id: int, channel: Channel) -> _Route:
        route = self._routes.get((node_id, channel))
        if route is None:
            route = self._routes[(node_id, channel)] = _Route()
        return route

    def _ready_link(self, node_id: int, channel: Channel) -> BrokerLink | None:
        route = self._routes.get((node_id, channel))
        if route is None or route.link is None or route.link.state is not LinkState.READY:
            return None
        return route.link

    async def _connected(self, node_id: int, channel: Channel, timeout_ms: float) -> BrokerLink:
        """A ready link, after the backoff if there is one. ConnectionLost, RequestTimedOut."""
        route = self._route(node_id, channel)
        try:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                while route.link is None:
                    wait = route.retry_at - self.loop.time()
                    if wait <= 0:
                        self._open(node_id, channel, route)
                        break
                    await asyncio.sleep(wait)
                link = route.link
                assert link is not None
                await asyncio.shield(link.ready)
        except TimeoutError:
            raise RequestTimedOut(
                f"no connection to {self._name(node_id)} within {timeout_ms:.0f} ms"
            ) from None
        except ConnectionLost as error:
            # Every waiter gets its own exception: a traceback belongs to one raise.
            raise ConnectionLost(str(error)) from None
        return link

    def _name(self, node_id: int) -> str:
        address = self._address(node_id)
        return f"node {node_id}" if address is None else f"{address.host}:{address.port}"

    def _open(self, node_id: int, channel: Channel, route: _Route) -> BrokerLink:
        address = self._address(node_id)
        if address is None:
            self._routes.pop((node_id, channel), None)
            self.request_metadata_update()
            raise ConnectionLost(f"node {node_id} is not in the cluster's metadata (any more)")
        link = BrokerLink(
            self.loop,
            address.host,
            address.port,
            client_id=self.config.client_id,
            software_version=self._software_version,
            max_in_flight=self.config.max_in_flight_requests_per_connection,
            receive_max_bytes=self.config.receive_max_bytes,
            on_closed=lambda closed, reason: self._link_closed(node_id, channel, closed, reason),
            # Others may know that it is gone.
            on_late=lambda _: self.request_metadata_update(),
        )
        route.link = link
        route.opening = self.loop.create_task(self._opening(route, link), name=f"odradek-{link!r}")
        return link

    async def _opening(self, route: _Route, link: BrokerLink) -> None:
        await link.open(self.config.socket_connection_setup_timeout_ms)
        if route.link is link:
            route.opening = None
            if link.state is LinkState.READY:
                route.failures = 0
        if link.features_epoch >= max(self._features_epoch, 0):
            self._features, self._features_epoch = link.features, link.features_epoch

    def _link_closed(self, node_id: int, channel: Channel, link: BrokerLink, reason: str) -> None:
        route = self._routes.get((node_id, channel))
        if route is None or route.link is not link or self._closed:
            return
        log.info("%s", reason)
        route.link = None
        route.opening = None
        route.failures += 1
        route.failure = reason
        route.retry_at = self.loop.time() + self._reconnect.delay_ms(route.failures) / 1000
        # What led to this broker may be what was wrong (N-16).
        self.request_metadata_update()

    def _drop(self, key: tuple[int, Channel], route: _Route, reason: str) -> None:
        self._routes.pop(key, None)
        if route.link is not None:
            route.link.close(reason)

    def _idle_check_s(self) -> float:
        return min(self.config.connections_max_idle_ms / 1000, _IDLE_CHECKS_S_MAX)

    def _close_idle(self) -> None:
        """Close links that were not used for connections_max_idle_ms."""
        oldest = self.loop.time() - self.config.connections_max_idle_ms / 1000
        for key, route in list(self._routes.items()):
            link = route.link
            if (
                link is not None
                and link.state is LinkState.READY
                and link.in_flight == 0
                and link.last_used <= oldest
            ):
                self._drop(key, route, "the connection was not used")
