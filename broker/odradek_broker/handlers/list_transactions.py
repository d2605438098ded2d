"""ListTransactions (key 66): the transactional ids of this broker (rule A-18).

From version 1 on a request can filter by the time since the id's last transaction began, even if
that transaction has ended; an id that never had a transaction passes this filter. From version 2 on
a request can have a pattern (KIP-1152).

Patterns are regular expressions in RE2's syntax that must match the whole id. Only the ids that the
client may describe are matched, in slices of the event loop's time.
"""

from __future__ import annotations

from typing import Protocol

from odradek_broker.coordinator.transactions.transaction import STATE_OF_LABEL, Transaction
from odradek_broker.handlers._parts import TransactionParts
from odradek_broker.patterns import Pattern, PatternError, compile_pattern
from odradek_broker.platform.seams import Clock
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, transactional_id
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek_protocol.schemas.list_transactions import TransactionState as Listed


class _Parts(TransactionParts, Protocol):
    """The parts of the node that this handler needs."""

    @property
    def clock(self) -> Clock: ...


async def handle(
    node: _Parts, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """The transactions that match every filter and that the client may describe."""
    states_asked = dict.fromkeys(request.state_filters)
    unknown = [label for label in states_asked if label not in STATE_OF_LABEL]
    pattern: Pattern | None = None
    if request.transactional_id_pattern:
        try:
            pattern = compile_pattern(request.transactional_id_pattern)
        except PatternError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = {STATE_OF_LABEL[label] for label in states_asked if label in STATE_OF_LABEL}
    producer_ids = set(request.producer_id_filters)
    now_ms = node.clock.wall_ms()

    def passes(transaction: Transaction) -> bool:
        return (
            (not request.state_filters or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (
                request.duration_filter < 0
                or now_ms - transaction.start_ms > request.duration_filter
            )
            and node.authorizer.would_allow(
                context, Operation.DESCRIBE, transactional_id(transaction.transactional_id)
            )
        )

    error, found = await node.transactions.list_all()
    return ListTransactionsResponse(
        error_code=error,
        unknown_state_filters=unknown,
        transaction_states=[
            _listed(transaction)
            async for transaction in paced(found)
            if passes(transaction)
            and (pattern is None or pattern.matches(transaction.transactional_id))
        ],
    )


def _listed(transaction: Transaction) -> Listed:
    return Listed(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.label,
    )
