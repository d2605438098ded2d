"""StreamsGroupHeartbeat (key 88): the heartbeat of a member of a streams group."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


def handle(
    node: MetadataParts, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Refuse the request, since streams groups are switched off."""
    error = ErrorCode.UNSUPPORTED_VERSION
    if not node.metadata.streams_groups_off and not node.authorizer.allows(
        context, Operation.READ, group(request.group_id)
    ):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return StreamsGroupHeartbeatResponse(error_code=error)
