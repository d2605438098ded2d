"""Counters, and the metrics for Prometheus."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from fake_node import FakeNode, FakeShareState
from mirror_world import MirrorWorld, SourceLog
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.coordinator.transactions.transaction import (
    Transaction,
    TransactionState,
)
from odradek_broker.metrics.broker import BrokerMetrics, Histogram
from odradek_broker.metrics.exposition import Exposition
from odradek_broker.share_state import ShareKey, ShareState
from odradek_protocol.constants import NO_TRANSACTION_TIMEOUT_MS
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.find_coordinator import FindCoordinatorResponse
from odradek_protocol.schemas.heartbeat import HeartbeatResponse
from odradek_protocol.schemas.metadata import MetadataResponse
from odradek_protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek_protocol.version import VERSION


class Clock:
    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> int:
        return self.now_us


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by name and labels; fails if Prometheus' own parser refuses the text."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def labelled(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def test_requests_are_counted_by_api_and_version_and_timed() -> None:
    clock = Clock()
    metrics = BrokerMetrics(clock)
    for time_us in (60, 60, 40_000_000):
        started_us = metrics.now_us()
        clock.now_us += time_us
        metrics.request_finished(APIS[ApiKey.METADATA], 12, started_us, MetadataResponse())
    found = samples(Exposition(metrics).render())
    assert found["odradek_requests_total", labelled(api="Metadata", version="12")] == 3
    duration = "odradek_request_duration_seconds"
    assert found[f"{duration}_count", labelled(api="Metadata")] == 3
    assert found[f"{duration}_bucket", labelled(api="Metadata", le="5e-05")] == 0
    assert found[f"{duration}_bucket", labelled(api="Metadata", le="0.0001")] == 2
    assert found[f"{duration}_bucket", labelled(api="Metadata", le="+Inf")] == 3
    assert found[f"{duration}_sum", labelled(api="Metadata")] == 40.00012


def test_a_histogram_bucket_includes_its_upper_bound() -> None:
    histogram = Histogram()
    histogram.observe(50)
    assert histogram.buckets()[0] == ("5e-05", 1.0)


def test_errors_are_counted_from_the_fields_of_answers() -> None:
    metrics = BrokerMetrics(Clock())

    def finish(key: ApiKey, reply: Any) -> None:
        metrics.request_finished(APIS[key], 0, 0, reply)

    finish(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=27))
    finish(ApiKey.HEARTBEAT, HeartbeatResponse())
    partitions = [PartitionProduceResponse(error_code=code) for code in (0, 3, 3, 10)]
    finish(
        ApiKey.PRODUCE,
        ProduceResponse(responses=[TopicProduceResponse(partition_responses=partitions)]),
    )
    finish(ApiKey.FIND_COORDINATOR, FindCoordinatorResponse(error_code=15))
    finish(ApiKey.PRODUCE, object())  # no answer is sent with acks=0
    errors = {
        labels: value
        for (name, labels), value in samples(Exposition(metrics).render()).items()
        if name == "odradek_request_errors_total"
    }
    assert errors == {
        labelled(api="Heartbeat", error="REBALANCE_IN_PROGRESS"): 1,
        labelled(api="Produce", error="UNKNOWN_TOPIC_OR_PARTITION"): 2,
        labelled(api="Produce", error="MESSAGE_TOO_LARGE"): 1,
        labelled(api="FindCoordinator", error="COORDINATOR_NOT_AVAILABLE"): 1,
    }


def test_bytes_flushes_and_connections_are_metrics() -> None:
    metrics = BrokerMetrics(Clock())
    metrics.received_bytes(10)
    metrics.received_bytes(5)
    metrics.sent_bytes(7)
    metrics.appended_bytes(3)
    metrics.fetched_bytes(4)
    metrics.connection_refused()
    metrics.connections.set(2)
    metrics.flushed(0.0015)
    metrics.journal_written(0.25)
    metrics.loop_delays.observe(3_000)
    found = samples(Exposition(metrics).render())
    assert found["odradek_received_bytes_total", ()] == 15
    assert found["odradek_sent_bytes_total", ()] == 7
    assert found["odradek_appended_bytes_total", ()] == 3
    assert found["odradek_fetched_bytes_total", ()] == 4
    assert found["odradek_connections_refused_total", ()] == 1
    assert found["odradek_connections", ()] == 2
    assert found["odradek_flush_duration_seconds_count", ()] == 2
    assert found["odradek_flush_duration_seconds_sum", ()] == 0.2515
    assert found["odradek_journal_write_duration_seconds_count", ()] == 1
    assert found["odradek_journal_write_duration_seconds_sum", ()] == 0.25
    assert found["odradek_event_loop_delay_seconds_bucket", labelled(le="0.002")] == 0
    assert found["odradek_event_loop_delay_seconds_bucket", labelled(le="0.005")] == 1
    ((build, value),) = [
        (dict(labels), value)
        for (name, labels), value in found.items()
        if name == "odradek_build_info"
    ]
    assert value == 1 and build["version"] == VERSION
    assert build["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(build) == {"version", "python", "implementation", "record_codec"}


@dataclass
class Listing:
    group_id: str
    members: int
    state: GroupState = GroupState.STABLE
    protocol_type: str = "consumer"
    generation: int = 7
    offsets: int = 0


class FakeGroups:
    def groups(self) -> Iterable[Listing]:
        return [Listing("g", 2, offsets=3), Listing("idle", 0, GroupState.EMPTY)]

    def committed(self, group_id: str) -> list[tuple[tuple[str, int], int]]:
        return [(("t", 0), 4), (("t", 1), 20), (("gone", 0), 1)] if group_id == "g" else []

    def offset_count(self, group_id: str) -> int:
        return len(self.committed(group_id))

    def consumer_group(self, group_id: str) -> None:
        """Return None: there are no consumer groups."""

    def group(self, group_id: str) -> None:
        """Return None: there are no classic groups."""


def test_topics_and_groups_have_kafka_exporters_names_and_labels() -> None:
    node: Any = FakeNode()
    node.groups = FakeGroups()
    node.create("t", 2)
    node.offline.add(("t", 1))
    found = samples(Exposition(BrokerMetrics(Clock()), node).render())
    assert found["kafka_brokers", ()] == 1
    assert found["kafka_broker_info", labelled(id="1", address="host:9092")] == 1
    assert found["kafka_topic_partitions", labelled(topic="t")] == 2
    place = labelled(topic="t", partition="0")
    expected = {
        "current_offset": 10,
        "oldest_offset": 3,
        "in_sync_replica": 1,
        "leader": 1,
        "leader_is_preferred": 1,
        "replicas": 1,
        "under_replicated_partition": 0,
    }
    for name, value in expected.items():
        assert found[f"kafka_topic_partition_{name}", place] == value
    assert found["odradek_partition_offline", labelled(topic="t", partition="1")] == 1
    assert found["odradek_partition_unstable_records", place] == 3
    group = {"consumergroup": "g", "topic": "t"}
    assert found["kafka_consumergroup_members", labelled(consumergroup="g")] == 2
    assert found["kafka_consumergroup_current_offset", labelled(partition="0", **group)] == 4
    assert found["kafka_consumergroup_lag", labelled(partition="0", **group)] == 6
    assert found["kafka_consumergroup_lag", labelled(partition="1", **group)] == 0
    assert found["kafka_consumergroup_current_offset_sum", labelled(**group)] == 24
    assert found["kafka_consumergroup_lag_sum", labelled(**group)] == 6
    state = labelled(consumergroup="idle", state="Empty")
    assert found["odradek_consumergroup_state", state] == 1
    assert found["odradek_consumergroup_generation", labelled(consumergroup="g")] == 7
    statuses = [labels for name, labels in found if name == "kafka_consumergroup_status"]
    assert statuses == [labelled(consumergroup="g", status="OK", cause="")]


def test_partitions_of_internal_topics_are_shown_if_offline_or_enabled() -> None:
    place = labelled(topic="__consumer_offsets", partition="3")
    for asked in ("false", "true"):
        node: Any = FakeNode(metrics_internal_topics_enable=asked)
        node.groups = FakeGroups()
        node.create("t", 1)
        node.create("__consumer_offsets", 4)
        node.offline.add(("__consumer_offsets", 3))
        found = samples(Exposition(BrokerMetrics(Clock()), node).render())
        count = found["kafka_topic_partitions", labelled(topic="__consumer_offsets")]
        assert count == 4
        shown = {name for name, labels in found if labels == place}
        assert found["odradek_partition_offline", place] == 1
        assert (len(shown) > 1) is (asked == "true")
        other = labelled(topic="__consumer_offsets", partition="0")
        assert any(labels == other for _, labels in found) is (asked == "true")
        assert found["kafka_topic_partition_leader", labelled(topic="t", partition="0")] == 1


def test_the_metrics_of_the_cleaner_have_kafkas_names() -> None:
    node: Any = FakeNode()
    node.groups = FakeGroups()
    statistics = node.cleaner.statistics
    statistics.uncleanable["t", 0] = "damaged"
    statistics.uncleanable_bytes = {node.config.data_dir: 700}
    node.logs.directories[0].logs["t", 0] = None
    statistics.dirtiest, statistics.kept, statistics.took_ms = 0.256, 0.5, 3_999
    statistics.dirty_bytes, statistics.cleanings, statistics.failures = 4_000, 2, 1
    node.clock.advance(250)
    found = samples(Exposition(BrokerMetrics(Clock()), node).render())
    directory = labelled(logDirectory=node.config.data_dir)
    assert found["kafka_log_logcleanermanager_uncleanable_partitions_count", directory] == 1
    assert found["kafka_log_logcleanermanager_uncleanable_bytes", directory] == 700
    assert found["kafka_log_logcleanermanager_max_dirty_percent", ()] == 25
    assert found["kafka_log_logcleanermanager_time_since_last_run_ms", ()] == 250
    assert found["kafka_log_logcleaner_cleaner_recopy_percent", ()] == 50
    assert found["kafka_log_logcleaner_max_clean_time_secs", ()] == 3
    assert found["odradek_compaction_dirty_bytes", ()] == 4_000
    assert found["odradek_compactions_total", ()] == 2
    assert found["odradek_compaction_failures_total", ()] == 1


def test_the_metrics_of_the_share_coordinator_have_kafkas_names() -> None:
    node: Any = FakeNode()
    node.groups = FakeGroups()
    stored = {
        ShareKey(group, bytes(16), 0): SimpleNamespace(state=ShareState(1, 1, 0, 5, 0))
        for group in ("a", "b")
    }
    node.share_state = FakeShareState(
        SimpleNamespace(cores=[SimpleNamespace(partitions=stored)]), 7, {3: 40}
    )
    found = samples(Exposition(BrokerMetrics(Clock()), node).render())
    assert found["odradek_share_partitions", ()] == 2
    assert found["kafka_server_share_coordinator_metrics_write_total", ()] == 7
    pruned = labelled(topic="__share_group_state", partition="3")
    assert found["kafka_server_share_coordinator_metrics_last_pruned_offset", pruned] == 40


def test_t70_the_age_of_each_open_transaction_is_a_metric() -> None:
    node: Any = FakeNode()
    node.groups = FakeGroups()
    now_ms = node.clock.wall_ms()
    node.transactions.held = [
        Transaction("open", 1, 0, 60_000, TransactionState.ONGOING, start_ms=now_ms - 1_500),
        Transaction(
            "kept", 2, 0, NO_TRANSACTION_TIMEOUT_MS, TransactionState.ONGOING, start_ms=now_ms
        ),
        Transaction("idle", 3, 0, 60_000, TransactionState.EMPTY),
    ]
    found = samples(Exposition(BrokerMetrics(Clock()), node).render())
    name = "odradek_transaction_open_seconds"
    ages = {labels: value for (metric, labels), value in found.items() if metric == name}
    assert ages == {
        labelled(transactional_id="open", state="Ongoing", timeout="60000"): 1.5,
        labelled(transactional_id="kept", state="Ongoing", timeout="none"): 0,
    }
    overdue = "odradek_transaction_overdue_seconds"
    assert found[overdue, labelled(transactional_id="open", state="Ongoing")] == 0
    assert len([name for name, _ in found if name == overdue]) == 1
    node.clock.advance(100_000)
    found = samples(Exposition(BrokerMetrics(Clock()), node).render())
    assert found[overdue, labelled(transactional_id="open", state="Ongoing")] == 41.5
    assert found["odradek_transactional_ids", labelled(state="Ongoing")] == 2
    assert found["odradek_transactional_ids", labelled(state="Empty")] == 1
    assert found["odradek_transactional_ids", labelled(state="PrepareAbort")] == 0


def test_i13_the_lag_of_mirror_topics_is_a_metric() -> None:
    world, source = MirrorWorld(), SourceLog()
    world.mirror_topic(partitions=3)
    world.create("plain")
    world.flush_all()
    source.data(5)
    world.append(source.read(), high_watermark=9)
    world.clock.advance(3_000)
    world.append(None, index=1, high_watermark=20)
    world.append(None, index=1, end=-1)
    world.clock.advance(500)

    def told() -> dict[str, float]:
        found = samples(Exposition(BrokerMetrics(Clock()), world.node).render())
        return {
            name.removeprefix("odradek_mirror_"): value
            for (name, labels), value in found.items()
            if name.startswith("odradek_mirror_") and labels == labelled(topic="t")
        }

    assert told() == {"lag_records": 4 + 20, "told_seconds": 3.5, "untold_partitions": 1}
    world.crash()
    assert told() == {"untold_partitions": 3}
    world.promote()
    assert told() == {}
