"""IncrementalAlterConfigs (key 44): change single settings (KIP-339, A-18)."""

from __future__ import annotations

from odradek_broker.handlers._config_changes import change_configs
from odradek_broker.handlers._parts import ConfigChangeParts
from odradek_broker.metadata.config_changes import ResourceChanges, SettingChange
from odradek_broker.request import RequestContext
from odradek_broker.slices import paced
from odradek_protocol.common_structs import AlterConfigsResourceResponse
from odradek_protocol.schemas.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    node: ConfigChangeParts, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Make the valid changes; errors are per resource."""
    wanted = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [
                SettingChange(entry.name, entry.config_operation, entry.value)
                async for entry in paced(resource.configs)
            ],
        )
        async for resource in paced(request.resources)
    ]
    entries = await change_configs(
        node, context, wanted, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(responses=entries)
