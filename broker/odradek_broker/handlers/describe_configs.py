"""DescribeConfigs (key 32): every setting of topics, of this broker, of groups, and where it comes
from (A-18)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.authorizer import Operation, may_use_configs
from odradek_broker.config_resources import configured_resource, resource_kind
from odradek_broker.context import RequestContext
from odradek_broker.durable_answers import when_durable
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_broker.topic_admin import AdminError
from odradek_broker.topic_config import ConfigEntry
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(
    node: Node, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Later[DescribeConfigsResponse]:
    """One answer per resource; errors are per resource."""
    resources = _each_once(request.resources)

    def respond() -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[_describe(node, context, request, resource) for resource in resources]
        )

    def timed_out() -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                _failed(resource, AdminError(ErrorCode.REQUEST_TIMED_OUT, "the disk is too slow"))
                for resource in resources
            ]
        )

    return when_durable(node, [], respond, timed_out)


def _each_once(asked: Iterable[DescribeConfigsResource]) -> Iterable[DescribeConfigsResource]:
    """A resource that is named again is answered once (D11), with all the keys asked for."""
    found: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in asked:
        known = found.setdefault((resource.resource_type, resource.resource_name), resource)
        if known is resource:
            continue
        if known.configuration_keys and resource.configuration_keys:
            known.configuration_keys += resource.configuration_keys
        else:
            # Some clients send an empty list and mean all, which is how Kafka takes it.
            known.configuration_keys = None
    return found.values()


def _failed(resource: DescribeConfigsResource, error: AdminError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.error,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _describe(
    node: Node,
    context: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    name = resource.resource_name
    asked_of = configured_resource(resource.resource_type, name)
    denied = may_use_configs(node.authorizer, context, Operation.DESCRIBE_CONFIGS, asked_of)
    if denied:
        return _failed(
            resource, AdminError(denied, f"You may not describe the settings of {name!r}.")
        )
    try:
        kind = resource_kind(resource.resource_type)
        kind.check_described(node.metadata, name)
    except AdminError as error:
        return _failed(resource, error)
    # Some clients send an empty list and mean all, which is how Kafka takes it.
    entries = kind.describe(node.metadata, name, resource.configuration_keys or None)
    return DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=name,
        configs=[_entry(entry, request) for entry in entries],
    )


def _entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=place.name, value=place.value, source=place.source)
            for place in synonyms
        ],
        config_type=entry.kind,
        documentation=entry.doc if request.include_documentation else None,
    )
