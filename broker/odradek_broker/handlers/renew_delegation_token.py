"""RenewDelegationToken (key 39): sets a new expiry of a token; the answer comes when the change
is durable (KIP-48, A-51)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._delegation_tokens import TokenParts, change_expiry
from odradek_broker.metadata.delegation_tokens import renew_token
from odradek_broker.request import RequestContext
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def handle(
    node: TokenParts, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | Deferred[RenewDelegationTokenResponse]:
    """The new expiry of the token, or an error."""
    return change_expiry(
        node, context, renew_token, request.hmac, request.renew_period_ms, _response
    )


def _response(error: ErrorCode, expiry_ms: int) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expiry_ms)
