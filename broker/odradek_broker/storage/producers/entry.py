"""The state of one producer id in one partition (P-01), small enough to keep many of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from odradek_protocol.constants import (
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import next_sequence, previous_sequence

# Rule P-05: as many as a client may have in flight.
CACHED_BATCHES = 5

# last sequence, last offset, offset delta, timestamp: big-endian, as in a snapshot's entry.
PACKED_BATCH = struct.Struct(">iqiq")
_PACKED_BYTES = PACKED_BATCH.size
_KEPT_BYTES = (CACHED_BATCHES - 1) * _PACKED_BYTES


class CachedBatch(NamedTuple):
    """An appended batch. `offset_delta` is its last minus its base offset, `timestamp` its
    largest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """Rule P-02: the last sequence minus the delta, wrapping below zero (P-20)."""
        return previous_sequence(self.last_sequence, self.offset_delta)


class ProducerEntry:
    """State of one (partition, producer id).

    `epoch`: the newest seen, from data or from a marker; -1 before the first.
    `coordinator_epoch`: of the last marker; -1 before the first.
    `last_timestamp`: of the last batch or marker, epoch ms; idleness is measured from it (P-24).
    `transaction_first_offset`: first offset of the open transaction, or None.

    The last five batches are packed in one bytes object: as tuples they would take more than a
    kilobyte."""

    __slots__ = (
        "_packed",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        *,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        transaction_first_offset: int | None = None,
        packed_batches: bytes = b"",
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_first_offset = transaction_first_offset
        self._packed = packed_batches

    @property
    def has_batches(self) -> bool:
        return bool(self._packed)

    @property
    def packed_batches(self) -> bytes:
        """The cached batches, oldest first, `PACKED_BATCH` each."""
        return self._packed

    def batches(self) -> Iterator[CachedBatch]:
        """The cached batches, oldest first."""
        return map(CachedBatch._make, PACKED_BATCH.iter_unpack(self._packed))

    @property
    def last_batch(self) -> CachedBatch | None:
        packed = self._packed
        if not packed:
            return None
        return CachedBatch._make(PACKED_BATCH.unpack_from(packed, len(packed) - _PACKED_BYTES))

    @property
    def last_sequence(self) -> int:
        """The last sequence of the last batch; -1 if none is cached."""
        packed = self._packed
        if not packed:
            return NO_SEQUENCE
        sequence: int = PACKED_BATCH.unpack_from(packed, len(packed) - _PACKED_BYTES)[0]
        return sequence

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch; -1 if none is cached. Compaction keeps that batch
        (L-24)."""
        last = self.last_batch
        return NO_OFFSET if last is None else last.last_offset

    def is_followed_by(self, base_sequence: int) -> bool:
        """True if a batch with this first sequence is the next one after the last batch."""
        packed = self._packed
        if not packed:
            return False
        last: int = PACKED_BATCH.unpack_from(packed, len(packed) - _PACKED_BYTES)[0]
        return base_sequence == next_sequence(last, 1)

    def find(self, base_sequence: int, last_sequence: int) -> CachedBatch | None:
        """The cached batch with exactly these sequences (P-09); overlap is not enough."""
        for packed in PACKED_BATCH.iter_unpack(self._packed):
            if packed[0] == last_sequence:
                batch = CachedBatch._make(packed)
                if batch.base_sequence == base_sequence:
                    return batch
        return None

    def take_epoch(self, epoch: int) -> None:
        """Set the epoch; a different one empties the cache (P-04, T-41)."""
        if epoch != self.epoch:
            self._packed = b""
            self.epoch = epoch

    def add(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        """Cache a batch; a sixth pushes the oldest out (P-04)."""
        packed = PACKED_BATCH.pack(last_sequence, last_offset, offset_delta, timestamp)
        self._packed = self._packed[-_KEPT_BYTES:] + packed
        self.last_timestamp = timestamp
