"""ElectLeaders (key 43): asks for an election of leaders of partitions (KIP-460).

Versions: in 1 the request has the type of the election, and the answer has an error of the whole
request; 2 is flexible.

Of note: null instead of a list of topics stands for all partitions. Partitions that need no
election are then left out of the answer.
"""

from __future__ import annotations

from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, STRING

#: From this version on the answer has an error of the whole request.
REQUEST_ERROR_SINCE = 1


@api_message(ApiKey.ELECT_LEADERS)
class ElectLeadersRequest(Message):
    election_type: int = field(INT8, "1+")
    topic_partitions: list[PartitionsOfTopic] | None = field(
        array(PartitionsOfTopic), nullable="0+"
    )
    timeout_ms: int = field(INT32, default=60_000)


class PartitionResult(Struct):
    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


@api_message(ApiKey.ELECT_LEADERS)
class ElectLeadersResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, "1+")
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
