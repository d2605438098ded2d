"""SaslAuthenticate (key 36) where there is nothing to be authenticated: after authentication, and at listeners
without SASL (N-24)."""

from __future__ import annotations

from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(
    node: Node, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """ILLEGAL_SASL_STATE, in Kafka's words."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
