"""The producer's identity, and the sequences of every partition (C-20 to C-24, C-40 to C-45).

The state table is whole; what a transactional producer does beyond an idempotent one is in
`TransactionalManager` (C-60 to C-70).
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_client.consumer.types import TopicPartition
from odradek_client.errors import OdradekError
from odradek_client.producer.batch import (
    NO_IDENTITY,
    ProducerBatch,
    ProducerIdentity,
)
from odradek_client.producer.transaction_states import IllegalTransition, State, step
from odradek_protocol.records import next_sequence
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest

EPOCH_MAX = 32767
NO_SEQUENCE = -1
#: The timeout of a producer id without transactions (C-32).
_NO_TIMEOUT_MS = 2**31 - 1


class PartitionSequences:
    """One partition: what comes next, what was acknowledged, what is neither.

    `in_flight` holds every stamped batch without a final answer, on the wire or waiting for its
    retry, in the order of their sequences: they are appended when they are first drained and never
    overtake each other.
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

    def restart(self, identity: ProducerIdentity) -> None:
        """Begin at sequence 0 under an identity."""
        self.identity = identity
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = -1

    def is_next(self, sequence: int) -> bool:
        """Whether it follows the last acknowledged one directly."""
        return sequence == next_sequence(self.last_acked_sequence, 1)


class TransactionManager:
    """Decides identities and sequences. It sends nothing and knows no clock."""

    def __init__(
        self, transactional_id: str | None = None, transaction_timeout_ms: int = 0
    ) -> None:
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.identity = NO_IDENTITY
        self.state = State.UNINITIALIZED
        self.fatal_error: OdradekError | None = None
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        #: Partition to what must have its answer before its sequences start over.
        self._to_bump: dict[TopicPartition, set[ProducerBatch]] = {}
        self._unresolved: set[TopicPartition] = set()

    # --- identity ---------------------------------------------------------------------------------

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    @property
    def has_fatal_error(self) -> bool:
        return self.state is State.FATAL_ERROR

    @property
    def needs_identity(self) -> bool:
        """Whether InitProducerId must be sent (C-31)."""
        return self.state is State.UNINITIALIZED and not self.is_transactional

    def begin_identity(self) -> InitProducerIdRequest:
        """The request for an identity; `identity_given` or `identity_refused` must follow."""
        self.state = step(self.state, State.INITIALIZING)
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=(
                self.transaction_timeout_ms if self.is_transactional else _NO_TIMEOUT_MS
            ),
        )

    def identity_given(self, identity: ProducerIdentity) -> None:
        """The broker's answer."""
        self.state = step(self.state, State.READY)
        self.identity = identity
        self._rewrite_bumped()

    def identity_refused(self) -> None:
        """No answer, or one after which it can be tried again."""
        self.state = step(self.state, State.UNINITIALIZED)

    def fail(self, error: OdradekError) -> None:
        """Nothing more can be sent, ever (C-55). The first reason stays."""
        self.state = step(self.state, State.FATAL_ERROR)
        if self.fatal_error is None:
            self.fatal_error = error

    def batch_failed(self, error: OdradekError) -> None:
        """A batch will never be written: only a transaction minds."""

    @property
    def first_goes_alone(self) -> bool:
        """Whether brokers take any sequence of a producer that they do not know (P-14)."""
        return True

    # --- draining ---------------------------------------------------------------------------------

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Whether the first batch of a partition's queue may go now (C-20, C-21)."""
        if self.state is State.FATAL_ERROR or not self.identity.is_valid:
            return False
        sequences = self._partitions.get(batch.tp)
        if sequences is None:
            return True
        if batch.has_sequence:
            return not sequences.in_flight or sequences.in_flight[0] is batch
        if sequences.in_flight and sequences.identity != self.identity:
            return False
        if any(held.attempts for held in sequences.in_flight):
            # One at a time while something is retried (C-21). What is retried may be written
            # already; too many behind it and the broker would not recognize it any more (P-05).
            return False
        if (
            sequences.in_flight
            and sequences.last_acked_sequence == NO_SEQUENCE
            and self.first_goes_alone
        ):
            # A broker that does not know a producer takes any sequence (P-14): if the first batch
            # failed there, a second one on its heels would be taken before it. So the first under
            # an identity goes alone.
            return False
        return sequences.unresolved_at is None and batch.tp not in self._to_bump

    def drained(self, batch: ProducerBatch) -> None:
        """Stamp a batch that goes out for the first time (C-22)."""
        if batch.has_sequence:
            return
        sequences = self._sequences(batch.tp)
        if sequences.identity != self.identity:
            if sequences.in_flight:
                raise IllegalTransition(f"{batch!r} would mix two epochs in flight")
            sequences.restart(self.identity)
        batch.stamp(self.identity, sequences.next_sequence)
        sequences.next_sequence = next_sequence(sequences.next_sequence, batch.record_count)
        sequences.in_flight.append(batch)

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """A batch was split; its parts take its place and its sequences (C-25)."""
        in_flight = self._sequences(batch.tp).in_flight
        at = in_flight.index(batch)
        in_flight[at : at + 1] = parts

    # --- answers ----------------------------------------------------------------------------------

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """The records are in the log (C-24)."""
        sequences = self._sequences(batch.tp)
        last = next_sequence(batch.base_sequence, batch.record_count - 1)
        if batch.identity == sequences.identity:
            if _is_later(last, sequences.last_acked_sequence):
                sequences.last_acked_sequence = last
            if base_offset >= 0:
                last_offset = base_offset + batch.record_count - 1
                sequences.last_acked_offset = max(sequences.last_acked_offset, last_offset)
        self._remove(sequences, batch)

    def gave_up(self, batch: ProducerBatch, *, may_be_written: bool) -> None:
        """A stamped batch failed for good.

        `may_be_written`: it was sent, and no answer said what became of it; its sequences are
        unresolved then (C-40). Otherwise they are a gap that must not stay (C-45).
        """
        sequences = self._sequences(batch.tp)
        ahead = self._ahead_of(sequences, batch)
        self._remove(sequences, batch)
        if batch.identity != sequences.identity or self.has_fatal_error:
            return
        if may_be_written:
            sequences.unresolved_at = next_sequence(batch.base_sequence, batch.record_count)
            self._unresolved.add(batch.tp)
        else:
            self.request_bump(batch.tp, ahead)

    def out_of_order(self, batch: ProducerBatch) -> bool:
        """Whether to retry after OUT_OF_ORDER_SEQUENCE_NUMBER (C-50); asks for a bump if needed."""
        sequences = self._sequences(batch.tp)
        unresolved_at = sequences.unresolved_at
        if unresolved_at is None and (
            batch.sequence_was_reset or not sequences.is_next(batch.base_sequence)
        ):
            # A batch before this one is being retried; this one failed only because of it.
            return True
        if self.is_transactional:
            return False
        if unresolved_at is None or unresolved_at == batch.base_sequence:
            self.request_bump(batch.tp)
        return True

    def forgotten(self, batch: ProducerBatch, log_start_offset: int) -> bool:
        """Whether to retry after UNKNOWN_PRODUCER_ID (C-52); asks for a bump if needed."""
        sequences = self._sequences(batch.tp)
        if log_start_offset < 0 or batch.sequence_was_reset:
            return True
        if not self.is_transactional:
            self.request_bump(batch.tp, self._ahead_of(sequences, batch))
            return True
        if sequences.last_acked_offset < log_start_offset:
            self._rewrite(batch.tp, sequences)
            return True
        return False

    # --- gaps -------------------------------------------------------------------------------------

    def has_unresolved(self, tp: TopicPartition) -> bool:
        """Whether some sequences of a partition may be written or not (C-40)."""
        return tp in self._unresolved

    def resolve(self) -> None:
        """Look at partitions with unresolved sequences (C-42). Once per pass of the sender."""
        for tp in sorted(self._unresolved):
            sequences = self._partitions[tp]
            if sequences.in_flight:
                continue
            self._unresolved.discard(tp)
            sequences.unresolved_at = None
            if not sequences.is_next(sequences.next_sequence):
                self.request_bump(tp)

    def request_bump(self, tp: TopicPartition, ahead: Iterable[ProducerBatch] = ()) -> None:
        """The sequences of a partition must start again under a new epoch.

        That waits for the batches in flight `ahead` of what went wrong. One of them may be written
        without our knowing; under a new sequence it would be written twice.
        """
        self._to_bump.setdefault(tp, set()).update(ahead)

    @property
    def bump_requested(self) -> bool:
        return bool(self._to_bump)

    def bump_if_requested(self) -> bool:
        """The local epoch bump of an idempotent producer (C-44); whether there was one.

        Partitions that asked for it start over, their unanswered batches included. The others follow
        when nothing of theirs is in flight (C-20). Behind the last epoch a new producer id is needed:
        rewriting then waits until it is there.
        """
        if self.state is not State.READY or self.is_transactional:
            return False
        if not any(self._may_bump(tp) for tp in self._to_bump):
            return False
        if self.identity.epoch >= EPOCH_MAX:
            self.identity = NO_IDENTITY
            self.state = step(self.state, State.UNINITIALIZED)
            return True
        self.identity = ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)
        self._rewrite_bumped()
        return True

    def _may_bump(self, tp: TopicPartition) -> bool:
        return self._to_bump[tp].isdisjoint(self._sequences(tp).in_flight)

    def _rewrite_bumped(self) -> None:
        for tp in sorted(filter(self._may_bump, self._to_bump)):
            del self._to_bump[tp]
            self._rewrite(tp, self._sequences(tp))

    def _rewrite(self, tp: TopicPartition, sequences: PartitionSequences) -> None:
        """Stamp what is in flight again, from sequence 0, under the present identity."""
        sequences.restart(self.identity)
        for batch in sequences.in_flight:
            batch.restamp(self.identity, sequences.next_sequence)
            sequences.next_sequence = next_sequence(sequences.next_sequence, batch.record_count)
        sequences.unresolved_at = None
        self._unresolved.discard(tp)

    # --- parts ------------------------------------------------------------------------------------

    def in_flight(self, tp: TopicPartition) -> list[ProducerBatch]:
        """Stamped batches without a final answer, in order of sequence."""
        return self._sequences(tp).in_flight

    def _sequences(self, tp: TopicPartition) -> PartitionSequences:
        sequences = self._partitions.get(tp)
        if sequences is None:
            sequences = self._partitions[tp] = PartitionSequences()
        return sequences

    def _ahead_of(self, sequences: PartitionSequences, batch: ProducerBatch) -> list[ProducerBatch]:
        in_flight = sequences.in_flight
        return in_flight[: in_flight.index(batch)] if batch in in_flight else []

    def _remove(self, sequences: PartitionSequences, batch: ProducerBatch) -> None:
        if batch in sequences.in_flight:
            sequences.in_flight.remove(batch)


def _is_later(sequence: int, than: int) -> bool:
    """Whether it comes behind another one; at most half the range apart, so that wraps are seen."""
    if than == NO_SEQUENCE:
        return True
    return 0 < (sequence - than) % (1 << 31) < 1 << 30
