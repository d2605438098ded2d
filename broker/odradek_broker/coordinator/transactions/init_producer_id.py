"""InitProducerId with a transactional id (rules T-11 to T-16, T-73)."""

from __future__ import annotations

from dataclasses import replace

from odradek_broker.coordinator.transactions.calls import InitCall
from odradek_broker.coordinator.transactions.decision import NEEDS_PRODUCER_ID, Decision
from odradek_broker.coordinator.transactions.fencing import fence_producer
from odradek_broker.coordinator.transactions.states import (
    TransactionState,
)
from odradek_broker.coordinator.transactions.transaction import (
    NO_PARTITIONS,
    NO_TIMEOUT_MS,
    Transaction,
    is_exhausted,
)
from odradek_protocol.constants import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_S = TransactionState


def decide_init_producer_id(
    held: Transaction | None, call: InitCall, fresh_id: int | None, wall_ms: int
) -> Decision:
    """The effect of an InitProducerId (T-12). The caller has seen that no step of the id is on its
    way."""
    timeout_ms = NO_TIMEOUT_MS if call.enable_two_phase_commit else call.timeout_ms
    if held is None:
        return _first_identity(call.transactional_id, timeout_ms, fresh_id, wall_ms)
    given = call.producer_id != NO_PRODUCER_ID
    if held.state.is_prepared:
        return Decision(_E.CONCURRENT_TRANSACTIONS)
    if given and not _may_own(held, call):
        return Decision(_E.PRODUCER_FENCED)
    if held.state is _S.ONGOING:
        if given and (call.producer_id, call.epoch) != held.identity:
            # Whoever was fenced must not abort what its successor has begun.
            return Decision(_E.PRODUCER_FENCED)
        if call.keep_prepared:
            return _keep(held, timeout_ms, fresh_id, wall_ms)
        return _fence_for_init(held, given, fresh_id, wall_ms)
    fresh = replace(
        held,
        state=_S.EMPTY,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        last_update_ms=wall_ms,
    )
    if given and call.epoch == held.last_epoch:
        # The raise was made and its answer lost.
        return _answered(fresh)
    if given and (call.producer_id, call.epoch) != (held.producer_id, held.epoch):
        return Decision(_E.PRODUCER_FENCED)
    last_epoch = held.epoch if given else NO_PRODUCER_EPOCH
    if not is_exhausted(held.epoch):
        return _answered(replace(fresh, epoch=held.epoch + 1, last_epoch=last_epoch))
    if fresh_id is None:
        return NEEDS_PRODUCER_ID
    return _answered(
        replace(
            fresh,
            producer_id=fresh_id,
            previous_producer_id=held.producer_id,
            epoch=0,
            last_epoch=last_epoch,
        )
    )


def _may_own(held: Transaction, call: InitCall) -> bool:
    """Is it the producer of this id, or one whose answer with a new producer id was lost?"""
    if call.producer_id in (held.producer_id, held.next_producer_id):
        return True
    return call.producer_id == held.previous_producer_id and is_exhausted(call.epoch)


def _first_identity(
    transactional_id: str, timeout_ms: int, fresh_id: int | None, wall_ms: int
) -> Decision:
    if fresh_id is None:
        return NEEDS_PRODUCER_ID
    return _answered(
        Transaction(transactional_id, fresh_id, 0, timeout_ms, _S.EMPTY, last_update_ms=wall_ms)
    )


def _answered(after: Transaction) -> Decision:
    return Decision(after=after, producer_id=after.producer_id, epoch=after.epoch)


def _fence_for_init(held: Transaction, given: bool, fresh_id: int | None, wall_ms: int) -> Decision:
    step = fence_producer(held, fresh_id, wall_ms, keep_last_epoch=given)
    if step.after is None:
        return step
    return replace(step, error=_E.CONCURRENT_TRANSACTIONS)


def _keep(held: Transaction, timeout_ms: int, fresh_id: int | None, wall_ms: int) -> Decision:
    """Keep an open transaction, for another instance to commit or abort (T-73)."""
    producer_id, epoch = held.identity
    previous_id = held.previous_producer_id
    if is_exhausted(epoch):
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        previous_id = producer_id
        producer_id, epoch = fresh_id, NO_PRODUCER_EPOCH
    after = replace(
        held,
        timeout_ms=timeout_ms,
        previous_producer_id=previous_id,
        next_producer_id=producer_id,
        next_epoch=epoch + 1,
        last_epoch=NO_PRODUCER_EPOCH,
        last_update_ms=wall_ms,
    )
    return Decision(
        after=after,
        producer_id=after.next_producer_id,
        epoch=after.next_epoch,
        ongoing_producer_id=held.producer_id,
        ongoing_epoch=held.epoch,
    )
