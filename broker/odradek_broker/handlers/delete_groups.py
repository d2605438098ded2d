"""DeleteGroups (key 42): groups without members, and all that they have committed (O-14, A-16)."""

from __future__ import annotations

from odradek_broker.authorizer import Operation, group
from odradek_broker.context import RequestContext
from odradek_broker.later import Later, gather
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    node: Node, context: RequestContext, request: DeleteGroupsRequest
) -> Later[DeleteGroupsResponse]:
    """Every group by itself, once however often it is named."""
    names = list(dict.fromkeys(request.groups_names))
    later: Later[DeleteGroupsResponse] = Later()

    def answer(codes: list[ErrorCode]) -> None:
        results = [
            DeletableGroupResult(group_id=name, error_code=code)
            for name, code in zip(names, codes, strict=True)
        ]
        later.resolve(DeleteGroupsResponse(results=results))

    gather([_delete(node, context, name) for name in names]).then(answer)
    return later


def _delete(node: Node, context: RequestContext, name: str) -> Later[ErrorCode]:
    if not node.authorizer.allows(context, Operation.DELETE, group(name)):
        return Later.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return node.groups.delete_group(name)
