"""ListGroups (key 16): all groups of this broker (rule A-16).

Versions: 4 filters by state (KIP-518), 5 by type (KIP-848); upper and lower case are the same. A name
that is no state or type matches nothing.
"""

from __future__ import annotations

from odradek_broker.authorizer import CLUSTER, Operation, group
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.groups.administration import GroupSummary
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def handle(
    node: Node, context: RequestContext, request: ListGroupsRequest
) -> Later[ListGroupsResponse]:
    """Those that both filters let through and that the client may see: with DESCRIBE on the
    cluster all of them."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    sees_all = node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER)
    later: Later[ListGroupsResponse] = Later()

    def passes(found: GroupSummary) -> bool:
        return (
            (not states or found.state.lower() in states)
            and (not types or found.group_type in types)
            and (
                sees_all
                or node.authorizer.allows(context, Operation.DESCRIBE, group(found.group_id))
            )
        )

    def answer(told: tuple[ErrorCode, list[GroupSummary]]) -> None:
        error, found = told
        groups = [_listed(each) for each in found if passes(each)]
        later.resolve(ListGroupsResponse(error_code=error, groups=groups))

    node.groups.list_groups().then(answer)
    return later


def _listed(found: GroupSummary) -> ListedGroup:
    return ListedGroup(
        group_id=found.group_id,
        protocol_type=found.protocol_type,
        group_state=found.state,
        group_type=found.group_type,
    )
