"""WriteShareGroupState (key 85): changes the stored state of share partitions (KIP-932).

Versions: 1 carries the number of completely delivered records (KIP-1226).
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, INT64, STRING, UUID


class WrittenBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class WrittenPartition(Struct):
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)
    state_batches: list[WrittenBatch] = field(array(WrittenBatch))


class WrittenTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[WrittenPartition] = field(array(WrittenPartition))


@api_message(ApiKey.WRITE_SHARE_GROUP_STATE)
class WriteShareGroupStateRequest(Message):
    group_id: str = field(STRING)
    topics: list[WrittenTopic] = field(array(WrittenTopic))


class WrittenPartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class WrittenTopicResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[WrittenPartitionResult] = field(array(WrittenPartitionResult))


@api_message(ApiKey.WRITE_SHARE_GROUP_STATE)
class WriteShareGroupStateResponse(Message):
    results: list[WrittenTopicResult] = field(array(WrittenTopicResult))
