"""The abort of a transaction by the coordinator itself (rules T-14, T-16, T-34, T-55)."""

from __future__ import annotations

from dataclasses import replace

from odradek_broker.coordinator.transactions.decision import NEEDS_PRODUCER_ID, Decision
from odradek_broker.coordinator.transactions.states import (
    TransactionState,
)
from odradek_broker.coordinator.transactions.transaction import (
    EPOCH_MAX,
    Transaction,
    is_exhausted,
)
from odradek_protocol.constants import NO_PRODUCER_EPOCH
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_S = TransactionState


def fence_producer(
    held: Transaction, fresh_id: int | None, wall_ms: int, *, keep_last_epoch: bool = False
) -> Decision:
    """Abort an open transaction under an epoch that its producer does not have.

    One raise: the markers carry it, and the next identity that is given out is another one. It is
    made from what is stored, so that one that could not be recorded is not made twice (T-14).
    """
    epoch = min(held.epoch + 1, EPOCH_MAX)
    next_id, next_epoch = held.next_producer_id, held.next_epoch
    previous_id = held.previous_producer_id
    rotates = epoch == EPOCH_MAX
    if next_epoch != NO_PRODUCER_EPOCH:
        rotates = is_exhausted(next_epoch)
        next_epoch += 1
    if rotates:
        # A retried EndTxn is answered the stored identity: it must be one to use (T-66).
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        previous_id = held.identity[0]
        next_id, next_epoch = fresh_id, 0
    after = replace(
        held,
        state=_S.PREPARE_ABORT,
        epoch=epoch,
        last_epoch=held.identity[1] if keep_last_epoch else NO_PRODUCER_EPOCH,
        previous_producer_id=previous_id,
        next_producer_id=next_id,
        next_epoch=next_epoch,
        last_update_ms=wall_ms,
    )
    return Decision(after=after)
