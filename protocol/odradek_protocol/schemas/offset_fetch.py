"""OffsetFetch (key 9): reads a group's positions.

Versions: since 2 a null list means all topics; 3 has a throttle time; 5 has leader epochs; 7 has
require_stable; 8 has several groups in one request; 9 has the member epoch; 10 has topic ids.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, INT64, STRING, UUID

#: From this version on the answer has an error code for the whole request.
TOP_LEVEL_ERROR_SINCE = 2
#: From this version on a null list of topics asks for all committed offsets of a group.
ALL_TOPICS_SINCE = 2
#: From this version on the request has `require_stable`: if offsets are part of an open
#: transaction, the answer is an error (KIP-447).
REQUIRE_STABLE_SINCE = 7
#: From this version on a request is for several groups.
GROUPS_SINCE = 8
#: From this version on topics are given by id, not by name.
TOPIC_IDS_SINCE = 10


class OffsetFetchRequestTopic(Struct):
    name: str = field(STRING, "0-7")
    partition_indexes: list[int] = field(array(INT32), "0-7")


class OffsetFetchRequestTopics(Struct):
    name: str = field(STRING, "8-9", ignorable=True)
    topic_id: bytes = field(UUID, "10+", ignorable=True)
    partition_indexes: list[int] = field(array(INT32), "8+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(STRING, "8+")
    member_id: str | None = field(STRING, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(
        array(OffsetFetchRequestTopics), "8+", nullable="8+"
    )


@api_message(ApiKey.OFFSET_FETCH)
class OffsetFetchRequest(Message):
    group_id: str = field(STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = field(BOOL, "7+")


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(INT32, "0-7")
    committed_offset: int = field(INT64, "0-7")
    committed_leader_epoch: int = field(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "0-7", nullable="0-7")
    error_code: int = field(INT16, "0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = field(STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = field(
        array(OffsetFetchResponsePartition), "0-7"
    )


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(INT32, "8+")
    committed_offset: int = field(INT64, "8+")
    committed_leader_epoch: int = field(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "8+", nullable="8+")
    error_code: int = field(INT16, "8+")


class OffsetFetchResponseTopics(Struct):
    name: str = field(STRING, "8-9", ignorable=True)
    topic_id: bytes = field(UUID, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(
        array(OffsetFetchResponsePartitions), "8+"
    )


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics), "8+")
    error_code: int = field(INT16, "8+")


@api_message(ApiKey.OFFSET_FETCH)
class OffsetFetchResponse(Message):
    throttle_time_ms: int = field(INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = field(INT16, "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), "8+")
