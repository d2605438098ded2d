"""CreatePartitions (key 37): adds partitions to topics; the answer comes when the partitions are
durable (A-17)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import TopicParts
from odradek_broker.metadata.commit import when_durable
from odradek_broker.metadata.topics import NewPartitions, TopicResult, create_partitions
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_partitions import (
    QUOTA_ERROR_SINCE,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(
    node: TopicParts, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse | Deferred[CreatePartitionsResponse]:
    """Add partitions to each valid topic; errors are per topic."""
    names = [topic.name for topic in request.topics]
    denied = denied_topics(node.authorizer, context, Operation.ALTER, names)
    records, results = create_partitions(
        node.metadata,
        [_wanted(topic) for topic in request.topics if topic.name not in denied],
        node.quotas.mutations(context, QUOTA_ERROR_SINCE),
    )
    results += [TopicResult(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in denied]

    def respond() -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=result.name, error_code=result.error, error_message=result.message
                )
                for result in results
            ]
        )

    if request.validate_only:
        return respond()

    def timed_out() -> CreatePartitionsResponse:
        for result in results:
            if result.error is ErrorCode.NONE:
                result.error = ErrorCode.REQUEST_TIMED_OUT
        return respond()

    return when_durable(node, records, respond, timed_out, request.timeout_ms)


def _wanted(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic.name,
        topic.count,
        None if assignments is None else [entry.broker_ids for entry in assignments],
    )
