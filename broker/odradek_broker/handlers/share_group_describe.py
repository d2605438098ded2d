"""ShareGroupDescribe (key 77): share groups with their members (rule H-05)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.share.groups import share_not_described
from odradek_broker.deferred import Deferred, gather
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    Operation,
    authorized_operations,
    denied_topics,
    group,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_group_describe import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: ShareGroupDescribeRequest
) -> Deferred[ShareGroupDescribeResponse]:
    """Answer with an entry for every group, in the order of the request and without repetition
    (D11)."""

    def answer(groups: list[DescribedShareGroup]) -> ShareGroupDescribeResponse:
        shown = [_shown(node, context, request, described) for described in groups]
        return ShareGroupDescribeResponse(groups=shown)

    found = [_describe(node, context, name) for name in dict.fromkeys(request.group_ids)]
    return gather(found).map(answer)


def _describe(
    node: GroupAndMetadataParts, context: RequestContext, name: str
) -> Deferred[DescribedShareGroup]:
    if node.metadata.share_groups_off:
        return Deferred.of(share_not_described(name, ErrorCode.UNSUPPORTED_VERSION))
    if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
        return Deferred.of(share_not_described(name, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    if not name:
        return Deferred.of(share_not_described(name, ErrorCode.INVALID_GROUP_ID))
    return node.groups.share.describe(name)


def _shown(
    node: GroupAndMetadataParts,
    context: RequestContext,
    request: ShareGroupDescribeRequest,
    described: DescribedShareGroup,
) -> DescribedShareGroup:
    """The group; a group with partitions that the client may not see is not shown at all, as in
    Kafka."""
    if described.error_code:
        return described
    names = {
        part.topic_name
        for member in described.members
        for part in member.assignment.topic_partitions
    }
    if denied_topics(node.authorizer, context, Operation.DESCRIBE, names):
        return share_not_described(
            described.group_id,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has described topic(s) that the client is not authorized to describe.",
        )
    if request.include_authorized_operations:
        described.authorized_operations = authorized_operations(
            node.authorizer, context, group(described.group_id)
        )
    return described
