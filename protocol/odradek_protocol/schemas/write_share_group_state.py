"""WriteShareGroupState (key 85): changes the stored state of share partitions (KIP-932).

Versions: 1 carries the number of completely delivered records (KIP-1226).
"""

from __future__ import annotations

from odradek_protocol.common_structs import ShareStateBatch, ShareTopicErrors
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT32, INT64, STRING, UUID


class WrittenPartition(Struct):
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)
    state_batches: list[ShareStateBatch] = field(array(ShareStateBatch))


class WrittenTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[WrittenPartition] = field(array(WrittenPartition))


@api_message(ApiKey.WRITE_SHARE_GROUP_STATE)
class WriteShareGroupStateRequest(Message):
    group_id: str = field(STRING)
    topics: list[WrittenTopic] = field(array(WrittenTopic))


@api_message(ApiKey.WRITE_SHARE_GROUP_STATE)
class WriteShareGroupStateResponse(Message):
    results: list[ShareTopicErrors] = field(array(ShareTopicErrors))
