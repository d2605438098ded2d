"""ShareGroupHeartbeat (key 76): the heartbeat of a member of a share group (rules H-10 to H-16)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.share.heartbeat import (
    MEMBER_ID_MAX_CHARS,
    share_heartbeat_error,
)
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


async def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Answer immediately, or when the state that the answer shows is durable."""
    if node.metadata.share_groups_off:
        return share_heartbeat_error(ErrorCode.UNSUPPORTED_VERSION)
    authorizer = node.authorizer
    if not authorizer.allows(context, Operation.READ, group(request.group_id)):
        return share_heartbeat_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not 0 < len(request.member_id) <= MEMBER_ID_MAX_CHARS:
        return share_heartbeat_error(ErrorCode.INVALID_REQUEST)
    names = request.subscribed_topic_names or ()
    if await denied_topics(authorizer, context, Operation.DESCRIBE, names):
        return share_heartbeat_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    # Kafka shows the host of a member in the form of a Java address.
    host = f"/{context.host}"
    return await node.groups.share.heartbeat(request, context.client_id or "", host)
