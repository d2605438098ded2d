"""DeleteAcls (key 31): deletes ACLs; the answer comes when the deletions are durable
(KIP-140, A-18)."""

from __future__ import annotations

from collections.abc import Sequence

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.acls import GONE_MAX, FilterResult, filter_result, is_unknown
from odradek_broker.metadata.commit import all_committed, committed
from odradek_broker.request import CloseConnection, RequestContext
from odradek_broker.security.acls import Acl
from odradek_broker.security.authorizer import Operation, acls_refused
from odradek_broker.slices import in_order, paced
from odradek_protocol.acls import AclPermission
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek_protocol.stored.cluster_metadata import RemoveAccessControlEntryRecord

#: The most comparisons of a filter with an ACL in one request.
_COMPARISONS_MAX = 2_000_000


async def handle(
    node: MetadataChangeParts, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Remove the ACLs that match the filters; errors are per filter."""
    filters, acls = request.filters, node.metadata.acls
    async for data in paced(filters):
        if is_unknown(data):
            raise CloseConnection("a DeleteAcls request for something unknown")
    refused = acls_refused(node.authorizer, context, Operation.ALTER)
    if refused is not None:
        return await _refused(filters, *refused)
    if len(filters) * len(acls) > _COMPARISONS_MAX:
        message = (
            f"{len(filters)} filters are too many for {len(acls)} ACLs; send several requests."
        )
        return await _refused(filters, ErrorCode.INVALID_REQUEST, message)
    results: list[FilterResult] = []
    gone: dict[bytes, Acl] = {}
    async for data in paced(filters):
        found = await filter_result(node.metadata, data)
        results.append(found.result)
        gone.update(zip(found.ids, found.result.acls, strict=True))
    if len(gone) > GONE_MAX:
        message = f"At most {GONE_MAX} ACLs are deleted by one request; use narrower filters."
        return await _refused(filters, ErrorCode.INVALID_REQUEST, message)
    recorded: list[Deferred[bool]] = []
    # Denials go last: no part of the request may allow what the whole does not.
    denials = [acl_id for acl_id, acl in gone.items() if acl.permission is AclPermission.DENY]
    others = [acl_id for acl_id, acl in gone.items() if acl.permission is not AclPermission.DENY]
    async for batch in paced(in_order(others + denials), changing=True):
        # Another request may have deleted an ACL meanwhile.
        records = [
            RemoveAccessControlEntryRecord(id=acl_id)
            for acl_id in batch
            if node.metadata.acl(acl_id) is not None
        ]
        if records:
            recorded.append(committed(node, records))
    if not recorded:
        recorded.append(committed(node))
    if not await all_committed(recorded):
        late = FilterResult(ErrorCode.REQUEST_TIMED_OUT)
        results = [late if result.error is ErrorCode.NONE else result for result in results]
    return await _response(results)


async def _refused(filters: Sequence[object], error: ErrorCode, message: str) -> DeleteAclsResponse:
    return await _response([FilterResult(error, message)] * len(filters))


async def _response(results: list[FilterResult]) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=result.error,
                error_message=result.message,
                matching_acls=[_matching(acl) async for acl in paced(result.acls)],
            )
            async for result in paced(results)
        ]
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
