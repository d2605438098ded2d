"""ListGroups (key 16): all groups of this broker (rule A-16).

From version 4 on a request can filter by state (KIP-518), from version 5 on also by type (KIP-848).
Filters ignore case. An unknown state or type matches nothing.
"""

from __future__ import annotations

from odradek_broker.coordinator.groups.administration import GroupSummary
from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, group
from odradek_broker.slices import paced
from odradek_protocol.schemas.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


async def handle(
    node: GroupParts, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """The groups that pass both filters and that the client may describe."""
    states = {state.lower() async for state in paced(request.states_filter)}
    types = {kind.lower() async for kind in paced(request.types_filter)}
    sees_all = node.authorizer.would_allow(context, Operation.DESCRIBE, CLUSTER)

    def passes(found: GroupSummary) -> bool:
        return (
            (not states or found.state.lower() in states)
            and (not types or found.group_type in types)
            and (
                sees_all
                or node.authorizer.would_allow(context, Operation.DESCRIBE, group(found.group_id))
            )
        )

    error, found = await node.groups.list_groups()
    groups = [_listed(each) async for each in paced(found) if passes(each)]
    return ListGroupsResponse(error_code=error, groups=groups)


def _listed(found: GroupSummary) -> ListedGroup:
    return ListedGroup(
        group_id=found.group_id,
        protocol_type=found.protocol_type,
        group_state=found.state,
        group_type=found.group_type,
    )
