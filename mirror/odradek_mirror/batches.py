"""The conversion of batches of a source partition to batches for another cluster.

A batch that any producer could have sent keeps its body, compressed or not; the producer writes
only a new header. Other batches are decoded and encoded again: batches whose offsets have gaps
(compaction, aborted transactions, a start inside a batch), batches whose timestamps are those of
the source broker, and batches that are too small for separate requests. Several small batches are
combined.

The module uses no clock and no I/O. The checksum of each batch is verified, so that damage is not
copied with a new checksum.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from odradek_protocol.compression import Codec
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.aborted import AbortedBatches
from odradek_protocol.records.batch import BatchHeader, iter_batches, verify_crc
from odradek_protocol.records.builder import EncodedRecords
from odradek_protocol.records.encoding import NO_HEADERS, encode_columns, encode_headers
from odradek_protocol.records.layout import HEADER_BYTES
from odradek_protocol.records.record import Headers, read_columns
from odradek_protocol.schemas.fetch import AbortedTransaction

#: Batches below this size are combined, because a request takes only one batch of a partition.
SMALL_BATCH_BYTES = 4 * 1024
#: The maximum numbers of bytes and of records in a batch that combines several batches.
_TOGETHER_BYTES_MAX = 64 * 1024
_TOGETHER_RECORDS_MAX = 10_000


class ConsecutiveOffsets(NamedTuple):
    """Consecutive offsets."""

    first: int
    length: int


class CopiedBatch(NamedTuple):
    """Records of a partition in one batch. `spans`: the offsets of these records in the source."""

    records: EncodedRecords
    spans: Sequence[ConsecutiveOffsets]


@dataclass(slots=True)
class Copied:
    """The content of a fetched piece: its batches, and the offset after its last one.

    `untouched`: the number of batches whose body is unchanged. `timestamp_ms`: the newest
    timestamp, -1 if there are no records.
    """

    next_offset: int
    batches: list[CopiedBatch] = field(default_factory=list)
    record_count: int = 0
    untouched: int = 0
    timestamp_ms: int = -1


@dataclass(slots=True)
class _Together:
    """Batches that will be combined into one batch, in order: (position, header)."""

    found: list[tuple[int, BatchHeader]] = field(default_factory=list)
    size_bytes: int = 0
    record_count: int = 0

    def has_room(self, header: BatchHeader) -> bool:
        return (
            self.size_bytes + header.size_bytes <= _TOGETHER_BYTES_MAX
            and self.record_count + header.record_count <= _TOGETHER_RECORDS_MAX
        )

    def add(self, position: int, header: BatchHeader) -> None:
        self.found.append((position, header))
        self.size_bytes += header.size_bytes
        self.record_count += header.record_count


def copy_batches(
    records: memoryview,
    fetch_offset: int,
    aborted: Sequence[AbortedTransaction] | None,
    *,
    offset_header: str | None = None,
) -> Copied:
    """The batches to send for a fetched piece. Records before `fetch_offset`, transaction markers,
    and records of aborted transactions are left out. `offset_header`: the name of a header that is
    added to each record, with its source offset. Raises BatchError, ControlMarkerError."""
    copied = Copied(fetch_offset)
    hidden = AbortedBatches(aborted)
    together = _Together()
    for position, header in iter_batches(records):
        verify_crc(records, position, header)
        skipped = hidden.hides(records, position, header)
        if header.next_offset <= fetch_offset:
            continue
        copied.next_offset = header.next_offset
        if skipped or not header.record_count:
            continue
        copied.timestamp_ms = max(copied.timestamp_ms, header.max_timestamp)
        whole = not offset_header and _is_as_sent(header, fetch_offset)
        if whole and header.size_bytes >= SMALL_BATCH_BYTES:
            _add_together(copied, records, together, fetch_offset, offset_header)
            together = _Together()
            _add_whole(copied, records, position, header)
            continue
        if together.found and not together.has_room(header):
            _add_together(copied, records, together, fetch_offset, offset_header)
            together = _Together()
        together.add(position, header)
    _add_together(copied, records, together, fetch_offset, offset_header)
    return copied


def _is_as_sent(header: BatchHeader, fetch_offset: int) -> bool:
    """True if a producer could have sent this batch: its offsets have no gaps, its timestamps are
    the producer's, and none of its records is left out."""
    return (
        header.record_count == header.last_offset_delta + 1
        and header.base_offset >= fetch_offset
        and not header.is_log_append_time
        and not header.has_delete_horizon
    )


def _add_whole(copied: Copied, records: memoryview, position: int, header: BatchHeader) -> None:
    body = records[position + HEADER_BYTES : position + header.size_bytes]
    span = ConsecutiveOffsets(header.base_offset, header.record_count)
    copied.batches.append(CopiedBatch(EncodedRecords.of_batch(header, body), (span,)))
    copied.record_count += header.record_count
    copied.untouched += 1


def _add_together(
    copied: Copied,
    records: memoryview,
    together: _Together,
    fetch_offset: int,
    offset_header: str | None,
) -> None:
    if not together.found:
        return
    if len(together.found) == 1 and not offset_header:
        position, header = together.found[0]
        if _is_as_sent(header, fetch_offset):
            _add_whole(copied, records, position, header)
            return
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    for position, header in together.found:
        columns = read_columns(records, position, header)
        start = bisect_left(columns.offsets, fetch_offset)
        offsets += columns.offsets[start:]
        timestamps += columns.timestamps[start:]
        keys += columns.keys[start:]
        values += columns.values[start:]
        headers += columns.headers[start:]
    if not offsets:
        return
    if offset_header:
        headers = [
            (*found, (offset_header, b"%d" % offset))
            for offset, found in zip(offsets, headers, strict=True)
        ]
    encoded = _encoded(together.found[0][1].codec, timestamps, keys, values, headers)
    copied.batches.append(CopiedBatch(encoded, tuple(spans_of(offsets))))
    copied.record_count += len(offsets)


def _encoded(
    codec: Codec,
    timestamps: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
    headers: list[Headers],
) -> EncodedRecords:
    base = timestamps[0]
    body = encode_columns(
        range(len(timestamps)),
        [timestamp - base for timestamp in timestamps],
        keys,
        values,
        [encode_headers(found) if found else NO_HEADERS for found in headers],
    )
    return EncodedRecords(codec, body, len(timestamps), base, max(timestamps))


def spans_of(offsets: Iterable[int]) -> Iterator[ConsecutiveOffsets]:
    """The spans of consecutive offsets in a list of rising offsets."""
    first = following = -1
    for offset in offsets:
        if offset != following:
            if following > first:
                yield ConsecutiveOffsets(first, following - first)
            first = offset
        following = offset + 1
    if following > first:
        yield ConsecutiveOffsets(first, following - first)
