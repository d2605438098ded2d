"""The metrics of share groups and their coordinator (H-250 to H-253).

Kafka's metrics (KIP-1103) have the names that Prometheus' JMX exporter gives them with its rules
for Kafka. Lag and members are named like kafka_exporter's metrics of consumer groups.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Generator, Iterator

from odradek_broker.coordinator.groups.share.group import SHARE_TYPE
from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC
from odradek_broker.metrics.families import PAUSE, Counter, Families, Gauge, Summary
from odradek_broker.node import Node
from odradek_broker.share.share_partition import AcknowledgeType
from odradek_broker.share.statistics import PartitionStatistics
from odradek_broker.share_state import ShareKey
from odradek_protocol.constants import NO_DELIVERY_COUNT

#: The labels of Kafka's metrics.
_KAFKA = ["group", "topic", "partition"]
#: The labels of the metrics that are named like kafka_exporter's.
_EXPORTER = ["sharegroup", "topic", "partition"]


def share_families(node: Node) -> Families:
    """All metrics of share groups."""
    yield from _group_families(node)
    yield from _lag_families(node)
    yield from _in_flight_families(node)
    yield from _counted_families(node)
    yield from _fetch_families(node)
    yield from _request_families(node)
    yield from _coordinator_families(node)


def _labels(node: Node, key: ShareKey) -> list[str] | None:
    """The labels of a share partition; None if its topic no longer exists."""
    topic = node.metadata.topic_name(key.topic_id)
    return None if topic is None else [key.group_id, topic, str(key.partition)]


def _group_families(node: Node) -> Families:
    members = Gauge(
        "kafka_sharegroup_members", "Amount of members in a share group", labels=["sharegroup"]
    )
    for group in node.groups.groups():
        yield PAUSE
        if group.protocol_type == SHARE_TYPE:
            members.add_metric([group.group_id], group.members)
    yield members


def _lag_families(node: Node) -> Families:
    """The stored start offsets and the lag, as in DescribeShareGroupOffsets."""
    start = Gauge(
        "kafka_sharegroup_start_offset",
        "Start Offset of a ShareGroup at Topic/Partition",
        labels=_EXPORTER,
    )
    lag = Gauge(
        "kafka_sharegroup_lag",
        "Current Approximate Lag of a ShareGroup at Topic/Partition",
        labels=_EXPORTER,
    )
    lag_sum = Gauge(
        "kafka_sharegroup_lag_sum",
        "Current Approximate Lag of a ShareGroup at Topic for all partitions",
        labels=["sharegroup", "topic"],
    )
    sums: Counts[tuple[str, str]] = Counts()
    for shard in list(node.share_state.shards.cores):
        for key, stored in list(shard.partitions.items()):
            yield PAUSE
            labels, state = _labels(node, key), stored.state
            if labels is None or state.start_offset < 0:
                continue
            start.add_metric(labels, state.start_offset)
            partition = node.partition(labels[1], key.partition)
            if partition is None or state.delivery_complete_count == NO_DELIVERY_COUNT:
                continue
            end = partition.log.high_watermark
            behind = max(0, end - state.start_offset - state.delivery_complete_count)
            lag.add_metric(labels, behind)
            sums[labels[0], labels[1]] += behind
    for both, behind in sums.items():
        lag_sum.add_metric(list(both), behind)
    yield from (start, lag, lag_sum)


def _in_flight_families(node: Node) -> Families:
    """The share partitions in memory, with their records in flight."""
    messages = Gauge(
        "kafka_server_sharepartitionmetrics_inflightmessagecount",
        "Number of offsets from the start offset to the last acquired one.",
        labels=_KAFKA,
    )
    batches = Gauge(
        "kafka_server_sharepartitionmetrics_inflightbatchcount",
        "Number of batches of records in flight.",
        labels=_KAFKA,
    )
    sizes = Summary(
        "kafka_server_sharepartitionmetrics_inflightbatchmessagecount",
        "Number of records in a batch when it was first acquired.",
        labels=_KAFKA,
    )
    states = Gauge(
        "odradek_sharegroup_records_in_flight",
        "Records in flight, by state.",
        labels=[*_EXPORTER, "state"],
    )
    for led in list(node.share_partitions.loaded()):
        yield PAUSE
        state = led.state
        if state is None:
            continue
        labels = [led.key.group_id, led.topic, str(led.key.partition)]
        in_flight = state.in_flight
        messages.add_metric(labels, state.records_in_flight)
        batches.add_metric(labels, len(in_flight.batches))
        sizes.add_summary(labels, in_flight.added, in_flight.added_records)
        for name, count in state.count_by_state().items():
            states.add_metric([*labels, name.name.lower()], count)
    yield from (messages, batches, sizes, states)


def _counted_families(node: Node) -> Families:
    """The counters of acknowledged records and of fetches."""
    statistics = node.share_partitions.statistics
    acknowledged = Counter(
        "kafka_server_sharegroupmetrics_recordacknowledgements",
        "Records that were acknowledged, by type.",
        labels=["ackType"],
    )
    for kind in AcknowledgeType:
        # Like Kafka, this broker does not count gaps.
        if kind is not AcknowledgeType.GAP:
            acknowledged.add_metric([kind.name.capitalize()], statistics.acknowledged[kind])
    yield acknowledged
    loads = Summary(
        "kafka_server_sharegroupmetrics_partitionloadtimems",
        "Time that loading the state of a share partition took.",
        count_value=statistics.loads,
        sum_value=statistics.load_time_ms,
    )
    yield loads
    expired = Counter(
        "kafka_server_sharepartitionmetrics_acquisitionlocktimeout",
        "Records whose lock has expired.",
        labels=_KAFKA,
    )
    archived = Counter(
        "odradek_sharegroup_archived_records",
        "Records that were archived, by reason.",
        labels=[*_EXPORTER, "reason"],
    )
    empty = Counter(
        "odradek_sharegroup_empty_fetches",
        "Fetches that returned no records although the partition has some, by reason.",
        labels=[*_EXPORTER, "reason"],
    )
    letters = Counter(
        "odradek_sharegroup_dead_letters",
        "Records that a share group gave up and that have a dead letter.",
        labels=_EXPORTER,
    )
    missing = Counter(
        "odradek_sharegroup_missing_dead_letters",
        "Records that a share group gave up and whose dead letter could not be written.",
        labels=_EXPORTER,
    )
    groups = yield from _share_groups(node)
    for labels, counted in _counted(node, groups):
        yield PAUSE
        expired.add_metric(labels, counted.locks_expired)
        letters.add_metric(labels, counted.dead_letters)
        missing.add_metric(labels, counted.missing_dead_letters)
        for reason, number in sorted(counted.archived.items()):
            archived.add_metric([*labels, reason], number)
        for why, number in counted.empty_fetches.items():
            empty.add_metric([*labels, why.value], number)
    yield from (expired, letters, missing, archived, empty)


def _fetch_families(node: Node) -> Families:
    """Two summaries of the fetches of each group: the percentage of a fetch's partitions from which
    records could be acquired, and the time that a fetch waited until there were records."""
    used = Summary(
        "kafka_server_sharegroupmetrics_requesttopicpartitionsfetchratio",
        "Percentage of the partitions of a fetch from which records could be acquired.",
        labels=["group"],
    )
    waited = Summary(
        "kafka_server_sharegroupmetrics_topicpartitionsacquiretimems",
        "Time that a fetch waited for partitions from which records can be acquired.",
        labels=["group"],
    )
    existing = yield from _share_groups(node)
    for group_id, counted in list(node.share_partitions.statistics.groups.items()):
        yield PAUSE
        if group_id in existing:
            used.add_summary([group_id], counted.fetches, counted.fetchable_percent)
            waited.add_summary([group_id], counted.fetches, counted.waited_ms)
    yield from (used, waited)


def _share_groups(node: Node) -> Generator[None, None, set[str]]:
    found = set()
    for group in node.groups.groups():
        yield PAUSE
        if group.protocol_type == SHARE_TYPE:
            found.add(group.group_id)
    return found


def _counted(node: Node, groups: set[str]) -> Iterator[tuple[list[str], PartitionStatistics]]:
    """The labels and counters of each share partition of these groups. Partitions of deleted topics
    are left out."""
    for key, counted in list(node.share_partitions.statistics.partitions.items()):
        labels = _labels(node, key)
        if labels is not None and key.group_id in groups:
            yield labels, counted


def _request_families(node: Node) -> Families:
    def counter(name: str, text: str) -> Counter:
        return Counter(f"kafka_server_brokertopicmetrics_{name}requests", text, labels=["topic"])

    fetches = counter("totalsharefetch", "ShareFetch requests for a topic.")
    failed_fetches = counter("failedsharefetch", "ShareFetch requests with an error for a topic.")
    acknowledgements = counter(
        "totalshareacknowledgement", "Requests that acknowledge records of a topic."
    )
    failed = counter(
        "failedshareacknowledgement",
        "Requests that acknowledge records of a topic and got an error for it.",
    )
    for topic, counted in list(node.share_partitions.statistics.topics.items()):
        yield PAUSE
        if topic not in node.metadata.topics:
            continue
        fetches.add_metric([topic], counted.fetches)
        failed_fetches.add_metric([topic], counted.failed_fetches)
        acknowledgements.add_metric([topic], counted.acknowledgements)
        failed.add_metric([topic], counted.failed_acknowledgements)
    yield from (fetches, failed_fetches, acknowledgements, failed)


def _coordinator_families(node: Node) -> Families:
    """The metrics of Kafka's share coordinator, and the number of stored states."""
    coordinator = node.share_state
    yield Gauge(
        "odradek_share_partitions",
        "Share partitions with a stored state.",
        value=sum(len(shard.partitions) for shard in coordinator.shards.cores),
    )
    yield Counter(
        "kafka_server_share_coordinator_metrics_write",
        "Calls that write the state of a share partition.",
        value=coordinator.writes,
    )
    pruned = Gauge(
        "kafka_server_share_coordinator_metrics_last_pruned_offset",
        "Offset below which records of the topic __share_group_state have been deleted.",
        labels=["topic", "partition"],
    )
    for index, offset in sorted(coordinator.pruned.items()):
        pruned.add_metric([SHARE_STATE_TOPIC, str(index)], offset)
    yield pruned
