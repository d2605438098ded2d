"""Heartbeat (key 12): a member is alive, and learns whether it has to join again (G-70, G-71)."""

from __future__ import annotations

from odradek_broker.context import RequestContext
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    node: Node, context: RequestContext, request: HeartbeatRequest
) -> Later[HeartbeatResponse]:
    """Answered at once, but never ahead of what is being made durable."""
    return node.groups.heartbeat(request)
