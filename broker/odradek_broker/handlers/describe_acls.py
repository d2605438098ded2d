"""DescribeAcls (key 29): the ACLs that match a filter (KIP-140, A-18)."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.metadata.acls import filter_of, is_unknown
from odradek_broker.request import CloseConnection, RequestContext
from odradek_broker.security.acls import Acl
from odradek_broker.security.authorizer import Operation, acls_refused
from odradek_broker.slices import paced
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
    refused = acls_refused(node.authorizer, context, Operation.DESCRIBE)
    if refused is not None:
        return DescribeAclsResponse(error_code=refused[0], error_message=refused[1])
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
