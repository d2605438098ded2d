"""The metrics of one broker in Prometheus' text format.

Requests, bytes, connections and flushes are counted (`broker.py`); offsets, lag and other state of
the node are read when the metrics are requested (`node.py`, `cleaner.py`).
"""

from __future__ import annotations

import sys

from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.metrics.families import Counter, Families, Gauge, HistogramFamily, gathered
from odradek_broker.metrics.lag import UnreadTimes, lag_families, verdict_families
from odradek_broker.metrics.node import node_families
from odradek_broker.metrics.telemetry import telemetry_families
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records import native
from odradek_protocol.version import VERSION

_PYTHON = ".".join(map(str, sys.version_info[:3]))


def cleaner_families(node: Node) -> Families:
    """The metrics of Kafka's LogCleanerManager and LogCleaner."""
    statistics = node.cleaner.statistics
    partitions = Gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Partitions that are no longer compacted, because batches of them are damaged.",
        labels=["logDirectory"],
    )
    size = Gauge(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        "Bytes of the partitions that are no longer compacted.",
        labels=["logDirectory"],
    )
    for directory in node.logs.directories:
        count = sum(key in directory.logs for key in statistics.uncleanable)
        partitions.add_metric([directory.path], count)
        size.add_metric([directory.path], statistics.uncleanable_bytes.get(directory.path, 0))
    yield from (partitions, size)
    yield Gauge(
        "kafka_log_logcleanermanager_max_dirty_percent",
        "Percentage of bytes not compacted yet, in the log with most of them, at the last check.",
        value=int(100 * statistics.dirtiest),
    )
    yield Gauge(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "Time since the cleaner last checked which logs to compact.",
        value=node.clock.monotonic_ms() - statistics.looked_at_ms,
    )
    yield Gauge(
        "odradek_compaction_dirty_bytes",
        "Bytes of compacted logs that are not compacted yet, at the last check.",
        value=statistics.dirty_bytes,
    )
    yield Counter("odradek_compactions", "Compactions of logs.", value=statistics.cleanings)
    yield Counter(
        "odradek_compaction_failures",
        "Compactions that failed, and logs that are no longer compacted.",
        value=statistics.failures,
    )
    for name, text, value in (
        (
            "max_buffer_utilization_percent",
            "Percentage of the table of keys that the last compaction used.",
            int(100 * statistics.map_used),
        ),
        (
            "cleaner_recopy_percent",
            "Percentage of bytes that the last compaction kept.",
            int(100 * statistics.kept),
        ),
        ("max_clean_time_secs", "Duration of the last compaction.", statistics.took_ms // 1000),
        (
            "max_compaction_delay_secs",
            "Time by which the compaction of records is late, after max.compaction.lag.ms.",
            statistics.delay_ms // 1000,
        ),
        (
            "deadthreadcount",
            "Number of times that the cleaner's process has died and was started again.",
            statistics.deaths,
        ),
    ):
        yield Gauge(f"kafka_log_logcleaner_{name}", text, value=value)


class Exposition:
    """The metrics of one broker: the counters, and the state of `node` if it is given."""

    def __init__(self, metrics: BrokerMetrics, node: Node | None = None) -> None:
        self._metrics = metrics
        self._node = node
        self._unread_times = UnreadTimes()

    def families(self) -> Families:
        """All metrics. Only one caller at a time may read them."""
        yield from _broker_families(self._metrics)
        if self._node is not None:
            yield from node_families(self._node)
            yield from lag_families(self._node, self._unread_times)
            yield from verdict_families(self._node)
            yield from cleaner_families(self._node)
            yield _certificate_family(self._metrics, self._node.clock.wall_ms())
            yield from telemetry_families(self._node)

    def render(self) -> bytes:
        """All metrics as text, made without pauses for other work."""
        return b"".join(family.encoded() for family in gathered(self.families()))


def _machine_families(metrics: BrokerMetrics) -> Families:
    """The metrics of the program's build, of the event loop and of the disk."""
    build = Gauge(
        "odradek_build_info",
        "Always 1; the labels have the versions of the broker and of Python.",
        labels=["version", "python", "implementation", "record_codec"],
    )
    build.add_metric([VERSION, _PYTHON, sys.implementation.name, native.describe()], 1)
    yield build
    for name, text, histogram in (
        ("odradek_flush_duration_seconds", "Time that a flush to disk took.", metrics.flushes),
        (
            "odradek_journal_write_duration_seconds",
            "Time that a write to a commit journal took.",
            metrics.journal_writes,
        ),
        (
            "odradek_event_loop_delay_seconds",
            "Delay of the event loop, measured ten times a second.",
            metrics.loop_delays,
        ),
    ):
        times = HistogramFamily(name, text)
        times.add_buckets([], histogram.buckets(), histogram.sum_us / 1_000_000)
        yield times


def _certificate_family(metrics: BrokerMetrics, now_ms: int) -> Gauge:
    left = Gauge(
        "odradek_certificate_expiry_seconds",
        "Time until the certificate of a listener expires.",
        labels=["listener"],
    )
    for listener, end_s in sorted(metrics.certificate_ends_s.items()):
        left.add_metric([listener], end_s - now_ms / 1000)
    return left


def _broker_families(metrics: BrokerMetrics) -> Families:
    requests = Counter("odradek_requests", "Requests answered.", labels=["api", "version"])
    for (api, version), count in sorted(metrics.requests.items()):
        requests.add_metric([api, str(version)], count)
    yield requests
    errors = Counter("odradek_request_errors", "Error codes in answers.", labels=["api", "error"])
    for (api, code), count in sorted(metrics.errors.items()):
        errors.add_metric([api, ErrorCode.of(code).name], count)
    yield errors
    times = HistogramFamily(
        "odradek_request_duration_seconds",
        "Time from the last byte of a request to its answer, including waits.",
        labels=["api"],
    )
    for api, histogram in sorted(metrics.times.items()):
        times.add_buckets([api], histogram.buckets(), histogram.sum_us / 1_000_000)
    yield times
    yield from _machine_families(metrics)
    for name, text, value in (
        ("odradek_received_bytes", "Bytes read from connections.", metrics.received_total),
        ("odradek_sent_bytes", "Bytes written to connections.", metrics.sent_total),
        ("odradek_appended_bytes", "Bytes of batches appended to logs.", metrics.appended_total),
        ("odradek_fetched_bytes", "Bytes of batches in Fetch responses.", metrics.fetched_total),
        (
            "odradek_sessions_expired",
            "Connections closed because their SASL session had expired.",
            metrics.sessions_expired_total,
        ),
        (
            "odradek_connections_refused",
            "Connections closed because of invalid or excessive data.",
            metrics.connections_refused_total,
        ),
    ):
        yield Counter(name, text, value=value)
    throttled = Counter(
        "odradek_throttled_requests",
        "Requests that were throttled because of a quota.",
        labels=["quota"],
    )
    throttle_time = Counter(
        "odradek_throttle_time_seconds",
        "Time that requests were throttled because of a quota.",
        labels=["quota"],
    )
    for quota, count in sorted(metrics.throttled_requests.items()):
        throttled.add_metric([quota], count)
        throttle_time.add_metric([quota], metrics.throttle_time_ms[quota] / 1000)
    yield from (throttled, throttle_time)
    authentications = Counter(
        "odradek_authentications",
        "Authentications by SASL, including re-authentications.",
        labels=["listener", "mechanism", "kind", "result"],
    )
    for (listener, mechanism, again, failed), count in sorted(metrics.authentications.items()):
        kind, result = "again" if again else "first", "failed" if failed else "successful"
        authentications.add_metric([listener, mechanism, kind, result], count)
    yield authentications
    yield Gauge("odradek_connections", "Open connections.", value=metrics.connections.value)
