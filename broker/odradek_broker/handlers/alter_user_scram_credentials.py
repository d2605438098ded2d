"""AlterUserScramCredentials (key 51): changes SCRAM credentials; the answer comes when the changes
are durable (KIP-554, A-41)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.commit import when_durable
from odradek_broker.metadata.scram import (
    ScramDeletion,
    ScramResult,
    ScramUpsertion,
    alter_scram_credentials,
)
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def handle(
    node: MetadataChangeParts, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse | Deferred[AlterUserScramCredentialsResponse]:
    """Make the valid changes; errors are per user."""
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        users = {each.name for each in request.deletions}
        users |= {each.name for each in request.upsertions}
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        message = denial(Operation.ALTER, CLUSTER)
        return _response([ScramResult(user, denied, message) for user in sorted(users)])
    records, results = alter_scram_credentials(
        node.metadata,
        [ScramDeletion(each.name, each.mechanism) for each in request.deletions],
        [
            ScramUpsertion(
                each.name, each.mechanism, each.iterations, each.salt, each.salted_password
            )
            for each in request.upsertions
        ],
    )

    def timed_out() -> AlterUserScramCredentialsResponse:
        for result in results:
            if result.error is ErrorCode.NONE:
                result.error = ErrorCode.REQUEST_TIMED_OUT
        return _response(results)

    return when_durable(node, records, lambda: _response(results), timed_out)


def _response(results: list[ScramResult]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=each.user, error_code=each.error, error_message=each.message
            )
            for each in results
        ]
    )
