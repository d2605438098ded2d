"""DeleteShareGroupState (key 86): deletes the stored state of share partitions (KIP-932)."""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, STRING, UUID


class DeletedPartition(Struct):
    partition: int = field(INT32)


class DeletedTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[DeletedPartition] = field(array(DeletedPartition))


@api_message(ApiKey.DELETE_SHARE_GROUP_STATE)
class DeleteShareGroupStateRequest(Message):
    group_id: str = field(STRING)
    topics: list[DeletedTopic] = field(array(DeletedTopic))


class DeletedPartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class DeletedTopicResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[DeletedPartitionResult] = field(array(DeletedPartitionResult))


@api_message(ApiKey.DELETE_SHARE_GROUP_STATE)
class DeleteShareGroupStateResponse(Message):
    results: list[DeletedTopicResult] = field(array(DeletedTopicResult))
