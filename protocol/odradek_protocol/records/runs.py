"""Records of one shape in a row, read in bulk.

Most real batches hold stretches of records with keys and values of equal length. Their structural
bytes (lengths, attributes, varint widths) then lie at a fixed stride and are the same in every record,
but for the timestamp, which may vary within its width, and the offset, which counts up. `read_run`
cuts each structural byte out as a column, checks the whole column against what it must be, and leaves
to the general loop everything from the first record on that differs. So it is no guess: each byte
that the general loop would have read has been compared.
"""

from __future__ import annotations

from itertools import repeat
from struct import iter_unpack
from typing import Protocol

MIN_RUN_RECORDS = 8
"""Below this a bulk read costs more than it saves."""

_FIRST_WINDOW_RECORDS = 64
_MAX_WINDOW_RECORDS = 8192

_ONE_BYTE_OFFSETS = 64
_TWO_BYTE_OFFSETS = 8192
# The zigzag varint of every offset delta that takes one byte, and of two, low and high byte apart.
_OFFSET_BYTE = bytes(2 * delta for delta in range(_ONE_BYTE_OFFSETS))
_OFFSET_LOW = bytes(2 * delta & 0x7F | 0x80 for delta in range(_TWO_BYTE_OFFSETS))
_OFFSET_HIGH = bytes(2 * delta >> 7 for delta in range(_TWO_BYTE_OFFSETS))

_LAST_BYTES = bytes(range(0x80))
_MORE_BYTES = bytes(range(0x80, 0x100))
_SIGNED = tuple(~(raw >> 1) if raw & 1 else raw >> 1 for raw in range(0x80))

Shape = tuple[int, int, int, int, int, int]
"""Where in the data a record's length, timestamp, offset, key length and value length are, and its end."""


class Columns(Protocol):
    """Where a run goes."""

    timestamp_deltas: list[int]
    offset_deltas: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


def read_run(data: bytes, shape: Shape, index: int, count: int, columns: Columns) -> int:
    """How many records behind the one of `shape` were taken: those of the same shape, up to `count`.

    `index` is the number of the first record behind it. The record of `shape` must have been read by
    the general loop and have no headers.
    """
    taken = 0
    window = _FIRST_WINDOW_RECORDS
    stride = shape[5] - shape[0]
    start = shape[5]
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
    first, timestamp_at, offset_at, key_at, value_at, end = shape
    stride = end - first
    offset_width = key_at - offset_at
    limit = _ONE_BYTE_OFFSETS if offset_width == 1 else _TWO_BYTE_OFFSETS
    if offset_width > 2 or index >= limit:
        return 0
    room = min(room, limit - index)
    stop = start + room * stride

    def column(at: int) -> bytes:
        """The bytes that lie where `at` lies in the first record."""
        return data[start + at - first : stop : stride]

    timestamp_width = offset_at - timestamp_at
    key_length, key_width = _length(data, key_at)
    value_length, value_width = _length(data, value_at)
    constant = [*range(first, timestamp_at), *range(key_at, key_at + key_width)]
    constant += [*range(value_at, value_at + value_width), end - 1]
    if timestamp_width > 2:
        constant += range(timestamp_at, offset_at)
    fitting = room
    for at in constant:
        fitting = min(fitting, room - len(column(at).lstrip(data[at : at + 1])))
        if not fitting:
            return 0
    if offset_width == 1:
        fitting = min(fitting, _agreement(column(offset_at), _OFFSET_BYTE[index : index + room]))
    else:
        low, high = _OFFSET_LOW[index : index + room], _OFFSET_HIGH[index : index + room]
        fitting = min(fitting, _agreement(column(offset_at), low))
        fitting = min(fitting, _agreement(column(offset_at + 1), high))
    lows = column(timestamp_at)
    if timestamp_width == 1:
        fitting = min(fitting, room - len(lows.lstrip(_LAST_BYTES)))
        deltas = [_SIGNED[raw] for raw in lows[:fitting]]
    elif timestamp_width == 2:
        highs = column(timestamp_at + 1)
        fitting = min(fitting, room - len(lows.lstrip(_MORE_BYTES)))
        fitting = min(fitting, room - len(highs.lstrip(_LAST_BYTES)))
        raws = [low & 0x7F | high << 7 for low, high in zip(lows[:fitting], highs, strict=False)]
        deltas = [~(raw >> 1) if raw & 1 else raw >> 1 for raw in raws]
    else:
        deltas = columns.timestamp_deltas[-1:] * fitting
    if not fitting:
        return 0

    columns.timestamp_deltas += deltas
    columns.offset_deltas += range(index, index + fitting)
    with memoryview(data) as view:
        _cut(
            view[start : start + fitting * stride],
            key_at + key_width - first,
            key_length,
            value_width,
            value_length,
            columns,
            fitting,
        )
    return fitting


def _cut(
    run: memoryview,
    before: int,
    key_length: int,
    between: int,
    value_length: int,
    columns: Columns,
    count: int,
) -> None:
    """Keys and values out of the run, by a struct that has the stride's length."""
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


def _length(data: bytes, at: int) -> tuple[int, int]:
    """(length or -1, bytes of its varint); it was read before, so it is sound."""
    raw = shift = width = 0
    while True:
        byte = data[at + width]
        raw |= (byte & 0x7F) << shift
        width += 1
        shift += 7
        if byte < 0x80:
            return (-1 if raw & 1 else raw >> 1), width


def _agreement(column: bytes, expected: bytes) -> int:
    """How many bytes at the front are equal."""
    if column == expected:
        return len(column)
    low, high = 0, len(column)  # equal up to low, not up to high
    while high - low > 1:
        middle = (low + high) // 2
        if column[:middle] == expected[:middle]:
            low = middle
        else:
            high = middle
    return low
