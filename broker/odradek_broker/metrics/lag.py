"""Lag of consumer groups in seconds, under the names of kafka-lag-exporter: the age of the first
record that a group has not read.

The lag is exact, because it is computed from the record's timestamp. The cost is small: the offset
index leads to the batch, whose header has the timestamp of its first record, and an offset is
looked up only once. If a group has read only a part of a batch, the batch is decompressed in a
worker thread. Lookups and decompressed bytes of a scrape are limited; samples beyond the limits are
left out and counted, and a later scrape has them.
"""

from __future__ import annotations

from bisect import bisect_left

from odradek_broker.coordinator.groups.share.group import SHARE_TYPE
from odradek_broker.explain.causes import Judge, owners_of
from odradek_broker.explain.lag import timestamp_in_header
from odradek_broker.metrics.families import PAUSE, Counter, Families, Gauge, labels_text
from odradek_broker.node import Node
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.reading import BatchInLog
from odradek_broker.storage.segment_scanner import SegmentCorrupt
from odradek_protocol.constants import NO_TIMESTAMP
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.records.batch import BatchError, BatchHeader, verify_crc
from odradek_protocol.records.record import read_columns

#: The maximum number of offsets that one scrape looks up.
LOOKUPS_MAX = 5_000
#: The maximum number of batches that one scrape decodes.
OPENED_MAX = 256
#: The maximum size of all batches together that one scrape decodes, before decompression.
OPENED_BYTES_MAX = 8 * 1024 * 1024
#: The maximum size of a single batch after decompression.
_DECOMPRESSED_BYTES_MAX = 4 * 1024 * 1024
#: The maximum number of timestamps that are kept for the next scrape.
_KEPT_MAX = 200_000

#: The timestamp that means that the group has read all records.
_NOTHING_UNREAD = -2

_GROUP = ["cluster_name", "group"]
_PARTITION = [*_GROUP, "topic", "partition", "member_host", "consumer_id", "client_id"]

#: Topic id, partition, committed offset, and the offset up to which the log was compacted.
_Key = tuple[bytes, int, int, int]


@dataclass(slots=True)
class _Opened:
    """A batch whose records are to be decoded. `timestamp`: the timestamp of its first record at or
    after the offset in `key`; None until it is known."""

    key: _Key
    header: BatchHeader
    content: bytes
    timestamp: int | None = None

    def open(self) -> None:
        """Decode the batch and set `timestamp`. Any thread may call this method."""
        header = self.header
        try:
            verify_crc(self.content, 0, header)
            columns = read_columns(self.content, 0, header, _DECOMPRESSED_BYTES_MAX)
        except BatchError:
            return
        at = bisect_left(columns.offsets, self.key[2])
        if at < len(columns.timestamps):
            self.timestamp = columns.timestamps[at]


class UnreadTimes:
    """The timestamps of first unread records, kept from scrape to scrape."""

    def __init__(self) -> None:
        #: The number of samples that were left out so far.
        self.left_out = 0
        self._known: dict[_Key, int] = {}
        self._used: dict[_Key, int] = {}
        self._lookups_left = 0
        self._opened: list[_Opened] = []
        self._bytes_left = 0

    def begin(self) -> None:
        """Begin a scrape, and forget the timestamps that the last scrape did not use."""
        self._known, self._used = self._used, {}
        self._lookups_left = LOOKUPS_MAX
        self._opened = []
        self._bytes_left = OPENED_BYTES_MAX

    def look_up(self, log: PartitionLog, offset: int, cleaned_to: int) -> int | _Opened | None:
        """The timestamp of the first record at or after `offset`, or the batch from which
        `open_all` will read it; None if the sample has to be left out."""
        key = log.topic_id, log.partition, max(offset, log.log_start_offset), cleaned_to
        known = self._known.get(key)
        if known is None:
            known = self._used.get(key)
        if known is not None:
            self._keep(key, known)
            return known
        if not self._lookups_left:
            return None
        self._lookups_left -= 1
        try:
            found = log.unread_batch(key[2])
        except StorageError:
            return None
        if found is None:
            return _NOTHING_UNREAD
        timestamp = timestamp_in_header(found.header, key[2])
        if timestamp is None:
            return self._to_open(key, found)
        self._keep(key, timestamp)
        return timestamp

    def _to_open(self, key: _Key, found: BatchInLog) -> _Opened | None:
        size_bytes = found.header.size_bytes
        if len(self._opened) >= OPENED_MAX or size_bytes > self._bytes_left:
            return None
        self._bytes_left -= size_bytes
        try:
            content = found.segment.read(found.position, found.position + size_bytes)
        except (OSError, SegmentCorrupt):
            return None
        self._opened.append(_Opened(key, found.header, content))
        return self._opened[-1]

    def open_all(self) -> Families:
        """Functions that find the timestamps in the batches, each to be called in another
        thread."""
        opened, self._opened = self._opened, []
        for batch in opened:
            yield batch.open
            if batch.timestamp is not None:
                self._keep(batch.key, batch.timestamp)

    def _keep(self, key: _Key, timestamp: int) -> None:
        if len(self._used) < _KEPT_MAX:
            self._used[key] = timestamp


class _Lags:
    def __init__(self, node: Node, times: UnreadTimes) -> None:
        self._times = times
        self._now_ms = node.clock.wall_ms()
        self.seconds = Gauge(
            "kafka_consumergroup_group_lag_seconds",
            "Age of the first record that the group has not read.",
            labels=_PARTITION,
        )
        #: The lag in seconds of each group, which is that of the partition with the longest lag.
        self.longest: dict[str, float] = {}

    def add(self, group_id: str, place: str, timestamp: int | None) -> None:
        if timestamp is None or timestamp == NO_TIMESTAMP:
            self._times.left_out += 1
            return
        unread = timestamp != _NOTHING_UNREAD
        seconds = max(0, self._now_ms - timestamp) / 1000 if unread else 0.0
        self.seconds.add_line(place, seconds)
        self.longest[group_id] = max(self.longest.get(group_id, 0.0), seconds)


def lag_families(node: Node, times: UnreadTimes) -> Families:
    """Lag in seconds by partition, and the longest lag of each group. A group that has read all
    records has a lag of 0."""
    lags = _Lags(node, times)
    waiting: list[tuple[str, str, _Opened]] = []
    times.begin()
    for group in node.groups.groups():
        yield PAUSE
        if group.protocol_type == SHARE_TYPE:
            continue
        group_id = group.group_id
        owners = (yield from owners_of(node, group_id)) if group.members else {}
        for (topic, index), offset in node.groups.committed(group_id):
            yield PAUSE
            partition = node.partition(topic, index)
            if partition is None:
                continue
            log, owner = partition.log, owners.get((topic, index))
            labels = [node.cluster_id, group_id, topic, str(index), "", "", ""]
            if owner is not None:
                labels[4:] = owner.client_host, owner.member_id, owner.client_id
            place = labels_text(_PARTITION, labels)
            if offset >= log.high_watermark:
                lags.add(group_id, place, _NOTHING_UNREAD)
                continue
            cleaned_to = node.logs.directory_of(log).cleaner_offsets.get((topic, index), 0)
            found = times.look_up(log, offset, cleaned_to)
            if isinstance(found, _Opened):
                waiting.append((group_id, place, found))
            else:
                lags.add(group_id, place, found)
    yield from times.open_all()
    for group_id, place, opened in waiting:
        yield PAUSE
        lags.add(group_id, place, opened.timestamp)
    yield lags.seconds
    maximum = Gauge(
        "kafka_consumergroup_group_max_lag_seconds",
        "The longest lag in seconds of the group's partitions.",
        labels=_GROUP,
    )
    for group_id, seconds in lags.longest.items():
        yield PAUSE
        maximum.add_metric([node.cluster_id, group_id], seconds)
    yield maximum
    yield Counter(
        "odradek_consumergroup_lag_seconds_left_out",
        "Samples of the lag in seconds that are missing, because one scrape would take too long or"
        " records have no timestamp.",
        value=times.left_out,
    )


def verdict_families(node: Node) -> Families:
    """The generation of each group that is not a share group, and the status (a verdict) of each of
    these groups that has committed offsets. The generation grows with every rebalance."""
    status = Gauge(
        "kafka_consumergroup_status",
        "1 for the status of a consumer group: OK, WARNING, STALLED or STOPPED. The label cause is"
        " empty unless a group is not OK.",
        labels=["consumergroup", "status", "cause"],
    )
    generation = Gauge(
        "odradek_consumergroup_generation",
        "Generation of a consumer group, or its epoch.",
        labels=["consumergroup"],
    )
    judge = Judge(node)
    for group in node.groups.groups():
        yield PAUSE
        if group.protocol_type == SHARE_TYPE:
            continue
        generation.add_metric([group.group_id], group.generation)
        if group.offsets:
            fields = (yield from judge.state_of(group.group_id)).fields
            labels = [group.group_id, str(fields["verdict"]), str(fields.get("cause", ""))]
            status.add_metric(labels, 1)
    yield from (status, generation)
    yield Gauge(
        "odradek_consumergroup_unwatched_partitions",
        "Partitions with lag that are not watched for the status, because there are too many.",
        value=node.verdicts.unwatched,
    )
