"""LeaveGroup (key 13): members leave, or an administrator removes static ones (G-80)."""

from __future__ import annotations

from odradek_broker.context import RequestContext
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(
    node: Node, context: RequestContext, request: LeaveGroupRequest
) -> Later[LeaveGroupResponse]:
    """One member, or with version 3 a list of them."""
    return node.groups.leave(request, context.api_version)
