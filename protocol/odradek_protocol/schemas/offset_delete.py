"""OffsetDelete (key 47): deletes positions of a group (KIP-496).

Versions: only 0.
"""

from __future__ import annotations

from odradek_protocol.common_structs import TopicErrors
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, STRING


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))


@api_message(ApiKey.OFFSET_DELETE)
class OffsetDeleteRequest(Message):
    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


@api_message(ApiKey.OFFSET_DELETE)
class OffsetDeleteResponse(Message):
    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32, ignorable=True)
    topics: list[TopicErrors] = field(array(TopicErrors))
