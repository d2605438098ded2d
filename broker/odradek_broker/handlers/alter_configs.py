"""AlterConfigs (key 33): all settings of a resource are replaced (A-18); see `config_admin`."""

from __future__ import annotations

from odradek_broker.config_admin import Change, Operation, ResourceChanges
from odradek_broker.config_answers import change_configs
from odradek_broker.context import RequestContext
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.schemas.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(
    node: Node, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse | Later[AlterConfigsResponse]:
    """Replace what can be replaced; errors are per resource."""
    wanted = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [Change(entry.name, Operation.SET, entry.value) for entry in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]
    return change_configs(
        node,
        node.authorizer,
        context,
        wanted,
        lambda results: AlterConfigsResponse(
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
