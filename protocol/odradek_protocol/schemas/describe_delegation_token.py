"""DescribeDelegationToken (key 41): the existing tokens (KIP-48, KIP-373).

Versions: 2 is flexible; 3 has the user that requested a token.
"""

from __future__ import annotations

from odradek_protocol.common_structs import TokenPrincipal
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BYTES, INT16, INT32, INT64, STRING

#: From this version on the answer has the user that requested a token.
REQUESTER_SINCE = 3


@api_message(ApiKey.DESCRIBE_DELEGATION_TOKEN)
class DescribeDelegationTokenRequest(Message):
    """The request. `owners` null: the tokens of all users."""

    owners: list[TokenPrincipal] | None = field(array(TokenPrincipal), nullable="0+")


class DescribedDelegationToken(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, "3+")
    token_requester_principal_name: str = field(STRING, "3+")
    issue_timestamp: int = field(INT64)
    expiry_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES, secret=True)
    renewers: list[TokenPrincipal] = field(array(TokenPrincipal))


@api_message(ApiKey.DESCRIBE_DELEGATION_TOKEN)
class DescribeDelegationTokenResponse(Message):
    error_code: int = field(INT16)
    tokens: list[DescribedDelegationToken] = field(array(DescribedDelegationToken))
    throttle_time_ms: int = field(INT32)
