"""DeleteShareGroupState (key 86): deletes the stored state of share partitions (KIP-932)."""

from __future__ import annotations

from odradek_protocol.common_structs import ShareTopicErrors
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT32, STRING, UUID


class DeletedPartition(Struct):
    partition: int = field(INT32)


class DeletedTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[DeletedPartition] = field(array(DeletedPartition))


@api_message(ApiKey.DELETE_SHARE_GROUP_STATE)
class DeleteShareGroupStateRequest(Message):
    group_id: str = field(STRING)
    topics: list[DeletedTopic] = field(array(DeletedTopic))


@api_message(ApiKey.DELETE_SHARE_GROUP_STATE)
class DeleteShareGroupStateResponse(Message):
    results: list[ShareTopicErrors] = field(array(ShareTopicErrors))
