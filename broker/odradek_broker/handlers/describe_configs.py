"""DescribeConfigs (key 32): settings of topics, brokers and groups, levels of loggers, with their
sources (A-18)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from odradek_broker.config.effective import EffectiveSetting, SynonymEntry
from odradek_broker.config.types import ConfigSource
from odradek_broker.metadata.commit import committed
from odradek_broker.metadata.config_resources import configured_resource, resource_kind
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.logger_levels import describe_loggers
from odradek_broker.node import Node
from odradek_broker.request import AnswerTooLarge, RequestContext
from odradek_broker.security.authorizer import Operation, may_use_configs
from odradek_broker.slices import paced
from odradek_protocol import codec
from odradek_protocol.constants import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

#: The number of results whose size is determined together, while the response is made.
_MEASURED = 20
#: The maximum size of a response without results, in bytes: the throttle time, the number of
#: results and the tagged fields.
_FRAME_BYTES = 9


async def handle(
    node: Node, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | AnswerTooLarge:
    """The results, one for each resource, with its own error.

    Groups and subscriptions need not exist: only the size of the answer limits their number.
    """
    resources = await _each_once(request.resources)
    try:
        async for resource in paced(resources):
            if resource.resource_type != RESOURCE_BROKER_LOGGER:
                resource_kind(resource.resource_type)
    except AdminError as error:
        # As in Kafka, a resource of an unknown type is an error for all.
        return DescribeConfigsResponse(
            results=[_failed(resource, error) async for resource in paced(resources)]
        )
    results: list[DescribeConfigsResult] = []
    unmeasured: list[DescribeConfigsResult] = []
    size_bytes = 0
    async for resource in paced(resources):
        unmeasured.append(_describe(node, context, request, resource))
        if len(unmeasured) == _MEASURED:
            size_bytes += _size_bytes(unmeasured, context.api_version)
            if size_bytes > node.config.fetch_max_bytes:
                return AnswerTooLarge(size_bytes)
            results += unmeasured
            unmeasured = []
    if not await committed(node):
        late = AdminError(ErrorCode.REQUEST_TIMED_OUT, "the disk is too slow")
        return DescribeConfigsResponse(
            results=[_failed(resource, late) async for resource in paced(resources)]
        )
    return DescribeConfigsResponse(results=results + unmeasured)


def _size_bytes(results: list[DescribeConfigsResult], version: int) -> int:
    """The encoded size of results in bytes, or a few bytes less."""
    whole = codec.encode(DescribeConfigsResponse(results=results), version)
    return max(sum(map(len, whole)) - _FRAME_BYTES, 0)


async def _each_once(
    asked: Iterable[DescribeConfigsResource],
) -> Iterable[DescribeConfigsResource]:
    """The resources without repetitions (D11), each with all its requested keys."""
    found: dict[tuple[int, str], DescribeConfigsResource] = {}
    async for resource in paced(asked):
        known = found.setdefault((resource.resource_type, resource.resource_name), resource)
        if known is resource:
            continue
        if known.configuration_keys and resource.configuration_keys:
            known.configuration_keys += resource.configuration_keys
        else:
            # As in Kafka, an empty list means all settings: some clients send it instead of null.
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
    # As in Kafka, an empty list means all settings: some clients send it instead of null.
    keys = frozenset(resource.configuration_keys or ()) or None
    try:
        if resource.resource_type == RESOURCE_BROKER_LOGGER:
            levels = describe_loggers(node.log_levels, node.node_id, name, keys)
            return _loggers(resource, levels)
        kind = resource_kind(resource.resource_type)
        kind.check_described(node.metadata, name)
    except AdminError as error:
        return _failed(resource, error)
    entries = kind.describe(node.metadata, name, keys)
    if resource.resource_type == RESOURCE_BROKER and name:
        entries = [_in_force(node, entry) for entry in entries]
    return DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=name,
        configs=[_entry(entry, request) for entry in entries],
    )


def _loggers(resource: DescribeConfigsResource, levels: Mapping[str, str]) -> DescribeConfigsResult:
    """The levels of loggers, without type, synonyms and documentation, as in Kafka."""
    return DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            DescribeConfigsResourceResult(
                name=logger,
                value=level,
                config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
                documentation="",
            )
            for logger, level in levels.items()
        ],
    )


def _in_force(node: Node, entry: EffectiveSetting) -> EffectiveSetting:
    """The entry with the value in force. Two entries differ from the configuration: the advertised
    addresses, which are known when the broker listens (N-12), and the default of
    security.inter.broker.protocol."""
    if entry.name == "advertised.listeners":
        addresses = node.advertised_addresses().items()
        return replace(
            entry, value=",".join(_listener(name, *address) for name, address in addresses)
        )
    if entry.name == "security.inter.broker.protocol" and not entry.value:
        default = SynonymEntry(entry.name, "PLAINTEXT", ConfigSource.DEFAULT)
        return replace(entry, value=default.value, synonyms=(default,))
    return entry


def _listener(name: str, host: str, port: int) -> str:
    return f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"


def _entry(
    entry: EffectiveSetting, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in synonyms
        ],
        config_type=entry.kind,
        documentation=entry.doc if request.include_documentation else None,
    )
