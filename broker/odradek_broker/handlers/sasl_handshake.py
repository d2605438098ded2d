"""SaslHandshake (key 17) where there is nothing to be authenticated: after authentication, and at listeners without
SASL (N-24)."""

from __future__ import annotations

from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    node: Node, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """ILLEGAL_SASL_STATE, as in Kafka."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
