"""CreateDelegationToken (key 38): creates a token that authenticates a user (KIP-48, KIP-373).

Versions: 2 is flexible; 3 can create tokens for other users.
"""

from __future__ import annotations

from odradek_protocol.common_structs import TokenPrincipal
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, array, field
from odradek_protocol.primitives import BYTES, INT16, INT32, INT64, STRING

#: From this version on a token may be for a user other than the client's.
OWNER_SINCE = 3


@api_message(ApiKey.CREATE_DELEGATION_TOKEN)
class CreateDelegationTokenRequest(Message):
    owner_principal_type: str | None = field(STRING, "3+", nullable="3+")
    owner_principal_name: str | None = field(STRING, "3+", nullable="3+")
    renewers: list[TokenPrincipal] = field(array(TokenPrincipal))
    max_lifetime_ms: int = field(INT64)


@api_message(ApiKey.CREATE_DELEGATION_TOKEN)
class CreateDelegationTokenResponse(Message):
    error_code: int = field(INT16)
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, "3+")
    token_requester_principal_name: str = field(STRING, "3+")
    issue_timestamp_ms: int = field(INT64)
    expiry_timestamp_ms: int = field(INT64)
    max_timestamp_ms: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES, secret=True)
    throttle_time_ms: int = field(INT32)
