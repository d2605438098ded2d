"""ConsumerGroupHeartbeat (key 68): a member of a consumer group lives (rules G-110 to G-134)."""

from __future__ import annotations

from odradek_broker.authorizer import Operation, group, topic
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.groups.consumer.heartbeat import heartbeat_error
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    node: Node, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Later[ConsumerGroupHeartbeatResponse]:
    """Answered at once, but never ahead of what is being made durable."""
    allows = node.authorizer.allows
    if not allows(context, Operation.READ, group(request.group_id)):
        return heartbeat_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for name in request.subscribed_topic_names or ():
        if not allows(context, Operation.DESCRIBE, topic(name)):
            return heartbeat_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return node.groups.consumer_heartbeat(
        request, context.api_version, context.client_id or "", context.host
    )
