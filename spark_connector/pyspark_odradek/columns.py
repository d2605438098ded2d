"""Fetched bytes to Arrow: the records between two offsets as batches of exactly Spark's columns.

This is the hot path of a read. Records become columns in one loop (`read_columns`), columns become
Arrow arrays at once; no object is made per record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pyarrow as pa

from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import BatchHeader, Buffer, iter_batches, verify_crc
from odradek_protocol.records.record import Headers, RecordColumns, read_columns
from odradek_protocol.schemas.fetch import AbortedTransaction
from odradek_protocol.stored.control_marker import ControlType, decode_type
from pyspark_odradek.planning import OffsetRange
from pyspark_odradek.schema import arrow_schema

ROWS_MAX = 32_768
BYTES_MAX = 16 * 1024 * 1024

_BINARY = pa.binary()
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
_MICROSECONDS = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How bytes become rows."""

    check_crcs: bool = True
    read_committed: bool = False
    include_headers: bool = False


def next_offset(data: Buffer, offset: int) -> int:
    """Where to fetch next: behind the last whole batch, by its header (R-19); `offset` if there is none.

    Raises BatchError.
    """
    following = offset
    for _, header in iter_batches(data):
        following = header.next_offset
    return max(following, offset)


def decode(
    data: Buffer,
    wanted: OffsetRange,
    aborted: Sequence[AbortedTransaction] | None,
    settings: DecodeSettings,
) -> Iterator[pa.RecordBatch]:
    """The records of `data` within `wanted`; control records, and aborted ones if so set, are left out.

    Raises BatchError.
    """
    rows = _Rows(wanted.partition.topic, wanted.partition.number, settings.include_headers)
    transactions = _Transactions(aborted or ())
    for position, header in iter_batches(data):
        if header.base_offset >= wanted.end:
            break
        if settings.check_crcs:
            verify_crc(data, position, header)
        hidden = settings.read_committed and transactions.hide(data, position, header)
        if hidden or header.is_control or header.last_offset < wanted.start:
            continue
        rows.add(header, _within(read_columns(data, position, header), wanted))
        if rows.is_full:
            yield rows.take()
    if rows.count:
        yield rows.take()


class _Transactions:
    """Which batches belong to aborted transactions (F-10), told batch by batch in offset order."""

    __slots__ = ("_producers", "_waiting")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        # A broker need not sort them (F-09); last first, to pop from.
        self._waiting = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self._producers: set[int] = set()

    def hide(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._producers.add(self._waiting.pop().producer_id)
        if not header.is_control:
            return header.is_transactional and header.producer_id in self._producers
        keys = read_columns(data, position, header).keys
        if keys and decode_type(keys[0]) is ControlType.ABORT:
            self._producers.discard(header.producer_id)
        return True


def _within(columns: RecordColumns, wanted: OffsetRange) -> RecordColumns:
    offsets = columns.offsets
    if not offsets or (offsets[0] >= wanted.start and offsets[-1] < wanted.end):
        return columns
    first, last = bisect_left(offsets, wanted.start), bisect_left(offsets, wanted.end)
    return RecordColumns(
        offsets[first:last],
        columns.timestamps[first:last],
        columns.keys[first:last],
        columns.values[first:last],
        columns.headers[first:last],
    )


@dataclass(slots=True)
class _Rows:
    """Columns being gathered from several batches."""

    topic: str
    partition: int
    include_headers: bool
    count: int = 0
    size_bytes: int = 0
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    kinds: list[tuple[int, int]] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return self.count >= ROWS_MAX or self.size_bytes >= BYTES_MAX

    def add(self, header: BatchHeader, columns: RecordColumns) -> None:
        count = len(columns.values)
        self.count += count
        self.size_bytes += header.size_bytes
        if header.codec is not Codec.NONE:
            self.size_bytes += sum(len(value) for value in columns.values if value)
        self.keys += columns.keys
        self.values += columns.values
        self.offsets += columns.offsets
        self.timestamps += columns.timestamps
        self.kinds.append((int(header.is_log_append_time), count))
        if self.include_headers:
            self.headers += columns.headers

    def take(self) -> pa.RecordBatch:
        """What was gathered as one Arrow batch; begins anew."""
        count = self.count
        schema = arrow_schema(self.include_headers)
        arrays: list[Any] = [
            pa.array(self.keys, _BINARY),
            pa.array(self.values, _BINARY),
            pa.repeat(pa.scalar(self.topic, pa.string()), count),
            pa.repeat(pa.scalar(self.partition, pa.int32()), count),
            pa.array(self.offsets, pa.int64()),
            _timestamps(self.timestamps),
            _timestamp_types(self.kinds),
        ]
        if self.include_headers:
            arrays.append(_headers(self.headers, schema.field("headers").type))
        self.count = self.size_bytes = 0
        self.keys, self.values, self.offsets = [], [], []
        self.timestamps, self.kinds, self.headers = [], [], []
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _timestamps(milliseconds: list[int]) -> Any:
    """ArrowInvalid for a time that Spark's microseconds cannot hold; Spark's own format fails too."""
    return pa.array(milliseconds, pa.int64()).cast(_MILLISECONDS).cast(_MICROSECONDS)


def _timestamp_types(kinds: list[tuple[int, int]]) -> Any:
    if len({kind for kind, _ in kinds}) == 1:
        return pa.repeat(pa.scalar(kinds[0][0], pa.int32()), sum(count for _, count in kinds))
    return pa.array([kind for kind, count in kinds for _ in range(count)], pa.int32())


def _headers(column: list[Headers], kind: Any) -> Any:
    """Null for a record without headers, as Spark's own format has it."""
    if not any(column):
        return pa.nulls(len(column), kind)
    rows = [
        [(_text(key), value) for key, value in headers] if headers else None for headers in column
    ]
    return pa.array(rows, kind)


def _text(key: str) -> str:
    """A header key that was no UTF-8 has surrogates, which Arrow cannot take: say so in the text."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return key
