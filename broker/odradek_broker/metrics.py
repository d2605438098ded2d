"""Counts, sizes and times of the broker, and their exposition for Prometheus.

Counting is plain integers, because it happens on every request; names, labels and text are made
when somebody asks (`render`). What the node knows anyway (offsets, lag) is not counted at all but
read then, under the names that kafka_exporter gives it, so that its dashboards work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import ArrayOf, Struct
from odradek_protocol.primitives import WireType

if TYPE_CHECKING:
    from prometheus_client.core import Metric

#: Upper bounds in microseconds of the buckets for times.
_BUCKETS_US = (
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000,
)  # fmt: skip

Walker = Callable[[Any, list[int]], None]


class Api(Protocol):
    """What is needed of a row of `odradek_protocol.keys`."""

    @property
    def name(self) -> str: ...


class Gauge:
    """A number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    """How often a time fell into each bucket, in microseconds."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS_US) + 1)
        self.sum_us = 0

    def observe(self, time_us: int) -> None:
        self.counts[bisect_left(_BUCKETS_US, time_us)] += 1
        self.sum_us += time_us

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound in seconds, how many are at or under it), as Prometheus wants them."""
        total = 0
        out = []
        bounds = [str(bound / 1_000_000) for bound in _BUCKETS_US] + ["+Inf"]
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            out.append((bound, float(total)))
        return out


@lru_cache(maxsize=512)
def _error_walker(cls: Any) -> Walker | None:
    """Collects the error codes other than 0 in an answer; None if its type has none at all."""
    own = any(spec.name == "error_code" for spec in cls.fields)
    nested = []
    for spec in cls.fields:
        kind = spec.type
        if isinstance(kind, ArrayOf) and not isinstance(kind.element, WireType):
            inner = _error_walker(cast(Any, kind.element))
            if inner is not None:
                nested.append((spec.name, inner))
    if not own and not nested:
        return None

    def walk(part: Any, found: list[int]) -> None:
        if own and part.error_code:
            found.append(int(part.error_code))
        for name, inner in nested:
            for item in getattr(part, name) or ():
                inner(item, found)

    return walk


class BrokerMetrics:
    """One for the broker. `now_us`: a clock that never goes back, in microseconds."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.connections = Gauge()
        self._requests: dict[tuple[str, int], int] = {}
        self._errors: dict[tuple[str, int], int] = {}
        self._times: dict[str, Histogram] = {}
        self._flushes = Histogram()
        self._received = 0
        self._sent = 0
        self._refused = 0
        self._appended = 0
        self._fetched = 0

    # --- Counting: called by the server, the sessions and the handlers ---

    def request_started(self) -> int:
        """What `request_finished` wants to know later."""
        return self._now_us()

    def request_finished(self, api: Api, version: int, started_us: int, reply: object) -> None:
        """One request was answered with `reply`; a request without answer has none."""
        name = api.name
        key = (name, version)
        self._requests[key] = self._requests.get(key, 0) + 1
        times = self._times.get(name)
        if times is None:
            times = self._times[name] = Histogram()
        times.observe(self._now_us() - started_us)
        if not isinstance(reply, Struct):
            return
        walk = _error_walker(cast(Any, type(reply)))
        if walk is not None:
            found: list[int] = []
            walk(reply, found)
            for code in found:
                self._errors[name, code] = self._errors.get((name, code), 0) + 1

    def received_bytes(self, size_bytes: int) -> None:
        self._received += size_bytes

    def sent_bytes(self, size_bytes: int) -> None:
        self._sent += size_bytes

    def appended_bytes(self, size_bytes: int) -> None:
        """Bytes of batches were written to partition logs."""
        self._appended += size_bytes

    def fetched_bytes(self, size_bytes: int) -> None:
        """Bytes of batches were handed out."""
        self._fetched += size_bytes

    def connection_refused(self) -> None:
        """A connection was closed because of what came over it."""
        self._refused += 1

    def flushed(self, time_s: float) -> None:
        """One flush to disk took so many seconds."""
        self._flushes.observe(int(time_s * 1_000_000))

    # --- Exposition ---

    def render(self, node: Any = None) -> bytes:
        """Everything in Prometheus' text format; with what `node` knows, if it is given."""
        # Imported when first asked for: most brokers are never scraped, and all must start fast.
        from prometheus_client import CollectorRegistry, generate_latest

        from odradek_broker.node_metrics import node_families

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(self._families))
        if node is not None:
            registry.register(_Families(lambda: node_families(node)))
        return generate_latest(registry)

    def _families(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily as Counter
        from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

        requests = Counter("odradek_requests", "Requests answered.", labels=["api", "version"])
        for (api, version), count in sorted(self._requests.items()):
            requests.add_metric([api, str(version)], count)
        yield requests
        errors = Counter(
            "odradek_request_errors", "Error codes in answers.", labels=["api", "error"]
        )
        for (api, code), count in sorted(self._errors.items()):
            errors.add_metric([api, ErrorCode.of(code).name], count)
        yield errors
        times = HistogramMetricFamily(
            "odradek_request_duration_seconds",
            "From the last byte of a request to its answer, waits included.",
            labels=["api"],
        )
        for api, histogram in sorted(self._times.items()):
            times.add_metric([api], histogram.buckets(), histogram.sum_us / 1_000_000)
        yield times
        flushes = HistogramMetricFamily(
            "odradek_flush_duration_seconds", "Time that a flush to disk took."
        )
        flushes.add_metric([], self._flushes.buckets(), self._flushes.sum_us / 1_000_000)
        yield flushes
        for name, text, value in (
            ("odradek_received_bytes", "Bytes read from connections.", self._received),
            ("odradek_sent_bytes", "Bytes written to connections.", self._sent),
            ("odradek_appended_bytes", "Bytes of batches appended to logs.", self._appended),
            ("odradek_fetched_bytes", "Bytes of batches handed out.", self._fetched),
            (
                "odradek_connections_refused",
                "Connections closed because of what came over them.",
                self._refused,
            ),
        ):
            yield Counter(name, text, value=value)
        yield GaugeMetricFamily(
            "odradek_connections", "Open connections.", value=self.connections.value
        )


class _Families:
    """A collector for prometheus-client out of a function."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()
