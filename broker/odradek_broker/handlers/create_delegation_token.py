"""CreateDelegationToken (key 38): refused (A-49)."""

from __future__ import annotations

from odradek_broker.handlers._delegation_tokens import USER, refusal
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_protocol.schemas.create_delegation_token import (
    OWNER_SINCE,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


def handle(
    node: Node, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Why there is no token for the owner."""
    error, time_ms = refusal(context)
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
