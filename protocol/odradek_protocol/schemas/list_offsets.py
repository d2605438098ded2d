"""ListOffsets (key 2): offsets by time, and the two ends of a partition.

Versions: 1 answers a single offset; 2 isolation levels; 4 leader epochs; 7 the record of the
largest timestamp (-3); 8, 9 and 11 the ends of local and tiered storage (-4, -5, -6); 10 a
timeout.
"""

from __future__ import annotations

from odradek_protocol.message import Message, Struct, array, field, message, struct
from odradek_protocol.primitives import INT8, INT16, INT32, INT64, STRING


@struct
class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = field(INT64)
    max_num_offsets: int = field(INT32, "0", default=1)


@struct
class ListOffsetsTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest(Message):
    """What the client asks."""

    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, "2+")
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, "10+", ignorable=True)


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    old_style_offsets: list[int] = field(array(INT64), "0")
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse(Message):
    """What the broker answers."""

    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
