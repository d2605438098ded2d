"""ListConfigResources (key 74): the topics, brokers, groups and subscriptions that have settings
(A-18)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.commit import committed
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.slices import paced
from odradek_protocol.constants import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.list_config_resources import (
    RESOURCE_TYPES_SINCE,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_ALL = (
    RESOURCE_TOPIC,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
)


class _Parts(MetadataChangeParts, Protocol):
    """The parts of the node that this handler needs."""

    @property
    def node_id(self) -> int: ...


async def handle(
    node: _Parts, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Answer when the state that the answer shows is durable. All topics and brokers are listed,
    groups and subscriptions only if they have settings.

    A client that may describe the settings of the cluster sees all names, including the names of
    topics, as in Kafka.
    """
    if not node.authorizer.allows(context, Operation.DESCRIBE_CONFIGS, CLUSTER):
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if context.api_version < RESOURCE_TYPES_SINCE:
        kinds: set[int] = {RESOURCE_CLIENT_METRICS}
    else:
        kinds = set(request.resource_types or _ALL)
    if not kinds.issubset(_ALL):
        return _failed(ErrorCode.UNSUPPORTED_VERSION)

    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in _ALL
        if kind in kinds
        async for name in paced(_names(node, kind))
    ]
    if not await committed(node):
        return _failed(ErrorCode.REQUEST_TIMED_OUT)
    return ListConfigResourcesResponse(config_resources=found)


def _failed(error: ErrorCode) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error)


def _names(node: _Parts, kind: int) -> Iterable[str]:
    if kind == RESOURCE_TOPIC:
        return sorted(node.metadata.topics)
    if kind in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
        return [str(node.node_id)]
    return sorted(node.metadata.configured(kind))
