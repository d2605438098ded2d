"""Reading of partitions' logs in bounded pieces, with the headers of batches.

Requests have no fetch session, because successive requests are for different partitions or offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from odradek_client.admin import Admin
from odradek_client.admin.requests import partition_error
from odradek_client.admin.results import Outcomes, Results
from odradek_client.consumer.fetcher import PartitionRequest
from odradek_client.errors import AuthenticationFailed, OdradekError
from odradek_client.structs import TopicPartition
from odradek_console.record_rules import MaskedRecord, masked
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.aborted import AbortedBatches
from odradek_protocol.records.batch import (
    BatchError,
    BatchHeader,
    Buffer,
    iter_batches,
    next_sequence,
    verify_crc,
)
from odradek_protocol.records.record import Headers, TimestampType, read_columns
from odradek_protocol.schemas.fetch import PartitionData
from odradek_protocol.stored.control_marker import ControlMarkerError, ControlType, decode_marker
from odradek_records.partition_fetch import FetchLimits, fetch_from

#: The maximum size of a batch after decompression. Larger batches are not read.
_DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
_KINDS = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


@dataclass(slots=True)
class LogRecord:
    """A record with the header of its batch. `masked`: what masks show of it, which then are also
    the key, the value and the headers; None without masks."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    batch: BatchHeader
    masked: MaskedRecord | None = None

    @property
    def sequence(self) -> int | None:
        """The sequence number that the producer gave to the record; None without idempotence."""
        batch = self.batch
        if batch.base_sequence < 0:
            return None
        return next_sequence(batch.base_sequence, self.offset - batch.base_offset)


class Marker(NamedTuple):
    """A control record: the end of a transaction in a partition. `kind` is "commit", "abort", or
    "control" for any other control record."""

    partition: int
    offset: int
    timestamp: int
    kind: str
    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class Piece:
    """The content of a partition from the offset `first` up to `next_offset`.

    `hidden`: the offsets of records of aborted transactions. `damage`: the reason why the piece
    ends earlier than its data.
    """

    first: int
    next_offset: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    size_bytes: int = 0
    records: list[LogRecord] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)
    damage: str | None = None

    @property
    def missing(self) -> int:
        """The number of offsets that have neither a record nor a marker."""
        there = len(self.records) + len(self.markers) + len(self.hidden)
        return max(self.next_offset - self.first - there, 0)

    def cut(self, end: int) -> None:
        """Leave out the offsets from `end` on."""
        self.next_offset = min(self.next_offset, end)
        self.records = [record for record in self.records if record.offset < end]
        self.markers = [marker for marker in self.markers if marker.offset < end]
        self.hidden = [offset for offset in self.hidden if offset < end]
        self.damage = None


async def fetch(
    admin: Admin,
    wanted: Mapping[TopicPartition, int],
    limits: FetchLimits,
    *,
    read_committed: bool,
) -> Results[TopicPartition, PartitionData]:
    """The data of partitions from these offsets on; errors of partitions are in the results.

    The first partitions of each leader are served first. Errors such as UnknownTopicOrPartition and
    ConnectionLost are retried for default_api_timeout_ms.
    """
    network = admin.network

    async def ask(
        node_id: int, asked: list[TopicPartition]
    ) -> Outcomes[TopicPartition, PartitionData]:
        # The topic is requested by name. If it is deleted and created again, reading continues in
        # the new topic.
        requested = {tp: PartitionRequest(wanted[tp], limits.partition_bytes) for tp in asked}
        try:
            answer = await fetch_from(
                network, node_id, requested, limits, read_committed=read_committed
            )
        except OdradekError as error:
            if error.code is None or isinstance(error, AuthenticationFailed):
                raise
            return dict.fromkeys(asked, error)
        return {
            tp: partition_error(tp, data.error_code) if data.error_code else data
            for tp, data in answer.items()
        }

    return await admin.requests.for_each_partition(wanted, ask, False)


def read_piece(
    tp: TopicPartition, first: int, until: int, data: PartitionData, *, read_committed: bool
) -> Piece:
    """The records of a fetched partition at offsets from `first` up to `until`, exclusive, as the
    masks show them. May block, because decoders of other packages may block."""
    piece = Piece(first, first, data.high_watermark, data.last_stable_offset)
    if not data.records:
        return piece
    buffer = memoryview(data.records)
    piece.size_bytes = len(buffer)
    aborted = AbortedBatches(data.aborted_transactions if read_committed else None)
    try:
        for position, header in iter_batches(buffer):
            if header.base_offset >= until:
                piece.next_offset = until
                break
            verify_crc(buffer, position, header)
            hidden = aborted.hides(buffer, position, header)
            if header.next_offset > first:
                _add_batch(piece, tp, until, buffer, position, header, hidden)
                piece.next_offset = min(header.next_offset, until)
    except (BatchError, ControlMarkerError) as error:
        piece.damage = str(error)
    return piece


def _add_batch(
    piece: Piece,
    tp: TopicPartition,
    until: int,
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    hidden: bool,
) -> None:
    columns = read_columns(buffer, position, header, _DECOMPRESSED_BYTES_MAX)
    kind = _KINDS[header.is_log_append_time]
    for offset, timestamp, key, value, headers in zip(*columns, strict=False):
        if not piece.first <= offset < until:
            continue
        if header.is_control:
            piece.markers.append(_marker(tp, offset, timestamp, key, value, header))
        elif hidden:
            piece.hidden.append(offset)
        else:
            rules = masked(tp.topic, key, value, headers)
            if rules is not None:
                key, value, headers = rules.key.data, rules.value.data, rules.headers
            piece.records.append(
                LogRecord(*tp, offset, timestamp, kind, key, value, headers, header, rules)
            )


def _marker(
    tp: TopicPartition,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    header: BatchHeader,
) -> Marker:
    found = decode_marker(key, value)
    kind = "control" if found is None else "commit" if found.kind is ControlType.COMMIT else "abort"
    return Marker(tp.partition, offset, timestamp, kind, header.producer_id, header.producer_epoch)


def pieces_of(
    fetched: Mapping[TopicPartition, PartitionData],
    wanted: Mapping[TopicPartition, tuple[int, int]],
    *,
    read_committed: bool,
) -> Iterator[tuple[TopicPartition, Piece]]:
    """The pieces of fetched partitions. `wanted`: for each partition, the first offset, and the
    last one plus 1."""
    for tp, data in fetched.items():
        first, until = wanted[tp]
        yield tp, read_piece(tp, first, until, data, read_committed=read_committed)
