"""AlterPartitionReassignments (key 45): moves the replicas of partitions, or ends such moves
(KIP-455).

Versions: 0 is flexible; in 1 the request can forbid a change of the number of replicas
(KIP-860).

Of note: null instead of a list of replicas cancels the reassignment of a partition.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, STRING


class ReassignablePartition(Struct):
    partition_index: int = field(INT32)
    replicas: list[int] | None = field(array(INT32), nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition))


@api_message(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: int = field(INT32, default=60_000)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic))


class ReassignablePartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse))


@api_message(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = field(INT32)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse))
