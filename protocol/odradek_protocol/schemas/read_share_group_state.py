"""ReadShareGroupState (key 84): reads the stored state of share partitions (KIP-932)."""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, INT64, STRING, UUID


class ReadPartition(Struct):
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)


class ReadTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadPartition] = field(array(ReadPartition))


@api_message(ApiKey.READ_SHARE_GROUP_STATE)
class ReadShareGroupStateRequest(Message):
    group_id: str = field(STRING)
    topics: list[ReadTopic] = field(array(ReadTopic))


class ReadBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class ReadPartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    state_batches: list[ReadBatch] = field(array(ReadBatch))


class ReadTopicResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadPartitionResult] = field(array(ReadPartitionResult))


@api_message(ApiKey.READ_SHARE_GROUP_STATE)
class ReadShareGroupStateResponse(Message):
    results: list[ReadTopicResult] = field(array(ReadTopicResult))
