"""ReadShareGroupState (key 84): reads the stored state of share partitions (KIP-932)."""

from __future__ import annotations

from odradek_protocol.common_structs import ReadTopic, ShareStateBatch
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING, UUID


@api_message(ApiKey.READ_SHARE_GROUP_STATE)
class ReadShareGroupStateRequest(Message):
    group_id: str = field(STRING)
    topics: list[ReadTopic] = field(array(ReadTopic))


class ReadPartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    state_batches: list[ShareStateBatch] = field(array(ShareStateBatch))


class ReadTopicResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadPartitionResult] = field(array(ReadPartitionResult))


@api_message(ApiKey.READ_SHARE_GROUP_STATE)
class ReadShareGroupStateResponse(Message):
    results: list[ReadTopicResult] = field(array(ReadTopicResult))
