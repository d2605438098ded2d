"""EndTxn, and the completion of a transaction (rules T-30, T-33, T-63 to T-67)."""

from __future__ import annotations

from dataclasses import replace

from odradek_broker.coordinator.transactions.calls import VERSION_2, EndCall
from odradek_broker.coordinator.transactions.decision import NEEDS_PRODUCER_ID, Decision
from odradek_broker.coordinator.transactions.states import (
    COMPLETED,
    END_V1,
    END_V2,
    End,
    TransactionState,
)
from odradek_broker.coordinator.transactions.transaction import (
    EPOCH_MAX,
    NO_PARTITIONS,
    Transaction,
    is_exhausted,
)
from odradek_protocol.constants import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_S = TransactionState


def decide_end(
    held: Transaction | None, call: EndCall, pending: bool, fresh_id: int | None, wall_ms: int
) -> Decision:
    """The effect of an EndTxn; the tables are in `states`. `pending`: a step of this id is on its
    way, which it is from the decision to end a transaction until its Complete record is durable
    (T-65)."""
    if held is None:
        return Decision(_E.INVALID_PRODUCER_ID_MAPPING)
    pending = pending or held.state.is_prepared
    if call.version >= VERSION_2:
        if pending:
            # Before any look at the identity: a producer that has gone on to the next transaction
            # shows one that is not stored yet, and must not be fenced for it.
            return Decision(_E.CONCURRENT_TRANSACTIONS)
        return _end_v2(held, call, fresh_id, wall_ms)
    producer_id, epoch = held.identity
    fenced_by_rotation = call.producer_id == held.previous_producer_id and is_exhausted(call.epoch)
    if producer_id != call.producer_id and not fenced_by_rotation:
        return Decision(_E.INVALID_PRODUCER_ID_MAPPING)
    if fenced_by_rotation or epoch != call.epoch:
        return Decision(_E.PRODUCER_FENCED)
    if pending:
        return Decision(_E.CONCURRENT_TRANSACTIONS)
    ending = END_V1[held.state, call.commit]
    if isinstance(ending, ErrorCode):
        return Decision(ending)
    if ending is End.DONE:
        return Decision(producer_id=producer_id, epoch=epoch)
    after = replace(held, state=_prepared(call.commit), client_version=1, last_update_ms=wall_ms)
    return Decision(after=after, producer_id=producer_id, epoch=epoch)


def _prepared(commit: bool) -> TransactionState:
    return _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT


def _end_v2(held: Transaction, call: EndCall, fresh_id: int | None, wall_ms: int) -> Decision:
    stored_id, stored_epoch = held.identity
    after_overflow = (
        call.producer_id == held.previous_producer_id
        and is_exhausted(call.epoch)
        and stored_epoch == 0
        and held.state not in (_S.EMPTY, _S.ONGOING)
    )
    if call.producer_id != stored_id and not after_overflow:
        return Decision(_E.INVALID_PRODUCER_ID_MAPPING)
    # What ended in version 1 did not raise the epoch: there, an older one is a fenced instance's.
    raised = held.client_version >= VERSION_2 and call.epoch + 1 == stored_epoch
    retry = after_overflow or raised
    if not retry and call.epoch != stored_epoch:
        return Decision(_E.PRODUCER_FENCED)
    ending = END_V2[held.state, call.commit, retry]
    if isinstance(ending, ErrorCode):
        return Decision(ending)
    if ending is End.DONE:
        return Decision(producer_id=stored_id, epoch=stored_epoch)
    return _prepare_v2(held, call, fresh_id, wall_ms)


def _prepare_v2(held: Transaction, call: EndCall, fresh_id: int | None, wall_ms: int) -> Decision:
    """Decide under a new epoch, and answer the identity to go on with (T-63, T-64)."""
    kept = held.next_epoch != NO_PRODUCER_EPOCH
    client_id, client_epoch = held.identity
    after = replace(
        held,
        state=_prepared(call.commit),
        epoch=min(held.epoch + 1, EPOCH_MAX),
        last_epoch=client_epoch,
        client_version=VERSION_2,
        last_update_ms=wall_ms,
        # An abort of nothing has no beginning of its own.
        start_ms=held.start_ms if held.state is _S.ONGOING else wall_ms,
    )
    if is_exhausted(client_epoch):
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        after = replace(
            after, previous_producer_id=client_id, next_producer_id=fresh_id, next_epoch=0
        )
        return Decision(after=after, producer_id=fresh_id, epoch=0)
    if kept:
        after = replace(after, next_epoch=client_epoch + 1)
    answer_id, answer_epoch = after.identity
    return Decision(after=after, producer_id=answer_id, epoch=answer_epoch)


def complete_transaction(held: Transaction, wall_ms: int) -> Transaction:
    """The transaction when all of its markers are written."""
    producer_id, epoch = held.identity
    return replace(
        held,
        state=COMPLETED[held.state],
        producer_id=producer_id,
        epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_epoch=NO_PRODUCER_EPOCH,
        partitions=NO_PARTITIONS,
        last_update_ms=wall_ms,
    )
