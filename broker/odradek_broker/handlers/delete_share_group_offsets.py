"""DeleteShareGroupOffsets (key 92): remove topics from a share group."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)


def handle(
    node: MetadataParts, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Refuse the request, since share groups are switched off."""
    error = ErrorCode.UNSUPPORTED_VERSION
    if not node.metadata.share_groups_off and not node.authorizer.allows(
        context, Operation.DELETE, group(request.group_id)
    ):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DeleteShareGroupOffsetsResponse(error_code=error)
