"""CreateDelegationToken (key 38): creates a token; the answer comes when the token is durable
(KIP-48, KIP-373, A-49)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._delegation_tokens import (
    USER,
    TokenParts,
    answer_change,
    may_ask,
    principal_of,
)
from odradek_broker.metadata.delegation_tokens import create_token
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, Resource, ResourceType
from odradek_protocol.constants import NO_TIMESTAMP
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_delegation_token import (
    OWNER_SINCE,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


def handle(
    node: TokenParts, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | Deferred[CreateDelegationTokenResponse]:
    """The new token, or the reason why there is none."""
    owner_type, owner_name = _owner(context, request)
    answer = CreateDelegationTokenResponse(principal_type=owner_type, principal_name=owner_name)
    if context.api_version >= OWNER_SINCE:
        answer.token_requester_principal_type = USER
        answer.token_requester_principal_name = context.user
    refusal = _refusal(node, context, request)
    if refusal:
        return _refused(answer, refusal, NO_TIMESTAMP)
    change = create_token(
        node.metadata,
        f"{owner_type}:{owner_name}",
        principal_of(context),
        [f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        request.max_lifetime_ms,
        node.clock.wall_ms(),
    )
    token = change.token

    def respond(error: ErrorCode, time_ms: int) -> CreateDelegationTokenResponse:
        if error or token is None:
            return _refused(answer, error, time_ms)
        answer.issue_timestamp_ms = token.issued_ms
        answer.expiry_timestamp_ms = token.expires_ms
        answer.max_timestamp_ms = token.max_ms
        answer.token_id = token.token_id
        answer.hmac = node.metadata.delegation_tokens.hmac_of(token.token_id)
        return answer

    return answer_change(node, change, respond)


def _owner(context: RequestContext, request: CreateDelegationTokenRequest) -> tuple[str, str]:
    """The type and the name of the owner; by default the client is the owner."""
    if request.owner_principal_name:
        return request.owner_principal_type or "", request.owner_principal_name
    return USER, context.user


def _refusal(
    node: TokenParts, context: RequestContext, request: CreateDelegationTokenRequest
) -> ErrorCode:
    if not may_ask(context):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    owner = ":".join(_owner(context, request))
    # A client that creates a token for another owner needs a right on that owner.
    if owner != principal_of(context) and not node.authorizer.allows(
        context, Operation.CREATE_TOKENS, Resource(ResourceType.USER, owner)
    ):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(each.principal_type != USER for each in request.renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return ErrorCode.NONE


def _refused(
    answer: CreateDelegationTokenResponse, error: ErrorCode, time_ms: int
) -> CreateDelegationTokenResponse:
    answer.error_code = error
    answer.issue_timestamp_ms = answer.expiry_timestamp_ms = answer.max_timestamp_ms = time_ms
    return answer
