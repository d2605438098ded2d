"""ListTransactions (key 66): all transactional ids of a broker.

Versions: 1 can filter by duration; 2 can filter by a pattern.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING


@api_message(ApiKey.LIST_TRANSACTIONS)
class ListTransactionsRequest(Message):
    state_filters: list[str] = field(array(STRING))
    producer_id_filters: list[int] = field(array(INT64))
    duration_filter: int = field(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = field(STRING, "2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


@api_message(ApiKey.LIST_TRANSACTIONS)
class ListTransactionsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(array(STRING))
    transaction_states: list[TransactionState] = field(array(TransactionState))
