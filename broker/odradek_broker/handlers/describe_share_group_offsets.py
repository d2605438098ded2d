"""DescribeShareGroupOffsets (key 90): start offsets of share groups."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)


def handle(
    node: MetadataParts, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Refuse every group, since share groups are switched off."""
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(
                group_id=name, error_code=_error(node, context, name)
            )
            for name in dict.fromkeys(each.group_id for each in request.groups)
        ]
    )


def _error(node: MetadataParts, context: RequestContext, name: str) -> ErrorCode:
    if not node.metadata.share_groups_off and not node.authorizer.allows(
        context, Operation.DESCRIBE, group(name)
    ):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION
