"""DeleteGroups (key 42): deletes groups without members, and their offsets (O-14, A-16)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(
    node: GroupParts, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete the groups; errors are per group, and each group is answered once."""
    deleted = [
        (name, _delete(node, context, name))
        async for name in paced(dict.fromkeys(request.groups_names), changing=True)
    ]
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=await code)
            async for name, code in paced(deleted)
        ]
    )


def _delete(node: GroupParts, context: RequestContext, name: str) -> Deferred[ErrorCode]:
    if not node.authorizer.allows(context, Operation.DELETE, group(name)):
        return Deferred.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return node.groups.delete_group(name)
