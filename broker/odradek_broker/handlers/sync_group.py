"""SyncGroup (key 14): a member gets its assignment; the leader sends the assignments of all members
(G-60 to G-65, A-13).
"""

from __future__ import annotations

from odradek_broker.coordinator.groups.responses import sync_error
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.sync_group import PROTOCOL_SINCE, SyncGroupRequest, SyncGroupResponse


def handle(
    node: GroupParts, context: RequestContext, request: SyncGroupRequest
) -> Deferred[SyncGroupResponse]:
    """Park the request until the leader's assignment is durable.

    From version 5 on every member must name the protocol.
    """
    named = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_SINCE and not named:
        return Deferred.of(sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return Deferred.of(sync_error(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return node.groups.sync(request)
