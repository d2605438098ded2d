"""AppendMirrorRecords (key 10003, Odradek's own): appends batches of another cluster to mirror
topics."""

from __future__ import annotations

from odradek_broker.handlers._parts import PartitionAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    AppendMirrorRecordsResponse,
    MirroredPartition,
    MirroredPartitionResult,
    MirroredTopic,
    MirroredTopicResult,
)


def handle(
    node: PartitionAndMetadataParts, context: RequestContext, request: AppendMirrorRecordsRequest
) -> AppendMirrorRecordsResponse:
    """Append the batches; errors are per partition."""
    allowed = node.authorizer.allows(context, Operation.CLUSTER_ACTION, CLUSTER)
    answers = []
    for topic in request.topics:
        results = [_append(node, allowed, topic, part) for part in topic.partitions]
        answers.append(MirroredTopicResult(name=topic.name, partitions=results))
    return AppendMirrorRecordsResponse(topics=answers)


def _append(
    node: PartitionAndMetadataParts, allowed: bool, topic: MirroredTopic, part: MirroredPartition
) -> MirroredPartitionResult:
    result = MirroredPartitionResult(partition_index=part.partition_index)
    if not allowed:
        result.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif node.partition(topic.name, part.partition_index) is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = f"the topic {topic.name} is not a mirror topic"
    return result
