"""Decisions of an idempotent producer without transactions: identity, sequences, and epoch
bumps."""

from __future__ import annotations

from odradek_client.errors import OdradekError
from odradek_client.producer.batch import ProducerBatch
from odradek_client.producer.identity import EPOCH_MAX, NO_IDENTITY, ProducerIdentity
from odradek_client.producer.sequences import Sequences
from odradek_client.producer.transaction_states import State, step
from odradek_protocol.constants import NO_TRANSACTION_TIMEOUT_MS
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest


class IdempotenceManager:
    """Identity and sequences of one producer. It sends nothing and knows no clock.

    A gap in the sequences of a partition is closed by an epoch bump, which the producer makes
    locally (C-44).
    """

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.state = State.UNINITIALIZED
        self.fatal_error: OdradekError | None = None
        self.sequences = Sequences()

    # --- identity ---------------------------------------------------------------------------------

    @property
    def needs_identity(self) -> bool:
        """True if InitProducerId must be sent (C-31)."""
        return self.state is State.UNINITIALIZED

    def begin_identity(self) -> InitProducerIdRequest:
        """Begin the request for an identity; `identity_given` or `identity_refused` must follow."""
        self.state = step(self.state, State.INITIALIZING)
        return InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS
        )

    def identity_given(self, identity: ProducerIdentity) -> None:
        """Take the identity that the broker has given."""
        self.state = step(self.state, State.READY)
        self.identity = identity
        self.sequences.rewrite_bumped(identity)

    def identity_refused(self) -> None:
        """Note that there was no answer, or one after which the request can be repeated."""
        self.state = step(self.state, State.UNINITIALIZED)

    def bump_if_requested(self) -> bool:
        """Bump the epoch locally if that was requested (C-44); True if so.

        The partitions that need it start over, including their batches in flight. The others follow
        when they have no batches in flight (C-20). After the last epoch a new producer id is
        needed: then the new sequences wait for it.
        """
        if self.state is not State.READY or not self.sequences.may_bump:
            return False
        if self.identity.epoch >= EPOCH_MAX:
            self.identity = NO_IDENTITY
            self.state = step(self.state, State.UNINITIALIZED)
            return True
        self.identity = ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)
        self.sequences.rewrite_bumped(self.identity)
        return True

    def fail(self, error: OdradekError) -> None:
        """Note a fatal error, after which nothing can be sent (C-55). The first reason stays."""
        self.state = step(self.state, State.FATAL_ERROR)
        if self.fatal_error is None:
            self.fatal_error = error

    # --- batches ----------------------------------------------------------------------------------

    def may_drain(self, batch: ProducerBatch) -> bool:
        """True if the first batch of a partition's queue may be sent (C-20, C-21)."""
        if self.state is State.FATAL_ERROR or not self.identity.is_valid:
            return False
        return self.sequences.may_drain(batch, self.identity, first_goes_alone=True)

    def drained(self, batch: ProducerBatch) -> None:
        """Note that a batch is sent (C-22)."""
        self.sequences.stamp(batch, self.identity)

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """Note that the records are in the log (C-24)."""
        self.sequences.acknowledged(batch, base_offset)

    def gave_up(self, batch: ProducerBatch, *, may_be_written: bool) -> None:
        """Note that a stamped batch has finally failed.

        `may_be_written`: the batch was sent, and its result is unknown; then its sequences are
        unresolved (C-40). Otherwise they are a gap that must be closed (C-45).
        """
        sequences = self.sequences.of(batch.tp)
        ahead = sequences.ahead_of(batch)
        self.sequences.remove(batch)
        if batch.identity != sequences.identity or self.state is State.FATAL_ERROR:
            return
        if may_be_written:
            self.sequences.leave_unresolved(batch)
        else:
            self.sequences.request_bump(batch.tp, ahead)

    def batch_failed(self, error: OdradekError) -> None:
        """Note that a batch will never be written, which matters only in a transaction."""

    def out_of_order(self, batch: ProducerBatch) -> bool:
        """Request an epoch bump if needed; True to retry after OUT_OF_ORDER_SEQUENCE_NUMBER
        (C-50)."""
        if self.sequences.failed_because_of_another(batch):
            return True
        unresolved_at = self.sequences.of(batch.tp).unresolved_at
        if unresolved_at is None or unresolved_at == batch.base_sequence:
            self.sequences.request_bump(batch.tp)
        return True

    def unknown_producer_id(self, batch: ProducerBatch, log_start_offset: int) -> bool:
        """Request an epoch bump if needed; True to retry after UNKNOWN_PRODUCER_ID (C-52)."""
        if log_start_offset >= 0 and not batch.sequence_was_reset:
            ahead = self.sequences.of(batch.tp).ahead_of(batch)
            self.sequences.request_bump(batch.tp, ahead)
        return True

    def resolve(self) -> None:
        """Check partitions with unresolved sequences (C-42). Called once per pass of the sender."""
        for tp in self.sequences.resolve():
            self.sequences.request_bump(tp)
