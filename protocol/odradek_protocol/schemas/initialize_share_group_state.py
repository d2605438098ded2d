"""InitializeShareGroupState (key 83): creates or resets the states of share partitions
(KIP-932)."""

from __future__ import annotations

from odradek_protocol.common_structs import ShareTopicErrors
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT32, INT64, STRING, UUID


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


@api_message(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
class InitializeShareGroupStateResponse(Message):
    results: list[ShareTopicErrors] = field(array(ShareTopicErrors))
