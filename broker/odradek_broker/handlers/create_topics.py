"""CreateTopics (key 19): creates topics; the answer comes when they are durable (A-17).

From version 5 on the answer has the topic's settings, if the client may see them. From version 7 on
it also has the topic's id. In all versions -1 stands for the broker's default, as in Kafka; kafkajs
sends -1 in version 3.
"""

from __future__ import annotations

import structlog

from odradek_broker.handlers._creation import create_in_batches
from odradek_broker.handlers._parts import TopicParts
from odradek_broker.metadata.commit import too_late
from odradek_broker.metadata.topics import (
    PARTITIONS_PER_REQUEST_MAX,
    RequestedTopic,
    TopicResult,
    create_topics,
    partitions_asked,
    too_many_partitions,
)
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denial, may_create_topic
from odradek_broker.security.authorizer import topic as topic_resource
from odradek_broker.slices import each_once, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_topics import (
    QUOTA_ERROR_SINCE,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

log = structlog.get_logger("odradek.admin")


async def handle(
    node: TopicParts, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create the valid topics; errors are per topic. If the request has too many partitions, all of
    its topics are refused, as in Kafka."""
    if await too_late(request.timeout_ms, [topic.name for topic in request.topics]):
        late = ErrorCode.REQUEST_TIMED_OUT
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=late, error_message=None)
                async for topic in paced(request.topics)
            ]
        )
    allowed, refused = await _sort_out(node, context, request.topics)
    quota = node.quotas.mutations(context, QUOTA_ERROR_SINCE)
    results = await create_in_batches(node, request, allowed, create_topics, quota)
    for result in results:
        if result.error is ErrorCode.REQUEST_TIMED_OUT:
            result.message = None
        elif result.message and result.error is ErrorCode.NONE and not request.validate_only:
            log.warning(
                "created a topic with fewer replicas than requested",
                topic=result.name,
                reason=result.message,
            )
    return CreateTopicsResponse(
        topics=[_answer(node, context, each) async for each in paced(results + refused)]
    )


async def _sort_out(
    node: TopicParts, context: RequestContext, asked: list[CreatableTopic]
) -> tuple[list[RequestedTopic], list[TopicResult]]:
    """The topics that the client may create, and the refusals of others."""
    names = await each_once([topic.name async for topic in paced(asked)])
    denied = {
        name async for name in paced(names) if not may_create_topic(node.authorizer, context, name)
    }
    allowed = [_wanted(topic) async for topic in paced(asked) if topic.name not in denied]
    refused = [
        TopicResult(
            name,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            denial(Operation.CREATE, topic_resource(name)),
        )
        async for name in paced(names)
        if name in denied
    ]
    count = 0
    async for topic in paced(allowed):
        count += partitions_asked(node.metadata, topic)
    if count > PARTITIONS_PER_REQUEST_MAX:
        excessive = dict.fromkeys([topic.name for topic in allowed])
        error = too_many_partitions()
        refused[:0] = [TopicResult.refused(name, error) async for name in paced(excessive)]
        return [], refused
    return allowed, refused


def _wanted(topic: CreatableTopic) -> RequestedTopic:
    # A partition that is given twice leaves a gap in the sequence of partitions.
    assignments = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
    if len(assignments) != len(topic.assignments):
        assignments[-1] = []
    return RequestedTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        {entry.name: entry.value for entry in topic.configs},
    )


def _answer(node: TopicParts, context: RequestContext, result: TopicResult) -> CreatableTopicResult:
    if result.error is not ErrorCode.NONE:
        return CreatableTopicResult(
            name=result.name, error_code=result.error, error_message=result.message
        )
    resource = topic_resource(result.name)
    if not node.authorizer.allows(context, Operation.DESCRIBE_CONFIGS, resource):
        return CreatableTopicResult(
            name=result.name,
            topic_id=result.topic_id,
            error_message=result.message,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=None,
        )
    settings = node.metadata.topic_configs
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=result.message,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=settings.origin(entry.name, result.configs),
                is_sensitive=entry.sensitive,
            )
            for entry in settings.describe(result.configs)
        ],
    )
