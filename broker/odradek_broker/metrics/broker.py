"""Counters of the broker: requests, errors, times, bytes, connections.

Counters are plain integers, because every request increments some; names, labels and text are made
when the metrics are read (`exposition.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache

from odradek_protocol.errors import PROTOCOL_STEPS, ErrorCode
from odradek_protocol.keys import Api
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.message import ArrayOf, Struct
from odradek_protocol.primitives import WireType

#: The upper bounds of a histogram's buckets, in microseconds.
BUCKETS_US = (
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000,
)  # fmt: skip

#: A function that adds the error codes of an answer, or of a part of it, to a list.
ErrorWalker = Callable[[Struct], Iterator[int]]


class GaugeValue:
    """A number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    """Durations in microseconds, counted in buckets."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_US) + 1)
        self.sum_us = 0

    def __add__(self, other: Histogram) -> Histogram:
        both = Histogram()
        both.counts = [sum(pair) for pair in zip(self.counts, other.counts, strict=True)]
        both.sum_us = self.sum_us + other.sum_us
        return both

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def late(self) -> int:
        """The number of durations above `LATE_US`."""
        return sum(self.counts[bisect_left(BUCKETS_US, LATE_US) + 1 :])

    def observe(self, time_us: int) -> None:
        self.counts[bisect_left(BUCKETS_US, time_us)] += 1
        self.sum_us += time_us

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound in seconds, number of durations up to this bound), as Prometheus has it."""
        total = 0
        out = []
        bounds = [str(bound / 1_000_000) for bound in BUCKETS_US] + ["+Inf"]
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            out.append((bound, float(total)))
        return out


@lru_cache(maxsize=512)
def _error_walker(struct: type[Struct]) -> ErrorWalker | None:
    """A generator function that yields an answer's error codes, among them many 0; None if this
    type of answer has no error codes."""
    own = any(spec.name == "error_code" for spec in struct.fields)
    nested = []
    for spec in struct.fields:
        kind = spec.type
        if isinstance(kind, ArrayOf) and not isinstance(kind.element, WireType):
            inner = _error_walker(kind.element)
            if inner is not None:
                nested.append((spec.name, inner))
    if not own and not nested:
        return None

    def walk(part: Struct) -> Iterator[int]:
        # Also for parts without an error: of these there may be thousands, and the caller pauses.
        yield getattr(part, "error_code", 0)
        for name, inner in nested:
            for item in getattr(part, name) or ():
                yield from inner(item)

    return walk


#: The counters that are sampled, by their names in DescribeBroker.
SAMPLED = (
    "connections",
    "requests_total",
    "request_errors_total",
    "appended_bytes_total",
    "fetched_bytes_total",
    "flushes_total",
    "flush_time_us_total",
    "slow_flushes_total",
    "turns_total",
    "late_turns_total",
    "storage_errors_total",
)
#: Turns of the event loop, and flushes, are late and slow if they take longer.
LATE_US = 100_000
_STORAGE_ERRORS = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE})
#: The time between two samples.
SAMPLE_INTERVAL_MS = 5_000
#: The maximum number of samples that are kept: those of the last quarter of an hour.
SAMPLES_MAX = 181


class ProcessUsage(NamedTuple):
    """The peak memory and the processor time of the process."""

    memory_peak_bytes: int
    processor_ms: int


class CounterSample(NamedTuple):
    """The counters `SAMPLED` at a time."""

    wall_ms: int
    values: tuple[float, ...]


class BrokerMetrics:
    """The counters of one broker. `now_us`: a clock that never goes back, in microseconds.

    The broker's server sets `process_usage`.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        #: The clock, in microseconds.
        self.now_us = now_us
        self.process_usage: Callable[[], ProcessUsage] = lambda: ProcessUsage(0, 0)
        self.connections = GaugeValue()
        #: The number of requests by (API name, version).
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.errors: dict[tuple[str, int], int] = {}
        self.times: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._file_flushes = Histogram()
        self.journal_writes = Histogram()
        #: The delays of the event loop.
        self.loop_delays = Histogram()
        #: The expiry time of each listener's certificate, in seconds since the epoch.
        self.certificate_ends_s: dict[str, float] = {}
        self.received_total = 0
        self.sent_total = 0
        self.connections_refused_total = 0
        #: The number of authentications by (listener, mechanism, is a re-authentication, has
        #: failed).
        self.authentications: dict[tuple[str, str, bool, bool], int] = {}
        #: The number of connections whose session expired.
        self.sessions_expired_total = 0
        #: The number of requests that each quota has throttled.
        self.throttled_requests: dict[str, int] = {}
        #: The sum of the throttle times of each quota.
        self.throttle_time_ms: dict[str, int] = {}
        self.appended_total = 0
        self.fetched_total = 0
        #: At most SAMPLES_MAX samples, in the order in which they were taken.
        self.samples: deque[CounterSample] = deque(maxlen=SAMPLES_MAX)
        self._next_sample_ms = 0

    def take_sample(self, monotonic_ms: int, wall_ms: int) -> None:
        """Keep the present values of the sampled counters if a sample is due."""
        if monotonic_ms < self._next_sample_ms:
            return
        self._next_sample_ms = monotonic_ms + SAMPLE_INTERVAL_MS
        self.samples.append(CounterSample(wall_ms, tuple(self.sampled().values())))

    def sampled(self) -> dict[str, float]:
        """The present values of the counters `SAMPLED`."""
        flushes = self.flushes
        values = (
            self.connections.value,
            sum(self.requests.values()),
            sum(count for (_, code), count in self.errors.items() if code not in PROTOCOL_STEPS),
            self.appended_total,
            self.fetched_total,
            flushes.count,
            flushes.sum_us,
            flushes.late,
            self.loop_delays.count,
            self.loop_delays.late,
            sum(count for (_, code), count in self.errors.items() if code in _STORAGE_ERRORS),
        )
        return dict(zip(SAMPLED, values, strict=True))

    def request_finished(self, api: Api, version: int, started_us: int, reply: object) -> None:
        """Count a request, the time since its `started_us`, and the errors of its response, if it
        has a response.
        """
        self.request_counted(api.name, version, started_us)
        for _ in self.count_errors(api.name, reply):
            pass

    def count_errors(self, name: str, reply: object) -> Generator[None, None, None]:
        """Count the errors of a response, which may be many; yields after each entry."""
        if not isinstance(reply, Struct):
            return
        walk = _error_walker(type(reply))
        for code in () if walk is None else walk(reply):
            if code:
                key = name, int(code)
                self.errors[key] = self.errors.get(key, 0) + 1
            yield

    def request_counted(self, name: str, version: int, started_us: int) -> None:
        """Count a request under the name of its API, and the time since `started_us`, but no
        errors."""
        self.requests[name, version] += 1
        self.times[name].observe(self.now_us() - started_us)

    def throttled(self, quota: str, throttle_ms: int) -> None:
        self.throttled_requests[quota] = self.throttled_requests.get(quota, 0) + 1
        self.throttle_time_ms[quota] = self.throttle_time_ms.get(quota, 0) + throttle_ms

    def received_bytes(self, size_bytes: int) -> None:
        self.received_total += size_bytes

    def sent_bytes(self, size_bytes: int) -> None:
        self.sent_total += size_bytes

    def appended_bytes(self, size_bytes: int) -> None:
        """Count bytes of batches written to partition logs."""
        self.appended_total += size_bytes

    def fetched_bytes(self, size_bytes: int) -> None:
        """Count bytes of batches in Fetch responses."""
        self.fetched_total += size_bytes

    def connection_refused(self) -> None:
        """Count a connection that was closed because of a bad request."""
        self.connections_refused_total += 1

    def authenticated(self, listener: str, mechanism: str, *, again: bool) -> None:
        """Count an authentication, or a re-authentication."""
        self._count_authentication(listener, mechanism, again, False)

    def authentication_failed(self, listener: str, mechanism: str, *, again: bool) -> None:
        """Count a failed authentication; `mechanism` is empty if the client chose none."""
        self._count_authentication(listener, mechanism, again, True)

    def _count_authentication(
        self, listener: str, mechanism: str, again: bool, failed: bool
    ) -> None:
        key = listener, mechanism, again, failed
        self.authentications[key] = self.authentications.get(key, 0) + 1

    def flushed(self, time_s: float) -> None:
        """Count a flush of files to disk and its time."""
        self._file_flushes.observe(int(time_s * 1_000_000))

    @property
    def flushes(self) -> Histogram:
        """The number of flushes of files and of writes to commit journals."""
        return self._file_flushes + self.journal_writes

    def journal_written(self, time_s: float) -> None:
        """Count a write to a commit journal, and its time. The same write is also counted as a
        flush.
        """
        self.journal_writes.observe(int(time_s * 1_000_000))
