"""Reading the records of a batch: lists of columns first, `Record` objects made from them.

The record, all numbers zigzag varints::

    length | attributes (int8, 0) | timestamp delta | offset delta
           | key length (-1 null) | key | value length (-1 null) | value
           | header count | per header: key length, key, value length (-1 null), value

Lengths below -1 are also read as null, as in Kafka's readers; no client writes such lengths.

There are three ways to read a record. `_parse` reads ordinary records, whose numbers have one or
two bytes. For other records it calls `_read_one`, which is slow, but reads any record. If two
consecutive records have the same length, `runs.read_run` reads all following records of exactly the
same shape in bulk. These three functions are the pure twin; if the compiled twin is in use
(`native`), it reads valid records, and the pure twin only raises errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import repeat
from struct import Struct

from odradek_protocol.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Codec,
    CompressionError,
    inflate,
)
from odradek_protocol.lazy_tuple import NamedTuple

from . import native
from .batch import BatchHeader, BodyNotDecompressed, Buffer, CorruptBatch
from .layout import HEADER_BYTES
from .runs import MIN_RUN_RECORDS, read_run
from .varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES, read_raw, read_varint, zigzag

Headers = tuple[tuple[str, bytes | None], ...]

MIN_RECORD_BYTES = 7
"""A record with null key, null value and no headers: seven varints of one byte."""


class TimestampType(IntEnum):
    """Bit 3 of a batch's attributes: the origin of the timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """A record with its absolute offset and its timestamp. `timestamp`: in ms, as R-03 defines it;
    -1 if the record has no timestamp.

    Header keys that are no valid UTF-8 are kept with surrogate escapes, so that encoding them gives
    the original bytes.
    """

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordColumns(NamedTuple):
    """The records of one batch as columns of equal length, for readers that need no object for
    each record."""

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
    """The records of the batch at `position`, whose checksum must have been verified.

    CorruptBatch if the body cannot be decompressed (within the limit) or does not contain exactly
    the number of records in the header.
    """
    columns = read_columns(buffer, position, header, max_decompressed_bytes)
    kind = _TIMESTAMP_TYPES[header.is_log_append_time]
    rows = zip(
        columns[0], columns[1], repeat(kind), columns[2], columns[3], columns[4], strict=False
    )
    return list(map(tuple.__new__, repeat(Record), rows))


def iter_records(batch: Buffer, header: BatchHeader) -> Iterator[Record]:
    """The records of the batch at the beginning of `batch`, of which a part at a time is in memory;
    otherwise like `read_records`. Offsets outside of the batch are not refused."""
    body = inflated_body(batch, header)
    kind = _TIMESTAMP_TYPES[header.is_log_append_time]
    append_time_ms = header.max_timestamp if header.is_log_append_time else None
    for part, count in split_records(body, header.record_count):
        parsed = parse_records(part, count)
        columns = zip(
            parsed.offset_deltas,
            parsed.timestamp_deltas,
            parsed.keys,
            parsed.values,
            parsed.header_column(),
            strict=True,
        )
        for delta, since_ms, key, value, headers in columns:
            time = header.base_timestamp + since_ms if append_time_ms is None else append_time_ms
            yield Record(header.base_offset + delta, time, kind, key, value, headers)


def read_columns(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> RecordColumns:
    """Read the records of a batch as columns; otherwise like `read_records`. The column of offsets
    may be a range."""
    return body_columns(read_body(buffer, position, header, max_decompressed_bytes), header)


def column_parts(batch: Buffer, header: BatchHeader) -> Iterable[RecordColumns]:
    """The records of the batch at the beginning of `batch` as columns of at most 10,000 records,
    for readers whose memory must not depend on the number of records. They may be read repeatedly.
    Otherwise like `read_columns`; also the reading may raise CorruptBatch."""
    body = inflated_body(batch, header)
    if header.record_count <= _PART_RECORDS and len(body) <= _PART_BYTES:
        return (body_columns(bytes(body), header),)
    return _ColumnParts(body, header)


class _ColumnParts:
    """The columns of a large body, of which a part at a time is in memory."""

    __slots__ = ("_body", "_header")

    def __init__(self, body: Buffer, header: BatchHeader) -> None:
        self._body, self._header = body, header

    def __iter__(self) -> Iterator[RecordColumns]:
        for part, count in split_records(self._body, self._header.record_count):
            yield body_columns(part, self._header, count)


def body_columns(
    data: bytes, header: BatchHeader, record_count: int | None = None
) -> RecordColumns:
    """Read the records of a body that `read_body` returned, as columns. `record_count`: the number
    of records in `data` if it is a part of the body."""
    return placed_columns(
        data,
        header.record_count if record_count is None else record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
    )


def placed_columns(
    data: bytes,
    record_count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None,
) -> RecordColumns:
    """Read the records of a body as columns, with offsets and timestamps computed from the fields
    of a header. `append_time`: the timestamp of all records; None if each record has its own."""
    parsed = parse_records(data, record_count)
    deltas = parsed.offset_deltas
    count = len(deltas)
    if base_offset + last_offset_delta > _MAX_INT64:
        raise CorruptBatch(f"batch at offset {base_offset} goes beyond the last offset")
    offsets: Sequence[int]
    if parsed.in_order and (count <= last_offset_delta + 1 or not count):
        offsets = range(base_offset, base_offset + count)
    elif 0 <= min(deltas) <= max(deltas) <= last_offset_delta:
        offsets = [base_offset + delta for delta in deltas]
    else:
        raise CorruptBatch(
            f"batch at offset {base_offset}: an offset delta is outside 0..{last_offset_delta}"
        )
    if append_time is not None:
        timestamps = [append_time] * count
    else:
        timestamps = _absolute(parsed.timestamp_deltas, base_timestamp)
    return RecordColumns(offsets, timestamps, parsed.keys, parsed.values, parsed.header_column())


def read_body(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """The records' bytes, decompressed. CorruptBatch, with the codec's error as its cause."""
    return bytes(inflated_body(memoryview(buffer)[position:], header, max_decompressed_bytes))


def inflated_body(
    batch: Buffer,
    header: BatchHeader,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Buffer:
    """The content of the body of a batch at the beginning of `batch`, without a copy if it is not
    compressed; otherwise like `read_body`."""
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.codec is Codec.NONE:
        return body
    return inflate_body(body, header, max_decompressed_bytes)


def inflate_body(
    body: Buffer,
    header: BatchHeader,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Buffer:
    """The content of a compressed body. BodyNotDecompressed, with the codec's error as its
    cause."""
    try:
        return inflate(header.codec, body, max_decompressed_bytes)
    except CompressionError as error:
        raise BodyNotDecompressed(f"batch at offset {header.base_offset}: {error}") from error


class ParsedRecords:
    """Records as columns. Offsets and timestamps are relative to those in the header."""

    __slots__ = (
        "_known_in_order",
        "headers",
        "keys",
        "offset_deltas",
        "timestamp_deltas",
        "values",
    )

    def __init__(self) -> None:
        self._known_in_order = False
        self.timestamp_deltas: list[int] = []
        self.offset_deltas: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, Headers] = {}  # by index, only for records that have headers

    @classmethod
    def of_native(
        cls,
        timestamp_deltas: list[int],
        offset_deltas: list[int] | None,
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: dict[int, Headers],
    ) -> ParsedRecords:
        """The columns from the result of the compiled twin."""
        parsed = cls()
        parsed._known_in_order = offset_deltas is None
        parsed.timestamp_deltas, parsed.keys, parsed.values = timestamp_deltas, keys, values
        parsed.offset_deltas = list(range(len(keys))) if offset_deltas is None else offset_deltas
        parsed.headers = headers
        return parsed

    @property
    def in_order(self) -> bool:
        """True if the offset deltas are 0, 1, 2, ..."""
        return self._known_in_order or self.offset_deltas == list(range(len(self.offset_deltas)))

    def header_column(self) -> list[Headers]:
        column: list[Headers] = [()] * len(self.values)
        for index, headers in self.headers.items():
            column[index] = headers
        return column


def parse_records(data: bytes, count: int) -> ParsedRecords:
    """Read exactly `count` records. Raises CorruptBatch if they do not fill `data` to its end."""
    if not 0 <= count * MIN_RECORD_BYTES <= len(data):
        raise CorruptBatch(f"{count} records cannot be in {len(data)} bytes")
    codec = native.CODEC
    if codec is not None and (found := codec.parse(data, count)) is not None:
        return ParsedRecords.of_native(*found)
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


def split_records(data: Buffer, count: int) -> Iterator[tuple[bytes, int]]:
    """The records in parts that `parse_records` reads in a few milliseconds: (bytes, number of
    records). Raises CorruptBatch if there are no `count` records, or bytes behind them."""
    position = done = 0
    try:
        while done < count:
            start, first = position, done
            while done < count and done - first < _PART_RECORDS and position - start < _PART_BYTES:
                length, position = read_varint(data, position)
                if length < 0:
                    raise CorruptBatch(f"record {done} has the length {length}")
                position += length
                done += 1
            yield bytes(data[start:position]), done - first
    except IndexError:
        raise CorruptBatch(f"the records end within record {done} of {count}") from None
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes behind the last of {count} records")


_PART_RECORDS, _PART_BYTES = 10_000, 1024 * 1024

#: The compiled twin does not report which record is damaged. If a batch has more records or bytes
#: than these limits, the pure twin does not search for the damaged record: it needs a copy.
MAX_RECORDS_READ_AGAIN = 100_000
_MAX_BYTES_READ_AGAIN = 16 * 1024 * 1024


class RecordsScanned(NamedTuple):
    """The bounds of offsets, timestamps and keys of a batch's records."""

    lowest_offset_delta: int
    highest_offset_delta: int
    in_order: bool
    """Offset deltas are 0, 1, 2, ..."""
    lowest_timestamp_delta: int
    highest_timestamp_delta: int
    null_keys: bool
    """At least one record has no key."""


def scan_records(data: Buffer, count: int) -> RecordsScanned:
    """Scan exactly `count` records, at least one. Raises CorruptBatch if they do not fill `data`.

    The compiled twin makes no objects of records. If it refuses the records, the pure twin reads
    them again to find the invalid record, but not if they are very many or very large.
    """
    if not MIN_RECORD_BYTES <= count * MIN_RECORD_BYTES <= len(data):
        raise CorruptBatch(f"{count} records cannot be in {len(data)} bytes")
    codec = native.CODEC
    if codec is not None:
        found = codec.scan(data, count)
        if found is not None:
            return RecordsScanned._make(found)
        if count > MAX_RECORDS_READ_AGAIN or len(data) > _MAX_BYTES_READ_AGAIN:
            raise CorruptBatch(f"{len(data)} bytes are not {count} sound records")
    parsed = parse_records(bytes(data), count)
    return RecordsScanned(
        min(parsed.offset_deltas),
        max(parsed.offset_deltas),
        parsed.in_order,
        min(parsed.timestamp_deltas),
        max(parsed.timestamp_deltas),
        None in parsed.keys,
    )


def _parse(data: bytes, count: int, parsed: ParsedRecords) -> int:
    """Read records whose numbers have one or two bytes in a fast loop, all others by `_read_one`.

    Six bytes are read together for the timestamp delta, offset delta, key length and value length.
    `end` becomes -1 if a number is too long. The fields are valid only if they end at the record's
    end; otherwise `_read_one` reads the record again.
    """
    add_timestamp = parsed.timestamp_deltas.append
    add_offset = parsed.offset_deltas.append
    add_key = parsed.keys.append
    add_value = parsed.values.append
    look = _SIX_BYTES.unpack_from
    size = len(data)
    last_start = size - _LOOKAHEAD_BYTES
    position = 0
    index = 0
    previous_length = -1
    next_run = 0  # a run is looked for only from this record on
    patience = MIN_RUN_RECORDS
    last_run = count - MIN_RUN_RECORDS
    key: bytes | None = None
    at = value_end = length = offset = timestamp = value_length = 0
    while index < count:
        start = position
        end = -1
        if start <= last_start:
            # In a varint of two bytes bit 7 of the first byte is set, so the value is first +
            # (second - 1) * 128.
            length = data[start]
            if length < 0x80:
                end = start + 1 + (length >> 1)
                at = start + 2  # the position of the timestamp delta, after length and attributes
            else:
                high = data[start + 1]
                length += (high - 1) << 7
                end = start + 2 + (length >> 1) if high < 0x80 else -1
                at = start + 3
            timestamp, offset, key_length, value_length, following, last = look(data, at)
            if timestamp > 0x7F:
                if offset < 0x80:
                    timestamp += (offset - 1) << 7
                    at += 1
                elif end > 0:
                    # The timestamp delta is the only number that is often long, because the times
                    # of events may differ much.
                    timestamp, at = read_raw(data, at, MAX_VARLONG_BYTES)
                    at -= 1
                _, offset, key_length, value_length, following, last = look(data, at)
            if offset < 0x80:
                at += 3  # the position of the value length, if the key is null
            else:
                if key_length > 0x7F:
                    end = -1
                offset += (key_length - 1) << 7
                key_length, value_length, following = value_length, following, last
                at += 4
            if key_length == 1:
                key = None
            else:
                key_start = at
                at += key_length >> 1
                if key_length & 0x81 or at + 1 >= size:
                    end = -1
                else:
                    key = data[key_start:at]
                    value_length = data[at]
                    following = data[at + 1]
            if value_length < 0x80:
                at += 1
            else:
                if following > 0x7F:
                    end = -1
                value_length += (following - 1) << 7
                at += 2
            value_end = at + (value_length >> 1)
            if value_end + 1 == end and not data[value_end] and not (offset | length) & 1:
                position = end
                if value_length & 1:
                    if value_length != 1:  # a negative length means null, so the value has no bytes
                        position = _read_one(data, start, index, parsed)
                        index += 1
                        continue
                    add_value(None)
                else:
                    add_value(data[at:value_end])
                add_timestamp(~(timestamp >> 1) if timestamp & 1 else timestamp >> 1)
                add_offset(offset >> 1)
                add_key(key)
                index += 1
                if length != previous_length:
                    previous_length = length
                elif next_run <= index <= last_run:
                    taken = read_run(data, start, end, index, count, parsed)
                    index += taken
                    position += taken * (end - start)
                    if taken < MIN_RUN_RECORDS:
                        patience = min(patience * 2, 4096)
                        next_run = index + patience
                    else:
                        patience = MIN_RUN_RECORDS
                continue
        if value_end + 1 < end and not (length | offset | value_length) & 1:
            parsed.headers[index], position = _read_headers(data, value_end, index)
            if position == end:
                add_timestamp(~(timestamp >> 1) if timestamp & 1 else timestamp >> 1)
                add_offset(offset >> 1)
                add_key(key)
                add_value(data[at:value_end])
                index += 1
                continue
        position = _read_one(data, start, index, parsed)
        index += 1
    return position


_SIX_BYTES = Struct("6B")
# The limit of the bytes that are read without a check against the end of the data: the length (2),
# the attributes (1), the timestamp delta without its last byte (9), and the six bytes after these.
_LOOKAHEAD_BYTES = 2 + 1 + 9 + 6


def _read_one(data: bytes, position: int, index: int, parsed: ParsedRecords) -> int:
    """Read a record of any kind into `parsed`, with every check. Returns the position after the
    record.

    A wrong length of a field is noticed because the fields do not end at the record's end, or by an
    IndexError.
    """
    raw, position = read_raw(data, position, MAX_VARINT_BYTES)
    end = position + zigzag(raw)
    position += 1  # attributes: none are defined
    raw, position = read_raw(data, position, MAX_VARLONG_BYTES)
    timestamp_delta = zigzag(raw)
    raw, position = read_raw(data, position, MAX_VARINT_BYTES)
    offset_delta = zigzag(raw)
    key, position = _read_octets(data, position)
    value, position = _read_octets(data, position)
    if data[position]:
        parsed.headers[index], position = _read_headers(data, position, index)
    else:
        position += 1
    if position != end:
        raise CorruptBatch(
            f"record {index} is said to end at byte {end} but its fields end at {position}"
        )
    parsed.timestamp_deltas.append(timestamp_delta)
    parsed.offset_deltas.append(offset_delta)
    parsed.keys.append(key)
    parsed.values.append(value)
    return position


def _read_octets(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Bytes that are preceded by their length; null for any negative length, as in Kafka. Returns
    them and the position after them."""
    raw, position = read_raw(data, position, MAX_VARINT_BYTES)
    if raw & 1:
        return None, position
    end = position + (raw >> 1)
    return data[position:end], end


def _read_headers(data: bytes, start: int, index: int) -> tuple[Headers, int]:
    """The headers of one record. The fast loop is for numbers of one byte; if a number is longer,
    `_read_long_headers` reads the headers."""
    raw = data[start]
    if raw & 0x81:
        return _read_long_headers(data, start, index)
    position = start + 1
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(raw >> 1):
        raw = data[position]
        position += 1
        if raw & 0x81:
            return _read_long_headers(data, start, index)
        name_start = position
        position += raw >> 1
        octets = data[name_start:position]
        name = _NAMES.get(octets)
        if name is None:
            name = octets.decode("utf-8", "surrogateescape")
            if len(_NAMES) < _MAX_NAMES:
                _NAMES[octets] = name
        raw = data[position]
        position += 1
        if raw == 1:
            headers.append((name, None))
        elif raw & 0x81:
            return _read_long_headers(data, start, index)
        else:
            value_start = position
            position += raw >> 1
            headers.append((name, data[value_start:position]))
    return tuple(headers), position


# A few header names are repeated often, so names of at most 63 bytes are cached.
_NAMES: dict[bytes, str] = {}
_MAX_NAMES = 1024


def _read_long_headers(data: bytes, position: int, index: int) -> tuple[Headers, int]:
    raw, position = read_raw(data, position, MAX_VARINT_BYTES)
    count = raw >> 1
    if raw & 1 or count * 2 > len(data) - position:
        raise CorruptBatch(f"record {index} has an impossible number of headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        octets, position = _read_octets(data, position)
        if octets is None:
            raise CorruptBatch(f"record {index} has a header without a key")
        value, position = _read_octets(data, position)
        headers.append((octets.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _absolute(deltas: list[int], base: int) -> list[int]:
    """The timestamps of records: base plus delta. The sum is computed once for each different
    delta, because the records of a batch have few different timestamps."""
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
