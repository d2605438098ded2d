"""ElectLeaders (key 43): elections of leaders, which are never needed (A-76, N-38).

The only node leads every partition and has its only replica, which is the preferred replica (D8).
"""

from __future__ import annotations

from itertools import islice

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._leadership import missing_partition
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.elect_leaders import (
    REQUEST_ERROR_SINCE,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

#: The number of topics that are processed in one turn of the loop, for a request with all topics.
_SLICE = 1_000
#: Preferred and unclean elections.
_ELECTION_TYPES = (0, 1)


def handle(
    node: Node, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse | Deferred[ElectLeadersResponse]:
    """A result for each partition of the request, in its order and with its repetitions; a request
    for all partitions is answered with the topics, without partitions."""
    asked = request.topic_partitions
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        denied = denial(Operation.ALTER, CLUSTER)
        return _refused(context, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, denied)
    if request.election_type not in _ELECTION_TYPES and asked != []:
        unknown = f"There is no election type {request.election_type}: 0 is preferred, 1 unclean."
        return _refused(context, asked, ErrorCode.INVALID_REQUEST, unknown)
    if asked is None:
        return _every_topic(node)
    return ElectLeadersResponse(replica_election_results=[_elected(node, topic) for topic in asked])


def _every_topic(node: Node) -> Deferred[ElectLeadersResponse]:
    """All topics, without partitions, because no partition needs an election."""
    deferred: Deferred[ElectLeadersResponse] = Deferred()
    names = iter(node.metadata.topic_names())
    results: list[ReplicaElectionResult] = []

    def go_on() -> None:
        if deferred.abandoned:
            return
        found = [ReplicaElectionResult(topic=name) for name in islice(names, _SLICE)]
        results.extend(found)
        if len(found) < _SLICE:
            deferred.resolve(ElectLeadersResponse(replica_election_results=results))
        else:
            node.scheduler.call_later(0, go_on)

    go_on()
    return deferred


def _refused(
    context: RequestContext, asked: list[TopicPartitions] | None, error: ErrorCode, message: str
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error if context.api_version >= REQUEST_ERROR_SINCE else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in asked or ()
        ],
    )


def _elected(node: Node, topic: TopicPartitions) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=topic.topic,
        partition_result=[_result(node, topic.topic, index) for index in topic.partitions],
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
