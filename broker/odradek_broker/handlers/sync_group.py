"""SyncGroup (key 14): a member fetches its assignment, the leader brings all (G-60 to G-65, A-13)."""

from __future__ import annotations

from odradek_broker.authorizer import Operation, group
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.groups.answers import sync_error
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(
    node: Node, context: RequestContext, request: SyncGroupRequest
) -> Later[SyncGroupResponse]:
    """Parked until the leader's assignment is durable."""
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return Later.of(sync_error(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return node.groups.sync(request)
