"""SaslHandshake (key 17): selects the mechanism of an authentication (N-25); ILLEGAL_SASL_STATE if
the connection needs no authentication (N-24)."""

from __future__ import annotations

from odradek_broker.request import RequestContext
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    _: object, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """The mechanisms of the listener, or ILLEGAL_SASL_STATE."""
    if context.authentication is not None:
        error, mechanisms = context.authentication.handshake(request.mechanism, context.api_version)
        return SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
