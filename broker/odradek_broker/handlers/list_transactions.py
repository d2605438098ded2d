"""ListTransactions (key 66): the transactional ids of this broker (rule A-18).

Versions: 1 filters by how long a transaction has been open; 2 by a pattern (KIP-1152).

Patterns are regular expressions that must match the whole id. Kafka's run in linear time whatever
they say; ours are limited to what does (`_PATTERN_LIMITS`), and others are told that they are none.
"""

from __future__ import annotations

import re

from odradek_broker.authorizer import Operation, transactional_id
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.transactions.states import STATE_OF_LABEL, TransactionState
from odradek_broker.coordinator.transactions.transaction import Transaction
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek_protocol.schemas.list_transactions import TransactionState as Listed

_PATTERN_LENGTH_MAX = 1_000
_REPETITIONS_MAX = 4
#: A repeated group, or anything that is defined by "(?": both can take exponential time.
_PATTERN_LIMITS = re.compile(r"\)[*+{]|\(\?|\\[1-9]")
_REPETITION = re.compile(r"(?<!\\)[*+{]")


def handle(
    node: Node, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Later[ListTransactionsResponse]:
    """Those that every filter lets through, and that the client may see."""
    unknown = [label for label in request.state_filters if label not in STATE_OF_LABEL]
    pattern: re.Pattern[str] | None = None
    if request.transactional_id_pattern:
        pattern = _compile(request.transactional_id_pattern)
        if pattern is None:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = {STATE_OF_LABEL[label] for label in request.state_filters if label in STATE_OF_LABEL}
    now_ms = node.clock.wall_ms()
    later: Later[ListTransactionsResponse] = Later()

    def passes(held: Transaction) -> bool:
        return (
            (not request.state_filters or held.state in states)
            and (not request.producer_id_filters or held.producer_id in request.producer_id_filters)
            and (request.duration_filter < 0 or _open_ms(held, now_ms) > request.duration_filter)
            and (pattern is None or pattern.fullmatch(held.transactional_id) is not None)
            and node.authorizer.allows(
                context, Operation.DESCRIBE, transactional_id(held.transactional_id)
            )
        )

    def answer(told: tuple[ErrorCode, list[Transaction]]) -> None:
        error, found = told
        later.resolve(
            ListTransactionsResponse(
                error_code=error,
                unknown_state_filters=unknown,
                transaction_states=[_listed(held) for held in found if passes(held)],
            )
        )

    node.transactions.list_all().then(answer)
    return later


def _open_ms(held: Transaction, now_ms: int) -> int:
    """How long the transaction has been open; -1 if none is."""
    if held.state is TransactionState.ONGOING or held.state.is_prepared:
        return now_ms - held.start_ms
    return -1


def _compile(text: str) -> re.Pattern[str] | None:
    if len(text) > _PATTERN_LENGTH_MAX or _PATTERN_LIMITS.search(text):
        return None
    if len(_REPETITION.findall(text)) > _REPETITIONS_MAX:
        return None
    try:
        return re.compile(text)
    except re.error:
        return None


def _listed(held: Transaction) -> Listed:
    return Listed(
        transactional_id=held.transactional_id,
        producer_id=held.producer_id,
        transaction_state=held.state.label,
    )
