"""DeleteShareGroupOffsets (key 92): removes topics from a share group without members (KIP-932)."""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, STRING, UUID


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(STRING)


@api_message(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
class DeleteShareGroupOffsetsRequest(Message):
    group_id: str = field(STRING)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(
        array(DeleteShareGroupOffsetsRequestTopic)
    )


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(STRING)
    topic_id: bytes = field(UUID)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@api_message(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(
        array(DeleteShareGroupOffsetsResponseTopic)
    )
