"""AlterConfigs (key 33): replace all settings of a resource (A-18)."""

from __future__ import annotations

from odradek_broker.handlers._config_changes import change_configs
from odradek_broker.handlers._parts import ConfigChangeParts
from odradek_broker.metadata.config_changes import ResourceChanges, SettingChange
from odradek_broker.request import RequestContext
from odradek_broker.slices import paced
from odradek_protocol.common_structs import AlterConfigsResourceResponse
from odradek_protocol.schemas.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)
from odradek_protocol.schemas.incremental_alter_configs import ConfigOperation


async def handle(
    node: ConfigChangeParts, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the settings of each valid resource; errors are per resource."""
    wanted = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [
                SettingChange(entry.name, ConfigOperation.SET, entry.value)
                async for entry in paced(resource.configs)
            ],
            replaces=True,
        )
        async for resource in paced(request.resources)
    ]
    entries = await change_configs(
        node, context, wanted, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return AlterConfigsResponse(responses=entries)
