"""IncrementalAlterConfigs (key 44): single settings are changed (KIP-339, A-18); see `config_admin`."""

from __future__ import annotations

from odradek_broker.config_admin import Change, ResourceChanges
from odradek_broker.config_answers import change_configs
from odradek_broker.context import RequestContext
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(
    node: Node, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Later[IncrementalAlterConfigsResponse]:
    """Change what can be changed; errors are per resource."""
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
        lambda results: IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=result.error,
                    error_message=result.message,
                    resource_type=result.resource_type,
                    resource_name=result.resource_name,
                )
                for result in results
            ]
        ),
        validate_only=request.validate_only,
    )
