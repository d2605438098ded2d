"""AddOffsetsToTxn (key 25): puts a group's offsets partition into a transaction.

Versions: 2 answers PRODUCER_FENCED; 3 is flexible; 4 may answer TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING

#: Before this version the answer is INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
PRODUCER_FENCED_SINCE = 2


@api_message(ApiKey.ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnRequest(Message):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


@api_message(ApiKey.ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
