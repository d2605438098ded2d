"""CreateAcls (key 30): creates ACLs; the answer comes when they are durable (KIP-140, A-18)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.acls import CreationResult, create_acls
from odradek_broker.metadata.commit import when_durable
from odradek_broker.request import CloseConnection, RequestContext
from odradek_broker.security.authorizer import (
    ALLOW_EVERYTHING,
    CLUSTER,
    NO_AUTHORIZER,
    Operation,
    denial,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(
    node: MetadataChangeParts, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse | Deferred[CreateAclsResponse]:
    """Create the valid ACLs; errors are per ACL."""
    if any(map(_is_unknown, request.creations)):
        raise CloseConnection("a CreateAcls request for something unknown")
    times = len(request.creations)
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _response([CreationResult(denied, denial(Operation.ALTER, CLUSTER))] * times)
    if node.authorizer is ALLOW_EVERYTHING:
        disabled = CreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return _response([disabled] * times)
    records, results = create_acls(node.metadata, request.creations)

    def timed_out() -> CreateAclsResponse:
        for result in results:
            if result.error is ErrorCode.NONE:
                result.error = ErrorCode.REQUEST_TIMED_OUT
        return _response(results)

    return when_durable(node, records, lambda: _response(results), timed_out)


def _is_unknown(data: AclCreation) -> bool:
    return 0 in (
        *(data.resource_type, data.resource_pattern_type),
        *(data.operation, data.permission_type),
    )


def _response(results: list[CreationResult]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=result.error, error_message=result.message)
            for result in results
        ]
    )
