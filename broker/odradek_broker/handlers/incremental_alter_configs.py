"""IncrementalAlterConfigs (key 44): decide, record, apply, answer when durable (KIP-339, A-18)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.authorizer import Operation, may_use_configs
from odradek_broker.config_admin import Change, ChangeResult, ResourceChanges, alter_configs
from odradek_broker.context import RequestContext
from odradek_broker.durable_answers import when_durable
from odradek_broker.later import Later
from odradek_broker.metadata import RESOURCE_TOPIC
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek_protocol.stored.cluster_metadata import ConfigRecord, MetadataRecord


def handle(
    node: Node, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Later[IncrementalAlterConfigsResponse]:
    """Change what can be changed; errors are per resource."""
    allowed: list[ResourceChanges] = []
    refused: list[ChangeResult] = []
    for resource in request.resources:
        of_topic = resource.resource_name if resource.resource_type == RESOURCE_TOPIC else None
        error = may_use_configs(node.authorizer, context, Operation.ALTER_CONFIGS, of_topic)
        if error:
            refused.append(ChangeResult(resource.resource_type, resource.resource_name, error))
        else:
            allowed.append(_wanted(resource))
    records, results = alter_configs(node.metadata, allowed)
    results += refused

    def respond() -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=result.error,
                    error_message=result.message,
                    resource_type=result.resource_type,
                    resource_name=result.resource_name,
                )
                for result in results
            ]
        )

    if request.validate_only:
        return respond()

    def timed_out() -> IncrementalAlterConfigsResponse:
        for result in results:
            if result.error is ErrorCode.NONE:
                result.error = ErrorCode.REQUEST_TIMED_OUT
        return respond()

    answer = when_durable(node, records, respond, timed_out)
    _apply(node, records)
    return answer


def _wanted(resource: AlterConfigsResource) -> ResourceChanges:
    return ResourceChanges(
        resource.resource_type,
        resource.resource_name,
        [Change(entry.name, entry.config_operation, entry.value) for entry in resource.configs],
    )


def _apply(node: Node, records: Iterable[MetadataRecord]) -> None:
    """Tell the running logs; a broker's setting may lie under that of any topic."""
    topics: set[str] = set()
    for record in records:
        if isinstance(record, ConfigRecord):
            if record.resource_type != RESOURCE_TOPIC:
                topics.update(node.metadata.topics)
            else:
                topics.add(record.resource_name)
    for topic in sorted(topics):
        node.topic_config_changed(topic)
