"""DescribeGroups (key 15): classic groups with their members (rule A-16)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.administration import not_described
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, authorized_operations, group
from odradek_broker.slices import asked, each_once, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_groups import (
    GROUP_ID_NOT_FOUND_SINCE,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


async def handle(
    node: GroupParts, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Answer with an entry for every group, in the order of the request and without repetition
    (D11)."""
    names = await each_once(request.groups)
    found = await asked(names, lambda name: _describe(node, context, name))
    async for described in paced(found):
        if context.api_version < GROUP_ID_NOT_FOUND_SINCE:
            _for_old_clients(described)
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = authorized_operations(
                node.authorizer, context, group(described.group_id)
            )
    return DescribeGroupsResponse(groups=found)


def _describe(node: GroupParts, context: RequestContext, name: str) -> Deferred[DescribedGroup]:
    if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
        return Deferred.of(not_described(name, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return node.groups.describe_group(name)


def _for_old_clients(described: DescribedGroup) -> None:
    described.error_message = None
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        described.error_code = ErrorCode.NONE
