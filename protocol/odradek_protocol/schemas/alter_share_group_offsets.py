"""AlterShareGroupOffsets (key 91): sets start offsets of a share group (KIP-932)."""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING, UUID


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = field(INT32)
    start_offset: int = field(INT64)


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(STRING)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(
        array(AlterShareGroupOffsetsRequestPartition)
    )


@api_message(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
class AlterShareGroupOffsetsRequest(Message):
    group_id: str = field(STRING)
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(
        array(AlterShareGroupOffsetsRequestTopic)
    )


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(STRING)
    topic_id: bytes = field(UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(
        array(AlterShareGroupOffsetsResponsePartition)
    )


@api_message(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(
        array(AlterShareGroupOffsetsResponseTopic)
    )
