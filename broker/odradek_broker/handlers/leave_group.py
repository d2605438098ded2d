"""LeaveGroup (key 13): members leave, or an administrator removes static members (G-80, A-13)."""

from __future__ import annotations

from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse


async def handle(
    node: GroupParts, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Remove one member from its group, or from version 3 on a list of members."""
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return await node.groups.leave(request, context.api_version)
