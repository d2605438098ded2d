"""ShareGroupDescribe (key 77): share groups with their members."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_group_describe import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def handle(
    node: MetadataParts, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Refuse every group, since share groups are switched off."""
    return ShareGroupDescribeResponse(
        groups=[
            DescribedShareGroup(group_id=name, error_code=_error(node, context, name))
            for name in dict.fromkeys(request.group_ids)
        ]
    )


def _error(node: MetadataParts, context: RequestContext, name: str) -> ErrorCode:
    if not node.metadata.share_groups_off and not node.authorizer.allows(
        context, Operation.DESCRIBE, group(name)
    ):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION
