"""JoinGroup (key 11): a member enters the join phase of its group (G-20 to G-31, A-13)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.responses import join_error
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import GroupParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.join_group import (
    NULL_PROTOCOL_SINCE,
    JoinGroupRequest,
    JoinGroupResponse,
)


def handle(
    node: GroupParts, context: RequestContext, request: JoinGroupRequest
) -> Deferred[JoinGroupResponse]:
    """Park the request until the join phase is complete."""
    version = context.api_version
    # Kafka shows the host of a member in the form of a Java address.
    host = f"/{context.host}"
    if node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        joined = node.groups.join(request, version, context.client_id or "", host)
    else:
        refusal = join_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
        joined = Deferred.of(refusal)
    if version >= NULL_PROTOCOL_SINCE:
        return joined
    answer: Deferred[JoinGroupResponse] = Deferred()
    answer.on_abandon = joined.abandon
    joined.then(lambda response: answer.resolve(_for_old_clients(response)))
    return answer


def _for_old_clients(response: JoinGroupResponse) -> JoinGroupResponse:
    """The response with an empty protocol name instead of null, for versions without null."""
    if response.protocol_name is None:
        response.protocol_name = ""
    return response
