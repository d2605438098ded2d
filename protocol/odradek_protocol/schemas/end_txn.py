"""EndTxn (key 26): commits or aborts a transaction.

Versions: 2 answers PRODUCER_FENCED; 3 is flexible; 4 may answer TRANSACTION_ABORTABLE; the answer
of 5 has the producer id and epoch of the next transaction (transactions v2, KIP-890).
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, field
from odradek_protocol.primitives import BOOL, INT16, INT32, INT64, STRING

#: Before this version the answer is INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
PRODUCER_FENCED_SINCE = 2
#: From this version on each transaction has its own epoch; the answer has the next epoch (T-60,
#: T-63).
TRANSACTIONS_V2_SINCE = 5


@api_message(ApiKey.END_TXN)
class EndTxnRequest(Message):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)


@api_message(ApiKey.END_TXN)
class EndTxnResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = field(INT16, "5+", default=-1, ignorable=True)
