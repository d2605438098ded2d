"""SyncGroup (key 14): a member fetches its assignment, the leader brings all (rules G-60 to G-65)."""

from __future__ import annotations

from odradek_broker.context import RequestContext
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(
    node: Node, context: RequestContext, request: SyncGroupRequest
) -> Later[SyncGroupResponse]:
    """Parked until the leader's assignment is durable."""
    return node.groups.sync(request)
