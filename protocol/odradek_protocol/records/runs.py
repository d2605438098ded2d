"""Consecutive records of one shape, read in bulk.

Most real batches have runs of records with keys and values of equal length. Their structural bytes
(lengths, attributes, varint widths) are then at a fixed distance and equal in every record, except
for the timestamp, which may vary within its width, and the offset, which counts up. `read_run`
takes each structural byte as a column, and compares the whole column with the expected column, so
every structural byte is checked. `record.py` itself reads the first record that differs, and the
records after it.
"""

from __future__ import annotations

from functools import cache
from itertools import repeat
from struct import iter_unpack
from typing import Protocol

from odradek_protocol.lazy_tuple import NamedTuple

from .varint import read_varint, read_varlong

MIN_RUN_RECORDS = 24
"""Below this a bulk read costs more than it saves."""

_FIRST_WINDOW_RECORDS = 256
_MAX_WINDOW_RECORDS = 8192

_ONE_BYTE_OFFSETS = 64
_TWO_BYTE_OFFSETS = 8192
#: The offset deltas whose zigzag varint has one byte: delta -> varint.
_OFFSET_BYTE = bytes(2 * delta for delta in range(_ONE_BYTE_OFFSETS))

_LAST_BYTES = bytes(range(0x80))
_MORE_BYTES = bytes(range(0x80, 0x100))
_SIGNED = tuple(~(raw >> 1) if raw & 1 else raw >> 1 for raw in range(0x80))


@cache
def _offsets_of_two_bytes() -> tuple[bytes, bytes]:
    """The low and the high bytes of the zigzag varints of all offset deltas that take two bytes."""
    deltas = range(_TWO_BYTE_OFFSETS)
    return bytes(2 * delta & 0x7F | 0x80 for delta in deltas), bytes(
        2 * delta >> 7 for delta in deltas
    )


class Shape(NamedTuple):
    """The positions of a record's numbers in the data, and their widths."""

    start: int
    timestamp_at: int
    offset_at: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int
    value_start: int
    end: int


class Columns(Protocol):
    """The columns to which a run of records is appended."""

    timestamp_deltas: list[int]
    offset_deltas: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


def read_run(data: bytes, first: int, end: int, index: int, count: int, columns: Columns) -> int:
    """Read records from `end` on, as long as they have the shape of the record at first..end.
    Returns the number of records that were read.

    `index`: the index of the record at `end`; `count`: the number of records in the batch. The
    record at `first` must have been read already, and must have no headers.
    """
    shape = _shape(data, first, end)
    taken = 0
    window = _FIRST_WINDOW_RECORDS
    stride = end - first
    start = end
    while index < count:
        room = min(count - index, (len(data) - start) // stride, window)
        fitting = _take(data, shape, start, index, room, columns) if room else 0
        taken += fitting
        if fitting < window:
            break
        index += fitting
        start += fitting * stride
        window = min(window * 2, _MAX_WINDOW_RECORDS)
    return taken


def _take(data: bytes, shape: Shape, start: int, index: int, room: int, columns: Columns) -> int:
    first, timestamp_at, offset_at, key_at, key_length, value_at, value_length, value_start, end = (
        shape
    )
    stride = end - first
    offset_width = key_at - offset_at
    limit = _ONE_BYTE_OFFSETS if offset_width == 1 else _TWO_BYTE_OFFSETS
    if offset_width > 2 or index >= limit:
        return 0
    room = min(room, limit - index)
    stop = start + room * stride
    shift = start - first  # from a byte of the first record to the first byte of its column

    fitting = room
    key_start = value_at - max(key_length, 0)
    constant = [*range(first, timestamp_at), *range(key_at, key_start)]
    constant += [*range(value_at, value_start), end - 1]
    if offset_at - timestamp_at > 2:
        constant += range(timestamp_at, offset_at)
    for at in constant:
        differing = data[at + shift : stop : stride].lstrip(data[at : at + 1])
        if differing:
            fitting = min(fitting, room - len(differing))
            if not fitting:
                return 0
    column = data[offset_at + shift : stop : stride]
    if offset_width == 1:
        fitting = min(fitting, _agreement(column, _OFFSET_BYTE[index : index + room]))
    else:
        fitting = min(fitting, _agreement(column, _offsets_of_two_bytes()[0][index : index + room]))
        column = data[offset_at + 1 + shift : stop : stride]
        fitting = min(fitting, _agreement(column, _offsets_of_two_bytes()[1][index : index + room]))
    if not fitting:
        return 0
    deltas = _timestamp_deltas(data, timestamp_at + shift, offset_at + shift, stride, fitting)
    if deltas is None:
        deltas = columns.timestamp_deltas[-1:] * fitting
    fitting = len(deltas)
    if not fitting:
        return 0

    columns.timestamp_deltas += deltas
    columns.offset_deltas += range(index, index + fitting)
    with memoryview(data) as view:
        _cut(
            view[start : start + fitting * stride],
            key_start - first,
            key_length,
            value_start - value_at,
            value_length,
            columns,
            fitting,
        )
    return fitting


def _timestamp_deltas(
    data: bytes, at: int, behind: int, stride: int, count: int
) -> list[int] | None:
    """The column of timestamp deltas, up to the first delta with another width; None if the width
    is more than two bytes."""
    lows = data[at : at + count * stride : stride][:count]
    if behind - at == 1:
        if lows.count(lows[:1]) == count:
            return [_SIGNED[lows[0]]] * count if lows[0] < 0x80 else []
        fitting = count - len(lows.lstrip(_LAST_BYTES))
        return [_SIGNED[raw] for raw in lows[:fitting]]
    if behind - at == 2:
        highs = data[at + 1 : at + 1 + count * stride : stride][:count]
        fitting = count - len(lows.lstrip(_MORE_BYTES))
        fitting = min(fitting, count - len(highs.lstrip(_LAST_BYTES)))
        raws = [low & 0x7F | high << 7 for low, high in zip(lows[:fitting], highs, strict=False)]
        return [~(raw >> 1) if raw & 1 else raw >> 1 for raw in raws]
    return None


def _cut(
    run: memoryview,
    before: int,
    key_length: int,
    between: int,
    value_length: int,
    columns: Columns,
    count: int,
) -> None:
    """The keys and values of a run of equally long records, unpacked with one struct format."""
    if key_length < 0:
        columns.keys += repeat(None, count)
        if value_length < 0:
            columns.values += repeat(None, count)
        else:
            rows = iter_unpack(f"{before + between}x{value_length}sx", run)
            columns.values += [value for (value,) in rows]
    elif value_length < 0:
        rows = iter_unpack(f"{before}x{key_length}s{between + 1}x", run)
        columns.keys += [key for (key,) in rows]
        columns.values += repeat(None, count)
    else:
        rows = iter_unpack(f"{before}x{key_length}s{between}x{value_length}sx", run)
        for key, value in rows:
            columns.keys.append(key)
            columns.values.append(value)


def _shape(data: bytes, start: int, end: int) -> Shape:
    """The positions of the fields of a record without headers. The record was read before, so it is
    valid."""
    _, position = read_varint(data, start)
    timestamp_at = position + 1
    _, offset_at = read_varlong(data, timestamp_at)
    _, key_at = read_varint(data, offset_at)
    key_length, position = read_varint(data, key_at)
    value_at = position + max(key_length, 0)
    value_length, value_start = read_varint(data, value_at)
    return Shape(
        start,
        timestamp_at,
        offset_at,
        key_at,
        key_length,
        value_at,
        value_length,
        value_start,
        end,
    )


def _agreement(column: bytes, expected: bytes) -> int:
    """The length of the common prefix of two equally long columns."""
    if column == expected:
        return len(column)
    low, high = 0, len(column)  # the columns are equal up to low, but not up to high
    while high - low > 1:
        middle = (low + high) // 2
        if column[:middle] == expected[:middle]:
            low = middle
        else:
            high = middle
    return low
