"""The handlers of a broker that emulates another broker, with the other broker's limits of topics
and of produced batches.

A broker without emulation does not load the module; its dispatcher has the plain table of handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from odradek_broker.deferred import Deferred
from odradek_broker.emulation.profiles import NUM_PARTITIONS, REPLICATION_FACTOR, Profile, TopicRule
from odradek_broker.node import Node
from odradek_broker.request import CloseConnection, HandlerReply, RequestContext
from odradek_broker.slices import Work
from odradek_protocol.compression import Codec
from odradek_protocol.constants import RESOURCE_TOPIC
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message
from odradek_protocol.records.layout import ATTRIBUTES_AT, CODEC_MASK
from odradek_protocol.schemas import alter_configs, incremental_alter_configs
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from odradek_protocol.schemas.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek_protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

Reply = HandlerReply | Deferred[HandlerReply]
Handler = Callable[[Node, RequestContext, Any], Reply]


def emulated_handlers(
    profile: Profile, handlers: Mapping[ApiKey, Handler]
) -> dict[ApiKey, Handler]:
    """The handlers by API. If the emulated broker has limits for an API, its handler checks the
    limits first."""
    changed = dict(handlers)
    if profile.topic_rules or profile.ignored_settings:
        for key, handle in (
            (ApiKey.CREATE_TOPICS, _create_topics),
            (ApiKey.CREATE_PARTITIONS, _create_partitions),
            (ApiKey.ALTER_CONFIGS, partial(_alter_configs, alter_configs)),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, partial(_alter_configs, incremental_alter_configs)),
        ):
            changed[key] = partial(handle, profile, handlers[key])
    if profile.codecs != frozenset(Codec) or profile.produce_bytes_max is not None:
        changed[ApiKey.PRODUCE] = partial(_produce, profile, handlers[ApiKey.PRODUCE])
    return changed


def _after(node: Node, reply: Reply, change: Callable[[Any], Any]) -> Reply:
    """Apply `change` to the response when the reply is complete. A reply without a response stays
    unchanged."""

    def changed(answer: HandlerReply) -> HandlerReply:
        if isinstance(answer, Message):
            change(answer)
        return answer

    if not isinstance(reply, Deferred):
        return changed(reply)
    if reply.done:
        return changed(reply.result())
    return node.slices.changed(reply, changed) if isinstance(reply, Work) else reply.map(changed)


# --- Topics ---------------------------------------------------------------------------------------


def _broken_rule(
    profile: Profile, values: Mapping[str, str | int | None]
) -> tuple[Any, str] | None:
    """The error and the text of the first rule that the values of a topic break."""
    for rule in profile.topic_rules:
        value = values.get(rule.name)
        if value is not None and not _accepts(rule, value):
            return rule.error, rule.text.format(value)
    return None


def _accepts(rule: TopicRule, value: str | int) -> bool:
    try:
        return rule.accepts(int(value))
    except ValueError:
        # The handler refuses values that are not numbers.
        return True


def _values_of(topic: CreatableTopic) -> dict[str, str | int | None]:
    values: dict[str, str | int | None] = {each.name: each.value for each in topic.configs}
    # -1 stands for the broker's default. If replicas are assigned, the assignment decides the
    # replication factor and the number of partitions.
    if topic.replication_factor != -1 and not topic.assignments:
        values[REPLICATION_FACTOR] = topic.replication_factor
    if topic.assignments:
        values[NUM_PARTITIONS] = len(topic.assignments)
    elif topic.num_partitions != -1:
        values[NUM_PARTITIONS] = topic.num_partitions
    return values


def _create_topics(
    profile: Profile,
    handler: Handler,
    node: Node,
    context: RequestContext,
    request: CreateTopicsRequest,
) -> Reply:
    refused: list[CreatableTopicResult] = []
    allowed: list[CreatableTopic] = []
    for topic in request.topics:
        broken = _broken_rule(profile, _values_of(topic))
        if broken is None:
            topic.configs = [
                each for each in topic.configs if each.name not in profile.ignored_settings
            ]
            allowed.append(topic)
        else:
            error, text = broken
            refused.append(
                CreatableTopicResult(name=topic.name, error_code=error, error_message=text)
            )
    request.topics = allowed

    def add(answer: CreateTopicsResponse) -> None:
        answer.topics += refused

    return _after(node, handler(node, context, request), add)


def _create_partitions(
    profile: Profile,
    handler: Handler,
    node: Node,
    context: RequestContext,
    request: CreatePartitionsRequest,
) -> Reply:
    refused: list[CreatePartitionsTopicResult] = []
    allowed = []
    for topic in request.topics:
        broken = _broken_rule(profile, {NUM_PARTITIONS: topic.count})
        if broken is None:
            allowed.append(topic)
        else:
            error, text = broken
            refused.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=text)
            )
    request.topics = allowed

    def add(answer: CreatePartitionsResponse) -> None:
        answer.results += refused

    return _after(node, handler(node, context, request), add)


def _alter_configs(
    messages: Any,
    profile: Profile,
    handler: Handler,
    node: Node,
    context: RequestContext,
    request: Any,
) -> Reply:
    """AlterConfigs and IncrementalAlterConfigs; `messages` is the module of the request's
    classes."""
    refused: list[Any] = []
    allowed = []
    for resource in request.resources:
        broken = None
        if resource.resource_type == RESOURCE_TOPIC:
            broken = _broken_rule(profile, {each.name: each.value for each in resource.configs})
            resource.configs = [
                each for each in resource.configs if each.name not in profile.ignored_settings
            ]
        if broken is None:
            allowed.append(resource)
        else:
            error, text = broken
            refused.append(
                messages.AlterConfigsResourceResponse(
                    error_code=error,
                    error_message=text,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    request.resources = allowed

    def add(answer: Any) -> None:
        answer.responses += refused

    return _after(node, handler(node, context, request), add)


# --- Produced batches -----------------------------------------------------------------------------


def _produce(
    profile: Profile,
    handler: Handler,
    node: Node,
    context: RequestContext,
    request: ProduceRequest,
) -> Reply:
    """Refuse a request that is too large, and batches with a codec that the emulated broker does
    not accept."""
    if profile.produce_bytes_max is not None and context.size_bytes > profile.produce_bytes_max:
        return CloseConnection(
            f"Produce request of {context.size_bytes} bytes, and {profile.title} takes"
            f" {profile.produce_bytes_max} (odradek.emulate)"
        )
    refused: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        bad = [each for each in topic.partition_data if _codec(each.records) not in profile.codecs]
        if bad:
            topic.partition_data = [each for each in topic.partition_data if each not in bad]
            answers = [
                PartitionProduceResponse(
                    index=each.index,
                    error_code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                    base_offset=-1,
                )
                for each in bad
            ]
            refused.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
    request.topic_data = [topic for topic in request.topic_data if topic.partition_data]

    def add(answer: ProduceResponse) -> None:
        answer.responses += refused

    return _after(node, handler(node, context, request), add)


def _codec(records: Any) -> int:
    """The number of the codec of the first batch; 0 for invalid bytes, because the handler refuses
    those.
    """
    if records is None or len(records) < ATTRIBUTES_AT + 2:
        return 0
    return int.from_bytes(records[ATTRIBUTES_AT : ATTRIBUTES_AT + 2], "big") & CODEC_MASK
