"""CreatePartitions (key 37): adds partitions to topics.

Versions: 2 is flexible; 3 may answer THROTTLING_QUOTA_EXCEEDED.

Left out: replicas. An assignment can name only this broker.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, STRING

#: From this version on the error of a topic may be THROTTLING_QUOTA_EXCEEDED (KIP-599).
QUOTA_ERROR_SINCE = 3


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(array(INT32))


class CreatePartitionsTopic(Struct):
    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsAssignment] | None = field(
        array(CreatePartitionsAssignment), nullable="0+"
    )


@api_message(ApiKey.CREATE_PARTITIONS)
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


class CreatePartitionsTopicResult(Struct):
    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@api_message(ApiKey.CREATE_PARTITIONS)
class CreatePartitionsResponse(Message):
    throttle_time_ms: int = field(INT32)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
