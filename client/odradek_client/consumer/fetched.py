"""The answer of one fetch for one partition, handed out piece by piece.

Batches are decoded one at a time, when their turn comes: what is dropped before (a seek, a
rebalance) costs nothing, and a partition's share of memory stays what the broker sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from struct import Struct as Packer
from typing import Any

from odradek_client.consumer.errors import CorruptRecord, DeserializationFailed, OversizedRecord
from odradek_client.consumer.types import ConsumerRecord, TopicPartition
from odradek_protocol.records.batch import (
    LOG_OVERHEAD_BYTES,
    BatchError,
    BatchHeader,
    Buffer,
    TruncatedBatch,
    read_header,
    verify_crc,
)
from odradek_protocol.records.record import RecordColumns, TimestampType, read_columns
from odradek_protocol.schemas.fetch import AbortedTransaction
from odradek_protocol.stored.control_marker import ControlMarkerError, ControlType, decode_type

Deserializer = Callable[[bytes], Any]

_LENGTH_AT = 8
_INT32 = Packer(">i")
_KINDS = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How batches become records. `key`, `value`: deserializers, not called for null."""

    check_crcs: bool = True
    read_committed: bool = False
    key: Deserializer | None = None
    value: Deserializer | None = None


class FetchedPartition:
    """Buffered data of one partition.

    `next_offset` is where it stands: if the subscription's position is another, this is stale and
    must be dropped (K-11). `take` hands out records and moves it on.
    """

    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_at",
        "_batch_next_offset",
        "_data",
        "_failure",
        "_settings",
        "cursor",
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
        #: The batch at hand, decoded, and how many of it were handed out.
        self.records: list[ConsumerRecord] = []
        self.cursor = 0
        self._batch_next_offset = fetch_offset
        self._data = memoryview(data)
        self._at = 0
        self._settings = settings
        # Sorted by first offset, which a broker need not do (F-09); last first, to pop from.
        self._aborted = sorted(aborted or (), key=attrgetter("first_offset"), reverse=True)
        self._aborted_producers: set[int] = set()
        self._failure: DeserializationFailed | None = None

    @property
    def exhausted(self) -> bool:
        """Nothing more to take: neither of the batch at hand nor a complete one behind it (R-14)."""
        if self.cursor < len(self.records) or self._failure is not None:
            return False
        left_bytes = len(self._data) - self._at
        if left_bytes < LOG_OVERHEAD_BYTES:
            return True
        (length,) = _INT32.unpack_from(self._data, self._at + _LENGTH_AT)
        # A damaged length is for `take` to complain of.
        return bool(length + LOG_OVERHEAD_BYTES > left_bytes)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records from `next_offset` on; fewer only at the end.

        Raises DeserializationFailed, CorruptRecord or OversizedRecord only if there is nothing
        to return before it; `next_offset` then stays at what could not be read.
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
                self._moved()
                continue
            try:
                if not self._next_batch():
                    break
            except (CorruptRecord, DeserializationFailed, OversizedRecord):
                if taken:
                    break
                raise
        return taken

    def take_one(self) -> ConsumerRecord | None:
        """The next record of the batch at hand, None if there is none: the cheap way, for loops."""
        cursor = self.cursor
        if cursor >= len(self.records):
            return None
        record = self.records[cursor]
        self.cursor = cursor + 1
        self._moved()
        return record

    def _moved(self) -> None:
        """Behind the last one handed out; behind the batch, gaps and all, if that was its last."""
        if self.cursor < len(self.records):
            self.next_offset = self.records[self.cursor - 1].offset + 1
        elif self._failure is None:
            self.next_offset = self._batch_next_offset
        else:
            self.next_offset = self._failure.offset

    def _next_batch(self) -> bool:
        """Decode up to a batch with records to hand out. False if the data is at its end."""
        if self._failure is not None:
            self.next_offset = self._failure.offset
            raise self._failure.again()
        while len(self._data) - self._at >= LOG_OVERHEAD_BYTES:
            try:
                header = read_header(self._data, self._at)
                if self._settings.check_crcs:
                    verify_crc(self._data, self._at, header)
                found = self._open(header)
            except TruncatedBatch as truncated:
                if self._at == 0:
                    raise OversizedRecord(
                        self.partition, self.next_offset, truncated.needed_bytes
                    ) from truncated
                return False
            except (BatchError, ControlMarkerError) as error:
                raise CorruptRecord(self.partition, self.next_offset, str(error)) from error
            self._at += header.size_bytes
            if found:
                return True
            self.next_offset = max(self.next_offset, header.next_offset)
        if self._at == 0 and len(self._data):
            raise OversizedRecord(self.partition, self.next_offset, LOG_OVERHEAD_BYTES)
        return False

    def _open(self, header: BatchHeader) -> bool:
        """Make a batch the one at hand. False if it has nothing for the application."""
        if self._settings.read_committed and self._hidden(header):
            return False
        if header.is_control or header.next_offset <= self.next_offset:
            return False
        columns = read_columns(self._data, self._at, header)
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

    def _hidden(self, header: BatchHeader) -> bool:
        """Rule F-10: whether this is data of an aborted transaction, or a marker."""
        while self._aborted and self._aborted[-1].first_offset <= header.last_offset:
            self._aborted_producers.add(self._aborted.pop().producer_id)
        if header.is_control:
            keys = read_columns(self._data, self._at, header).keys
            if keys and decode_type(keys[0]) is ControlType.ABORT:
                self._aborted_producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted_producers

    def _records(self, header: BatchHeader, columns: RecordColumns) -> list[ConsumerRecord]:
        keys: Sequence[Any] = columns.keys
        values: Sequence[Any] = columns.values
        if self._settings.key is not None:
            keys = self._deserialized(columns, columns.keys, self._settings.key, "key")
        if self._settings.value is not None:
            values = self._deserialized(columns, columns.values, self._settings.value, "value")
        # Rows and records are made without a bytecode in between: this is the hot loop.
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
        """As far as it goes: the first record that fails ends the batch and is raised when its turn
        comes (K-15)."""
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
    """How many of the ascending offsets lie before `offset`."""
    if not offsets or offsets[0] >= offset:
        return 0
    return sum(1 for each in offsets if each < offset)
