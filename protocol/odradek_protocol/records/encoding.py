"""The encoding of records, from columns to the bytes of a batch's body.

Almost all of the work happens inside `map`, `zip` and `join`: the bytes before a value depend only
on a few small numbers (timestamp delta, key length, value length, width of the offset delta), so
each such head is made once and then looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Any

from .varint import zigzag_encode

HeaderItems = Sequence[tuple[str, bytes | bytearray | memoryview | None]]
Row = tuple[int, bytes | None, bytes | None, HeaderItems]
"""Timestamp in ms, key, value, headers."""

NO_HEADERS = b"\x00"
_NULL = b"\x01"
_ATTRIBUTES = b"\x00"
_CACHE_ENTRIES = 16 * 1024


class _Varints(dict[int, bytes]):
    """The zigzag varint of each number, made when it is first needed."""

    __slots__ = ()

    def __missing__(self, number: int) -> bytes:
        encoded = zigzag_encode(number)
        if len(self) < _CACHE_ENTRIES:
            self[number] = encoded
        return encoded


class _NullKeys(dict[int, bytes]):
    """A cache of the bytes of a null key and the value length after it. The key is the value
    length."""

    __slots__ = ()

    def __missing__(self, length: int) -> bytes:
        encoded = _NULL + _VARINTS[length]
        if len(self) < _CACHE_ENTRIES:
            self[length] = encoded
        return encoded


class _Heads(dict[tuple[int, int, int], bytes]):
    """A cache of the first bytes of records: record length, attributes, timestamp delta. The key is
    (timestamp delta, key length, value length).

    The records have no headers, and their offset deltas take `offset_width` bytes.
    """

    __slots__ = ("_offset_width",)

    def __init__(self, offset_width: int) -> None:
        super().__init__()
        self._offset_width = offset_width

    def __missing__(self, shape: tuple[int, int, int]) -> bytes:
        timestamp_delta, key_length, value_length = shape
        timestamp = zigzag_encode(timestamp_delta)
        length = 1 + len(timestamp) + self._offset_width
        length += len(_VARINTS[key_length]) + max(key_length, 0)
        length += len(_VARINTS[value_length]) + max(value_length, 0) + len(NO_HEADERS)
        head = _VARINTS[length] + _ATTRIBUTES + timestamp
        if len(self) < _CACHE_ENTRIES:
            self[shape] = head
        return head


_VARINTS = _Varints()
_NULL_KEYS = _NullKeys()

# An offset delta below the first of these numbers takes one byte, below the second two bytes, and
# so on up to five bytes.
_WIDTH_ENDS = (64, 8192, 1 << 20, 1 << 27, 1 << 31)
_HEADS = tuple(_Heads(width) for width in range(1, 6))
_KEPT_OFFSETS = 8192


def encode_headers(headers: HeaderItems) -> bytes:
    """The count and the headers of one record, encoded.

    TypeError or ValueError with the header's name if a key is not text or a value not bytes.
    """
    parts = [_VARINTS[len(headers)]]
    for name, value in headers:
        parts.append(_NAMES.get(name) or _header_name(name))
        if value is None:
            parts.append(_NULL)
        else:
            if value.__class__ is not bytes:
                if not isinstance(value, bytes | bytearray | memoryview):
                    kind = type(value).__name__
                    raise TypeError(f"value of header {name!r} is {kind}, not bytes or None")
                value = bytes(value)
            parts.append(_VARINTS[len(value)])
            parts.append(value)
    return b"".join(parts)


def _header_name(name: str) -> bytes:
    """The length and the UTF-8 bytes of a header's name, cached if the name is short."""
    if not isinstance(name, str):
        raise TypeError(f"header key {name!r} is {type(name).__name__}, not str")
    try:
        octets = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"header key {name!r} cannot be written as UTF-8") from error
    encoded = _VARINTS[len(octets)] + octets
    if len(encoded) <= 64 and len(_NAMES) < _MAX_NAMES:
        _NAMES[name] = encoded
    return encoded


# The cache of `_header_name`: a few header names occur again and again.
_NAMES: dict[str, bytes] = {}
_MAX_NAMES = 1024


def encode_rows(
    rows: Sequence[Row], header_blocks: Mapping[int, bytes], base_timestamp: int
) -> bytes:
    """The body of a batch with offset deltas 0, 1, 2, ...

    `header_blocks`: the result of `encode_headers` for each row with headers, by index; the headers
    in `rows` are not read.
    """
    count = len(rows)
    timestamps, keys, values, _ = zip(*rows, strict=True)
    if len(set(timestamps)) == 1:
        deltas: Sequence[int] = [timestamps[0] - base_timestamp] * count
    else:
        deltas = [timestamp - base_timestamp for timestamp in timestamps]
    if header_blocks:
        blocks = [header_blocks.get(index, NO_HEADERS) for index in range(count)]
        return encode_columns(range(count), deltas, keys, values, blocks)
    try:
        value_lengths = list(map(len, values))
    except TypeError:  # some values are null
        return encode_columns(range(count), deltas, keys, values, [NO_HEADERS] * count)
    if keys.count(None) == count:
        return _encode_values(deltas, value_lengths, values)
    try:
        key_lengths = list(map(len, keys))
    except TypeError:  # some keys are null, some are not
        return encode_columns(range(count), deltas, keys, values, [NO_HEADERS] * count)
    return _encode_pairs(deltas, key_lengths, value_lengths, keys, values)


def _encode_values(deltas: Sequence[int], lengths: list[int], values: Sequence[bytes]) -> bytes:
    """The body of a batch whose records have null keys and no headers."""
    count = len(values)
    parts: list[Any] = [NO_HEADERS] * (5 * count)
    parts[0::5] = _heads(zip(deltas, repeat(-1), lengths), count)
    parts[1::5] = _offsets(count)
    parts[2::5] = map(_NULL_KEYS.__getitem__, lengths)
    parts[3::5] = values
    return b"".join(parts)


def _encode_pairs(
    deltas: Sequence[int],
    key_lengths: list[int],
    value_lengths: list[int],
    keys: Sequence[bytes],
    values: Sequence[bytes],
) -> bytes:
    """The body of a batch whose records all have key and value, and no headers."""
    count = len(values)
    parts: list[Any] = [NO_HEADERS] * (7 * count)
    parts[0::7] = _heads(zip(deltas, key_lengths, value_lengths, strict=False), count)
    parts[1::7] = _offsets(count)
    parts[2::7] = map(_VARINTS.__getitem__, key_lengths)
    parts[3::7] = keys
    parts[4::7] = map(_VARINTS.__getitem__, value_lengths)
    parts[5::7] = values
    return b"".join(parts)


def _heads(shapes: Iterable[tuple[int, int, int]], count: int) -> list[bytes]:
    """The first bytes of each record, from the table for the width of its offset delta."""
    if count <= _WIDTH_ENDS[0]:
        return list(map(_HEADS[0].__getitem__, shapes))
    everything = list(shapes)
    heads: list[bytes] = []
    start = 0
    for table, end in zip(_HEADS, _WIDTH_ENDS, strict=True):
        heads += map(table.__getitem__, everything[start:end])
        start = end
        if start >= count:
            break
    return heads


def _offsets(count: int) -> Sequence[bytes]:
    if count <= _KEPT_OFFSETS:
        return _kept_offsets()[:count]
    return [*_kept_offsets(), *map(zigzag_encode, range(_KEPT_OFFSETS, count))]


@cache
def _kept_offsets() -> tuple[bytes, ...]:
    """The varints of the offset deltas that occur in nearly all batches."""
    return tuple(zigzag_encode(delta) for delta in range(_KEPT_OFFSETS))


def encode_columns(
    offset_deltas: Iterable[int],
    timestamp_deltas: Iterable[int],
    keys: Iterable[bytes | None],
    values: Iterable[bytes | None],
    header_blocks: Iterable[bytes],
) -> bytes:
    """The body of a batch with any records: they may have nulls, headers, and gaps between
    offsets."""
    parts: list[bytes] = []
    varints = _VARINTS
    rows = zip(offset_deltas, timestamp_deltas, keys, values, header_blocks, strict=True)
    for offset_delta, timestamp_delta, key, value, block in rows:
        timestamp = varints[timestamp_delta]
        offset = varints[offset_delta]
        if key is None:
            key, key_length = b"", _NULL
        else:
            key_length = varints[len(key)]
        if value is None:
            value, value_length = b"", _NULL
        else:
            value_length = varints[len(value)]
        length = 1 + len(timestamp) + len(offset) + len(key_length) + len(key)
        length += len(value_length) + len(value) + len(block)
        parts += (
            varints[length],
            _ATTRIBUTES,
            timestamp,
            offset,
            key_length,
            key,
            value_length,
            value,
            block,
        )
    return b"".join(parts)
