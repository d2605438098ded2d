"""TxnOffsetCommit (key 28): stores a group's positions as part of a transaction.

Versions: 2 brings leader epochs; 3 is flexible and brings member, generation and instance
(KIP-447); 4 may answer TRANSACTION_ABORTABLE; 5 is for transactions v2.
"""

from __future__ import annotations

from odradek_protocol.common_structs import TopicErrors
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING

#: From this version on the request has the member and its generation (KIP-447).
MEMBER_SINCE = 3
#: From this version on the client knows TRANSACTION_ABORTABLE (T-62).
TRANSACTION_ABORTABLE_SINCE = 4
#: From this version on the broker itself adds the group to the transaction (T-24, T-60).
TRANSACTIONS_V2_SINCE = 5


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = field(
        array(TxnOffsetCommitRequestPartition)
    )


@api_message(ApiKey.TXN_OFFSET_COMMIT)
class TxnOffsetCommitRequest(Message):
    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, "3+", default=-1)
    member_id: str = field(STRING, "3+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic))


@api_message(ApiKey.TXN_OFFSET_COMMIT)
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = field(INT32)
    topics: list[TopicErrors] = field(array(TopicErrors))
