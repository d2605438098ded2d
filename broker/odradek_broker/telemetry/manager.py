"""Client telemetry: subscriptions, client instances and their series (KIP-714)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog

from odradek_broker.config.broker import BrokerConfig
from odradek_broker.deferred import Deferred
from odradek_broker.platform.seams import Clock, Randomness
from odradek_broker.request import Peer, RequestContext
from odradek_broker.slices import Background, Done
from odradek_broker.telemetry.instances import (
    RESERVED_IDS,
    ClientInstance,
    ClientInstances,
    Pushed,
)
from odradek_broker.telemetry.otlp import MetricsError, Points, printable, read_metrics
from odradek_broker.telemetry.series import GONE_KEPT_MS, ClientSeries, SeriesLimits
from odradek_broker.telemetry.subscriptions import (
    MATCHED_CHARACTERS_MAX,
    ClientAttributes,
    MetricsSubscriptions,
)
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID, uuid_text
from odradek_protocol.repeated_lines import RepeatedLines

log = structlog.get_logger("odradek.telemetry")

#: The maximum size of a push that is read on the event loop. A compressed push is always read in
#: another thread, because it may be large after decompression.
READ_ON_LOOP_BYTES_MAX = 8 * 1024
#: The maximum number of pushes that wait to be read in the background. At the limit, clients are
#: throttled.
WAITING_MAX = 64
#: The maximum number of log lines per minute about pushes that could not be read.
_LINES_MAX = 10

#: The number of push intervals for which series are kept if their client has disappeared without a
#: terminating push.
_KEPT_INTERVALS = 2
#: Kafka's value for the unknown software name and version of a client.
_UNKNOWN = "unknown"

_E = ErrorCode


class _Reads:
    """A queue of pushes that are read in the background, one at a time, so that other background
    work has to wait for at most one push."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._waiting: deque[tuple[Callable[[], None], Done]] = deque()
        self._reading = False

    def add(self, work: Callable[[], None], done: Done) -> bool:
        """Add work to the end of the queue; False if too much work is waiting."""
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting.append((work, done))
        if not self._reading:
            self._next()
        return True

    def _next(self) -> None:
        work, done = self._waiting.popleft()
        self._reading = True

        def ended(problem: Exception | None) -> None:
            self._reading = False
            done(problem)
            if self._waiting and not self._reading:
                self._next()

        self._background(work, ended)


class ClientTelemetry:
    """The metrics that clients push. `settings` returns the present settings, and `peer_of` returns
    the peer of a connection."""

    def __init__(
        self,
        settings: Callable[[], BrokerConfig],
        peer_of: Callable[[int], Peer | None],
        clock: Clock,
        randomness: Randomness,
        background: Background,
    ) -> None:
        self._settings = settings
        self._peer_of = peer_of
        self._clock = clock
        self._randomness = randomness
        self._reads = _Reads(background)
        self._lines = RepeatedLines(log, _LINES_MAX, lambda: clock.monotonic_ms() / 1000)
        self.subscriptions = MetricsSubscriptions()
        self.series = ClientSeries(self._limits)
        self.instances = ClientInstances(self.subscriptions, self._gone)
        #: The number of pushes that could not be read.
        self.unreadable = 0
        #: The number of pushes whose metrics were accepted.
        self.taken = 0

    def _limits(self) -> SeriesLimits:
        config = self._settings()
        return SeriesLimits(config.telemetry_max_series, config.telemetry_max_series_per_client)

    def _gone(self, instance: ClientInstance) -> None:
        """Keep the series of a removed client for a while, and longer if its last push was not
        terminating: the client may only have closed an idle connection, and may push again."""
        kept_ms = GONE_KEPT_MS
        if not instance.terminating:
            kept_ms = max(kept_ms, _KEPT_INTERVALS * instance.wanted.interval_ms)
        self.series.gone(instance.instance_id, self._clock.monotonic_ms(), kept_ms)

    async def _instance(self, context: RequestContext, instance_id: bytes) -> ClientInstance:
        return await self.instances.of(
            instance_id,
            lambda: self._attributes(context, instance_id),
            context.connection_id,
            self._clock.monotonic_ms(),
        )

    def _attributes(self, context: RequestContext, instance_id: bytes) -> ClientAttributes:
        peer = self._peer_of(context.connection_id) or Peer(context.host, context.connection_id)
        return ClientAttributes(
            uuid_text(instance_id),
            # The id is cut to one character more than patterns can match, so that no pattern
            # matches a cut client id.
            (context.client_id or "")[: MATCHED_CHARACTERS_MAX + 1],
            peer.software_name or _UNKNOWN,
            peer.software_version or _UNKNOWN,
            context.host,
            str(peer.port),
        )

    def _new_id(self) -> bytes:
        while True:
            made = self._randomness.uuid()
            # Kafka creates no id that begins with a dash, because command lines would take it for
            # an option.
            if (
                made not in RESERVED_IDS
                and not uuid_text(made).startswith("-")
                and self.instances.get(made) is None
            ):
                return made

    async def get(
        self, context: RequestContext, instance_id: bytes
    ) -> tuple[ErrorCode, ClientInstance]:
        """The instance of a client that requests its subscription, and an error if its requests are
        too frequent. An `instance_id` of zeros means a new client."""
        instance = await self._instance(
            context, self._new_id() if instance_id == ZERO_UUID else instance_id
        )
        return self.instances.check_get(instance, self._clock.monotonic_ms()), instance

    async def push(
        self, context: RequestContext, instance_id: bytes, pushed: Pushed, metrics: bytes
    ) -> ErrorCode:
        """The error code for a push; NONE if its metrics were accepted."""
        if instance_id in RESERVED_IDS:
            return _E.INVALID_REQUEST
        instance = await self._instance(context, instance_id)
        config = self._settings()
        error = self.instances.check_push(
            instance, pushed, config.telemetry_max_bytes, self._clock.monotonic_ms()
        )
        if error or not pushed.size_bytes:
            return error
        points_max = config.telemetry_max_series_per_client
        read: list[Points] = []

        def work() -> None:
            read.append(read_metrics(pushed.compression_type, metrics, points_max))

        def done(problem: Exception | None) -> ErrorCode:
            return self._finish(context, instance, pushed, read, problem)

        if pushed.compression_type == Codec.NONE and pushed.size_bytes <= READ_ON_LOOP_BYTES_MAX:
            try:
                work()
            except MetricsError as problem:
                return done(problem)
            return done(None)
        answer: Deferred[ErrorCode] = Deferred()
        if not self._reads.add(work, lambda problem: answer.resolve(done(problem))):
            self.instances.counts.throttled += 1
            return _E.THROTTLING_QUOTA_EXCEEDED
        return await answer

    def _finish(
        self,
        context: RequestContext,
        instance: ClientInstance,
        pushed: Pushed,
        read: list[Points],
        problem: Exception | None,
    ) -> ErrorCode:
        instance_id = instance.instance_id
        present = self.instances.get(instance_id) or instance
        if problem is not None:
            self.unreadable += 1
            present.last_error = _E.INVALID_RECORD
            self._lines.say(
                "warning",
                "a push of client metrics cannot be read",
                (uuid_text(instance_id),),
                {
                    "client_instance_id": uuid_text(instance_id),
                    "peer": context.host,
                    "reason": str(problem),
                },
            )
            return _E.INVALID_RECORD
        self.taken += 1
        now_ms = self._clock.monotonic_ms()
        (points,) = read
        left_out = self.series.push(
            instance_id, instance.attributes, context.user, points, pushed.size_bytes, now_ms
        )
        if self.instances.get(instance_id) is None:
            # The connection was closed while the push was read.
            self._gone(instance)
        if left_out:
            self._tell_left_out(instance_id, left_out)
        return _E.NONE

    def _tell_left_out(self, instance_id: bytes, left_out: int) -> None:
        limits = self._limits()
        self._lines.say(
            "warning",
            "series of a client are not kept: raise telemetry.max.series or"
            " telemetry.max.series.per.client, or subscribe to fewer metrics",
            ("left out", uuid_text(instance_id)),
            {
                "client_instance_id": uuid_text(instance_id),
                "left_out": left_out,
                "telemetry_max_series": limits.series,
                "telemetry_max_series_per_client": limits.series_per_client,
            },
        )

    def connection_closed(self, connection_id: int) -> None:
        self.instances.connection_closed(connection_id)

    def expire(self) -> None:
        """Remove the instances and series that have expired. To be called about once a second."""
        now_ms = self._clock.monotonic_ms()
        self.instances.expire(now_ms)
        self.series.expire(now_ms)


def client_labels(attributes: ClientAttributes) -> dict[str, str]:
    """The labels that every series of a client has. Labels without a value are left out."""
    given = {
        "client_instance_id": attributes.client_instance_id,
        "client_id": attributes.client_id,
        "client_software_name": attributes.client_software_name,
        "client_software_version": attributes.client_software_version,
    }
    return {name: printable(value) for name, value in given.items() if value}
