"""The answer to every request about delegation tokens: there are none (A-49)."""

from __future__ import annotations

from odradek_broker.request import ANONYMOUS, RequestContext
from odradek_protocol.errors import ErrorCode

#: The kind of principal that users are.
USER = "User"


def refusal(context: RequestContext) -> tuple[ErrorCode, int]:
    """The code, and what stands in the place of times in ms. Who has not said who it is may not
    even ask; all others hear that there is no secret key for tokens."""
    if context.user == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, 0
