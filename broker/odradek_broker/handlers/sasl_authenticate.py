"""SaslAuthenticate (key 36): the client's next token in a SASL authentication (N-25);
ILLEGAL_SASL_STATE if the connection needs no authentication (N-24).
"""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.request import AuthenticationAnswer, RequestContext
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(
    _: object, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Deferred[SaslAuthenticateResponse]:
    """The mechanism's answer, or ILLEGAL_SASL_STATE with Kafka's message."""
    if context.authentication is not None:
        answer = context.authentication.authenticate(bytes(request.auth_bytes))
        return answer.map(_response) if isinstance(answer, Deferred) else _response(answer)
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


def _response(answer: AuthenticationAnswer) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=answer.error,
        error_message=answer.message,
        auth_bytes=answer.token,
        session_lifetime_ms=answer.lifetime_ms,
    )
