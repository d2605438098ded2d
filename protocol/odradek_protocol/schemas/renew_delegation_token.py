"""RenewDelegationToken (key 39): sets a later expiry of a token (KIP-48).

Versions: 2 is flexible.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, field
from odradek_protocol.primitives import BYTES, INT16, INT32, INT64


@api_message(ApiKey.RENEW_DELEGATION_TOKEN)
class RenewDelegationTokenRequest(Message):
    hmac: bytes = field(BYTES, secret=True)
    renew_period_ms: int = field(INT64)


@api_message(ApiKey.RENEW_DELEGATION_TOKEN)
class RenewDelegationTokenResponse(Message):
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
