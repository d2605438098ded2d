"""DescribeClientQuotas (key 48): the quotas that match a filter (KIP-546, A-18)."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.metadata.client_quotas import FilterComponent, describe_client_quotas
from odradek_broker.metadata.errors import AdminError
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.slices import paced
from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
    ValueData,
)


async def handle(
    node: MetadataParts, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """All quotas that match the filter, or an error."""
    if not node.authorizer.allows(context, Operation.DESCRIBE_CONFIGS, CLUSTER):
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    components = [
        FilterComponent(each.entity_type, each.match_type, each.match)
        async for each in paced(request.components)
    ]
    try:
        found = await describe_client_quotas(node.metadata, components, request.strict)
    except AdminError as error:
        return _failed(error.error, error.message)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[
                    QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                values=[ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
            )
            async for entity, quotas in paced(found)
            if quotas  # Those of an entity may have been removed during a pause.
        ],
    )


def _failed(error: ErrorCode, message: str | None) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)
