"""RenewDelegationToken (key 39): refused (A-49)."""

from __future__ import annotations

from odradek_broker.handlers._delegation_tokens import refusal
from odradek_broker.request import RequestContext
from odradek_protocol.schemas.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def handle(
    _: object, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """The reason why there is no such token."""
    error, time_ms = refusal(context)
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=time_ms)
