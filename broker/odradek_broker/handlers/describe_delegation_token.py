"""DescribeDelegationToken (key 41): refused (A-49)."""

from __future__ import annotations

from odradek_broker.handlers._delegation_tokens import refusal
from odradek_broker.request import RequestContext
from odradek_protocol.schemas.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle(
    _: object, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """The reason why there are no tokens."""
    return DescribeDelegationTokenResponse(error_code=refusal(context)[0])
