"""DescribeGroups (key 15): classic groups with their members (rule A-16)."""

from __future__ import annotations

from odradek_broker.authorizer import Operation, authorized_operations, group
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.groups.administration import not_described
from odradek_broker.later import Later, gather
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

#: From this version on, a group that does not exist is an error and not just Dead (KIP-1043).
_NOT_FOUND_SINCE = 6


def handle(
    node: Node, context: RequestContext, request: DescribeGroupsRequest
) -> Later[DescribeGroupsResponse]:
    """One entry for every group that was asked for, in its order, each with a code of its own.

    One that is named again is answered once (D11).
    """
    later: Later[DescribeGroupsResponse] = Later()
    found = [_describe(node, context, name) for name in dict.fromkeys(request.groups)]

    def answer(groups: list[DescribedGroup]) -> None:
        for described in groups:
            if request.include_authorized_operations and not described.error_code:
                described.authorized_operations = authorized_operations(
                    node.authorizer, context, group(described.group_id)
                )
            if context.api_version < _NOT_FOUND_SINCE:
                _for_old_clients(described)
        later.resolve(DescribeGroupsResponse(groups=groups))

    gather(found).then(answer)
    return later


def _describe(node: Node, context: RequestContext, name: str) -> Later[DescribedGroup]:
    if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
        return Later.of(not_described(name, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return node.groups.describe_group(name)


def _for_old_clients(described: DescribedGroup) -> None:
    described.error_message = None
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        described.error_code = ErrorCode.NONE
