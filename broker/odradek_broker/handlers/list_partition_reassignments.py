"""ListPartitionReassignments (key 46): the partitions whose replicas are moving (A-76, N-39).

The only node has every replica, so no replica ever moves (D8).
"""

from __future__ import annotations

from odradek_broker.handlers._parts import Authorized
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def handle(
    node: Authorized, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """An empty list, because no replica moves. A refusal lists all partitions of the request,
    without replicas, as in Kafka."""
    if node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        return ListPartitionReassignmentsResponse(error_message=None)
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        error_message=denial(Operation.DESCRIBE, CLUSTER),
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    OngoingPartitionReassignment(partition_index=index)
                    async for index in paced(topic.partition_indexes)
                ],
            )
            async for topic in paced(request.topics or ())
        ],
    )
