"""DescribeShareGroupOffsets (key 90): start offsets of the partitions of share groups (KIP-932).

Versions: 1 has the lag (KIP-1226).
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING, UUID


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = field(STRING)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        array(DescribeShareGroupOffsetsRequestTopic), nullable="0+"
    )


@api_message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
class DescribeShareGroupOffsetsRequest(Message):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(
        array(DescribeShareGroupOffsetsRequestGroup)
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(INT32)
    start_offset: int = field(INT64)
    leader_epoch: int = field(INT32)
    lag: int = field(INT64, "1+", default=-1, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(STRING)
    topic_id: bytes = field(UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
        array(DescribeShareGroupOffsetsResponsePartition)
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = field(STRING)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(
        array(DescribeShareGroupOffsetsResponseTopic)
    )
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@api_message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = field(INT32)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(
        array(DescribeShareGroupOffsetsResponseGroup)
    )
