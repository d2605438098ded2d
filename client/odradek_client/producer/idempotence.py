"""The decisions of an idempotent producer: the sequences of its batches in each partition (C-20 to
C-24, C-40 to C-52), and, without transactions, its identity and epoch bumps.

`Sequences` stamps batches, takes their answers and finds gaps. Its owner, an `IdempotenceManager`
or a `TransactionManager`, decides how a gap is closed, and with which identity batches are sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_client.errors import OdradekError
from odradek_client.producer.batch import EPOCH_MAX, NO_IDENTITY, ProducerBatch, ProducerIdAndEpoch
from odradek_client.producer.transaction_states import ClientTxnState, IllegalTransition, step
from odradek_client.structs import TopicPartition
from odradek_protocol.constants import NO_SEQUENCE, NO_TRANSACTION_TIMEOUT_MS
from odradek_protocol.records.batch import next_sequence
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest

_SEQUENCES = 1 << 31


class PartitionSequences:
    """The sequences of a partition: the next, the last acknowledged, and those in flight.

    `in_flight` has every stamped batch without a final answer, sent or waiting for its retry, in
    the order of sequences. A batch is added to `in_flight` when it is drained for the first time.
    """

    __slots__ = (
        "identity",
        "in_flight",
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "unresolved_at",
    )

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.in_flight: list[ProducerBatch] = []
        self.unresolved_at: int | None = None
        self.restart(NO_IDENTITY)

    def restart(self, identity: ProducerIdAndEpoch) -> None:
        """Begin at sequence 0 under a new identity."""
        self.identity = identity
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = -1

    def is_next(self, sequence: int) -> bool:
        """True if the sequence follows the last acknowledged one directly."""
        return sequence == next_sequence(self.last_acked_sequence, 1)

    def ahead_of(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """The batches in flight before `batch`; an empty list if `batch` is not in flight."""
        return self.in_flight[: self.in_flight.index(batch)] if batch in self.in_flight else []


class Sequences:
    """The sequences of all partitions of a producer."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        #: For each partition, the batches that must be answered before its sequences restart.
        self._to_bump: dict[TopicPartition, set[ProducerBatch]] = {}
        self._unresolved: set[TopicPartition] = set()

    def of(self, tp: TopicPartition) -> PartitionSequences:
        sequences = self._partitions.get(tp)
        if sequences is None:
            sequences = self._partitions[tp] = PartitionSequences()
        return sequences

    def forget(self) -> None:
        """Restart all sequences at 0 for a new identity. To be called only while no batch is in
        flight."""
        self._partitions.clear()
        self._unresolved.clear()

    # --- draining ---------------------------------------------------------------------------------

    def may_drain(
        self, batch: ProducerBatch, identity: ProducerIdAndEpoch, *, first_goes_alone: bool
    ) -> bool:
        """True if the first batch of a partition's queue may be sent (C-20, C-21).

        `first_goes_alone`: true if brokers accept any sequence of an unknown producer (P-14), so
        that the first batch of an identity must be alone in flight.
        """
        sequences = self._partitions.get(batch.tp)
        if sequences is None:
            return True
        if batch.has_sequence:
            return not sequences.in_flight or sequences.in_flight[0] is batch
        if sequences.in_flight and sequences.identity != identity:
            return False
        if any(each.attempts for each in sequences.in_flight):
            # While a batch is retried, the producer sends one batch at a time (C-21): the retried
            # batch may be in the log already, and the broker recognizes it as a duplicate only
            # while it is among the last five batches (P-05).
            return False
        if (
            sequences.in_flight
            and sequences.last_acked_sequence == NO_SEQUENCE
            and first_goes_alone
        ):
            # If the first batch failed, the broker would still accept the second batch.
            return False
        return sequences.unresolved_at is None and batch.tp not in self._to_bump

    def stamp(self, batch: ProducerBatch, identity: ProducerIdAndEpoch) -> None:
        """Set identity and sequence of a batch that is sent for the first time (C-22)."""
        if batch.has_sequence:
            return
        sequences = self.of(batch.tp)
        if sequences.identity != identity:
            if sequences.in_flight:
                raise IllegalTransition(f"{batch!r} would mix two epochs in flight")
            sequences.restart(identity)
        batch.stamp(identity, sequences.next_sequence)
        sequences.next_sequence = next_sequence(sequences.next_sequence, batch.record_count)
        sequences.in_flight.append(batch)

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a split batch by its parts, which share the sequences of the batch (C-25)."""
        in_flight = self.of(batch.tp).in_flight
        at = in_flight.index(batch)
        in_flight[at : at + 1] = parts

    # --- answers ----------------------------------------------------------------------------------

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """Called when the records are in the log (C-24)."""
        sequences = self.of(batch.tp)
        last = next_sequence(batch.base_sequence, batch.record_count - 1)
        if batch.identity == sequences.identity:
            if _is_later(last, sequences.last_acked_sequence):
                sequences.last_acked_sequence = last
            if base_offset >= 0:
                last_offset = base_offset + batch.record_count - 1
                sequences.last_acked_offset = max(sequences.last_acked_offset, last_offset)
        self.remove(batch)

    def remove(self, batch: ProducerBatch) -> None:
        in_flight = self.of(batch.tp).in_flight
        if batch in in_flight:
            in_flight.remove(batch)

    def leave_unresolved(self, batch: ProducerBatch) -> None:
        """Called when a batch has finally failed, but may be in the log (C-40)."""
        sequences = self.of(batch.tp)
        sequences.unresolved_at = next_sequence(batch.base_sequence, batch.record_count)
        self._unresolved.add(batch.tp)

    def close_gap(self, batch: ProducerBatch) -> None:
        """Close the gap of a batch that was certainly not written: the later batches get lower
        sequences, so that no sequence is left out (C-45)."""
        sequences = self.of(batch.tp)
        if batch not in sequences.in_flight or batch.identity != sequences.identity:
            self.remove(batch)
            return
        at = sequences.in_flight.index(batch)
        del sequences.in_flight[at]
        lower = batch.record_count
        for later in sequences.in_flight[at:]:
            later.restamp(later.identity, (later.base_sequence - lower) % _SEQUENCES)
        sequences.next_sequence = (sequences.next_sequence - lower) % _SEQUENCES

    def failed_because_of_another(self, batch: ProducerBatch) -> bool:
        """True if OUT_OF_ORDER_SEQUENCE_NUMBER is only the consequence of an earlier batch that is
        being retried (C-50)."""
        sequences = self.of(batch.tp)
        return sequences.unresolved_at is None and (
            batch.sequence_was_reset or not sequences.is_next(batch.base_sequence)
        )

    # --- gaps -------------------------------------------------------------------------------------

    def has_unresolved(self, tp: TopicPartition) -> bool:
        """True if it is unknown whether some sequences of a partition were written (C-40)."""
        return tp in self._unresolved

    def resolve(self) -> list[TopicPartition]:
        """The partitions whose unresolved sequences proved to be a gap (C-42). Called once per pass
        of the sender."""
        if not self._unresolved:
            return []
        gaps = []
        for tp in sorted(self._unresolved):
            sequences = self._partitions[tp]
            if sequences.in_flight:
                continue
            self._unresolved.discard(tp)
            sequences.unresolved_at = None
            if not sequences.is_next(sequences.next_sequence):
                gaps.append(tp)
        return gaps

    # --- starting over ----------------------------------------------------------------------------

    @property
    def bump_requested(self) -> bool:
        """True if the sequences of any partition must restart under a new epoch."""
        return bool(self._to_bump)

    @property
    def may_bump(self) -> bool:
        """True if a partition whose sequences must restart has no batch left to wait for."""
        return any(self._is_free(tp) for tp in self._to_bump)

    def request_bump(self, tp: TopicPartition, ahead: Iterable[ProducerBatch] = ()) -> None:
        """Restart the sequences of a partition with a new epoch.

        The new epoch waits for the batches in flight `ahead` of the failed batch. A batch ahead may
        be in the log already; if it were sent again with a new sequence, it would be written twice.
        """
        self._to_bump.setdefault(tp, set()).update(ahead)

    def rewrite_bumped(self, identity: ProducerIdAndEpoch) -> None:
        """Restart, with a new epoch, the partitions that must restart and have no batch left to
        wait for (C-44)."""
        for tp in sorted(filter(self._is_free, self._to_bump)):
            del self._to_bump[tp]
            self.rewrite(tp, identity)

    def rewrite(self, tp: TopicPartition, identity: ProducerIdAndEpoch) -> None:
        """Stamp the batches in flight again, from sequence 0, under an identity."""
        sequences = self.of(tp)
        sequences.restart(identity)
        for batch in sequences.in_flight:
            batch.restamp(identity, sequences.next_sequence)
            sequences.next_sequence = next_sequence(sequences.next_sequence, batch.record_count)
        sequences.unresolved_at = None
        self._unresolved.discard(tp)

    def _is_free(self, tp: TopicPartition) -> bool:
        return self._to_bump[tp].isdisjoint(self.of(tp).in_flight)


def _is_later(sequence: int, than: int) -> bool:
    """True if `sequence` is after `than`. The distance of the two is at most half the range, so a
    sequence after a wrap is not taken for a lower sequence."""
    if than == NO_SEQUENCE:
        return True
    return 0 < (sequence - than) % _SEQUENCES < 1 << 30


class IdempotenceManager:
    """The identity and the sequences of one producer, without network and clock.

    If the sequences of a partition have a gap, the producer itself increases its epoch, without a
    request (C-44).
    """

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.state = ClientTxnState.UNINITIALIZED
        self.fatal_error: OdradekError | None = None
        self.sequences = Sequences()

    # --- identity ---------------------------------------------------------------------------------

    @property
    def needs_identity(self) -> bool:
        """True if InitProducerId must be sent (C-31)."""
        return self.state is ClientTxnState.UNINITIALIZED

    def begin_identity(self) -> InitProducerIdRequest:
        """Begin the request for an identity; `identity_given` or `identity_refused` must follow."""
        self.state = step(self.state, ClientTxnState.INITIALIZING)
        return InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS
        )

    def identity_given(self, identity: ProducerIdAndEpoch) -> None:
        self.state = step(self.state, ClientTxnState.READY)
        self.identity = identity
        self.sequences.rewrite_bumped(identity)

    def identity_refused(self) -> None:
        """Called when there was no answer, or a retriable error."""
        self.state = step(self.state, ClientTxnState.UNINITIALIZED)

    def bump_if_requested(self) -> bool:
        """Bump the epoch locally if that was requested (C-44). True if the epoch was bumped.

        Partitions with a requested bump restart, including their batches in flight. Other
        partitions use the new epoch when they have no batches in flight (C-20). After the last
        epoch, the new sequences wait for a new producer id.
        """
        if self.state is not ClientTxnState.READY or not self.sequences.may_bump:
            return False
        if self.identity.epoch >= EPOCH_MAX:
            self.identity = NO_IDENTITY
            self.state = step(self.state, ClientTxnState.UNINITIALIZED)
            return True
        self.identity = ProducerIdAndEpoch(self.identity.producer_id, self.identity.epoch + 1)
        self.sequences.rewrite_bumped(self.identity)
        return True

    def fail(self, error: OdradekError) -> None:
        """Note a fatal error, after which nothing can be sent (C-55). The first reason stays."""
        self.state = step(self.state, ClientTxnState.FATAL_ERROR)
        if self.fatal_error is None:
            self.fatal_error = error

    # --- batches ----------------------------------------------------------------------------------

    def may_drain(self, batch: ProducerBatch) -> bool:
        """True if the first batch of a partition's queue may be sent (C-20, C-21)."""
        if self.state is ClientTxnState.FATAL_ERROR or not self.identity.is_valid:
            return False
        return self.sequences.may_drain(batch, self.identity, first_goes_alone=True)

    def drained(self, batch: ProducerBatch) -> None:
        """Called when a batch is sent (C-22)."""
        self.sequences.stamp(batch, self.identity)

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """Called when the records are in the log (C-24)."""
        self.sequences.acknowledged(batch, base_offset)

    def gave_up(self, batch: ProducerBatch, *, may_be_written: bool) -> None:
        """Called when a stamped batch has finally failed.

        With `may_be_written`, the result of the batch is unknown, and its sequences are unresolved
        (C-40). Otherwise the sequences are a gap that must be closed (C-45).
        """
        sequences = self.sequences.of(batch.tp)
        ahead = sequences.ahead_of(batch)
        self.sequences.remove(batch)
        if batch.identity != sequences.identity or self.state is ClientTxnState.FATAL_ERROR:
            return
        if may_be_written:
            self.sequences.leave_unresolved(batch)
        else:
            self.sequences.request_bump(batch.tp, ahead)

    def batch_failed(self, error: OdradekError) -> None:
        """Called when a batch will never be written. Only a transactional producer reacts."""

    def out_of_order(self, batch: ProducerBatch) -> bool:
        """Request an epoch bump if needed. True if the batch is retried after
        OUT_OF_ORDER_SEQUENCE_NUMBER (C-50)."""
        if self.sequences.failed_because_of_another(batch):
            return True
        unresolved_at = self.sequences.of(batch.tp).unresolved_at
        if unresolved_at is None or unresolved_at == batch.base_sequence:
            self.sequences.request_bump(batch.tp)
        return True

    def unknown_producer_id(self, batch: ProducerBatch, log_start_offset: int) -> bool:
        """Request an epoch bump if needed. True if the batch is retried after UNKNOWN_PRODUCER_ID
        (C-52)."""
        if log_start_offset >= 0 and not batch.sequence_was_reset:
            ahead = self.sequences.of(batch.tp).ahead_of(batch)
            self.sequences.request_bump(batch.tp, ahead)
        return True

    def resolve(self) -> None:
        """Check partitions with unresolved sequences (C-42). Called once per pass of the sender."""
        for tp in self.sequences.resolve():
            self.sequences.request_bump(tp)
