"""CompletedFetch: the data of one partition in a Fetch response, from which records are taken in
parts.

Batches are decoded one at a time, when their records are taken. Data that a seek or a rebalance
drops earlier is never decoded, and the buffered data of a partition takes no more memory than the
bytes that the broker sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from struct import Struct as Packer
from typing import Any, Protocol

from odradek_client.consumer.errors import CorruptRecord, DeserializationFailed, OversizedRecord
from odradek_client.structs import ConsumerRecord, TopicPartition
from odradek_protocol.records.aborted import AbortedBatches
from odradek_protocol.records.batch import (
    BatchError,
    BatchHeader,
    Buffer,
    TruncatedBatch,
    read_header,
    verify_crc,
)
from odradek_protocol.records.layout import LENGTH_AT, LOG_OVERHEAD_BYTES
from odradek_protocol.records.record import RecordColumns, TimestampType, body_columns, read_body
from odradek_protocol.schemas.fetch import AbortedTransaction
from odradek_protocol.stored.control_marker import ControlMarkerError

Deserializer = Callable[[bytes], Any]

_INT32 = Packer(">i")
_KINDS = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """The settings for decoding batches. `key`, `value`: the deserializers. A null key or value is
    not passed to them."""

    check_crcs: bool = True
    read_committed: bool = False
    key: Deserializer | None = None
    value: Deserializer | None = None


class Rows(Protocol):
    """A collector of records without an object for each record, such as `ArrowRows`."""

    @property
    def count(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def add(
        self,
        topic: str,
        partition: int,
        header: BatchHeader,
        body: bytes,
        *,
        first: int,
        limit: int,
    ) -> int: ...


class CompletedFetch:
    """Buffered data of one partition.

    `next_offset`: the offset of the next record. If the subscription's position differs, the data
    is stale and must be dropped (K-11). `take` returns records and advances the offset.
    """

    __slots__ = (
        "_aborted",
        "_at",
        "_batch_at",
        "_batch_next_offset",
        "_body",
        "_data",
        "_failure",
        "_settings",
        "cursor",
        "leader_epoch",
        "next_offset",
        "partition",
        "records",
    )

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        data: Buffer,
        aborted: Sequence[AbortedTransaction] | None,
        settings: DecodeSettings,
    ) -> None:
        self.partition = partition
        self.next_offset = fetch_offset
        #: The leader epoch of the last decoded batch.
        self.leader_epoch = -1
        #: The records of the decoded batch, and the number of those that were taken.
        self.records: list[ConsumerRecord] = []
        self.cursor = 0
        self._batch_next_offset = fetch_offset
        self._data = memoryview(data)
        self._at = self._batch_at = 0
        # The body of the batch at `_at`, kept if `rows` has taken only a part of its records.
        self._body: bytes | None = None
        self._settings = settings
        self._aborted = AbortedBatches(aborted)
        self._failure: DeserializationFailed | None = None

    @property
    def exhausted(self) -> bool:
        """True if no record of the decoded batch is left, and no complete batch follows (R-14)."""
        if self.cursor < len(self.records) or self._failure is not None:
            return False
        left_bytes = len(self._data) - self._at
        if left_bytes < LOG_OVERHEAD_BYTES:
            return True
        (length,) = _INT32.unpack_from(self._data, self._at + LENGTH_AT)
        # A damaged length counts as a batch, so that `take` raises the error.
        return bool(length + LOG_OVERHEAD_BYTES > left_bytes)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Take `limit` records from `next_offset` on; fewer at the end of the fetch, or before a
        record that cannot be read.

        Raises DeserializationFailed, CorruptRecord or OversizedRecord only if the record at
        `next_offset` cannot be read; `next_offset` then does not change.
        """
        taken: list[ConsumerRecord] = []
        while (room := limit - len(taken)) > 0:
            cursor, have = self.cursor, len(self.records)
            if cursor < have:
                if cursor == 0 and have <= room:
                    taken += self.records
                    self.cursor = have
                else:
                    taken += self.records[cursor : cursor + room]
                    self.cursor = min(have, cursor + room)
                self._advance()
                continue
            try:
                if not self._next_batch(self._decode):
                    break
            except (CorruptRecord, DeserializationFailed, OversizedRecord):
                if taken:
                    break
                raise
        return taken

    def take_rows(self, rows: Rows, limit: int) -> int:
        """Add up to `limit` records to `rows`, without calling deserializers.

        Returns the number of added records: fewer than `limit` at the end of the fetch, or when
        `rows` is full.
        """
        if self.cursor < len(self.records) or self._failure is not None:
            # `take` has returned a part of the decoded batch: the batch is decoded again for the
            # rest.
            self._at = self._batch_at
            self.records, self.cursor, self._failure = [], 0, None
        before = rows.count
        while (room := limit - (rows.count - before)) > 0 and not rows.is_full:
            try:
                if not self._next_batch(partial(self._add_rows, rows, room)):
                    break
            except (CorruptRecord, OversizedRecord):
                if rows.count > before:
                    break
                raise
            if self._body is not None:
                self._at = self._batch_at
        return rows.count - before

    def take_one(self) -> ConsumerRecord | None:
        """Take the next record of the decoded batch, or None if none is left; cheaper than `take`
        for a single record."""
        cursor = self.cursor
        if cursor >= len(self.records):
            return None
        record = self.records[cursor]
        self.cursor = cursor + 1
        self._advance()
        return record

    def _advance(self) -> None:
        """Set `next_offset` to the offset after the last taken record. At the end of the batch, set
        it to the offset after the batch, because the last offsets of a batch may have no records.
        """
        if self.cursor < len(self.records):
            self.next_offset = self.records[self.cursor - 1].offset + 1
        elif self._failure is None:
            self.next_offset = self._batch_next_offset
        else:
            self.next_offset = self._failure.offset

    def _next_batch(self, open_batch: Callable[[BatchHeader], bool]) -> bool:
        """Decode the next batch with records for the application. False at the end of the data."""
        if self._failure is not None:
            self.next_offset = self._failure.offset
            raise self._failure.again()
        while len(self._data) - self._at >= LOG_OVERHEAD_BYTES:
            header: BatchHeader | None = None
            try:
                header = read_header(self._data, self._at)
                if self._settings.check_crcs and self._body is None:
                    verify_crc(self._data, self._at, header)
                found = self._may_have_records(header) and open_batch(header)
            except TruncatedBatch as truncated:
                if self._at == 0:
                    raise OversizedRecord(
                        self.partition, self.next_offset, truncated.needed_bytes
                    ) from truncated
                # The next fetch returns an incomplete batch again, whatever length its
                # header claims.
                self._at = len(self._data)
                return False
            except (BatchError, ControlMarkerError) as error:
                raise CorruptRecord(
                    self.partition, self.next_offset, str(error), self._span(header)
                ) from error
            self._batch_at = self._at
            self._at += header.size_bytes
            if found:
                self.leader_epoch = header.leader_epoch
                return True
            self._body = None
            self.next_offset = max(self.next_offset, header.next_offset)
        if self._at == 0 and len(self._data):
            raise OversizedRecord(self.partition, self.next_offset, LOG_OVERHEAD_BYTES)
        return False

    def _span(self, header: BatchHeader | None) -> tuple[int, int] | None:
        """The first and the last offset of an unreadable batch, or None if its header is not
        plausible.
        """
        if header is None or header.last_offset < max(self.next_offset, header.base_offset):
            return None
        return header.base_offset, header.last_offset

    def _may_have_records(self, header: BatchHeader) -> bool:
        """True if the batch may have records for the application."""
        if self._settings.read_committed and self._aborted.hides(self._data, self._at, header):
            return False
        return not header.is_control and header.next_offset > self.next_offset

    def _read_body(self, header: BatchHeader) -> bytes:
        body, self._body = self._body, None
        return read_body(self._data, self._at, header) if body is None else body

    def _add_rows(self, rows: Rows, limit: int, header: BatchHeader) -> bool:
        """Add the batch's records to `rows`. False if the batch has no records for the application.
        `_body` is kept if `rows` had no room for all records."""
        body = self._read_body(header)
        before, first = rows.count, self.next_offset
        left = rows.add(*self.partition, header, body, first=first, limit=limit)
        if rows.count == before:
            return False
        if left < 0:
            self.next_offset = header.next_offset
        else:
            self._body = body
            # If a broker sends offsets that do not ascend, the position must still advance.
            self.next_offset = max(left, first + 1)
        return True

    def _decode(self, header: BatchHeader) -> bool:
        """Decode a batch into `records`. False if the batch has no records for the application."""
        columns = body_columns(self._read_body(header), header)
        skip = _before(columns.offsets, self.next_offset)
        if skip == len(columns.offsets):
            return False
        if skip:
            columns = RecordColumns(
                columns.offsets[skip:],
                columns.timestamps[skip:],
                columns.keys[skip:],
                columns.values[skip:],
                columns.headers[skip:],
            )
        self._batch_next_offset = header.next_offset
        self.records = self._records(header, columns)
        self.cursor = 0
        return True

    def _records(self, header: BatchHeader, columns: RecordColumns) -> list[ConsumerRecord]:
        keys: Sequence[Any] = columns.keys
        values: Sequence[Any] = columns.values
        if self._settings.key is not None:
            keys = self._deserialized(columns, columns.keys, self._settings.key, "key")
        if self._settings.value is not None:
            values = self._deserialized(columns, columns.values, self._settings.value, "value")
        # `map` and `zip` create the records without a Python loop, because this is the hot path.
        rows = zip(
            repeat(self.partition.topic),
            repeat(self.partition.partition),
            columns.offsets,
            columns.timestamps,
            repeat(_KINDS[header.is_log_append_time]),
            keys,
            values,
            columns.headers,
            repeat(header.leader_epoch),
            strict=False,
        )
        return list(map(tuple.__new__, repeat(ConsumerRecord), rows))

    def _deserialized(
        self,
        columns: RecordColumns,
        column: Sequence[bytes | None],
        deserialize: Deserializer,
        what: str,
    ) -> list[Any]:
        """The deserialized column up to the first record whose deserialization fails. The batch
        ends there; the error is raised when that record is taken (K-15)."""
        out: list[Any] = []
        try:
            for data in column:
                out.append(None if data is None else deserialize(data))
        except Exception as error:  # noqa: BLE001  it is the user's code; what it raises is passed on
            offset = columns.offsets[len(out)]
            if self._failure is None or offset < self._failure.offset:
                self._failure = DeserializationFailed(self.partition, offset, what, error)
        return out


def _before(offsets: Sequence[int], offset: int) -> int:
    """The number of ascending offsets that are below `offset`."""
    if not offsets or offsets[0] >= offset:
        return 0
    return sum(1 for each in offsets if each < offset)
