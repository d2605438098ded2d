"""AlterClientQuotas (key 49): changes client quotas; the answer comes when the changes are durable
(KIP-546, A-18)."""

from __future__ import annotations

from itertools import islice

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.client_quotas import (
    CHANGES_MAX,
    EntityChanges,
    EntityResult,
    QuotaChange,
    alter_client_quotas,
)
from odradek_broker.metadata.commit import committed, refuse_if_late
from odradek_broker.quotas.client_quotas import QuotaEntity, quota_entity
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_broker.slices import batches, in_pieces, paced
from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
)

#: The most types of an entity that are looked at. An entity with more than there are is refused.
_TYPES_MAX = 16


async def handle(
    node: MetadataChangeParts, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Make the valid changes; errors are per entity."""
    wanted = [await _wanted(entry) async for entry in paced(request.entries)]
    if not node.authorizer.allows(context, Operation.ALTER_CONFIGS, CLUSTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        message = denial(Operation.ALTER_CONFIGS, CLUSTER)
        entities = dict.fromkeys([each.entity for each in wanted])
        return await _response(
            [EntityResult(entity, denied, message) async for entity in paced(entities)]
        )
    found: dict[QuotaEntity, EntityResult] = {}
    recorded: list[Deferred[bool]] = []
    async for batch in paced(await batches(wanted, lambda each: each.entity), changing=True):
        records, altered = alter_client_quotas(node.metadata, batch)
        found.update((result.entity, result) for result in altered)
        if records and not request.validate_only:
            recorded.append(committed(node, records))
    results = list(found.values())
    if not recorded and not request.validate_only:
        recorded.append(committed(node))
    await refuse_if_late(results, recorded)
    return await _response(results)


async def _wanted(entry: EntryData) -> EntityChanges:
    types: dict[str, str | None] = {}
    async for some in in_pieces(entry.entity):
        types |= {each.entity_type: each.entity_name for each in some}
    return EntityChanges(
        quota_entity(islice(types.items(), _TYPES_MAX)),
        [
            QuotaChange(op.key, None if op.remove else op.value)
            for op in entry.ops[: CHANGES_MAX + 1]
        ],
    )


async def _response(results: list[EntityResult]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            EntryResult(
                error_code=result.error,
                error_message=result.message,
                entity=[
                    QuotaEntityPart(entity_type=kind, entity_name=name)
                    async for kind, name in paced(result.entity)
                ],
            )
            async for result in paced(results)
        ]
    )
