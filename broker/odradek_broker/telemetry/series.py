"""The series that clients pushed, for /metrics, within limits.

Counters that clients push as changes (`delta`) are summed up for Prometheus. A series is removed
when its client leaves it out of a few pushes in a row. All series of a client are removed some time
after the client, so that a scrape sees the last push.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field

from odradek_broker.telemetry.otlp import Labels, MetricType, Points
from odradek_broker.telemetry.subscriptions import ClientAttributes
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

#: The minimum time for which the series of a removed client are kept. The time is longer than the
#: usual interval between scrapes.
GONE_KEPT_MS = 120_000
#: A series is removed after its client has left it out of this number of pushes in a row.
PUSHES_WITHOUT_MAX = 3
#: The maximum number of clients whose series are kept. Beyond this limit, the client whose last
#: push is oldest is removed.
CLIENTS_MAX = 16_384
#: The maximum number of characters in the names and labels of all series together.
CHARACTERS_MAX = 32 * 1024 * 1024

SeriesKey = tuple[str, Labels]


@dataclass(slots=True)
class Series:
    """A series. `push`: the number of the last push that contained it; `time_ns`: the client's time
    of the value."""

    kind: MetricType
    source: str
    value: float
    time_ns: int
    push: int


@dataclass(slots=True)
class ClientMetrics:
    """The metrics of one client instance.

    `left_out`: the data points of the last push that were not kept. `forget_ms`: the time at which
    the series of a removed client are removed; None while the client exists. `user`: the
    authenticated user.
    """

    attributes: ClientAttributes
    user: str
    series: dict[SeriesKey, Series] = field(default_factory=dict)
    pushes: int = 0
    last_push_ms: int = 0
    last_push_bytes: int = 0
    left_out: int = 0
    forget_ms: int | None = None


class SeriesLimits(NamedTuple):
    """The limits of the series of all clients together, and of the series of a single client."""

    series: int
    series_per_client: int


@dataclass
class LeftOut:
    """The numbers of data points that were not kept, by the limit that they exceeded."""

    client: int = 0
    broker: int = 0
    characters: int = 0


class ClientSeries:
    """The series of all clients. `limits`: the present limits."""

    def __init__(self, limits: Callable[[], SeriesLimits]) -> None:
        self._limits = limits
        #: The clients by id, in the order of their last pushes, oldest first.
        self._clients: OrderedDict[bytes, ClientMetrics] = OrderedDict()
        #: The ids of removed clients whose series are kept, in the order of their removal.
        self._gone: dict[bytes, None] = {}
        self.series = 0
        self._characters = 0
        self.left_out = LeftOut()

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, instance_id: bytes) -> ClientMetrics | None:
        return self._clients.get(instance_id)

    def ids(self) -> set[bytes]:
        return set(self._clients)

    def push(
        self,
        instance_id: bytes,
        attributes: ClientAttributes,
        user: str,
        points: Points,
        size_bytes: int,
        now_ms: int,
    ) -> int:
        """Store the points of a push. Returns the number of points that are not kept."""
        client = self._clients.get(instance_id)
        if client is None:
            if len(self._clients) >= CLIENTS_MAX:
                self._forget(next(iter(self._gone), next(iter(self._clients))))
            client = self._clients[instance_id] = ClientMetrics(attributes, user)
        self._clients.move_to_end(instance_id)
        self._gone.pop(instance_id, None)
        client.attributes, client.user, client.forget_ms = attributes, user, None
        client.pushes += 1
        client.last_push_ms, client.last_push_bytes = now_ms, size_bytes
        client.left_out = points.left_out
        self.left_out.client += points.left_out
        for point in points.points:
            key = (point.name, point.labels)
            series = client.series.get(key)
            if series is None:
                if not self._has_room(client, key):
                    client.left_out += 1
                    continue
                series = Series(point.kind, point.source, 0.0, 0, 0)
                client.series[key] = series
                self._count(key, 1)
            _set(series, point.delta, point.value, point.time_ns)
            series.push = client.pushes
        oldest = client.pushes - PUSHES_WITHOUT_MAX
        self._drop(client, [key for key, series in client.series.items() if series.push <= oldest])
        return client.left_out

    def _has_room(self, client: ClientMetrics, key: SeriesKey) -> bool:
        """True if there is room for one more series; series of removed clients are dropped if
        necessary."""
        limits = self._limits()
        if len(client.series) >= limits.series_per_client:
            self.left_out.client += 1
            return False
        size = _characters(key)
        while self.series >= limits.series or self._characters + size > CHARACTERS_MAX:
            if not self._gone:
                if self.series >= limits.series:
                    self.left_out.broker += 1
                else:
                    self.left_out.characters += 1
                return False
            self._forget(next(iter(self._gone)))
        return True

    def gone(self, instance_id: bytes, now_ms: int, kept_ms: int = GONE_KEPT_MS) -> None:
        """Note the removal of a client. Its series are kept for another `kept_ms`."""
        client = self._clients.get(instance_id)
        if client is not None:
            client.forget_ms = now_ms + kept_ms
            self._gone[instance_id] = None

    def expire(self, now_ms: int) -> None:
        """Drop the series of the removed clients whose `forget_ms` has come."""
        late = [each for each in self._gone if now_ms >= (self._clients[each].forget_ms or 0)]
        for instance_id in late:
            self._forget(instance_id)

    def _forget(self, instance_id: bytes) -> None:
        self._gone.pop(instance_id, None)
        client = self._clients.pop(instance_id)
        self._drop(client, list(client.series))

    def _drop(self, client: ClientMetrics, keys: list[SeriesKey]) -> None:
        for key in keys:
            del client.series[key]
            self._count(key, -1)

    def _count(self, key: SeriesKey, change: int) -> None:
        self.series += change
        self._characters += change * _characters(key)


def _characters(key: SeriesKey) -> int:
    name, labels = key
    return len(name) + sum(len(label) + len(value) for label, value in labels)


def _set(series: Series, delta: bool, value: float, time_ns: int) -> None:
    """Set the value of a series, or add to it if `delta`. A value that cannot be added, or that a
    repeated push contains again, is not added."""
    if not delta:
        series.value = value
    elif _can_be_added(series, value) and not (time_ns and time_ns == series.time_ns):
        series.value += value
    series.time_ns = time_ns


def _can_be_added(series: Series, value: float) -> bool:
    return math.isfinite(value) and (series.kind is MetricType.GAUGE or value >= 0)
