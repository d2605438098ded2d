"""ExpireDelegationToken (key 40): sets the expiry of a token or removes the token; the answer comes
when the change is durable (KIP-48, A-51)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._delegation_tokens import TokenParts, change_expiry
from odradek_broker.metadata.delegation_tokens import expire_token
from odradek_broker.request import RequestContext
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(
    node: TokenParts, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | Deferred[ExpireDelegationTokenResponse]:
    """The new expiry of the token, or an error."""
    return change_expiry(
        node, context, expire_token, request.hmac, request.expiry_time_period_ms, _response
    )


def _response(error: ErrorCode, expiry_ms: int) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expiry_ms)
