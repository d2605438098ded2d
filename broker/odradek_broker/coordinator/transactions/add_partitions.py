"""AddPartitionsToTxn: to add partitions, or to verify that they were added (rules T-20, T-22)."""

from __future__ import annotations

from dataclasses import replace

from odradek_broker.coordinator.transactions.calls import AddCall
from odradek_broker.coordinator.transactions.decision import Decision
from odradek_broker.coordinator.transactions.states import (
    TransactionState,
)
from odradek_broker.coordinator.transactions.transaction import (
    Transaction,
)
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import NO_PRODUCER_EPOCH
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_S = TransactionState


def decide_add_partitions(
    held: Transaction | None, call: AddCall, pending: bool, wall_ms: int
) -> Decision:
    """The effect of an AddPartitionsToTxn (T-20). `pending`: another step is on its way, which
    counts before identity (KAFKA-18660)."""
    if held is None:
        return Decision(_E.INVALID_PRODUCER_ID_MAPPING)
    if pending or held.state.is_prepared:
        return Decision(_E.CONCURRENT_TRANSACTIONS)
    if held.producer_id != call.producer_id:
        return Decision(_E.INVALID_PRODUCER_ID_MAPPING)
    if held.epoch != call.epoch:
        return Decision(_E.PRODUCER_FENCED)
    if held.next_epoch != NO_PRODUCER_EPOCH:
        # A kept transaction waits for its end and takes nothing more (T-73).
        return Decision(_E.PRODUCER_FENCED)
    ongoing = held.state is _S.ONGOING
    if ongoing and held.partitions.issuperset(call.partitions):
        return Decision()
    after = replace(
        held,
        state=_S.ONGOING,
        partitions=held.partitions.union(call.partitions),
        client_version=call.version,
        last_update_ms=wall_ms,
        start_ms=held.start_ms if ongoing else wall_ms,
    )
    return Decision(after=after)


def verify_partitions(held: Transaction | None, call: AddCall) -> dict[TopicPartition, ErrorCode]:
    """A code for each partition, NONE if it was added (T-22). A step on its way does not matter:
    the log checks again."""
    error = _E.NONE
    if held is None or held.producer_id != call.producer_id:
        error = _E.INVALID_PRODUCER_ID_MAPPING
    elif held.epoch != call.epoch:
        error = _E.PRODUCER_FENCED
    elif held.state.is_prepared:
        error = _E.CONCURRENT_TRANSACTIONS
    if held is None or error is not _E.NONE:
        return dict.fromkeys(call.partitions, error)
    return {
        part: _E.NONE if part in held.partitions else _E.TRANSACTION_ABORTABLE
        for part in call.partitions
    }
