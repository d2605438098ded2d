"""Conversion of lines of text to records without keys, and back, without a Python object per
record.

Lines are collected and split in C (`_native.c`) or, with the same result, in Python.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

from odradek_protocol.compression import Codec

from . import native
from .arrow import PureRows
from .batch import BatchHeader
from .builder import EncodedRecords
from .from_arrow import PureColumns, RowTooLarge
from .record import body_columns

MAX_DATA_BYTES = 2**31 - 1
"""The most bytes that are split at once, because ends are int32."""

_VALUES = 2  # the numbers of columns in `PureRows`
_MAX_OFFSET = 2**63 - 1
_FULL_BYTES = 1024 * 1024


def split_lines(data: bytes, delimiter: bytes) -> tuple[bytes, bytes, int]:
    """Split `data` at each delimiter. Returns (the lines without delimiters, joined; the start of
    each line in the joined lines, followed by the end of the last line, as int32s; the number of
    consumed bytes, with delimiters). Raises ValueError for more than MAX_DATA_BYTES."""
    if len(data) > MAX_DATA_BYTES:
        raise ValueError(f"{len(data)} bytes are too many to be split at once")
    if native.CODEC is not None:
        found: tuple[bytes, bytes, int] | None = native.CODEC.split_lines(data, delimiter)
        if found is not None:
            return found
    *lines, rest = data.split(delimiter)
    ends = array("i", accumulate(map(len, lines), initial=0))
    return b"".join(lines), ends.tobytes(), len(data) - len(rest)


def join_lines(values: bytes | bytearray, ends: bytes | bytearray, delimiter: bytes) -> bytes:
    """The values, each followed by the delimiter. `ends`: positions in the form that `split_lines`
    returns. Raises ValueError for invalid ends."""
    if native.CODEC is not None:
        lines: bytes | None = native.CODEC.join_lines(values, ends, delimiter)
        if lines is None:
            raise ValueError("the ends do not fit the values")
        return lines
    places = array("i", bytes(ends))
    if any(end < start for start, end in pairwise([0, *places, len(values)])) or any(places[:1]):
        raise ValueError("the ends do not fit the values")
    parts = [values[start:end] for start, end in pairwise(places)]
    return delimiter.join([*parts, b""])


class LineRecords:
    """Lines that are to become the values of records."""

    __slots__ = ("_columns", "_ends", "_values", "count", "used_bytes")

    def __init__(self, data: bytes, delimiter: bytes) -> None:
        """Split the lines. `data`: lines, each followed by a delimiter. Bytes after the last
        delimiter are not used and not counted in `used_bytes`. ValueError as in `split_lines`."""
        self._values, self._ends, self.used_bytes = split_lines(data, delimiter)
        self.count = len(self._ends) // 4 - 1
        kind = PureColumns if native.CODEC is None else native.CODEC.Columns
        cells = (False, 0, None, self._ends, self._values)
        self._columns = kind(self.count, None, cells, None, None, None)

    def line(self, row: int) -> bytes:
        """The line of a row, without its delimiter."""
        start, end = memoryview(self._ends).cast("i")[row : row + 2]
        return self._values[start:end]

    def check(self, max_bytes: int) -> None:
        """Raises RowTooLarge for the first line that would need more than `max_bytes` as a
        batch."""
        wrong = self._columns.check(max_bytes, 1)
        if wrong is not None:
            row, _, size_bytes = wrong
            raise RowTooLarge(row, size_bytes, max_bytes)

    def rows(self, start: int, end: int) -> range:
        """The numbers of the lines from `start` to `end` (exclusive)."""
        return range(start, end)

    def encode(
        self, start: int, end: int, limit_bytes: int, now_ms: int, codec: Codec
    ) -> EncodedRecords:
        encoded = self._columns.encode(None, start, end, limit_bytes, now_ms)
        if encoded is None:
            raise ValueError(f"lines {start} to {end} of {self.count} cannot be records")
        body, count, base_timestamp, max_timestamp = encoded
        return EncodedRecords(codec, body, count, base_timestamp, max_timestamp)


class ValueLines:
    """Collects the values of records as lines. A null value becomes an empty line.

    `ends`: the offset at which to stop, by (topic, partition); partitions that are missing have no
    end. Since the last `take`, lines of a partition were collected from the offset in `firsts`
    (inclusive) to the offset in `positions` (exclusive).
    """

    __slots__ = ("_delimiter", "_ends", "_rows", "firsts", "positions")

    def __init__(self, delimiter: bytes, ends: Mapping[Any, int]) -> None:
        self._delimiter = delimiter
        self._ends = ends
        self._rows = PureRows(_VALUES) if native.CODEC is None else native.CODEC.Rows(_VALUES)
        self.firsts: dict[tuple[str, int], int] = {}
        self.positions: dict[tuple[str, int], int] = {}

    @property
    def count(self) -> int:
        return int(self._rows.count)

    @property
    def is_full(self) -> bool:
        """True if the lines should be taken before more are added."""
        return bool(self._rows.size_bytes >= _FULL_BYTES)

    def add(
        self,
        topic: str,
        partition: int,
        header: BatchHeader,
        body: bytes,
        *,
        first: int = 0,
        limit: int = _MAX_OFFSET,
    ) -> int:
        """Add the records of a batch from the offset `first` on, up to `limit` of them. `body` is
        the result of `read_body`.

        Returns the offset of the first record that was not added, -1 if all were added.
        CorruptBatch, without adding a record, for a batch that is damaged anywhere.
        """
        where = (topic, partition)
        end = self._ends.get(where, _MAX_OFFSET)
        before = self._rows.count
        left: int | None = self._rows.add(
            body,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            0,  # timestamps are not used, and need not fit into Arrow's type
            first,
            end,
            limit,
        )
        if left is None:
            body_columns(body, header)
            raise AssertionError("a batch was refused without a reason")
        if self._rows.count > before:
            self.firsts.setdefault(where, first)
        self.positions[where] = left if left >= 0 else min(header.next_offset, end)
        return left

    def take(self) -> bytes:
        """Return the lines, and remove them from this object."""
        _, _, buffers = self._rows.take()
        self.firsts, self.positions = {}, {}
        return join_lines(buffers[5], buffers[4], self._delimiter) if buffers[4] else b""
