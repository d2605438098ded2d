"""The requests that keep a cluster's metadata fresh, sent when the metadata is old or contradicted.

While a broker is late with an answer, metadata is requested from other brokers: if the late broker
has left the cluster, its unanswered requests fail, and are sent to other brokers. When no known
broker answers, the addresses of `bootstrap_servers` are used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from odradek_client.backoff import Backoff
from odradek_client.config.common import ClientConfig
from odradek_client.errors import (
    AuthenticationFailed,
    BadAnswer,
    Closed,
    ConnectionLost,
    InternalError,
    MetadataTimeout,
    OdradekError,
    RequestTimedOut,
    TaskCancelled,
    TlsFailed,
    error_for,
)
from odradek_client.network.broker_connection import Channel
from odradek_client.network.cluster import TOPIC_REFUSALS, ClusterView
from odradek_client.network.connections import Connections, RequestSender, unreachable
from odradek_client.tasks import LastingTask, as_odradek, failure_of
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.primitives import WireError
from odradek_protocol.schemas.metadata import MetadataResponse

Listener = Callable[[ClusterView], None]

_IDLE_CHECKS_S_MAX = 30.0
#: If a broker has not answered a metadata request within this time, the request is also sent to
#: another broker.
METADATA_PATIENCE_S = 1.0
#: The time without an answer after which a warning says that no broker is reachable.
UNREACHED_WARNING_S = 5.0

log = logging.getLogger("odradek.client")


class MetadataUpdater:
    """The task that requests metadata, and closes idle connections.

    `on_rebootstrap` is called when the known brokers are dropped.
    """

    def __init__(
        self,
        config: ClientConfig,
        network: RequestSender,
        connections: Connections,
        random: Random,
        on_rebootstrap: Callable[[], None],
    ) -> None:
        self.cluster = network.cluster
        self._config = config
        self._network = network
        self._connections = connections
        self._on_rebootstrap = on_rebootstrap
        self._retry = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._listeners: list[Listener] = []
        self._task: LastingTask | None = None
        self._wake: asyncio.Event | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._failures = 0
        self.last_failure: OdradekError | None = None
        #: The timer of the warning. It runs while requests for metadata have no answer.
        self._warning: asyncio.TimerHandle | None = None
        self._warned = False

    def start(self) -> None:
        """Start the task. Its first answer completes the calls of `refresh` that are waiting."""
        self._wake = asyncio.Event()
        self._task = LastingTask(
            self._network.loop, self._keep_fresh, "the update of the metadata", self._interrupted
        )

    def _interrupted(self, failure: OdradekError) -> None:
        """Called when others have ended the task. Only a cancelled task goes on unnoticed."""
        if not failure.retriable:
            self.last_failure = failure
            self._refuse(self._waiters, failure)

    def _refuse(self, waiters: Iterable[asyncio.Future[None]], failure: OdradekError) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(type(failure)(str(failure), code=failure.code))

    def close(self) -> None:
        """Request no more metadata."""
        if self._task is not None:
            self._task.stop()
        if self._warning is not None:
            self._warning.cancel()

    async def wait_closed(self) -> None:
        """Wait for the end of the task. Calls that are waiting for metadata raise Closed."""
        if self._task is not None:
            await self._task.stopped()
        self._refuse(self._waiters, Closed("the client was closed"))
        self._waiters.clear()

    def add_listener(self, listener: Listener) -> None:
        """Call `listener(cluster)` whenever the metadata changes."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo `add_listener`."""
        self._listeners.remove(listener)

    def request_update(self) -> None:
        """Request new metadata soon, because something contradicts it. Does not wait."""
        self.cluster.needs_update = True
        if self._wake is not None:
            self._wake.set()

    async def refresh(self, timeout_ms: float | None = None) -> None:
        """Request metadata now, and wait for the answer to a request that was sent after this call.

        Raises MetadataTimeout if no answer arrives in time.
        """
        waiter = self._network.loop.create_future()
        self._waiters.append(waiter)
        self.request_update()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await waiter
        except TimeoutError:
            servers = ", ".join(self._config.bootstrap_servers)
            why = f": {self.last_failure}" if self.last_failure is not None else ""
            raise MetadataTimeout(
                f"no broker of {servers} answered within {timeout_ms:.0f} ms{why}"
            ) from None
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def wait_for(
        self, topics: Iterable[str], timeout_ms: float, *, until_ms: float | None = None
    ) -> None:
        """Wait until the partitions of all these topics are known; their metadata is then kept
        fresh.

        Raises the broker's error of a topic if another request does not help (InvalidTopic,
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
                    await self.refresh()
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
        if self.last_failure is not None:
            why: object = self.last_failure
        elif codes[0] is not None:
            why = error_for(codes[0])
        else:
            why = "the broker does not mention it"
        raise MetadataTimeout(f"topic {names} not found within {timeout_ms:.0f} ms: {why}")

    async def _keep_fresh(self) -> None:
        """Request metadata when it is time, and wake the waiters. The body of the task."""
        assert self._wake is not None
        loop = self._network.loop
        idle_check_s = min(self._config.connections_max_idle_ms / 1000, _IDLE_CHECKS_S_MAX)
        while True:
            now_ms = loop.time() * 1000
            self.cluster.forget_expired(now_ms)
            if not self.cluster.is_stale(now_ms) and not self._waiters:
                self._connections.close_idle()
                wait_s = (self.cluster.stale_at_ms(now_ms) - now_ms) / 1000
                await self._sleep_or_wake(min(wait_s, idle_check_s))
                continue
            if not self._waiters and self._failures == 0 and not self.cluster.has_new_topics:
                # Updates that are requested in a row are combined into one request per backoff.
                # Requests for new topics do not wait, as in Kafka's client, because nothing is
                # known of them yet.
                since_ms = now_ms - (self.cluster.updated_ms or -self._config.retry_backoff_ms)
                if since_ms < self._config.retry_backoff_ms:
                    await self._sleep_or_wake((self._config.retry_backoff_ms - since_ms) / 1000)
                    continue
            self._wake.clear()
            # The waiters stay in the list: if others end this task, it answers them when it has
            # begun again.
            waiters = self._waiters.copy()
            if self._warning is None:
                self._warning = loop.call_later(UNREACHED_WARNING_S, self._warn_unreached)
            failure = await self._ask_metadata()
            if failure is None:
                self._now_reached()
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(None)
            elif isinstance(failure, TlsFailed | AuthenticationFailed | InternalError):
                self._refuse(waiters, failure)
            self._waiters = [each for each in self._waiters if not each.done()]
            if failure is None and not self.cluster.needs_update:
                self._failures = 0
                continue
            # The backoff also applies after an incomplete answer, so that there is always a pause
            # between requests to a broker.
            self._failures += 1
            await asyncio.sleep(self._retry.delay_ms(self._failures) / 1000)

    def _warn_unreached(self) -> None:
        """Log that no broker is reachable, so that a user does not wait a minute without a message
        (C-79)."""
        self._warned = True
        log.warning(
            "no broker of %s could be reached for %g s (%s); trying again. Check the address, and that a broker"
            " runs there",
            ", ".join(self._config.bootstrap_servers),
            UNREACHED_WARNING_S,
            self.last_failure or "it does not answer",
        )

    def _now_reached(self) -> None:
        if self._warning is not None:
            self._warning.cancel()
            self._warning = None
        if self._warned:
            self._warned = False
            log.warning("a broker could be reached again")

    async def _sleep_or_wake(self, seconds: float) -> None:
        assert self._wake is not None
        self._wake.clear()
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _ask_metadata(self) -> OdradekError | None:
        """Request metadata until one broker answers; returns None, or the last failure."""
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
            failure = BadAnswer(f"metadata cannot be asked for or understood: {error}")
        except Exception as error:  # noqa: BLE001  it is logged
            failure = as_odradek(error, "the update of the metadata")
        if failure is not None and str(failure) != str(self.last_failure):
            log.warning("cannot get metadata: %s", failure)
        self.last_failure = failure
        return failure

    async def _first_metadata(self) -> MetadataResponse:
        """The first answer of any broker. The request is sent to one broker after the other, to the
        next broker when the last one has failed or is late. ConnectionLost, with the reason for
        each broker, if none is reachable."""
        reasons: dict[str, bool] = {}
        asked: set[asyncio.Task[MetadataResponse]] = set()
        done: set[asyncio.Task[MetadataResponse]] = set()
        begun: list[asyncio.Task[MetadataResponse]] = []
        candidates = deque(self._connections.candidates())
        try:
            while candidates or asked:
                if candidates:
                    begun.append(
                        self._network.loop.create_task(self._metadata_of(candidates.popleft()))
                    )
                    asked.add(begun[-1])
                done, asked = await asyncio.wait(
                    asked,
                    timeout=METADATA_PATIENCE_S if candidates else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in [each for each in begun if each in done]:
                    why = failure_of(task, "a request for metadata")
                    if why is None:
                        return task.result()
                    if not isinstance(why, ConnectionLost | RequestTimedOut | TaskCancelled):
                        raise why
                    reasons[str(why)] = isinstance(why, TlsFailed)
        finally:
            for task in asked:
                task.cancel()
            # Finished tasks are also gathered: if two tasks ended at the same time, the exception
            # of one may not have been retrieved yet.
            await asyncio.gather(*asked, *done, return_exceptions=True)
        raise unreachable(reasons)

    async def _metadata_of(self, node_id: int) -> MetadataResponse:
        main = self._network.ready(node_id, "main")
        # A broker answers the requests of a connection one after the other. So on the main
        # connection, this request would wait for earlier requests whose answers are late.
        channel: Channel = "metadata" if main is not None and main.is_late else "main"
        version = await self._network.version_for(node_id, ApiKey.METADATA, channel=channel)
        request = self.cluster.request(
            version, allow_auto_create=self._config.allow_auto_create_topics
        )
        response: MetadataResponse = await self._network.send(
            node_id, request, channel=channel, max_version=version
        )
        return response

    def _learn(self, response: MetadataResponse) -> None:
        changed = self.cluster.update(response, self._network.loop.time() * 1000)
        if not changed:
            return
        self._connections.follow_metadata()
        for listener in list(self._listeners):
            try:
                listener(self.cluster)
            except Exception:
                log.exception("a listener of metadata failed")

    def _rebootstrap(self) -> None:
        """Drop the known brokers; the next request goes to the bootstrap addresses."""
        log.warning("no known broker can be reached; starting again from bootstrap_servers")
        self._connections.drop_all("the cluster asks to start again")
        self.cluster.brokers = {}
        self._on_rebootstrap()
