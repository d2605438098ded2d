"""CreateTopics (key 19): creates topics; the answer comes when they are durable (A-17).

From version 5 on the answer has the topic's settings, if the client may see them. From version 7 on
it also has the topic's id. In all versions -1 stands for the broker's default, as in Kafka; kafkajs
sends -1 in version 3.
"""

from __future__ import annotations

import structlog

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import TopicParts
from odradek_broker.metadata.commit import when_durable
from odradek_broker.metadata.topics import NewTopic, TopicResult, create_topics
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denial, may_create_topic
from odradek_broker.security.authorizer import topic as topic_resource
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


def handle(
    node: TopicParts, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse | Deferred[CreateTopicsResponse]:
    """Create the valid topics; errors are per topic."""
    authorizer = node.authorizer
    names = dict.fromkeys(topic.name for topic in request.topics)
    denied = {name for name in names if not may_create_topic(authorizer, context, name)}
    records, results = create_topics(
        node.metadata,
        [_wanted(topic) for topic in request.topics if topic.name not in denied],
        node.quotas.mutations(context, QUOTA_ERROR_SINCE),
    )
    results += [
        TopicResult(
            name,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            denial(Operation.CREATE, topic_resource(name)),
        )
        for name in names
        if name in denied
    ]

    def respond() -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[_answer(node, context, result) for result in results])

    if request.validate_only:
        return respond()

    def timed_out() -> CreateTopicsResponse:
        for result in results:
            if result.error is ErrorCode.NONE:
                result.error, result.message = ErrorCode.REQUEST_TIMED_OUT, None
        return respond()

    for result in results:
        if result.message and result.error is ErrorCode.NONE:
            log.warning(
                "created a topic with fewer replicas than requested",
                topic=result.name,
                reason=result.message,
            )
    return when_durable(node, records, respond, timed_out, request.timeout_ms)


def _wanted(topic: CreatableTopic) -> NewTopic:
    # A partition that is given twice leaves a gap in the sequence of partitions.
    assignments = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
    if len(assignments) != len(topic.assignments):
        assignments[-1] = []
    return NewTopic(
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
    described = node.metadata.topic_configs.describe(result.configs)
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
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in described
        ],
    )
