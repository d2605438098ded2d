"""DeleteAcls (key 31): deletes ACLs; the answer comes when the deletions are durable
(KIP-140, A-18)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.acls import FilterResult, delete_acls, is_unknown
from odradek_broker.metadata.commit import when_durable
from odradek_broker.request import CloseConnection, RequestContext
from odradek_broker.security.acls import Acl
from odradek_broker.security.authorizer import (
    ALLOW_EVERYTHING,
    CLUSTER,
    NO_AUTHORIZER,
    Operation,
    denial,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(
    node: MetadataChangeParts, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse | Deferred[DeleteAclsResponse]:
    """Remove the ACLs that match the filters; errors are per filter."""
    if any(map(is_unknown, request.filters)):
        raise CloseConnection("a DeleteAcls request for something unknown")
    times = len(request.filters)
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _response([FilterResult(denied, denial(Operation.ALTER, CLUSTER))] * times)
    if node.authorizer is ALLOW_EVERYTHING:
        disabled = FilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return _response([disabled] * times)
    records, results = delete_acls(node.metadata, request.filters)

    def timed_out() -> DeleteAclsResponse:
        return _response(
            [
                FilterResult(ErrorCode.REQUEST_TIMED_OUT)
                if result.error is ErrorCode.NONE
                else result
                for result in results
            ]
        )

    return when_durable(node, records, lambda: _response(results), timed_out)


def _response(results: list[FilterResult]) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=result.error,
                error_message=result.message,
                matching_acls=[_matching(acl) for acl in result.acls],
            )
            for result in results
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
