"""ConsumerGroupHeartbeat (key 68): the heartbeat of a member of a consumer group (rules G-110 to
G-133)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer.heartbeat import heartbeat_error
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    Operation,
    denied_topics,
    group,
    visible_topics,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Answer immediately, or when the state that the answer shows is durable."""
    if node.metadata.consumer_groups_off:
        return heartbeat_error(ErrorCode.UNSUPPORTED_VERSION, node.metadata.consumer_groups_off)
    authorizer = node.authorizer
    if not authorizer.allows(context, Operation.READ, group(request.group_id)):
        return heartbeat_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = request.subscribed_topic_names or ()
    if await denied_topics(authorizer, context, Operation.DESCRIBE, names):
        return heartbeat_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    # Kafka shows the host of a member in the form of a Java address.
    host = f"/{context.host}"
    return await node.groups.consumer_heartbeat(
        request,
        context.api_version,
        context.client_id or "",
        host,
        visible_topics(authorizer, context),
    )
