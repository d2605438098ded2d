"""DescribeTransactions (key 65): transactional ids in detail.

Versions: only 0.
"""

from __future__ import annotations

from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING


@api_message(ApiKey.DESCRIBE_TRANSACTIONS)
class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = field(array(STRING))


class TransactionState(Struct):
    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[PartitionsOfTopic] = field(array(PartitionsOfTopic))


@api_message(ApiKey.DESCRIBE_TRANSACTIONS)
class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = field(INT32)
    transaction_states: list[TransactionState] = field(array(TransactionState))
