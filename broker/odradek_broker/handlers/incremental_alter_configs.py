"""IncrementalAlterConfigs (key 44): change single settings (KIP-339, A-18)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._config_changes import change_configs
from odradek_broker.handlers._parts import ConfigChangeParts
from odradek_broker.metadata.config_changes import Change, ResourceChanges
from odradek_broker.request import RequestContext
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(
    node: ConfigChangeParts, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Deferred[IncrementalAlterConfigsResponse]:
    """Make the valid changes; errors are per resource."""
    wanted = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [Change(entry.name, entry.config_operation, entry.value) for entry in resource.configs],
        )
        for resource in request.resources
    ]
    return change_configs(
        node,
        node.authorizer,
        context,
        wanted,
        lambda entries: IncrementalAlterConfigsResponse(responses=entries),
        AlterConfigsResourceResponse,
        validate_only=request.validate_only,
    )
