"""OffsetCommit (key 8): stores a group's positions.

Versions: 2 to 4 have a retention; 6 has leader epochs; 7 has static members; 9 has the member epoch
and GROUP_ID_NOT_FOUND; 10 has topic ids.
"""

from __future__ import annotations

from odradek_protocol.common_structs import PartitionError
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT32, INT64, STRING, UUID

#: From this version on the generation may be a member epoch, and there is a separate error for a
#: group that does not exist (KIP-848, O-04).
CONSUMER_GROUPS_SINCE = 9
#: From this version on topics are given by id, not by name.
TOPIC_IDS_SINCE = 10


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = field(INT64, "1", default=-1)
    committed_metadata: str | None = field(STRING, nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING, "0-9", ignorable=True)
    topic_id: bytes = field(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


@api_message(ApiKey.OFFSET_COMMIT)
class OffsetCommitRequest(Message):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, "1+", ignorable=True)
    group_instance_id: str | None = field(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING, "0-9", ignorable=True)
    topic_id: bytes = field(UUID, "10+", ignorable=True)
    partitions: list[PartitionError] = field(array(PartitionError))


@api_message(ApiKey.OFFSET_COMMIT)
class OffsetCommitResponse(Message):
    throttle_time_ms: int = field(INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
