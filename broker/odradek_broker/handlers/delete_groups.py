"""DeleteGroups (key 42): deletes groups without members, and their offsets (O-14, A-16)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.explain.texts import origin_of
from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_broker.slices import asked, each_once, paced
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
    names = await each_once(request.groups_names)
    codes = await asked(names, lambda name: _delete(node, context, name), changing=True)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=code)
            async for name, code in paced(zip(names, codes, strict=True))
        ]
    )


def _delete(node: GroupParts, context: RequestContext, name: str) -> Deferred[ErrorCode]:
    if not node.authorizer.allows(context, Operation.DELETE, group(name)):
        return Deferred.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return node.groups.delete_group(name, origin_of(context))
