"""DescribeUserScramCredentials (key 50): mechanisms and iterations, never keys (KIP-554, A-40)."""

from __future__ import annotations

from collections import Counter

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.metadata.scram import describe_scram_credentials
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.slices import in_pieces, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    node: MetadataParts, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """All users with credentials, or the requested ones."""
    users = [each.name async for some in in_pieces(request.users or ()) for each in some]
    if not node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeUserScramCredentialsResponse(
            error_code=denied,
            error_message=None,
            results=[
                DescribeUserScramCredentialsResult(user=user, error_code=denied, error_message=None)
                async for user in paced(users)
            ],
        )
    times: Counter[str] = Counter()
    async for some in in_pieces(users):
        times.update(some)
    return DescribeUserScramCredentialsResponse(
        results=[
            _result(node, user, times[user])
            async for user in paced(times or node.metadata.scram_credentials)
            if times or user in node.metadata.scram_credentials
        ]
    )


def _result(node: MetadataParts, user: str, times: int) -> DescribeUserScramCredentialsResult:
    result, credentials = describe_scram_credentials(node.metadata, user, times)
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=result.error,
        # As in Kafka, the message for success is an empty text, not null.
        error_message=result.message or "",
        credential_infos=[
            CredentialInfo(mechanism=mechanism.number, iterations=credential.iterations)
            for mechanism, credential in sorted(
                credentials.items(), key=lambda each: each[0].number
            )
        ],
    )
