"""SaslHandshake (key 17): the mechanism by which a client wants to authenticate (KIP-43).

Versions: after a handshake in version 0 tokens are sent as bare frames; after one in version 1 they
are sent in SaslAuthenticate requests (KIP-152).

Of note: after authentication, and at listeners without SASL, the answer is ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, array, field
from odradek_protocol.primitives import INT16, STRING

#: From this version on tokens are sent in SaslAuthenticate requests; before it, as bare frames.
TOKENS_IN_REQUESTS_SINCE = 1


@api_message(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeRequest(Message):
    mechanism: str = field(STRING)


@api_message(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeResponse(Message):
    """The response. `mechanisms`: the mechanisms that the listener accepts."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
