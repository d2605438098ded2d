"""ExpireDelegationToken (key 40): decide, record, answer when durable (KIP-48, A-51)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._delegation_tokens import (
    TokenParts,
    answer_change,
    may_ask,
    principal_of,
)
from odradek_broker.metadata.delegation_tokens import expire_token
from odradek_broker.request import RequestContext
from odradek_protocol.constants import NO_TIMESTAMP
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(
    node: TokenParts, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | Deferred[ExpireDelegationTokenResponse]:
    """The new expiry of the token, or an error."""
    if not may_ask(context):
        return _response(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP)
    change = expire_token(
        node.metadata,
        principal_of(context),
        request.hmac,
        request.expiry_time_period_ms,
        node.clock.wall_ms(),
    )
    return answer_change(node, change, _response)


def _response(error: ErrorCode, expiry_ms: int) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expiry_ms)
