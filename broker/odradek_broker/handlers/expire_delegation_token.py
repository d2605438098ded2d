"""ExpireDelegationToken (key 40): refused (A-49)."""

from __future__ import annotations

from odradek_broker.handlers._delegation_tokens import refusal
from odradek_broker.request import RequestContext
from odradek_protocol.schemas.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(
    _: object, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """The reason why there is no such token."""
    error, time_ms = refusal(context)
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=time_ms)
