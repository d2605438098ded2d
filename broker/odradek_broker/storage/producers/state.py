"""Producer state of one partition: duplicates, epochs, sequences, open transactions (rules P,
T-41).

The calls of the log, in one critical section without an `await` (P-19):

    batch   check -> write the bytes -> update
    marker  check_marker -> write the bytes -> apply_marker -> transaction index -> flush
    replay  update or apply_marker alone, for bytes that were checked when they were written (P-17)

A check never changes state, so nothing is to be undone after a failed write (P-18).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum

from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.producers.verifications import Verifications
from odradek_broker.storage.transaction_index import AbortedTxn
from odradek_protocol.constants import (
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchHeader, next_sequence, previous_sequence
from odradek_protocol.records.layout import CONTROL_BIT

ABORT_MARKER = 0
COMMIT_MARKER = 1


class ProducerStateError(AppendRejected):
    """A batch or marker does not fit its producer's state. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A batch that may be appended."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A batch that is in the log already: append nothing, and answer NONE with these offsets
    (P-10).

    `timestamp`: the largest timestamp of the batch in the log, for the answer's log append time.
    """

    base_offset: int
    last_offset: int
    timestamp: int


_ACCEPTED = Accepted()


class _Situation(Enum):
    """The relation between the epoch of a batch and the stored epoch."""

    UNKNOWN_PRODUCER = "nothing is known of the producer id"
    OLDER_EPOCH = "the epoch is older"
    NEWER_EPOCH = "the epoch is newer"
    SAME_EPOCH_NO_BATCH = "the epoch is the same, but came from a marker"
    SAME_EPOCH = "the epoch is the same"


# The results of the sequence check (P-13). The flag is true if the batch's first sequence is the
# expected one: 0 if the producer begins a new epoch, else the one after the last sequence (0 after
# 2147483647, P-20).
_VERDICTS: dict[tuple[_Situation, bool], ErrorCode] = {
    # Retention or DeleteRecords may have removed the producer's earlier data (P-14).
    (_Situation.UNKNOWN_PRODUCER, True): ErrorCode.NONE,
    (_Situation.UNKNOWN_PRODUCER, False): ErrorCode.NONE,
    (_Situation.OLDER_EPOCH, True): ErrorCode.INVALID_PRODUCER_EPOCH,
    (_Situation.OLDER_EPOCH, False): ErrorCode.INVALID_PRODUCER_EPOCH,
    (_Situation.NEWER_EPOCH, True): ErrorCode.NONE,
    (_Situation.NEWER_EPOCH, False): ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    (_Situation.SAME_EPOCH_NO_BATCH, True): ErrorCode.NONE,
    (_Situation.SAME_EPOCH_NO_BATCH, False): ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    (_Situation.SAME_EPOCH, True): ErrorCode.NONE,
    (_Situation.SAME_EPOCH, False): ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


def last_stable_offset(
    high_watermark: int, log_start_offset: int, first_unstable_offset: int | None
) -> int:
    """The lower of the high watermark and the first unstable offset, but at least the log start:
    DeleteRecords may have removed the beginning of an open transaction."""
    if first_unstable_offset is None or first_unstable_offset >= high_watermark:
        return high_watermark
    return max(first_unstable_offset, log_start_offset)


# The number of batches that a client may have in flight (P-05).
CACHED_BATCHES = 5

# last sequence, last offset, offset delta, timestamp: big-endian, as in a snapshot's entry.
PACKED_BATCH = struct.Struct(">iqiq")
_PACKED_BYTES = PACKED_BATCH.size
_KEPT_BYTES = (CACHED_BATCHES - 1) * _PACKED_BYTES


class CachedBatch(NamedTuple):
    """An appended batch. `offset_delta` is its last offset minus its base offset, `timestamp` its
    largest timestamp."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """The last sequence minus the delta, wrapping below zero (P-02, P-20)."""
        return previous_sequence(self.last_sequence, self.offset_delta)


class ProducerEntry:
    """State of one (partition, producer id).

    `epoch`: the newest epoch in a batch or a marker; -1 before the first.
    `coordinator_epoch`: the epoch in the last marker; -1 before the first.
    `last_timestamp`: the timestamp of the last batch or marker, in ms; idleness is measured from it
    (P-24). `transaction_first_offset`: first offset of the open transaction, or None.

    The last five batches are packed in one bytes object: as tuples they would take more than a
    kilobyte.
    """

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
        """The cached batch with exactly these sequences (P-09), not one that only overlaps."""
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


class OpenTransactions:
    """Open transactions, and finished ones whose marker is still above the high watermark.

    Both are keyed by the transaction's first offset on this partition.
    """

    __slots__ = ("_above_high_watermark", "_open")

    def __init__(self) -> None:
        # In the order of first offsets, because appends come in that order; an ordered dict, unlike
        # a dict, finds its first key in constant time even after many removals at its start.
        self._open: OrderedDict[int, int] = OrderedDict()
        self._above_high_watermark: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Add an open transaction. Raises ValueError unless its first offset is above those of all
        open transactions."""
        last = next(reversed(self._open), -1)
        if first_offset <= last:
            raise ValueError(
                f"a transaction cannot begin at offset {first_offset}: one that began at"
                f" {last} is open"
            )
        self._open[first_offset] = producer_id

    def finish(self, first_offset: int, last_offset: int) -> int:
        """End a transaction with the marker at `last_offset`.

        Returns the last stable offset that the partition has when the high watermark passes the
        marker: the next open transaction's first offset, else the offset after the marker (L-04).
        Raises KeyError if none began at `first_offset`.
        """
        del self._open[first_offset]
        self._above_high_watermark[first_offset] = last_offset
        first_open = self.first_open_offset
        return last_offset + 1 if first_open is None else first_open

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Drop the finished transactions whose marker is below the high watermark."""
        if self._above_high_watermark:
            self._above_high_watermark = {
                first: last
                for first, last in self._above_high_watermark.items()
                if last >= high_watermark
            }

    @property
    def first_open(self) -> tuple[int, int] | None:
        """(first offset, producer id) of the earliest open transaction."""
        return next(iter(self._open.items()), None)

    @property
    def first_open_offset(self) -> int | None:
        return next(iter(self._open), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open, or finished above the high
        watermark."""
        if not self._open and not self._above_high_watermark:
            return None
        first_open = self.first_open_offset
        if not self._above_high_watermark:
            return first_open
        first_finished = min(self._above_high_watermark)
        return first_finished if first_open is None else min(first_open, first_finished)


class ProducerTally:
    """The number of producers that were ever added to the partitions that share this tally. The
    number of present producers cannot grow by more than the tally does, so the present producers
    of all partitions need to be counted only rarely."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = 0


class ProducerStateManager:
    """The producers of one partition. Not thread-safe; one per log. `max_producer_ids`: beyond this
    limit the producer with the oldest last write and no open transaction is dropped, as if it had
    expired. If all producers have an open transaction, a new producer gets the retriable
    NOT_ENOUGH_REPLICAS (like other transient problems, T-61). `expiration_ms`:
    `producer.id.expiration.ms` (P-24)."""

    def __init__(
        self,
        *,
        max_producer_ids: int = 100_000,
        expiration_ms: int = 86_400_000,
        tally: ProducerTally | None = None,
    ) -> None:
        if max_producer_ids < 1 or expiration_ms < 1:
            raise ValueError("max_producer_ids and expiration_ms must be positive")
        self.max_producer_ids = max_producer_ids
        self.expiration_ms = expiration_ms
        self._tally = tally or ProducerTally()
        self.map_end_offset = 0
        """The offset after the last applied batch; the log may set it (P-18, P-28)."""
        # Ordered by last write: each append moves its producer's entry to the end.
        self._entries: dict[int, ProducerEntry] = {}
        self._transactions = OpenTransactions()
        self.verifications = Verifications()

    def __len__(self) -> int:
        """The number of known producer ids."""
        return len(self._entries)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """The state of a producer id. Callers do not change it."""
        return self._entries.get(producer_id)

    def entries(self) -> Iterator[ProducerEntry]:
        """All entries, least recently written first. Callers change neither an entry nor, while
        they iterate, this state."""
        return iter(self._entries.values())

    # -- checks: they change nothing --------------------------------------------------------

    def check(self, header: BatchHeader, origin: AppendOrigin, now_ms: int) -> Accepted | Duplicate:
        """Check that a batch may be appended: everything for clients' batches, the epoch for
        coordinators', nothing for replayed and mirrored ones (P-17, I-05). Raises
        ProducerStateError with INVALID_PRODUCER_EPOCH (P-12), OUT_OF_ORDER_SEQUENCE_NUMBER (P-13,
        P-15), INVALID_TXN_STATE (P-16) or NOT_ENOUGH_REPLICAS (too many producers)."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID or origin is AppendOrigin.REPLAY:
            return _ACCEPTED
        if origin is AppendOrigin.MIRROR:
            return _ACCEPTED
        entry = self._entries.get(producer_id)
        if entry is None:
            self._check_room(producer_id)
        elif producer_id not in self.verifications and _follows(header, entry):
            return _ACCEPTED
        if header.is_control:
            _check_epoch(header, entry)
            return _ACCEPTED
        if origin is AppendOrigin.CLIENT:
            duplicate = self.find_duplicate(header)
            if duplicate is not None:
                return duplicate
            self._check_sequence(header, entry)
        else:
            _check_epoch(header, entry)
        _check_transaction(header, entry)
        return _ACCEPTED

    def find_duplicate(self, header: BatchHeader) -> Duplicate | None:
        """The earlier batch of the client with exactly these sequences (P-09); None if there is
        none."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        original = entry.find(header.base_sequence, header.last_sequence)
        if original is None:
            return None
        return Duplicate(original.base_offset, original.last_offset, original.timestamp)

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        transaction_version: int = 1,
    ) -> None:
        """Check that a marker may be appended (T-41). A marker without an open transaction is
        checked too (T-42).

        `transaction_version`: 2 if the coordinator raises the epoch with every transaction
        (KIP-890, KIP-1228). Then a marker with the stored epoch belongs to an earlier transaction
        if a transaction is open, and else repeats an earlier marker. Raises ProducerStateError with
        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entries.get(producer_id)
        if entry is not None:
            late = producer_epoch == entry.epoch and entry.transaction_first_offset is not None
            if producer_epoch < entry.epoch or (transaction_version >= 2 and late):
                expected = f"above {entry.epoch}" if late else f"at least {entry.epoch}"
                raise ProducerStateError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"marker of producer id {producer_id} has epoch {producer_epoch}, expected"
                    f" {expected}",
                )
        last = NO_COORDINATOR_EPOCH if entry is None else entry.coordinator_epoch
        if coordinator_epoch < last:
            raise ProducerStateError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker of producer id {producer_id} comes from coordinator epoch"
                f" {coordinator_epoch}, expected at least {last}",
            )
        if entry is None:
            self._check_room(producer_id)

    def _check_room(self, producer_id: int) -> None:
        if len(self._entries) < self.max_producer_ids:
            return
        if len(self._transactions) >= len(self._entries):
            raise ProducerStateError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"no room for producer id {producer_id}: all {len(self._entries)} known to this"
                " partition have a transaction open; try again when some have ended",
            )

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        situation = _situation(header.producer_epoch, entry)
        expected = 0
        if situation is _Situation.SAME_EPOCH and entry is not None:
            expected = next_sequence(entry.last_sequence, 1)
        verdict = _VERDICTS[situation, header.base_sequence == expected]
        if verdict is ErrorCode.INVALID_PRODUCER_EPOCH:
            _check_epoch(header, entry)
        if verdict is not ErrorCode.NONE:
            raise _out_of_order(header, str(expected), situation.value)
        verification = self.verifications.get(header.producer_id)
        if verification is not None:
            known = situation is not _Situation.UNKNOWN_PRODUCER
            refused = verification.check(header, producer_is_known=known)
            if refused is not None:
                raise _out_of_order(header, *refused)

    # -- changes: only for bytes that are in the log ------------------------------------------

    def update(self, header: BatchHeader, base_offset: int, last_offset: int, now_ms: int) -> None:
        """Apply an appended batch (P-18) as it was written, with its final offsets and timestamps.

        A control batch moves only the end offset of the state: `apply_marker` does the rest.
        """
        self.map_end_offset = last_offset + 1
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID or header.is_control:
            return
        entry = self._touch(producer_id)
        entry.take_epoch(header.producer_epoch)
        entry.add(
            header.last_sequence, last_offset, last_offset - base_offset, header.max_timestamp
        )
        if header.is_transactional:
            self.verifications.pop(producer_id, None)
            if entry.transaction_first_offset is None:
                self._transactions.begin(base_offset, producer_id)
                entry.transaction_first_offset = base_offset

    def apply_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        control_type: int,
        offset: int,
        timestamp: int,
    ) -> AbortedTxn | None:
        """Apply an appended COMMIT or ABORT marker (T-41). Returns the entry for the transaction
        index: an aborted transaction that had data here; None for a commit and for a marker that
        ended nothing (T-42). Raises ValueError for other control types."""
        if control_type not in (ABORT_MARKER, COMMIT_MARKER):
            raise ValueError(f"control type {control_type} is not the end of a transaction")
        self.map_end_offset = offset + 1
        self.verifications.pop(producer_id, None)
        entry = self._touch(producer_id)
        entry.take_epoch(producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset = entry.transaction_first_offset
        if first_offset is None:
            return None
        entry.transaction_first_offset = None
        last_stable_offset = self._transactions.finish(first_offset, offset)
        if control_type == COMMIT_MARKER:
            return None
        return AbortedTxn(producer_id, first_offset, offset, last_stable_offset)

    def _touch(self, producer_id: int) -> ProducerEntry:
        """The producer's entry, created if there is none, moved to the end of the order."""
        entries = self._entries
        entry = entries.pop(producer_id, None)
        if entry is None:
            entry = ProducerEntry(producer_id)
            self._tally.made += 1
            if len(entries) >= self.max_producer_ids:
                self._forget_oldest()
        entries[producer_id] = entry
        return entry

    def _forget_oldest(self) -> None:
        for producer_id, entry in self._entries.items():
            if entry.transaction_first_offset is None:
                del self._entries[producer_id]
                return
        # All producers have open transactions, so there are more producers than the limit. `check`
        # prevents this state for new batches of clients, but not in replay and mirroring.

    # -- verification of transactions (P-15, T-61, T-62) --------------------------------------

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        must_start_at_zero: bool,
        now_ms: int,
    ) -> int:
        """Have a first transactional batch wait for the coordinator's answer; returns a guard.

        While a batch waits, the lowest sequence received is remembered, and no later batch of the
        producer can be appended before it. `must_start_at_zero`: the producer uses transactions v2
        (Produce >= 12), so a partition without state of the producer can only get sequence 0. The
        caller need not begin a verification if `has_open_transaction` returns True. Raises
        ProducerStateError for an epoch older than the partition's (T-61), without asking the
        coordinator: the coordinator may have assigned another producer id since then, and the
        coordinator's error would not name the reason.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and producer_epoch < entry.epoch:
            raise ProducerStateError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {producer_epoch} of producer {producer_id} is older than {entry.epoch}",
            )
        return self.verifications.begin(
            producer_id,
            producer_epoch,
            base_sequence,
            must_start_at_zero=must_start_at_zero,
            now_ms=now_ms,
        )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True if a transaction of this producer and epoch is open here (T-62)."""
        entry = self._entries.get(producer_id)
        return (
            entry is not None
            and entry.epoch == producer_epoch
            and entry.transaction_first_offset is not None
        )

    # -- last stable offset (T-45) ------------------------------------------------------------

    @property
    def first_open_transaction(self) -> tuple[int, int] | None:
        """(first offset, producer id) of the earliest open transaction."""
        return self._transactions.first_open

    @property
    def open_transactions(self) -> int:
        """The number of transactions that are neither committed nor aborted."""
        return len(self._transactions)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open, or whose marker is above the high
        watermark. The last stable offset is the lower of this offset and the high watermark."""
        return self._transactions.first_unstable_offset

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Set the high watermark; called whenever it moves. Transactions whose marker is below the
        high watermark no longer hold the LSO back.
        """
        self._transactions.high_watermark_moved(high_watermark)

    # -- lifetime -----------------------------------------------------------------------------

    def remove_expired(self, now_ms: int) -> list[int]:
        """Remove producers that were idle too long and have no transaction open (P-24).

        The idle time begins at a producer's last timestamp. Returns their ids. Verifications that
        were never answered are also removed.
        """
        oldest_ms = now_ms - self.expiration_ms
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.last_timestamp <= oldest_ms and entry.transaction_first_offset is None
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        self.verifications.remove_expired(oldest_ms)
        return expired

    def idle(self) -> Iterator[tuple[int, int]]:
        """(last timestamp, producer id) of producers that may be dropped, ordered by last write,
        oldest first: timestamps are set by clients, and need not ascend."""
        return (
            (entry.last_timestamp, entry.producer_id)
            for entry in self._entries.values()
            if entry.transaction_first_offset is None
        )

    def forget(self, producer_id: int) -> None:
        """Drop a producer that `idle` returned, as if the producer had expired."""
        del self._entries[producer_id]

    def restore(self, entries: Iterable[ProducerEntry], map_end_offset: int) -> None:
        """Begin with the entries of the snapshot at `map_end_offset` (P-28), before any batch is
        applied."""
        self.map_end_offset = map_end_offset
        self._entries = {entry.producer_id: entry for entry in entries}
        self._tally.made += len(self._entries)
        open_transactions = [
            (entry.transaction_first_offset, entry.producer_id)
            for entry in self._entries.values()
            if entry.transaction_first_offset is not None
        ]
        for first_offset, producer_id in sorted(open_transactions):
            self._transactions.begin(first_offset, producer_id)


def _situation(producer_epoch: int, entry: ProducerEntry | None) -> _Situation:
    if entry is None:
        return _Situation.UNKNOWN_PRODUCER
    if producer_epoch < entry.epoch:
        return _Situation.OLDER_EPOCH
    if producer_epoch > entry.epoch:
        return _Situation.NEWER_EPOCH
    return _Situation.SAME_EPOCH if entry.has_batches else _Situation.SAME_EPOCH_NO_BATCH


def _follows(header: BatchHeader, entry: ProducerEntry) -> bool:
    """True if a batch is the next one of its producer, in the same transaction or outside of any.
    Such a batch, as nearly all are, is accepted without further checks."""
    return (
        header.producer_epoch == entry.epoch
        and entry.is_followed_by(header.base_sequence)
        and not header.attributes & CONTROL_BIT
        and (entry.transaction_first_offset is None or header.is_transactional)
    )


def _check_epoch(header: BatchHeader, entry: ProducerEntry | None) -> None:
    """Refuse the batch of a zombie, which has an older epoch (P-12), with INVALID_PRODUCER_EPOCH,
    after which clients abort the transaction; PRODUCER_FENCED would be fatal for them."""
    if entry is not None and header.producer_epoch < entry.epoch:
        raise ProducerStateError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer id {header.producer_id} came with epoch {header.producer_epoch}, expected"
            f" at least {entry.epoch}: a newer producer has taken its place",
        )


def _check_transaction(header: BatchHeader, entry: ProducerEntry | None) -> None:
    """Refuse a batch outside of an open transaction of its producer (P-16)."""
    if entry is None or header.is_transactional or entry.transaction_first_offset is None:
        return
    raise ProducerStateError(
        ErrorCode.INVALID_TXN_STATE,
        f"producer id {header.producer_id} sent a batch outside of its transaction, which is open"
        f" here since offset {entry.transaction_first_offset}; expected a transactional batch",
    )


def _out_of_order(header: BatchHeader, expected: str, why: str) -> ProducerStateError:
    return ProducerStateError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer id {header.producer_id} epoch {header.producer_epoch} came with sequence"
        f" {header.base_sequence}, expected {expected} ({why})",
    )
