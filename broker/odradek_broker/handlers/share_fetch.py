"""ShareFetch (key 78): acquire and read records of a share group."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_fetch import ShareFetchRequest, ShareFetchResponse


def handle(
    node: MetadataParts, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    """Refuse the request, since share groups are switched off."""
    error = ErrorCode.UNSUPPORTED_VERSION
    if not node.metadata.share_groups_off and not node.authorizer.allows(
        context, Operation.READ, group(request.group_id or "")
    ):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ShareFetchResponse(error_code=error)
