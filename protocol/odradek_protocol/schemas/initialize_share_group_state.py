"""InitializeShareGroupState (key 83): creates or resets the states of share partitions
(KIP-932)."""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING, UUID


class InitializedPartition(Struct):
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)


class InitializedTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[InitializedPartition] = field(array(InitializedPartition))


@api_message(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
class InitializeShareGroupStateRequest(Message):
    group_id: str = field(STRING)
    topics: list[InitializedTopic] = field(array(InitializedTopic))


class InitializedPartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class InitializedTopicResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[InitializedPartitionResult] = field(array(InitializedPartitionResult))


@api_message(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
class InitializeShareGroupStateResponse(Message):
    results: list[InitializedTopicResult] = field(array(InitializedTopicResult))
