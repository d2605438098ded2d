"""AlterClientQuotas (key 49): changes client quotas; the answer comes when the changes are durable
(KIP-546, A-18)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.client_quotas import (
    EntityChanges,
    EntityResult,
    QuotaChange,
    alter_client_quotas,
)
from odradek_broker.metadata.commit import when_durable
from odradek_broker.quotas.client_quotas import quota_entity
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
)


def handle(
    node: MetadataChangeParts, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse | Deferred[AlterClientQuotasResponse]:
    """Make the valid changes; errors are per entity."""
    wanted = [_wanted(entry) for entry in request.entries]
    if not node.authorizer.allows(context, Operation.ALTER_CONFIGS, CLUSTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        message = denial(Operation.ALTER_CONFIGS, CLUSTER)
        entities = {each.entity: None for each in wanted}
        return _response([EntityResult(entity, denied, message) for entity in entities])
    records, results = alter_client_quotas(node.metadata, wanted)
    if request.validate_only:
        return _response(results)

    def timed_out() -> AlterClientQuotasResponse:
        for result in results:
            if result.error is ErrorCode.NONE:
                result.error = ErrorCode.REQUEST_TIMED_OUT
        return _response(results)

    return when_durable(node, records, lambda: _response(results), timed_out)


def _wanted(entry: EntryData) -> EntityChanges:
    return EntityChanges(
        quota_entity((each.entity_type, each.entity_name) for each in entry.entity),
        [QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops],
    )


def _response(results: list[EntityResult]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            EntryResult(
                error_code=result.error,
                error_message=result.message,
                entity=[
                    EntityData(entity_type=kind, entity_name=name) for kind, name in result.entity
                ],
            )
            for result in results
        ]
    )
