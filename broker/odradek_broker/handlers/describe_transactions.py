"""DescribeTransactions (key 65): transactional ids in detail (rule A-18)."""

from __future__ import annotations

from odradek_broker.coordinator.transactions.transaction import Transaction
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import TransactionParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, topic, transactional_id
from odradek_broker.slices import asked, each_once
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


async def handle(
    node: TransactionParts, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Answer with an entry for every id, in the request's order, without repetition (D11)."""
    names = await each_once(request.transactional_ids)
    found = await asked(names, lambda name: _describe(node, context, name))
    return DescribeTransactionsResponse(transaction_states=found)


def _describe(
    node: TransactionParts, context: RequestContext, name: str
) -> Deferred[TransactionState]:
    if not node.authorizer.allows(context, Operation.DESCRIBE, transactional_id(name)):
        return Deferred.of(_failed(name, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not name:
        return Deferred.of(_failed(name, ErrorCode.INVALID_REQUEST))

    def answer(found: tuple[ErrorCode, Transaction | None]) -> TransactionState:
        error, transaction = found
        return _failed(name, error) if transaction is None else _state(node, context, transaction)

    return node.transactions.describe(name).map(answer)


def _state(
    node: TransactionParts, context: RequestContext, transaction: Transaction
) -> TransactionState:
    by_topic: dict[str, list[int]] = {}
    for name, index in sorted(transaction.partitions):
        by_topic.setdefault(name, []).append(index)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[
            PartitionsOfTopic(topic=name, partitions=indexes)
            for name, indexes in by_topic.items()
            if node.authorizer.would_allow(context, Operation.DESCRIBE, topic(name))
        ],
    )


def _failed(name: str, error: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error,
        transactional_id=name,
        transaction_state="",
    )
