"""JoinGroup (key 11): a member enters the join phase of its group (G-20 to G-31, A-13)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.responses import join_error
from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.join_group import (
    NULL_PROTOCOL_SINCE,
    JoinGroupRequest,
    JoinGroupResponse,
)


async def handle(
    node: GroupParts, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse:
    """Park the request until the join phase is complete."""
    version = context.api_version
    # Kafka shows the host of a member in the form of a Java address.
    host = f"/{context.host}"
    if node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        joined = await node.groups.join(request, version, context.client_id or "", host)
    else:
        joined = join_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
    if version < NULL_PROTOCOL_SINCE and joined.protocol_name is None:
        joined.protocol_name = ""
    return joined
