"""Metrics of the log cleaner: Kafka's, under the names that Prometheus' JMX exporter gives them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import Metric

from odradek_broker.node import Node


def cleaner_families(node: Node) -> Iterator[Metric]:
    """LogCleanerManager and LogCleaner."""
    statistics = node.cleaner.statistics
    partitions = Gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Partitions that are not compacted any more, because their batches are damaged.",
        labels=["logDirectory"],
    )
    size = Gauge(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        "Bytes of those partitions.",
        labels=["logDirectory"],
    )
    for directory in node.logs.directories:
        count = sum(key in directory.logs for key in statistics.uncleanable)
        partitions.add_metric([directory.path], count)
        size.add_metric([directory.path], statistics.uncleanable_bytes.get(directory.path, 0))
    yield from (partitions, size)
    yield Gauge(
        "kafka_log_logcleanermanager_max_dirty_percent",
        "Part of the dirtiest compacted log that is new, at the last look.",
        value=int(100 * statistics.dirtiest),
    )
    yield Gauge(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "Time since the cleaner looked for logs to clean.",
        value=node.clock.monotonic_ms() - statistics.looked_at_ms,
    )
    for name, text, value in (
        (
            "max_buffer_utilization_percent",
            "How full the table of keys was in the last cleaning.",
            int(100 * statistics.map_used),
        ),
        (
            "cleaner_recopy_percent",
            "Part of the bytes that the last cleaning kept.",
            int(100 * statistics.kept),
        ),
        ("max_clean_time_secs", "How long the last cleaning took.", statistics.took_ms // 1000),
        (
            "max_compaction_delay_secs",
            "For how long records have been dirty beyond max.compaction.lag.ms.",
            statistics.delay_ms // 1000,
        ),
        (
            "deadthreadcount",
            "How often the cleaner's process has died. It is started again.",
            statistics.deaths,
        ),
    ):
        yield Gauge(f"kafka_log_logcleaner_{name}", text, value=value)
