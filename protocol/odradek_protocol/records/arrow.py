"""Conversion of record batches to Arrow: the rows of Spark's `kafka` format, without a Python
object per record.

Rows are collected batch by batch in 15 Arrow buffers, by the compiled twin (`Rows` in `_native.c`)
or with the same result by `PureRows`. This module makes columns of the buffers without a copy.
pyarrow is imported when it is first needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, cast

from . import native
from .batch import BatchHeader, CorruptBatch
from .record import Headers, RecordColumns, body_columns, placed_columns

COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)

_KEY, _VALUE, _HEADERS, _TIMESTAMP = 1, 2, 4, 8
_FLAGS = {"key": _KEY, "value": _VALUE, "headers": _HEADERS, "timestamp": _TIMESTAMP}

MAX_BYTES = 256 * 1024 * 1024
"""`is_full` from here on. With one more batch (at most 128 MiB by default) no column passes Arrow's
2 GiB."""

_MAX_OFFSET = 2**63 - 1
_MAX_MICROSECONDS = 2**63 - 1
_MIN_MICROSECONDS = -(2**63)


class TimestampBeyondMicroseconds(CorruptBatch):
    """The error for a record whose time in microseconds exceeds int64, the type of Arrow and
    Spark."""


class PyarrowMissing(ImportError):
    """The error if pyarrow is not installed."""


def pyarrow() -> Any:
    """The module pyarrow. PyarrowMissing, with the way to install it, if it is missing."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise PyarrowMissing(
            "records as Arrow need pyarrow, which is not installed: pip install 'odradek[arrow]'"
        ) from error
    return pa


def chosen_columns(columns: Collection[str] | None, include_headers: bool) -> tuple[str, ...]:
    """The names in `columns`, in the order of a row's columns. None: all columns, with the headers
    only if `include_headers`.

    Raises ValueError for an unknown name, or for an empty list.
    """
    if columns is None:
        return COLUMNS if include_headers else COLUMNS[:-1]
    wanted = {columns} if isinstance(columns, str) else set(columns)
    if include_headers:
        wanted.add("headers")
    unknown = sorted(wanted.difference(COLUMNS))
    if unknown or not wanted:
        named = ", ".join(map(repr, unknown)) or "none given"
        raise ValueError(f"no such column: {named}; there are {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in wanted)


@cache
def arrow_schema(columns: tuple[str, ...]) -> Any:
    """The schema of the columns, with exactly the types that Spark accepts. Raises
    PyarrowMissing."""
    pa = pyarrow()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])


class ArrowRows:
    """Collects records of any partitions, in the order in which they are added."""

    __slots__ = ("_columns", "_native", "_rows", "_runs", "_schema", "max_bytes")

    def __init__(self, columns: tuple[str, ...], max_bytes: int = MAX_BYTES) -> None:
        """Begin without rows. `columns`: the result of `chosen_columns`. Raises PyarrowMissing."""
        self._schema = arrow_schema(columns)
        self._columns = columns
        wanted = sum(flag for name, flag in _FLAGS.items() if name in columns)
        self._native = native.CODEC is not None
        self._rows = native.CODEC.Rows(wanted) if self._native else PureRows(wanted)
        # The runs of rows with the same partition and timestamp type, as (topic, partition,
        # timestamp type, number of rows).
        self._runs: list[tuple[str, int, int, int]] = []
        self.max_bytes = max_bytes

    @property
    def count(self) -> int:
        return int(self._rows.count)

    @property
    def is_full(self) -> bool:
        """True if the rows should be taken before more are added."""
        return bool(self._rows.size_bytes >= self.max_bytes)

    def add(
        self,
        topic: str,
        partition: int,
        header: BatchHeader,
        body: bytes,
        *,
        first: int = 0,
        end: int = _MAX_OFFSET,
        limit: int = _MAX_OFFSET,
    ) -> int:
        """Add the records of a batch with first <= offset < end, up to `limit` of them.

        `body` is the result of `read_body`. Returns the offset of the first of these records that
        was not added, -1 if all of them were added. Raises CorruptBatch, without adding a record,
        for a batch that is damaged anywhere.
        """
        before = self.count
        append_time = header.max_timestamp if header.is_log_append_time else None
        left: int | None = self._rows.add(
            body,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            append_time,
            first,
            end,
            limit,
        )
        if left is None:
            if self._native:
                _refuse(body_columns(body, header), first, end, limit)
            raise AssertionError("a batch was refused without a reason")
        added = self.count - before
        if added:
            self._runs.append((topic, partition, int(header.is_log_append_time), added))
        return left

    def take(self) -> Any:
        """Return the rows as one pyarrow.RecordBatch, and remove them from this object."""
        pa = pyarrow()
        count, header_count, buffers = self._rows.take()
        runs, self._runs = self._runs, []
        parts = [pa.py_buffer(each) for each in buffers]
        arrays = [
            _COLUMNS[name](pa, count, header_count, parts, runs)
            if count
            else pa.array([], self._schema.field(name).type)
            for name in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _refuse(columns: RecordColumns, first: int, end: int, limit: int) -> None:
    """Raise the error for a sound batch that the compiled twin refused."""
    rows = [at for at, offset in enumerate(columns.offsets) if first <= offset < end][:limit]
    timestamps = [columns.timestamps[at] for at in rows]
    _microseconds(timestamps, [columns.offsets[at] for at in rows])


# --- Columns, in the order of the buffers ---------------------------------------------------------

Runs = list[tuple[str, int, int, int]]


def _binary(pa: Any, kind: Any, count: int, parts: Sequence[Any]) -> Any:
    return pa.Array.from_buffers(kind, count, list(parts))


def _repeated(pa: Any, runs: Iterable[tuple[Any, int]], kind: Any) -> Any:
    """A column made of runs of equal values. Most columns need only one run."""
    merged: list[list[Any]] = []
    for value, count in runs:
        if merged and merged[-1][0] == value:
            merged[-1][1] += count
        else:
            merged.append([value, count])
    arrays = [pa.repeat(pa.scalar(value, kind), count) for value, count in merged]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _header_lists(pa: Any, count: int, header_count: int, parts: list[Any]) -> Any:
    """A column of headers; null for a record without headers, as in Spark's own format."""
    kind = arrow_schema(("headers",)).field(0).type
    if not header_count:
        return pa.nulls(count, kind)
    names = pa.Array.from_buffers(pa.string(), header_count, [None, *parts[10:12]])
    contents = _binary(pa, pa.binary(), header_count, parts[12:15])
    pairs = pa.StructArray.from_arrays(
        [names, contents], fields=[kind.value_type.field(0), kind.value_type.field(1)]
    )
    return pa.Array.from_buffers(kind, count, parts[8:10], children=[pairs])


_Column = Callable[[Any, int, int, list[Any], Runs], Any]
_COLUMNS: dict[str, _Column] = {
    "key": lambda pa, count, _, parts, runs: _binary(pa, pa.binary(), count, parts[0:3]),
    "value": lambda pa, count, _, parts, runs: _binary(pa, pa.binary(), count, parts[3:6]),
    "topic": lambda pa, count, _, parts, runs: _repeated(
        pa, ((topic, rows) for topic, _, _, rows in runs), pa.string()
    ),
    "partition": lambda pa, count, _, parts, runs: _repeated(
        pa, ((partition, rows) for _, partition, _, rows in runs), pa.int32()
    ),
    "offset": lambda pa, count, _, parts, runs: pa.Array.from_buffers(
        pa.int64(), count, [None, parts[6]]
    ),
    "timestamp": lambda pa, count, _, parts, runs: pa.Array.from_buffers(
        pa.timestamp("us", tz="UTC"), count, [None, parts[7]]
    ),
    "timestampType": lambda pa, count, _, parts, runs: _repeated(
        pa, ((kind, rows) for _, _, kind, rows in runs), pa.int32()
    ),
    "headers": lambda pa, count, headers, parts, runs: _header_lists(pa, count, headers, parts),
}


# --- The pure twin --------------------------------------------------------------------------------


class PureRows:
    """The class `Rows` of `_native.c` in Python, with the same methods and results. For a damaged
    batch, this class raises the error, and the compiled class returns None."""

    __slots__ = ("_headers", "_keys", "_offsets", "_timestamps", "_values", "size_bytes", "wanted")

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._begin()

    def _begin(self) -> None:
        self._keys = _BinaryColumn()
        self._values = _BinaryColumn()
        self._offsets = array("q")
        self._timestamps = array("q")
        self._headers: list[tuple[tuple[bytes, bytes | None], ...]] = []
        self.size_bytes = 0

    @property
    def count(self) -> int:
        return len(self._offsets)

    def add(
        self,
        data: bytes,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        append_time: int | None,
        first: int,
        end: int,
        limit: int,
    ) -> int:
        columns = placed_columns(
            data, count, base_offset, last_offset_delta, base_timestamp, append_time
        )
        timestamps, offsets = columns.timestamps, columns.offsets
        left = -1
        if offsets and not (
            offsets.__class__ is range
            and first <= offsets[0]
            and offsets[-1] < end
            and len(offsets) <= limit
        ):
            chosen = [index for index, offset in enumerate(offsets) if first <= offset < end]
            if len(chosen) > limit:
                left = offsets[chosen[limit]]
                del chosen[limit:]
            offsets = [offsets[index] for index in chosen]
            timestamps = [timestamps[index] for index in chosen]
            columns = RecordColumns(
                offsets,
                timestamps,
                [columns.keys[index] for index in chosen],
                [columns.values[index] for index in chosen],
                [columns.headers[index] for index in chosen],
            )
        if self.wanted & _TIMESTAMP:
            self._timestamps += array("q", _microseconds(timestamps, offsets))
        # array() is fast only with a list.
        self._offsets += array("q", list(offsets))
        if self.wanted & _KEY:
            self.size_bytes += self._keys.add(columns.keys)
        if self.wanted & _VALUE:
            self.size_bytes += self._values.add(columns.values)
        if self.wanted & _HEADERS:
            for headers in columns.headers:
                self._headers.append(self._pairs(headers) if headers else ())
        return left

    def _pairs(self, headers: Headers) -> tuple[tuple[bytes, bytes | None], ...]:
        pairs = []
        for name, content in headers:
            octets = name.encode("utf-8", "surrogateescape")
            self.size_bytes += len(octets) + len(content or b"")
            pairs.append((_text(octets), content))
        return tuple(pairs)

    def take(self) -> tuple[int, int, tuple[bytes, ...]]:
        """Return (number of rows, number of headers, 15 buffers), and remove all rows from this
        object."""
        count = self.count
        names, contents = _BinaryColumn(), _BinaryColumn()
        pairs = [pair for headers in self._headers for pair in headers]
        names.add([name for name, _ in pairs])
        contents.add([content for _, content in pairs])
        buffers = (
            *self._keys.buffers(),
            *self._values.buffers(),
            self._offsets.tobytes(),
            self._timestamps.tobytes(),
            _bits(len(self._headers), [n for n, each in enumerate(self._headers) if not each]),
            _ends(map(len, self._headers)).tobytes() if self._headers else b"",
            *names.buffers()[1:],
            *contents.buffers(),
        )
        self._begin()
        return count, len(pairs), buffers


class _BinaryColumn:
    """A growing column, with three buffers that are all empty while the column has no entries."""

    __slots__ = ("_ends", "_nulls", "_octets")

    def __init__(self) -> None:
        self._octets: list[bytes] = []
        self._nulls: list[int] = []
        self._ends = array("i")

    def add(self, column: Sequence[bytes | None]) -> int:
        """Append a column; returns the size of its values in bytes."""
        count = len(self._octets)
        try:
            lengths = list(map(len, cast("Sequence[bytes]", column)))
            self._octets += cast("Sequence[bytes]", column)
        except TypeError:  # some values are null
            if column.count(None) == len(column):
                self._nulls += range(count, count + len(column))
                self._octets += [b""] * len(column)
                lengths = [0] * len(column)
            else:
                self._nulls += [n for n, each in enumerate(column, count) if each is None]
                self._octets += [each or b"" for each in column]
                lengths = list(map(len, self._octets[count:]))
        ends = _ends(lengths, self._ends[-1] if count else 0)
        self._ends += ends[1:] if count else ends
        return sum(lengths)

    def buffers(self) -> tuple[bytes, bytes, bytes]:
        """Arrow's three buffers of the column: validity bits, ends, data."""
        if not self._octets:
            return b"", b"", b""
        valid = _bits(len(self._octets), self._nulls)
        return valid, self._ends.tobytes(), b"".join(self._octets)


def _ends(lengths: Iterable[int], start: int = 0) -> array[int]:
    """Arrow's offsets of a column: `start`, and then the end of each entry."""
    return array("i", list(accumulate(lengths, initial=start)))


def _bits(count: int, nulls: list[int]) -> bytes:
    """Arrow's validity: one bit for each entry, lowest first; 0 for `nulls`."""
    if len(nulls) == count:
        return bytes((count + 7) // 8)
    digits = bytearray(b"1") * count
    for index in nulls:
        digits[index] = 0x30
    digits.reverse()
    return int(digits, 2).to_bytes((count + 7) // 8, "little")


def _text(name: bytes) -> bytes:
    """Text in valid UTF-8, because Arrow requires it: invalid bytes become U+FFFD."""
    return name.decode("utf-8", "replace").encode()


def _microseconds(timestamps: list[int], offsets: Sequence[int]) -> list[int]:
    if not timestamps:
        return []
    lowest, highest = min(timestamps), max(timestamps)
    for extreme in (lowest, highest):
        if not _MIN_MICROSECONDS <= extreme * 1000 <= _MAX_MICROSECONDS:
            raise TimestampBeyondMicroseconds(
                f"the timestamp {extreme} ms of the record at offset "
                f"{offsets[timestamps.index(extreme)]} is beyond what Arrow's microseconds hold; "
                "columns without timestamp have the record"
            )
    if lowest == highest:
        return [lowest * 1000] * len(timestamps)
    return [timestamp * 1000 for timestamp in timestamps]
