"""ListOffsets (key 2): offsets by time, and the two ends of a partition.

Versions: the answer of 1 has a single offset; 2 has isolation levels; 4 has leader epochs; 7 can
ask for the record with the largest timestamp (-3); 8, 9 and 11 can ask for the ends of local and
tiered storage (-4, -5, -6); 10 has a timeout.

Left out: tiered storage. The earliest local offset is the log start offset, and no segment is
tiered or waits for its upload.
"""

from __future__ import annotations

from odradek_protocol.constants import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, INT64, STRING

#: The first version with each special timestamp.
TIMESTAMPS_SINCE = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
#: From this version on an answer has the leader epoch of the record.
LEADER_EPOCH_SINCE = 4
#: Before this version the client does not know OFFSET_NOT_AVAILABLE.
OFFSET_NOT_AVAILABLE_SINCE = 5


class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = field(INT64)
    max_num_offsets: int = field(INT32, "0", default=1)


class ListOffsetsTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


@api_message(ApiKey.LIST_OFFSETS)
class ListOffsetsRequest(Message):
    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, "2+")
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, "10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    old_style_offsets: list[int] = field(array(INT64), "0")
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


@api_message(ApiKey.LIST_OFFSETS)
class ListOffsetsResponse(Message):
    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
