"""CreatePartitions (key 37): adds partitions to topics; the answer comes when the partitions are
durable (A-17)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.handlers._creation import create_in_batches
from odradek_broker.handlers._parts import TopicParts
from odradek_broker.metadata.commit import too_late
from odradek_broker.metadata.topics import NewPartitions, TopicResult, create_partitions
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_partitions import (
    QUOTA_ERROR_SINCE,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(
    node: TopicParts, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to each valid topic; errors are per topic."""
    names = [topic.name for topic in request.topics]
    if await too_late(request.timeout_ms, names):
        late = ErrorCode.REQUEST_TIMED_OUT
        return await _response([TopicResult(name, late) async for name in paced(names)])
    denied = await denied_topics(node.authorizer, context, Operation.ALTER, names)
    wanted = [_wanted(topic) async for topic in paced(request.topics) if topic.name not in denied]
    quota = node.quotas.mutations(context, QUOTA_ERROR_SINCE)
    results = await create_in_batches(node, request, wanted, create_partitions, quota)
    results += [
        TopicResult(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) async for name in paced(denied)
    ]
    return await _response(results)


async def _response(results: Iterable[TopicResult]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=result.name, error_code=result.error, error_message=result.message
            )
            async for result in paced(results)
        ]
    )


def _wanted(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic.name,
        topic.count,
        None if assignments is None else [entry.broker_ids for entry in assignments],
    )
