"""DescribeAcls (key 29): the ACLs that match a filter (KIP-140, A-18)."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.metadata.acls import filter_of, is_unknown
from odradek_broker.request import CloseConnection, RequestContext
from odradek_broker.security.acls import Acl
from odradek_broker.security.authorizer import (
    ALLOW_EVERYTHING,
    CLUSTER,
    NO_AUTHORIZER,
    Operation,
    denial,
)
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def handle(
    node: MetadataParts, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """The ACLs by resource, or an error."""
    if is_unknown(request):
        raise CloseConnection("a DescribeAcls request for something unknown")
    if not node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        return DescribeAclsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=denial(Operation.DESCRIBE, CLUSTER),
        )
    if node.authorizer is ALLOW_EVERYTHING:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    async for _, acl in paced(await node.metadata.acls.matching(filter_of(request))):
        key = (acl.resource_type, acl.name, acl.pattern_type)
        if key not in resources:
            resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
            )
        resources[key].acls.append(_description(acl))
    return DescribeAclsResponse(resources=list(resources.values()))


def _description(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
