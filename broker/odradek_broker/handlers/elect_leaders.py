"""ElectLeaders (key 43): elections of leaders, which are never needed (A-76, N-38).

The only node leads every partition and has its only replica, which is the preferred replica (D8).
"""

from __future__ import annotations

from odradek_broker.handlers._leadership import missing_partition
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_broker.slices import paced
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.elect_leaders import (
    REQUEST_ERROR_SINCE,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

#: Preferred and unclean elections.
_ELECTION_TYPES = (0, 1)


async def handle(
    node: Node, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """A result for each partition of the request, in its order and with its repetitions; a request
    for all partitions is answered with the topics, without partitions."""
    asked = request.topic_partitions
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        denied = denial(Operation.ALTER, CLUSTER)
        return await _refused(context, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, denied)
    if request.election_type not in _ELECTION_TYPES and asked != []:
        unknown = f"There is no election type {request.election_type}: 0 is preferred, 1 unclean."
        return await _refused(context, asked, ErrorCode.INVALID_REQUEST, unknown)
    if asked is None:
        # No partition needs an election, so the answer has all topics without partitions.
        every = [ReplicaElectionResult(topic=name) async for name in paced(node.metadata.topics)]
        return ElectLeadersResponse(replica_election_results=every)
    return ElectLeadersResponse(
        replica_election_results=[await _elected(node, topic) async for topic in paced(asked)]
    )


async def _refused(
    context: RequestContext, asked: list[PartitionsOfTopic] | None, error: ErrorCode, message: str
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error if context.api_version >= REQUEST_ERROR_SINCE else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error, error_message=message)
                    async for index in paced(topic.partitions)
                ],
            )
            async for topic in paced(asked or ())
        ],
    )


async def _elected(node: Node, topic: PartitionsOfTopic) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=topic.topic,
        partition_result=[
            _result(node, topic.topic, index) async for index in paced(topic.partitions)
        ],
    )


def _result(node: Node, name: str, index: int) -> PartitionResult:
    missing = missing_partition(node, name, index)
    if missing is not None:
        return PartitionResult(
            partition_id=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=missing,
        )
    return PartitionResult(
        partition_id=index,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message="The preferred replica leads the partition already.",
    )
