"""DescribeLogDirs (key 35): the data directories of a broker, and the bytes of each partition
there.

Versions: 2 is flexible; 3 has an error code for the whole answer; 4 has the size of the volume; 5
shows whether a directory is cordoned.

Left out: replicas that move between directories, and cordoned directories. Odradek has neither.
"""

from __future__ import annotations

from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, INT64, STRING


@api_message(ApiKey.DESCRIBE_LOG_DIRS)
class DescribeLogDirsRequest(Message):
    """The request. `topics` None: all topics."""

    topics: list[PartitionsOfTopic] | None = field(array(PartitionsOfTopic), nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOL)


class DescribeLogDirsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(BOOL, "5+", default=False, ignorable=True)


@api_message(ApiKey.DESCRIBE_LOG_DIRS)
class DescribeLogDirsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
