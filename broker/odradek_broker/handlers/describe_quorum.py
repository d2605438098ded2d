"""DescribeQuorum (key 55): the metadata quorum, which is this node alone (A-77, N-51)."""

from __future__ import annotations

from odradek_broker.metadata.cluster import METADATA_TOPIC
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_quorum import (
    NODES_SINCE,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumNode,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)


async def handle(
    node: Node, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """The quorum of partition 0 of the metadata log.

    A request with another partition, or with partition 0 twice, gets an error for each of its
    partitions, as in Kafka.
    """
    if not node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        return DescribeQuorumResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=denial(Operation.DESCRIBE, CLUSTER),
        )
    asked = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        async for topic in paced(request.topics)
    ]
    if asked == [(METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            topics=[QuorumTopic(topic_name=METADATA_TOPIC, partitions=[_quorum(node)])],
            nodes=[QuorumNode(node_id=node.node_id)] if context.api_version >= NODES_SINCE else [],
        )
    return DescribeQuorumResponse(
        topics=[
            QuorumTopic(
                topic_name=name, partitions=[_unknown(index) async for index in paced(indexes)]
            )
            async for name, indexes in paced(asked)
        ]
    )


def _quorum(node: Node) -> QuorumPartition:
    state = node.metadata_log.state()
    now_ms = node.clock.wall_ms()
    return QuorumPartition(
        partition_index=0,
        leader_id=node.node_id,
        leader_epoch=state.leader_epoch,
        high_watermark=state.high_watermark,
        current_voters=[
            ReplicaState(
                replica_id=node.node_id,
                log_end_offset=state.log_end_offset,
                # The leader is always in contact with itself.
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
    )


def _unknown(index: int) -> QuorumPartition:
    return QuorumPartition(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="The only quorum is that of partition 0 of __cluster_metadata, in a request of its own.",
    )
