"""SaslAuthenticate (key 36): one token of a SASL exchange (KIP-152).

Versions: the answer of 1 has the lifetime of the session, and a client that uses 1 can authenticate
again (KIP-368); 2 is flexible.

Of note: after authentication, and at listeners without SASL, the answer is ILLEGAL_SASL_STATE. A
token of SCRAM has at most 12,288 bytes, one of OAUTHBEARER 131,072 and 100 attributes; Kafka takes
any that fits into a request, and never answers to a name of thousands of characters. An attribute
that stands twice, or half a surrogate pair in a token, is refused; Kafka accepts both.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, field
from odradek_protocol.primitives import BYTES, INT16, INT64, STRING


@api_message(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = field(BYTES, secret=True)


@api_message(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateResponse(Message):
    """The response. `session_lifetime_ms`: time until the client has to authenticate again; 0 means
    that it never has to."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    auth_bytes: bytes = field(BYTES, secret=True)
    session_lifetime_ms: int = field(INT64, "1+", ignorable=True)
