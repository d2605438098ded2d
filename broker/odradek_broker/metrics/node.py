"""Metrics of topics, partitions, groups and transactions, read from the node, with kafka_exporter's
names.

Dashboards for kafka_exporter work unchanged: the metrics have the same names and labels.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from odradek_broker.coordinator.groups.share.group import SHARE_TYPE
from odradek_broker.coordinator.transactions.transaction import STORED_STATES, TransactionState
from odradek_broker.explain.mirrors import records_behind
from odradek_broker.metrics.families import PAUSE, Counter, Families, Gauge, labels_text
from odradek_broker.metrics.share import share_families
from odradek_broker.node import Node
from odradek_broker.storage.errors import StorageError

_PARTITION = ["topic", "partition"]
_GROUP = ["consumergroup", "topic", "partition"]
#: The maximum number of client ids with samples. There is a limit because clients choose their ids,
#: and could fill a monitoring system.
_QUOTA_RATES_MAX = 1_000


def node_families(node: Node) -> Families:
    """Brokers, topics, partitions, consumer groups and open transactions."""
    yield Gauge("kafka_brokers", "Number of Brokers in the Kafka Cluster.", value=1)
    broker = Gauge(
        "kafka_broker_info", "Information about the Kafka Broker.", labels=["id", "address"]
    )
    host, port = node.advertised()
    broker.add_metric([str(node.node_id), f"{host}:{port}"], 1)
    yield broker
    disks = [directory.disk for directory in node.logs.directories]
    yield Gauge(
        "odradek_disk_writable",
        "1 if the data directories can be written, 0 if not, for example on a full disk.",
        value=float(not any(disk.problem for disk in disks)),
    )
    yield Counter(
        "odradek_disk_write_failures",
        "Writes to the data directory that failed.",
        value=sum(disk.failures for disk in disks),
    )
    yield Counter(
        "odradek_disk_read_failures",
        "Reads from the data directory that failed.",
        value=sum(disk.read_failures for disk in disks),
    )
    yield from _directory_families(node)
    yield from _journal_families(node)
    yield from _quota_families(node)
    yield from _partition_families(node)
    yield from _mirror_families(node)
    yield from _group_families(node)
    yield from _transaction_families(node)
    yield from share_families(node)


def _directory_families(node: Node) -> Families:
    """The metrics of Kafka's LogManager, with the names that Prometheus' JMX exporter gives
    them."""
    directories = node.logs.directories
    yield Gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Number of data directories that have failed.",
        value=sum(bool(directory.failure) for directory in directories),
    )
    failed = Gauge(
        "kafka_log_logmanager_logdirectoryoffline",
        "1 if the data directory has failed; its partitions are offline until a start can use it.",
        labels=["logDirectory"],
    )
    for directory in directories:
        failed.add_metric([directory.path], float(bool(directory.failure)))
    yield failed
    room = Gauge(
        "odradek_log_directory_usable_bytes",
        "Bytes that can still be written to the file system of a data directory.",
        labels=["logDirectory"],
    )
    size = Gauge(
        "odradek_log_directory_total_bytes",
        "Size of the file system of a data directory.",
        labels=["logDirectory"],
    )
    for directory in directories:
        with suppress(OSError):
            volume = directory.volume()
            room.add_metric([directory.path], volume.usable_bytes)
            size.add_metric([directory.path], volume.total_bytes)
    yield from (room, size)


def _journal_families(node: Node) -> Families:
    used = Gauge(
        "odradek_journal_used_bytes",
        "Bytes of the commit journal that are not yet synced to the logs.",
        labels=["logDirectory"],
    )
    size = Gauge(
        "odradek_journal_max_bytes",
        "Bytes that the commit journal may use; 0 without a journal.",
        labels=["logDirectory"],
    )
    crowded_out = Counter(
        "odradek_journal_crowded_out",
        "Appends that synced the log files instead, because the commit journal was full.",
        labels=["logDirectory"],
    )
    for directory in node.logs.directories:
        journal = directory.journal
        used.add_metric([directory.path], journal.used_bytes)
        size.add_metric([directory.path], journal.bytes_max)
        crowded_out.add_metric([directory.path], journal.crowded_out)
    yield from (used, size, crowded_out)


def _quota_families(node: Node) -> Families:
    used = Gauge(
        "odradek_quota_rate",
        "Bytes, or percent of the time, per second that clients with a quota use; with an empty user"
        " or client_id, the sum of several clients.",
        labels=["quota", "user", "client_id"],
    )
    for manager in node.quotas.in_use():
        for user, client_id, rate in islice(manager.usages(), _QUOTA_RATES_MAX):
            used.add_metric([manager.kind, user, client_id], rate)
    yield used
    throttled = Gauge(
        "odradek_throttled_clients",
        "Clients, or sums of clients with a common quota, that exceed their quota.",
        labels=["quota"],
    )
    for manager in node.quotas.in_use():
        count = 0
        for is_above in manager.throttled():
            yield PAUSE
            count += is_above
        throttled.add_metric([manager.kind], count)
    yield throttled


def _partition_families(node: Node) -> Families:
    topics = Gauge(
        "kafka_topic_partitions", "Number of partitions for this Topic", labels=["topic"]
    )

    def gauge(name: str, text: str) -> Gauge:
        return Gauge(f"kafka_topic_partition_{name}", text, labels=_PARTITION)

    newest = gauge("current_offset", "Current Offset of a Broker at Topic/Partition")
    oldest = gauge("oldest_offset", "Oldest Offset of a Broker at Topic/Partition")
    leader = gauge("leader", "Leader Broker ID of this Topic/Partition")
    preferred = gauge("leader_is_preferred", "1 if Topic/Partition is using the Preferred Broker")
    replicas = gauge("replicas", "Number of Replicas for this Topic/Partition")
    in_sync = gauge("in_sync_replica", "Number of In-Sync Replicas for this Topic/Partition")
    under = gauge("under_replicated_partition", "1 if Topic/Partition is under Replicated")
    size = Gauge(
        "odradek_partition_log_bytes", "Bytes of a partition's segment files.", labels=_PARTITION
    )
    unstable = Gauge(
        "odradek_partition_unstable_records",
        "Records after the last stable offset, which read_committed consumers cannot read yet.",
        labels=_PARTITION,
    )
    offline = Gauge(
        "odradek_partition_offline", "1 if the partition is offline.", labels=_PARTITION
    )
    shows_internal = node.metadata.config.metrics_internal_topics_enable
    for topic in list(node.metadata.topics.values()):
        topics.add_metric([topic.name], len(topic.partitions))
        hidden = topic.is_internal and not shows_internal
        for index, state in list(topic.partitions.items()):
            yield PAUSE
            partition = node.partition(topic.name, index)
            place = labels_text(_PARTITION, [topic.name, str(index)])
            if hidden:
                if partition is not None and partition.log.offline:
                    offline.add_line(place, 1)
                continue
            leader.add_line(place, state.leader)
            preferred.add_line(place, state.leader == state.replicas[0])
            replicas.add_line(place, len(state.replicas))
            in_sync.add_line(place, len(state.isr))
            under.add_line(place, len(state.isr) < len(state.replicas))
            if partition is None:
                continue
            log = partition.log
            newest.add_line(place, log.high_watermark)
            oldest.add_line(place, log.log_start_offset)
            with suppress(StorageError):
                size.add_line(place, log.size_bytes)
            unstable.add_line(place, log.high_watermark - log.last_stable_offset)
            offline.add_line(place, log.offline)
    yield from (topics, newest, oldest, leader, preferred, replicas, in_sync, under)
    yield from (size, unstable, offline)


def _mirror_families(node: Node) -> Families:
    """The lag of each mirror topic, from the reports that its mirror has sent since the start of
    the broker."""
    lag = Gauge(
        "odradek_mirror_lag_records",
        "Number of offsets by which a mirror topic is behind the high watermarks of its source.",
        labels=["topic"],
    )
    told = Gauge(
        "odradek_mirror_told_seconds",
        "Time since the last report of the mirror, of the partition with the oldest report.",
        labels=["topic"],
    )
    untold = Gauge(
        "odradek_mirror_untold_partitions",
        "Partitions of a mirror topic for which no mirror has sent a report since the broker started.",
        labels=["topic"],
    )
    now_ms = node.clock.wall_ms()
    for name in list(node.metadata.mirror_sources):
        topic = node.metadata.topics.get(name)
        if topic is None:
            continue
        behind, oldest_ms, missing = 0, now_ms, 0
        for index in list(topic.partitions):
            yield PAUSE
            partition, source = node.partition(name, index), node.mirrors.source_of(name, index)
            records = -1 if partition is None else records_behind(partition.log, source)
            if source is None or records < 0:
                missing += 1
                continue
            behind += records
            oldest_ms = min(oldest_ms, source.told_ms)
        place = labels_text(["topic"], [name])
        untold.add_line(place, missing)
        if missing < len(topic.partitions):
            lag.add_line(place, behind)
            told.add_line(place, (now_ms - oldest_ms) / 1000)
    yield from (lag, told, untold)


def _group_families(node: Node) -> Families:
    members = Gauge(
        "kafka_consumergroup_members",
        "Amount of members in a consumer group",
        labels=["consumergroup"],
    )
    state = Gauge(
        "odradek_consumergroup_state",
        "1 for the state that a consumer group is in.",
        labels=["consumergroup", "state"],
    )
    current = Gauge(
        "kafka_consumergroup_current_offset",
        "Current Offset of a ConsumerGroup at Topic/Partition",
        labels=_GROUP,
    )
    lag = Gauge(
        "kafka_consumergroup_lag",
        "Current Approximate Lag of a ConsumerGroup at Topic/Partition",
        labels=_GROUP,
    )
    current_sum = Gauge(
        "kafka_consumergroup_current_offset_sum",
        "Current Offset of a ConsumerGroup at Topic for all partitions",
        labels=["consumergroup", "topic"],
    )
    lag_sum = Gauge(
        "kafka_consumergroup_lag_sum",
        "Current Approximate Lag of a ConsumerGroup at Topic for all partitions",
        labels=["consumergroup", "topic"],
    )
    for group in node.groups.groups():
        yield PAUSE
        if group.protocol_type == SHARE_TYPE:
            continue  # share groups have families of their own
        members.add_metric([group.group_id], group.members)
        state.add_metric([group.group_id, group.state.value], 1)
        sums: dict[str, list[int]] = {}
        for (topic, index), offset in node.groups.committed(group.group_id):
            yield PAUSE
            place = labels_text(_GROUP, [group.group_id, topic, str(index)])
            current.add_line(place, offset)
            both = sums.setdefault(topic, [0, 0])
            both[0] += offset
            partition = node.partition(topic, index)
            if partition is not None:
                behind = max(0, partition.log.high_watermark - offset)
                lag.add_line(place, behind)
                both[1] += behind
        for topic, (offsets, behind) in sums.items():
            current_sum.add_metric([group.group_id, topic], offsets)
            lag_sum.add_metric([group.group_id, topic], behind)
    yield from (members, state, current, lag, current_sum, lag_sum)


def _transaction_families(node: Node) -> Families:
    """The number of transactional ids in each state, and the open transactions, which keep
    read_committed consumers from reading further (T-45)."""
    states = Gauge(
        "odradek_transactional_ids", "Transactional ids in each state.", labels=["state"]
    )
    age = Gauge(
        "odradek_transaction_open_seconds",
        "Time that a transaction has been open; timeout is none if it is prepared (KIP-939).",
        labels=["transactional_id", "state", "timeout"],
    )
    overdue = Gauge(
        "odradek_transaction_overdue_seconds",
        "Time that a transaction has been open after its timeout; 0 before the timeout.",
        labels=["transactional_id", "state"],
    )
    now_ms = node.clock.wall_ms()
    counts = dict.fromkeys(sorted(STORED_STATES), 0)
    for transaction in list(node.transactions.transactions()):
        yield PAUSE
        counts[transaction.state] += 1
        if transaction.state is TransactionState.ONGOING or transaction.state.is_prepared:
            timeout = str(transaction.timeout_ms) if transaction.has_timeout else "none"
            open_s = max(0, now_ms - transaction.start_ms) / 1000
            named = [transaction.transactional_id, transaction.state.label]
            age.add_metric([*named, timeout], open_s)
            if transaction.has_timeout:
                overdue.add_metric(named, max(0, open_s - transaction.timeout_ms / 1000))
    for state, count in counts.items():
        states.add_metric([state.label], count)
    yield from (states, age, overdue)
