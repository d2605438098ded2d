"""Heartbeat (key 12): a heartbeat of a member, which learns whether it has to join again (G-70,
G-71, A-13)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    node: GroupParts, context: RequestContext, request: HeartbeatRequest
) -> Deferred[HeartbeatResponse]:
    """Answer immediately, or when the state that the answer shows is durable."""
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return Deferred.of(HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return node.groups.heartbeat(request)
