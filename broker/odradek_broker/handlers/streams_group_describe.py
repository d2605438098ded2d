"""StreamsGroupDescribe (key 89): streams groups with their members and tasks."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.streams_group_describe import (
    DescribedStreamsGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


def handle(
    node: MetadataParts, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Refuse every group, since streams groups are switched off."""
    return StreamsGroupDescribeResponse(
        groups=[
            DescribedStreamsGroup(group_id=name, error_code=_error(node, context, name))
            for name in dict.fromkeys(request.group_ids)
        ]
    )


def _error(node: MetadataParts, context: RequestContext, name: str) -> ErrorCode:
    if not node.metadata.streams_groups_off and not node.authorizer.allows(
        context, Operation.DESCRIBE, group(name)
    ):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION
