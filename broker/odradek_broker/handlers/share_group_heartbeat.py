"""ShareGroupHeartbeat (key 76): the heartbeat of a member of a share group."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


def handle(
    node: MetadataParts, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Refuse the request, since share groups are switched off."""
    error = ErrorCode.UNSUPPORTED_VERSION
    if not node.metadata.share_groups_off and not node.authorizer.allows(
        context, Operation.READ, group(request.group_id)
    ):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ShareGroupHeartbeatResponse(error_code=error)
