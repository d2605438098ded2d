"""The answer to every request about delegation tokens: they are not supported (A-49)."""

from __future__ import annotations

from odradek_broker.request import ANONYMOUS, RequestContext
from odradek_protocol.errors import ErrorCode

#: The type of principal of users.
USER = "User"


def refusal(context: RequestContext) -> tuple[ErrorCode, int]:
    """The error code, and the value of the fields for times in ms. An unauthenticated client may
    not even ask; the answer to others is that there is no secret key for tokens."""
    if context.user == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, 0
