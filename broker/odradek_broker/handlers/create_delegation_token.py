"""CreateDelegationToken (key 38): refused (A-49)."""

from __future__ import annotations

from odradek_broker.handlers._delegation_tokens import USER, refusal
from odradek_broker.handlers._parts import Authorized
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, Resource, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_delegation_token import (
    OWNER_SINCE,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


def handle(
    node: Authorized, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """The reason why the owner gets no token."""
    error, time_ms = refusal(context)
    if error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED and not _may_ask(node, context, request):
        error, time_ms = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, -1
    answer = CreateDelegationTokenResponse(
        error_code=error,
        principal_type=request.owner_principal_type or USER,
        principal_name=request.owner_principal_name or context.user,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
    )
    if context.api_version >= OWNER_SINCE:
        answer.token_requester_principal_type = USER
        answer.token_requester_principal_name = context.user
    return answer


def _may_ask(
    node: Authorized, context: RequestContext, request: CreateDelegationTokenRequest
) -> bool:
    """True with CREATE_TOKENS on an owner other than the client itself (A-74)."""
    owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    if not request.owner_principal_name or owner == f"{USER}:{context.user}":
        return True
    resource = Resource(ResourceType.USER, owner)
    return node.authorizer.allows(context, Operation.CREATE_TOKENS, resource)
