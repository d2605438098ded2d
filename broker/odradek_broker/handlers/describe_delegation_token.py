"""DescribeDelegationToken (key 41): the tokens that the client may see (KIP-48, KIP-373, A-52)."""

from __future__ import annotations

from odradek_broker.handlers._delegation_tokens import TokenParts, may_ask, principal_of
from odradek_broker.metadata.commit import committed
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, Resource, ResourceType
from odradek_broker.security.delegation_tokens import TokenInformation
from odradek_broker.slices import paced
from odradek_protocol.common_structs import TokenPrincipal
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_delegation_token import (
    REQUESTER_SINCE,
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


async def handle(
    node: TokenParts, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """The tokens that the client may describe, of the requested owners or of all owners."""
    if not may_ask(context):
        return _refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if not node.metadata.delegation_tokens.enabled:
        return _refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    found = [
        _description(node, token, context.api_version)
        async for token in paced(await _visible(node, context, request))
    ]
    # The answer waits, because a token that is not durable may be lost in a crash.
    if not await committed(node):
        return _refused(ErrorCode.REQUEST_TIMED_OUT)
    return DescribeDelegationTokenResponse(tokens=found)


async def _visible(
    node: TokenParts, context: RequestContext, request: DescribeDelegationTokenRequest
) -> list[TokenInformation]:
    me = {principal_of(context)}
    wanted = None
    if request.owners is not None:
        wanted = {
            f"{each.principal_type}:{each.principal_name}" async for each in paced(request.owners)
        }
    return [
        token
        async for token in paced(node.metadata.delegation_tokens.all())
        if (wanted is None or token.concerns(wanted))
        and (token.concerns(me) or _may_describe(node, context, token))
    ]


def _may_describe(node: TokenParts, context: RequestContext, token: TokenInformation) -> bool:
    own = Resource(ResourceType.DELEGATION_TOKEN, token.token_id)
    owner = Resource(ResourceType.USER, token.owner)
    return node.authorizer.would_allow(
        context, Operation.DESCRIBE, own
    ) or node.authorizer.would_allow(context, Operation.DESCRIBE_TOKENS, owner)


def _description(
    node: TokenParts, token: TokenInformation, version: int
) -> DescribedDelegationToken:
    kind, _, name = token.owner.partition(":")
    described = DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=node.metadata.delegation_tokens.hmac_of(token.token_id),
        renewers=[
            TokenPrincipal(principal_type=kind, principal_name=name)
            for kind, _, name in (each.partition(":") for each in token.renewers)
        ],
    )
    if version >= REQUESTER_SINCE:
        kind, _, name = token.requester.partition(":")
        described.token_requester_principal_type = kind
        described.token_requester_principal_name = name
    return described


def _refused(error: ErrorCode) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error)
