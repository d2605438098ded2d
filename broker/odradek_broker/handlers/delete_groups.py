"""DeleteGroups (key 42): deletes groups without members, and their offsets (O-14, A-16)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred, gather
from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    node: GroupParts, context: RequestContext, request: DeleteGroupsRequest
) -> Deferred[DeleteGroupsResponse]:
    """Delete the groups; errors are per group, and each group is answered once."""
    names = list(dict.fromkeys(request.groups_names))

    def answer(codes: list[ErrorCode]) -> DeleteGroupsResponse:
        results = [
            DeletableGroupResult(group_id=name, error_code=code)
            for name, code in zip(names, codes, strict=True)
        ]
        return DeleteGroupsResponse(results=results)

    return gather([_delete(node, context, name) for name in names]).map(answer)


def _delete(node: GroupParts, context: RequestContext, name: str) -> Deferred[ErrorCode]:
    if not node.authorizer.allows(context, Operation.DELETE, group(name)):
        return Deferred.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return node.groups.delete_group(name)
