"""AlterUserScramCredentials (key 51): changes SCRAM credentials; the answer comes when the changes
are durable (KIP-554, A-41)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.commit import committed, refuse_if_late
from odradek_broker.metadata.scram import (
    ScramDeletion,
    ScramResult,
    ScramUpsertion,
    alter_scram_credentials,
)
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_broker.slices import batches, each_once, in_sorted_order, let_go, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def handle(
    node: MetadataChangeParts, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Make the valid changes; errors are per user."""
    changes: list[ScramDeletion | ScramUpsertion] = [
        ScramDeletion(each.name, each.mechanism) async for each in paced(request.deletions)
    ]
    changes += [
        ScramUpsertion(each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
        async for each in paced(request.upsertions)
    ]
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        users = await in_sorted_order(await each_once(each.user for each in changes))
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        message = denial(Operation.ALTER, CLUSTER)
        results = [ScramResult(user, denied, message) async for user in paced(users)]
        await let_go(changes)
        return await _response(results)
    found: dict[str, ScramResult] = {}
    recorded: list[Deferred[bool]] = []
    async for batch in paced(await batches(changes, lambda each: each.user), changing=True):
        records, altered = alter_scram_credentials(node.metadata, batch)
        found.update((result.user, result) for result in altered)
        if records:
            recorded.append(committed(node, records))
    if not recorded:
        recorded.append(committed(node))
    results, refused = list[ScramResult](), list[ScramResult]()
    async for each in paced(found.values()):
        (refused if each.error else results).append(each)
    results += refused
    await refuse_if_late(results, recorded)
    await let_go(found, changes, refused)
    return await _response(results)


async def _response(results: list[ScramResult]) -> AlterUserScramCredentialsResponse:
    response = AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=each.user, error_code=each.error, error_message=each.message
            )
            async for each in paced(results)
        ]
    )
    await let_go(results)
    return response
