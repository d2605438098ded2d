"""AlterPartitionReassignments (key 45): requests to move replicas to other nodes (A-76, N-39).

Every replica stays on its node, because there is no other node (D8).
"""

from __future__ import annotations

from odradek_broker.handlers._leadership import missing_partition
from odradek_broker.handlers._parts import PartitionAndMetadataParts
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics import check_assignment
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    node: PartitionAndMetadataParts,
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse:
    """A result for each partition of the request, in its order and with its repetitions; errors are
    per partition."""
    allowed = node.authorizer.allows(context, Operation.ALTER, CLUSTER)
    error, message = ErrorCode.NONE, None
    may_change = request.allow_replication_factor_change
    if not allowed:
        error, message = (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            denial(Operation.ALTER, CLUSTER),
        )
    elif not request.topics:
        # As in Kafka, these two are not null and not the request's if there are no topics.
        message, may_change = "", True
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change,
        error_code=error,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _moved(node, topic.name, partition)
                    if allowed
                    else _result(partition, error, message)
                    async for partition in paced(topic.partitions)
                ],
            )
            async for topic in paced(request.topics)
        ],
    )


def _moved(
    node: PartitionAndMetadataParts, name: str, partition: ReassignablePartition
) -> ReassignablePartitionResponse:
    missing = missing_partition(node, name, partition.partition_index)
    if missing is not None:
        return _result(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing)
    if partition.replicas is None:
        return _result(partition, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    try:
        check_assignment(node.metadata, partition.replicas)
    except AdminError as error:
        return _result(partition, error.error, error.message)
    return _result(partition, ErrorCode.NONE, None)


def _result(
    partition: ReassignablePartition, error: ErrorCode, message: str | None
) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=partition.partition_index, error_code=error, error_message=message
    )
