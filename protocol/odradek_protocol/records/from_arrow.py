"""Conversion of Arrow to record batches: the rows of a RecordBatch, encoded without a Python object
per record.

The columns' buffers are read in place, by the compiled twin (`Columns` in `_native.c`) or with the
same result by `PureColumns`. Every offset in a buffer is checked against the buffer sizes: a
damaged array is an error, never a read beyond its end.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NoReturn

from odradek_protocol.compression import Codec
from odradek_protocol.constants import NO_TIMESTAMP
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.murmur2 import positive_murmur2

from . import native
from .arrow import pyarrow
from .batch import Buffer
from .builder import EncodedRecords
from .encoding import NO_HEADERS, encode_columns
from .layout import HEADER_BYTES
from .varint import zigzag_encode

COLUMNS = ("key", "value", "headers", "partition", "timestamp")
"""The columns that records are made of; `value` is required."""

Cells = tuple[bool, int, Buffer | None, Buffer | None, Buffer | None]
"""A column: whether its ends are int64, the first row's place, validity bits, ends, data."""

_MAX_CELL_BYTES = (2**31 - 1) // 4
_MAX_TIMESTAMP_MS = 2**63 - 2
# The results of checks, with the numbers of `_native.c`.
_FINE = 0
(
    _DAMAGED_KEY,
    _DAMAGED_VALUE,
    _DAMAGED_HEADERS,
    _DAMAGED_TIMESTAMP,
    _DAMAGED_PARTITION,
    _HEADER_WITHOUT_NAME,
    _IMPOSSIBLE_TIMESTAMP,
    _IMPOSSIBLE_PARTITION,
    _TOO_LARGE,
) = range(1, 10)
_DAMAGED = "the array is damaged: its buffers end before this entry does, or it is above 512 MiB"
_WRONG = {
    _DAMAGED_KEY: ("key", _DAMAGED),
    _DAMAGED_VALUE: ("value", _DAMAGED),
    _DAMAGED_HEADERS: ("headers", _DAMAGED),
    _DAMAGED_TIMESTAMP: ("timestamp", _DAMAGED),
    _DAMAGED_PARTITION: ("partition", _DAMAGED),
    _HEADER_WITHOUT_NAME: ("headers", "a header has no key, every one needs one"),
    _IMPOSSIBLE_TIMESTAMP: ("timestamp", "{number} is not in ms since 1970 (or -1: none)"),
    _IMPOSSIBLE_PARTITION: (
        "partition",
        "the topic has the partitions 0 to {last_partition}, not {number}",
    ),
}


class UnwritableRow(ValueError):
    """The error for a row that cannot be a record. `row`: the row's number, from 0; `column`: the
    column's name."""

    def __init__(self, row: int, column: str, why: str) -> None:
        super().__init__(f"row {row}, column {column}: {why}")
        self.row = row
        self.column = column


class UnwritablePartition(UnwritableRow):
    """The error for a row whose partition does not exist."""


class RowTooLarge(ValueError):
    """The error for a row that takes too many bytes. `size_bytes`: the size of a batch with only
    this row."""

    def __init__(self, row: int, size_bytes: int, max_bytes: int) -> None:
        super().__init__(f"row {row} takes {size_bytes} bytes as a record, {max_bytes} are allowed")
        self.row = row
        self.size_bytes = size_bytes


class UnwritableColumn(TypeError):
    """The error for a column that is missing, unknown, or of an unsupported type."""


class Group(NamedTuple):
    """The rows of one partition: positions `start` to `end` (exclusive) of the order that `place`
    made. If `partition` is None, any partition may be chosen for the rows."""

    partition: int | None
    start: int
    end: int


class ArrowRecords:
    """The rows of a `pyarrow.RecordBatch` that are to become records."""

    __slots__ = ("_columns", "_order", "count")

    def __init__(self, batch: Any) -> None:
        """Look up the columns by name (`COLUMNS`). TypeError if `batch` is no
        RecordBatch. Also raises UnwritableColumn and PyarrowMissing."""
        pa = pyarrow()
        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(
                f"a pyarrow.RecordBatch is wanted, not {type(batch).__name__}; the batches of a Table are "
                "in table.to_batches()"
            )
        columns = _by_name(batch)
        self.count: int = batch.num_rows
        kind = PureColumns if native.CODEC is None else native.CODEC.Columns
        self._columns = kind(
            self.count,
            _binary(pa, "key", columns.get("key")),
            _binary(pa, "value", columns["value"]),
            _headers(pa, columns.get("headers")),
            _timestamps(pa, columns.get("timestamp")),
            _partitions(pa, columns.get("partition")),
        )
        self._order: bytes | None = None

    def check(self, max_bytes: int, partitions: int) -> None:
        """Check all rows, for a topic with this number of partitions. UnwritableRow for a row that
        cannot be a record, RowTooLarge for a row whose batch would exceed `max_bytes`; the error
        is about the first wrong row."""
        wrong = self._columns.check(max_bytes, partitions)
        if wrong is None:
            return
        row, what, number = wrong
        if what == _TOO_LARGE:
            raise RowTooLarge(row, number, max_bytes)
        column, why = _WRONG[what]
        kind = UnwritablePartition if what == _IMPOSSIBLE_PARTITION else UnwritableRow
        raise kind(row, column, why.format(number=number, last_partition=partitions - 1))

    def place(self, partitions: int) -> list[Group]:
        """Group the rows by partition. The partition of a row is that of the column `partition` or,
        if that is null, follows from murmur2 of the key (C-18).

        Within a group rows keep their order. The rows must have been checked.
        """
        placed = self._columns.place(partitions)
        if placed is None:
            _changed()
        counts, self._order = placed
        groups = []
        start = 0
        for partition, count in enumerate(memoryview(counts).cast("i")):
            if count:
                anywhere = partition == partitions
                groups.append(Group(None if anywhere else partition, start, start + count))
                start += count
        return groups

    def rows(self, start: int, end: int) -> Sequence[int]:
        """The numbers of the rows at positions `start` to `end` (exclusive) of the order that
        `place` made."""
        if self._order is None:
            return range(start, end)
        return memoryview(self._order).cast("i")[start:end]

    def encode(
        self, start: int, end: int, limit_bytes: int, now_ms: int, codec: Codec
    ) -> EncodedRecords:
        """Encode the rows at positions `start` to `end` (exclusive) of the order that `place` made,
        but only as many rows as fit into `limit_bytes` before compression, and at least one row.
        Rows without a timestamp get `now_ms`."""
        encoded = self._columns.encode(self._order, start, end, limit_bytes, now_ms)
        if encoded is None:
            _changed()
        body, count, base_timestamp, max_timestamp = encoded
        return EncodedRecords(codec, body, count, base_timestamp, max_timestamp)


def _changed() -> NoReturn:
    raise ValueError("the arrays were changed while they were read")


# --- columns of pyarrow as buffers ----------------------------------------------------------------


def _by_name(batch: Any) -> dict[str, Any]:
    names = batch.schema.names
    have = f"the columns are {', '.join(names) or 'none'}"
    for name in names:
        if name not in COLUMNS:
            raise UnwritableColumn(
                f"no part of a record is called {name!r}; leave that column out, as in "
                f"batch.select([...]). Known are {', '.join(COLUMNS)}"
            )
        if names.count(name) > 1:
            raise UnwritableColumn(f"there is more than one column {name!r}; {have}")
    if "value" not in names:
        raise UnwritableColumn(f"there is no column 'value'; {have}")
    return {name: batch.column(name) for name in names}


def _plain(pa: Any, column: Any) -> Any:
    """The column with plain values, without a dictionary, run-end encoding or extension type."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        values, types = column.dictionary, pa.types
        if types.is_string_view(values.type) or types.is_binary_view(values.type):
            # Arrow does not support `take` for views.
            plain = values.cast(pa.large_binary())
            column = pa.DictionaryArray.from_arrays(column.indices, plain)
        column = column.dictionary_decode()
    elif pa.types.is_run_end_encoded(column.type):
        from pyarrow.compute import run_end_decode

        column = run_end_decode(column)
    return column


def _binary(pa: Any, name: str, column: Any) -> Cells | None:
    """A column of bytes; None for a column of the type null."""
    if column is None:
        return None
    column = _plain(pa, column)
    kind, types = column.type, pa.types
    if types.is_null(kind):
        return None
    if types.is_fixed_size_binary(kind) or types.is_binary_view(kind) or types.is_string_view(kind):
        column = column.cast(pa.large_binary())
        kind = column.type
    wide = types.is_large_binary(kind) or types.is_large_string(kind)
    if not wide and not types.is_binary(kind) and not types.is_string(kind):
        raise UnwritableColumn(
            f"column {name!r} is {kind}, but must be binary or string; cast it, or encode its values"
        )
    return (wide, column.offset, *column.buffers())


def _headers(pa: Any, column: Any) -> tuple[int, Cells, Cells, Cells, Cells] | None:
    """A column of lists of (key, value), or of maps."""
    if column is None:
        return None
    column = _plain(pa, column)
    kind, types = column.type, pa.types
    if types.is_null(kind):
        return None
    if types.is_map(kind):
        wide, names, contents = False, column.keys, column.items
        count, valid, first = len(names), None, 0
    elif types.is_list(kind) or types.is_large_list(kind):
        wide, items = types.is_large_list(kind), column.values
        fields = items.type
        if not types.is_struct(fields) or {field.name for field in fields} != {"key", "value"}:
            _refuse_headers(kind)
        names, contents = items.field("key"), items.field("value")
        count, valid, first = len(items), items.buffers()[0], items.offset
    else:
        _refuse_headers(kind)
    of_names = _binary(pa, "headers", names)
    of_contents = _binary(pa, "headers", contents)
    absent: Cells = (False, 0, bytes((count + 7) // 8), None, None)  # all are null
    return (
        count,
        (wide, column.offset, *column.buffers()[:2], None),
        (False, first, valid, None, None),
        absent if of_names is None else of_names,
        absent if of_contents is None else of_contents,
    )


def _refuse_headers(kind: Any) -> NoReturn:
    raise UnwritableColumn(
        f"column 'headers' is {kind}, but must be list<struct<key: string, value: binary>> or "
        "map<string, binary>"
    )


def _timestamps(pa: Any, column: Any) -> Cells | None:
    """A column of int64 in ms."""
    if column is None:
        return None
    column = _plain(pa, column)
    kind, types = column.type, pa.types
    if types.is_null(kind):
        column = pa.nulls(len(column), pa.int64())
    elif types.is_timestamp(kind):
        # Fractions of milliseconds are dropped.
        column = _cast(pa, "timestamp", column, pa.timestamp("ms", tz=kind.tz), truncates=True)
    elif not types.is_int64(kind):
        raise UnwritableColumn(
            f"column 'timestamp' is {kind}, but must be a timestamp, or int64 in ms since 1970"
        )
    valid, data = column.buffers()
    return (True, column.offset, valid, None, data)


def _partitions(pa: Any, column: Any) -> Cells | None:
    """A column of int32; null means that the key determines the partition."""
    if column is None:
        return None
    column = _plain(pa, column)
    if pa.types.is_null(column.type):
        return None
    if not pa.types.is_integer(column.type):
        raise UnwritableColumn(f"column 'partition' is {column.type}, but must be int32")
    column = _cast(pa, "partition", column, pa.int32())
    valid, data = column.buffers()
    return (False, column.offset, valid, None, data)


def _cast(pa: Any, name: str, column: Any, kind: Any, *, truncates: bool = False) -> Any:
    """The column with another type. `truncates`: true if fractions of the new unit may be dropped.
    UnwritableColumn for a number out of range."""
    if column.type == kind:
        return column
    from pyarrow.compute import CastOptions

    try:
        return column.cast(options=CastOptions(kind, allow_time_truncate=truncates))
    except pa.ArrowInvalid as error:
        raise UnwritableColumn(f"column {name!r} is {column.type} and no {kind}: {error}") from None


# --- The pure twin --------------------------------------------------------------------------------


class _Damaged(Exception):
    pass


class _Entries:
    __slots__ = ("_data", "_ends", "_offset", "_valid")

    def __init__(self, cells: Cells, numbers: bool = False) -> None:
        wide, self._offset, valid, ends, data = cells
        self._valid = None if valid is None else memoryview(valid).cast("B")
        kind = "q" if wide else "i"
        self._ends = _numbers(ends, kind)
        octets: memoryview = memoryview(b"" if data is None else data)
        self._data = _numbers(octets, kind) if numbers else octets.cast("B")

    def is_valid(self, row: int) -> bool:
        """True if the entry is not null. Raises _Damaged."""
        if self._valid is None:
            return True
        at = self._offset + row
        if at >> 3 >= len(self._valid):
            raise _Damaged
        return bool(self._valid[at >> 3] >> (at & 7) & 1)

    def ends(self, row: int, size: int) -> tuple[int, int]:
        """The positions at which an entry begins and ends. Raises _Damaged."""
        at = self._offset + row
        if at > len(self._ends) - 2:
            raise _Damaged
        start, end = self._ends[at], self._ends[at + 1]
        if not 0 <= start <= end <= size:
            raise _Damaged
        return start, end

    def octets(self, row: int) -> bytes | None:
        """The bytes of an entry; None for null. Raises _Damaged."""
        if not self.is_valid(row):
            return None
        start, end = self.ends(row, len(self._data))
        if end - start > _MAX_CELL_BYTES:
            raise _Damaged
        return bytes(self._data[start:end])

    def column(self, count: int) -> list[bytes | None]:
        """The bytes of the first `count` entries. Raises _Damaged if one is damaged."""
        first = self._offset
        ends = self._ends[first : first + count + 1].tolist()
        data = bytes(self._data)
        if count and (len(ends) <= count or ends[0] < 0 or ends[-1] > len(data)):
            raise _Damaged
        spans = list(pairwise(ends))
        if any(start > end or end - start > _MAX_CELL_BYTES for start, end in spans):
            raise _Damaged
        if self._valid is None:
            return [data[start:end] for start, end in spans]
        return [
            data[start:end] if self.is_valid(row) else None
            for row, (start, end) in enumerate(spans)
        ]

    def number(self, row: int) -> int | None:
        """The number of an entry; None for null. Raises _Damaged."""
        if not self.is_valid(row):
            return None
        at = self._offset + row
        if at >= len(self._data):
            raise _Damaged
        return self._data[at]


def _numbers(data: Buffer | None, kind: str) -> memoryview:
    view = memoryview(b"" if data is None else data).cast("B")
    size = 8 if kind == "q" else 4
    return view[: len(view) // size * size].cast(kind)  # type: ignore[call-overload,no-any-return]


class _Unwritable(Exception):
    def __init__(self, what: int, number: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.number = number


_Row = tuple[int, bytes | None, bytes | None, bytes]
"""Timestamp, key, value, headers as they are written."""


class PureColumns:
    """The class `Columns` of `_native.c` in Python, with the same methods and results."""

    __slots__ = (
        "_contents",
        "_count",
        "_item_count",
        "_items",
        "_key",
        "_lists",
        "_names",
        "_partitions",
        "_sound",
        "_timestamps",
        "_value",
    )

    def __init__(
        self,
        count: int,
        key: Cells | None,
        value: Cells | None,
        headers: tuple[int, Cells, Cells, Cells, Cells] | None,
        timestamps: Cells | None,
        partitions: Cells | None,
    ) -> None:
        self._count = count
        self._key = None if key is None else _Entries(key)
        self._value = None if value is None else _Entries(value)
        self._lists: _Entries | None = None
        if headers is not None:
            self._item_count = headers[0]
            self._lists, self._items, self._names, self._contents = map(_Entries, headers[1:])
        self._timestamps = None if timestamps is None else _Entries(timestamps, numbers=True)
        self._partitions = None if partitions is None else _Entries(partitions, numbers=True)
        #: All keys and values, read in advance; None if one of them is damaged.
        self._sound: tuple[list[bytes | None], list[bytes | None]] | None = None
        nothing: list[bytes | None] = [None] * count
        with suppress(_Damaged):
            self._sound = (
                nothing if self._key is None else self._key.column(count),
                nothing if self._value is None else self._value.column(count),
            )

    def check(self, max_bytes: int, partitions: int) -> tuple[int, int, int] | None:
        """See `_native.c`."""
        for row in range(self._count):
            try:
                _, key, value, block = self._row(row, 0)
                number = self._partition(row)
                if number is not None and not 0 <= number < partitions:
                    raise _Unwritable(_IMPOSSIBLE_PARTITION, number)
                size = len(block) + len(key or b"") + len(value or b"")
                size += HEADER_BYTES + (22 if size < 8000 else 31)
                if size > max_bytes:
                    raise _Unwritable(_TOO_LARGE, size)
            except _Unwritable as wrong:
                return row, wrong.what, wrong.number
        return None

    def place(self, partitions: int) -> tuple[bytes, bytes | None] | None:
        """See `_native.c`."""
        if not 1 <= partitions < 2**31 - 1:
            return None
        groups: list[list[int]] = [[] for _ in range(partitions + 1)]
        of_keys: dict[bytes, int] = {}
        try:
            for row in range(self._count):
                chosen = self._partition(row)
                if chosen is None:
                    if self._sound is not None:
                        key = self._sound[0][row]
                    else:
                        key = None if self._key is None else self._key.octets(row)
                    if key is None:
                        chosen = partitions
                    elif (chosen := of_keys.get(key)) is None:
                        chosen = of_keys[key] = positive_murmur2(key) % partitions
                elif not 0 <= chosen < partitions:
                    return None
                groups[chosen].append(row)
        except (_Unwritable, _Damaged):
            return None
        counts = array("i", map(len, groups)).tobytes()
        if sum(map(bool, groups)) <= 1:
            return counts, None
        return counts, array("i", [row for group in groups for row in group]).tobytes()

    def encode(
        self, order: Buffer | None, start: int, end: int, limit_bytes: int, now_ms: int
    ) -> tuple[bytes, int, int, int] | None:
        """See `_native.c`."""
        if start < 0 or end <= start or not NO_TIMESTAMP <= now_ms <= _MAX_TIMESTAMP_MS:
            return None
        places = range(self._count) if order is None else _numbers(order, "i")
        if start >= len(places):
            return None
        rows: list[_Row] = []
        base_timestamp = highest = 0
        size = HEADER_BYTES
        try:
            for place in range(start, end):
                if place >= len(places) or not 0 <= places[place] < self._count:
                    return None
                row = self._row(places[place], now_ms)
                if not rows:
                    base_timestamp = highest = row[0]
                size += _record_bytes(len(rows), row[0] - base_timestamp, row)
                if rows and size > limit_bytes:
                    break
                highest = max(highest, row[0])
                rows.append(row)
        except _Unwritable:
            return None
        timestamps, keys, values, blocks = zip(*rows, strict=True)
        deltas = [timestamp - base_timestamp for timestamp in timestamps]
        body = encode_columns(range(len(rows)), deltas, keys, values, blocks)
        return body, len(rows), base_timestamp, highest

    def _row(self, row: int, now_ms: int) -> _Row:
        if self._sound is not None and self._timestamps is None and self._lists is None:
            keys, values = self._sound
            return now_ms, keys[row], values[row], NO_HEADERS
        key = value = None
        timestamp: int | None = None
        what = _DAMAGED_KEY
        try:
            if self._key is not None:
                key = self._key.octets(row)
            what = _DAMAGED_VALUE
            if self._value is not None:
                value = self._value.octets(row)
            what = _DAMAGED_TIMESTAMP
            if self._timestamps is not None:
                timestamp = self._timestamps.number(row)
            if timestamp is None:
                timestamp = now_ms
            elif not NO_TIMESTAMP <= timestamp <= _MAX_TIMESTAMP_MS:
                raise _Unwritable(_IMPOSSIBLE_TIMESTAMP, timestamp)
            what = _DAMAGED_HEADERS
            return timestamp, key, value, self._block(row)
        except _Damaged:
            raise _Unwritable(what) from None

    def _block(self, row: int) -> bytes:
        if self._lists is None or not self._lists.is_valid(row):
            return NO_HEADERS
        first, end = self._lists.ends(row, self._item_count)
        parts = [zigzag_encode(end - first)]
        for item in range(first, end):
            there, name = self._items.is_valid(item), self._names.octets(item)
            content = self._contents.octets(item)
            if not there or name is None:
                raise _Unwritable(_HEADER_WITHOUT_NAME)
            parts += (zigzag_encode(len(name)), name)
            parts.append(zigzag_encode(-1 if content is None else len(content)))
            parts.append(content or b"")
        return b"".join(parts)

    def _partition(self, row: int) -> int | None:
        try:
            return None if self._partitions is None else self._partitions.number(row)
        except _Damaged:
            raise _Unwritable(_DAMAGED_PARTITION) from None


def _record_bytes(index: int, timestamp_delta: int, row: _Row) -> int:
    """The size of an encoded record in bytes, including the length at its start."""
    _, key, value, block = row
    key_bytes = -1 if key is None else len(key)
    value_bytes = -1 if value is None else len(value)
    length = 1 + _varint_bytes(timestamp_delta) + _varint_bytes(index) + len(block)
    length += _varint_bytes(key_bytes) + max(key_bytes, 0)
    length += _varint_bytes(value_bytes) + max(value_bytes, 0)
    return _varint_bytes(length) + length


def _varint_bytes(number: int) -> int:
    raw = ~(number << 1) if number < 0 else number << 1
    return 1 if raw < 0x80 else (raw.bit_length() + 6) // 7
