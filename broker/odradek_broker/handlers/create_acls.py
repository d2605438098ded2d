"""CreateAcls (key 30): creates ACLs; the answer comes when they are durable (KIP-140, A-18)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.acls import NEW_MAX, CreationResult, create_acls
from odradek_broker.metadata.commit import committed, refuse_if_late
from odradek_broker.request import CloseConnection, RequestContext
from odradek_broker.security.authorizer import Operation, acls_refused
from odradek_broker.slices import in_order, paced
from odradek_protocol.acls import AclPermission
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def handle(
    node: MetadataChangeParts, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    """Create the valid ACLs; errors are per ACL."""
    creations = request.creations
    async for data in paced(creations):
        if _is_unknown(data):
            raise CloseConnection("a CreateAcls request for something unknown")
    refused = acls_refused(node.authorizer, context, Operation.ALTER)
    if refused is None and len(creations) > NEW_MAX:
        message = f"At most {NEW_MAX} ACLs are created by one request; send several."
        refused = ErrorCode.POLICY_VIOLATION, message
    if refused is not None:
        return await _response([CreationResult(*refused)] * len(creations))
    found: dict[int, CreationResult] = {}
    recorded: list[Deferred[bool]] = []
    # Denials come first: no part of the request may allow what the whole does not.
    denials = [each for each in enumerate(creations) if _denies(each[1])]
    others = [each for each in enumerate(creations) if not _denies(each[1])]
    async for batch in paced(in_order(denials + others), changing=True):
        records, created = create_acls(node.metadata, [data for _, data in batch])
        found.update(zip((number for number, _ in batch), created, strict=True))
        if records:
            recorded.append(committed(node, records))
    results = [found[number] for number in range(len(creations))]
    if not recorded:
        recorded.append(committed(node))
    await refuse_if_late(results, recorded)
    return await _response(results)


def _denies(data: AclCreation) -> bool:
    return data.permission_type == AclPermission.DENY


def _is_unknown(data: AclCreation) -> bool:
    return 0 in (
        *(data.resource_type, data.resource_pattern_type),
        *(data.operation, data.permission_type),
    )


async def _response(results: list[CreationResult]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=result.error, error_message=result.message)
            async for result in paced(results)
        ]
    )
