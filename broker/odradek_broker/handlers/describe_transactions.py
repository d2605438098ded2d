"""DescribeTransactions (key 65): transactional ids in detail (rule A-18)."""

from __future__ import annotations

from odradek_broker.authorizer import Operation, topic, transactional_id
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.transactions.transaction import Transaction
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    node: Node, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Later[DescribeTransactionsResponse]:
    """One entry for every id that was asked for, in its order, each with a code of its own.

    One that is named again is answered once (D11).
    """
    names = list(dict.fromkeys(request.transactional_ids))
    if not names:
        return DescribeTransactionsResponse()
    later: Later[DescribeTransactionsResponse] = Later()
    found: dict[int, TransactionState] = {}

    def arrived(at: int, state: TransactionState) -> None:
        found[at] = state
        if len(found) == len(names):
            ordered = [found[each] for each in range(len(names))]
            later.resolve(DescribeTransactionsResponse(transaction_states=ordered))

    for at, name in enumerate(names):
        _describe(node, context, name).then(lambda state, at=at: arrived(at, state))  # type: ignore[misc]
    return later


def _describe(node: Node, context: RequestContext, name: str) -> Later[TransactionState]:
    if not node.authorizer.allows(context, Operation.DESCRIBE, transactional_id(name)):
        return Later.of(_failed(name, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not name:
        return Later.of(_failed(name, ErrorCode.INVALID_REQUEST))
    later: Later[TransactionState] = Later()

    def answer(told: tuple[ErrorCode, Transaction | None]) -> None:
        error, held = told
        if held is None:
            later.resolve(_failed(name, error))
        else:
            later.resolve(_state(node, context, held))

    node.transactions.describe(name).then(answer)
    return later


def _state(node: Node, context: RequestContext, held: Transaction) -> TransactionState:
    by_topic: dict[str, list[int]] = {}
    for name, index in sorted(held.partitions):
        by_topic.setdefault(name, []).append(index)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=held.transactional_id,
        transaction_state=held.state.label,
        transaction_timeout_ms=held.timeout_ms,
        transaction_start_time_ms=held.start_ms,
        producer_id=held.producer_id,
        producer_epoch=held.epoch,
        topics=[
            TopicData(topic=name, partitions=indexes)
            for name, indexes in by_topic.items()
            if node.authorizer.allows(context, Operation.DESCRIBE, topic(name))
        ],
    )


def _failed(name: str, error: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error,
        transactional_id=name,
        transaction_state="",
    )
