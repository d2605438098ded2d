"""The writer of a batch's records: compiled (`BatchWriter` of `_native.c`), or in pure Python.

Both writers compute the same `estimated_bytes`, so that a batch is full after the same record with
either of them.
"""

from __future__ import annotations

from array import array
from typing import Protocol

from odradek_protocol.constants import NO_TIMESTAMP

from . import native
from .encoding import encode_rows
from .layout import HEADER_BYTES

# The limit of the bytes that a record takes in addition to key, value and headers: length 5,
# attributes 1, timestamp 10, offset 5, key length 5, value length 5. If the content is below 8 KiB,
# the batch below 8192 records and the timestamp delta below 8 s, every number takes two bytes at
# most.
WIDEST_OVERHEAD_BYTES = 31
NARROW_PAYLOAD_BYTES = 8000
_NARROW_OVERHEAD_BYTES = 11
_NARROW_RECORDS = 8192
_NARROW_MS = 8192
_MAX_TIMESTAMP_MS = 2**63 - 2

SLOW_PATH = -2
"""The result of `append` for a record that it leaves to `BatchBuilder.append`: a record of other
types, with an impossible timestamp, or after `seal`."""


class BatchWriter(Protocol):
    """A writer of records with the offset deltas 0, 1, 2, ..."""

    @property
    def count(self) -> int: ...
    @property
    def estimated_bytes(self) -> int:
        """An upper bound of the batch's size before compression, including its header."""

    @property
    def base_timestamp(self) -> int:
        """The timestamp of the first record, in ms."""

    @property
    def max_timestamp(self) -> int:
        """The maximum timestamp of the records, in ms."""

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        header_block: bytes | None,
        limit_bytes: int,
        /,
    ) -> int:
        """Append a record. Returns the record's index; -1 if `estimated_bytes` would exceed
        `limit_bytes`; SLOW_PATH if `BatchBuilder.append` has to handle the record."""

    def body(self) -> bytes:
        """The encoded records."""

    def seal(self) -> bytes:
        """The encoded records. After this call no record can be appended."""

    def timestamps(self) -> bytes:
        """The timestamps of the records, as int64s in the machine's byte order."""


def batch_writer() -> BatchWriter:
    """A new writer, compiled if possible."""
    codec = native.CODEC
    made: BatchWriter = PureBatchWriter() if codec is None else codec.BatchWriter()
    return made


class PureBatchWriter:
    """The pure twin of `BatchWriter`. It collects the rows and encodes them together."""

    __slots__ = (
        "_blocks",
        "_narrow_from_ms",
        "_narrow_until_ms",
        "_rows",
        "_sealed",
        "base_timestamp",
        "estimated_bytes",
    )

    def __init__(self) -> None:
        self._rows: list[tuple[int, bytes | None, bytes | None, tuple[()]]] = []
        self._blocks: dict[int, bytes] = {}
        self.estimated_bytes = HEADER_BYTES
        self.base_timestamp = 0
        # Timestamps in this range take two bytes and need no check; the range is empty before the
        # first record and after `seal`.
        self._narrow_from_ms = self._narrow_until_ms = 0
        self._sealed = False

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def max_timestamp(self) -> int:
        return max([row[0] for row in self._rows], default=0)

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        header_block: bytes | None,
        limit_bytes: int,
        /,
    ) -> int:
        size = 1
        if value is not None:
            if value.__class__ is not bytes:
                return SLOW_PATH
            size += len(value)
        if key is not None:
            if key.__class__ is not bytes:
                return SLOW_PATH
            size += len(key)
        if header_block is not None:
            size += len(header_block) - 1
        rows = self._rows
        index = len(rows)
        if timestamp_ms.__class__ is not int:
            return SLOW_PATH
        if (
            self._narrow_from_ms <= timestamp_ms < self._narrow_until_ms
            and size < NARROW_PAYLOAD_BYTES
            and index < _NARROW_RECORDS
        ):
            size += self.estimated_bytes + _NARROW_OVERHEAD_BYTES
        elif self._sealed or not NO_TIMESTAMP <= timestamp_ms <= _MAX_TIMESTAMP_MS:
            return SLOW_PATH
        else:
            size += self.estimated_bytes + WIDEST_OVERHEAD_BYTES
        if size > limit_bytes:
            return -1
        if not index:
            self.base_timestamp = timestamp_ms
            self._narrow_from_ms = max(NO_TIMESTAMP, timestamp_ms - _NARROW_MS + 1)
            self._narrow_until_ms = timestamp_ms + _NARROW_MS
        if header_block is not None:
            self._blocks[index] = header_block
        self.estimated_bytes = size
        rows.append((timestamp_ms, key, value, ()))
        return index

    def body(self) -> bytes:
        return encode_rows(self._rows, self._blocks, self.base_timestamp) if self._rows else b""

    def seal(self) -> bytes:
        self._sealed = True
        self._narrow_from_ms = self._narrow_until_ms = 0
        return self.body()

    def timestamps(self) -> bytes:
        return array("q", [row[0] for row in self._rows]).tobytes()
