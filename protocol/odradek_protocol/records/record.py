"""Reading the records of a batch: lists of columns first, `Record` objects made from them.

The record, all numbers zigzag varints::

    length | attributes (int8, 0) | timestamp delta | offset delta
           | key length (-1 null) | key | value length (-1 null) | value
           | header count | per header: key length, key, value length (-1 null), value

Reading is two loops. The general one takes a record apart byte by byte. When two records in a row have
the same length, `runs.read_run` looks how many more have exactly their shape, and takes those in bulk.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import repeat
from typing import NamedTuple

from odradek_protocol.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Codec,
    CompressionError,
    decompress,
)

from .batch import HEADER_BYTES, BatchHeader, Buffer, CorruptBatch
from .runs import MIN_RUN_RECORDS, read_run
from .varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES, read_raw

Headers = tuple[tuple[str, bytes | None], ...]

MIN_RECORD_BYTES = 7
"""A record with null key, null value and no headers: seven varints of one byte."""


class TimestampType(IntEnum):
    """Bit 3 of a batch's attributes: who set the timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """One record, placed: absolute offset, timestamp in ms (-1: none) as R-03 defines it.

    Header keys that are not UTF-8 are kept with surrogate escapes, so that writing gives the same bytes.
    """

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordColumns(NamedTuple):
    """The records of one batch as columns of equal length, for readers that want no object per record."""

    offsets: Sequence[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]


def read_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """The records of the batch at `position`, whose checksum is taken as verified.

    Raises CorruptBatch when the body does not decompress (within the limit) or does not hold exactly
    the records that the header promises.
    """
    columns = read_columns(buffer, position, header, max_decompressed_bytes)
    kind = _TIMESTAMP_TYPES[header.is_log_append_time]
    rows = zip(
        columns[0], columns[1], repeat(kind), columns[2], columns[3], columns[4], strict=False
    )
    return list(map(tuple.__new__, repeat(Record), rows))


def read_columns(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> RecordColumns:
    """As `read_records`, in columns. `offsets` may be a range."""
    data = read_body(buffer, position, header, max_decompressed_bytes)
    parsed = parse_records(data, header.record_count)
    deltas = parsed.offset_deltas
    if header.last_offset > _MAX_INT64:
        raise CorruptBatch(f"batch at offset {header.base_offset} goes beyond the last offset")
    if deltas and not 0 <= min(deltas) <= max(deltas) <= header.last_offset_delta:
        raise CorruptBatch(
            f"batch at offset {header.base_offset}: an offset delta is outside 0..{header.last_offset_delta}"
        )
    base_offset = header.base_offset
    count = len(deltas)
    if count and deltas[0] == 0 and deltas[-1] == count - 1 and deltas == list(range(count)):
        offsets: Sequence[int] = range(base_offset, base_offset + count)
    else:
        offsets = [base_offset + delta for delta in deltas]
    if header.is_log_append_time:
        timestamps = [header.max_timestamp] * count
    else:
        timestamps = _absolute(parsed.timestamp_deltas, header.base_timestamp)
    return RecordColumns(offsets, timestamps, parsed.keys, parsed.values, parsed.header_column())


def read_body(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """The records' bytes, decompressed. Raises CorruptBatch, with the codec's error as its cause."""
    codec = header.codec
    with memoryview(buffer) as view:
        body = view[position + HEADER_BYTES : position + header.size_bytes]
        if codec is Codec.NONE:
            return bytes(body)
        try:
            return decompress(codec, body, max_decompressed_bytes)
        except CompressionError as error:
            raise CorruptBatch(f"batch at offset {header.base_offset}: {error}") from error


class ParsedRecords:
    """What the bytes say, before base offset and base timestamp are added."""

    __slots__ = ("headers", "keys", "offset_deltas", "timestamp_deltas", "values")

    def __init__(self) -> None:
        self.timestamp_deltas: list[int] = []
        self.offset_deltas: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, Headers] = {}  # only of records that have some

    def header_column(self) -> list[Headers]:
        column: list[Headers] = [()] * len(self.values)
        for index, headers in self.headers.items():
            column[index] = headers
        return column


def parse_records(data: bytes, count: int) -> ParsedRecords:
    """Exactly `count` records that fill `data` to its end; raises CorruptBatch for anything else."""
    if not 0 <= count * MIN_RECORD_BYTES <= len(data):
        raise CorruptBatch(f"{count} records cannot be in {len(data)} bytes")
    parsed = ParsedRecords()
    try:
        end = _parse(data, count, parsed)
    except IndexError:
        raise CorruptBatch(
            f"the records end within record {len(parsed.values)} of {count}"
        ) from None
    if end != len(data):
        raise CorruptBatch(f"{len(data) - end} bytes behind the last of {count} records")
    return parsed


def _parse(data: bytes, count: int, parsed: ParsedRecords) -> int:
    """The hot loop: varints of one and two bytes are written out, calls are left to the rare cases.

    A field that lies about its length makes the position miss the record's end, or an IndexError.
    """
    add_timestamp = parsed.timestamp_deltas.append
    add_offset = parsed.offset_deltas.append
    add_key = parsed.keys.append
    add_value = parsed.values.append
    position = 0
    index = 0
    previous_length = -1
    next_run = 0  # runs are not tried before this record
    patience = MIN_RUN_RECORDS
    while index < count:
        start = position
        raw = data[position]
        position += 1
        if raw > 0x7F:
            high = data[position]
            if high < 0x80:
                raw = raw & 0x7F | high << 7
                position += 1
            else:
                raw, position = read_raw(data, start, MAX_VARINT_BYTES)
        length = raw
        end = position + (raw >> 1)
        position += 1  # attributes: none are defined

        timestamp_at = position
        raw = data[position]
        position += 1
        if raw > 0x7F:
            high = data[position]
            if high < 0x80:
                raw = raw & 0x7F | high << 7
                position += 1
            else:
                raw, position = read_raw(data, timestamp_at, MAX_VARLONG_BYTES)
        timestamp_delta = ~(raw >> 1) if raw & 1 else raw >> 1

        offset_at = position
        raw = data[position]
        position += 1
        if raw > 0x7F:
            high = data[position]
            if high < 0x80:
                raw = raw & 0x7F | high << 7
                position += 1
            else:
                raw, position = read_raw(data, offset_at, MAX_VARINT_BYTES)
        offset_delta = ~(raw >> 1) if raw & 1 else raw >> 1

        key_at = position
        raw = data[position]
        position += 1
        if raw == 1:
            key = None
        else:
            if raw > 0x7F:
                raw, position = read_raw(data, key_at, MAX_VARINT_BYTES)
            if raw & 1:
                _refuse_length("key", raw, index)
            key_start = position
            position += raw >> 1
            key = data[key_start:position]

        value_at = position
        raw = data[position]
        position += 1
        if raw == 1:
            value = None
        else:
            if raw > 0x7F:
                high = data[position]
                if high < 0x80:
                    raw = raw & 0x7F | high << 7
                    position += 1
                else:
                    raw, position = read_raw(data, value_at, MAX_VARINT_BYTES)
            if raw & 1:
                _refuse_length("value", raw, index)
            value_start = position
            position += raw >> 1
            value = data[value_start:position]

        if data[position]:
            parsed.headers[index], position = _read_headers(data, position, index)
            length = -1  # runs are of records without headers
        else:
            position += 1
        if position != end:
            raise CorruptBatch(
                f"record {index} is said to end at byte {end} but its fields end at {position}"
            )
        add_timestamp(timestamp_delta)
        add_offset(offset_delta)
        add_key(key)
        add_value(value)
        index += 1

        if length == previous_length and index >= next_run and length > 0:
            shape = (start, timestamp_at, offset_at, key_at, value_at, end)
            taken = read_run(data, shape, index, count, parsed)
            index += taken
            position += taken * (end - start)
            patience = MIN_RUN_RECORDS if taken >= MIN_RUN_RECORDS else min(patience * 2, 4096)
            next_run = index if taken >= MIN_RUN_RECORDS else index + patience
        previous_length = length
    return position


def _read_headers(data: bytes, position: int, index: int) -> tuple[Headers, int]:
    raw, position = read_raw(data, position, MAX_VARINT_BYTES)
    count = raw >> 1
    if raw & 1 or count * 2 > len(data) - position:
        raise CorruptBatch(f"record {index} has an impossible number of headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        raw, position = read_raw(data, position, MAX_VARINT_BYTES)
        if raw & 1:
            _refuse_length("header key", raw, index)
        key_start = position
        position += raw >> 1
        name = data[key_start:position].decode("utf-8", "surrogateescape")
        raw, position = read_raw(data, position, MAX_VARINT_BYTES)
        if raw == 1:
            headers.append((name, None))
            continue
        if raw & 1:
            _refuse_length("header value", raw, index)
        value_start = position
        position += raw >> 1
        headers.append((name, data[value_start:position]))
    return tuple(headers), position


def _refuse_length(what: str, raw: int, index: int) -> None:
    raise CorruptBatch(f"record {index} has a {what} of {~(raw >> 1)} bytes")


def _absolute(deltas: list[int], base: int) -> list[int]:
    """Deltas repeat (most records of a batch share few milliseconds): add once per different one."""
    different = set(deltas)
    if len(different) == 1:
        timestamps = [base + deltas[0]] * len(deltas)
    elif len(different) * 4 > len(deltas):
        timestamps = [base + delta for delta in deltas]
    else:
        absolute = {delta: base + delta for delta in different}
        timestamps = list(map(absolute.__getitem__, deltas))
    if different and not _MIN_INT64 <= base + min(different) <= base + max(different) <= _MAX_INT64:
        raise CorruptBatch(f"a timestamp is too far from the base of {base} to be one")
    return timestamps


_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_TIMESTAMP_TYPES = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
