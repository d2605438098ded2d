"""PLAIN: name and password, in one message (RFC 4616)."""

from __future__ import annotations

from dataclasses import field

from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.sasl.errors import SaslMessageError

MECHANISM = "PLAIN"
_PARTS = 3


@dataclass(frozen=True)
class PlainMessage:
    """The client's only message. `authorization_id`: the user that the client wants to act as;
    empty for the authenticated user."""

    username: str
    password: str = field(repr=False)
    authorization_id: str = ""

    def encode(self) -> bytes:
        """The bytes of the token. Raises SaslMessageError for invalid names and passwords."""
        parts = self.authorization_id, self.username, self.password
        if any("\0" in part for part in parts):
            raise SaslMessageError("user names and passwords of PLAIN cannot have a NUL character")
        return "\0".join(parts).encode()


def parse_plain(token: bytes) -> PlainMessage:
    """The message in a client's token. Raises SaslMessageError with Kafka's text for an invalid
    token."""
    try:
        parts = token.decode().split("\0", _PARTS)
    except UnicodeDecodeError:
        raise SaslMessageError("Invalid SASL/PLAIN response: it is no UTF-8") from None
    if len(parts) != _PARTS:
        raise SaslMessageError(
            f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}"
        )
    authorization_id, username, password = parts
    if not username:
        raise SaslMessageError("Authentication failed: username not specified")
    if not password:
        raise SaslMessageError("Authentication failed: password not specified")
    return PlainMessage(username, password, authorization_id)
