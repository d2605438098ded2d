"""OAUTHBEARER: a token, in one message (RFC 7628, KIP-255, KIP-342)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.sasl.errors import SaslMessageError

MECHANISM = "OAUTHBEARER"
#: The client's message after an error, with which the server ends the exchange.
ABORT = b"\x01"
#: The key under which the token is sent; no extension may have this key.
_AUTH = "auth"

#: The maximum length of a message, and the maximum number of its attributes. Longer messages would
#: take long to parse, and clients that have not authenticated may send them.
MESSAGE_BYTES_MAX = 131_072
_PAIRS_MAX = 100

_NAME = r"(?:[^\0\x01=,]++|=2C|=3D)++"
#: The syntax of a bearer token (RFC 6750).
_TOKEN = r"[-_.~+/A-Za-z0-9]+=*"
_PAIR_NAME = re.compile(r"[A-Za-z]+")
_PAIR_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")
_MESSAGE = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,\x01"
    rf"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01){{0,{_PAIRS_MAX}}})\x01"
)
_BEARER = re.compile(rf"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>{_TOKEN})")


@dataclass(frozen=True)
class OAuthBearerMessage:
    """The client's first message. `extensions`: additional attributes (KIP-342)."""

    token: str = field(repr=False)
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)

    def encode(self) -> bytes:
        """The bytes of the message. Raises SaslMessageError for an invalid token or extension."""
        if not re.fullmatch(_TOKEN, self.token):
            raise SaslMessageError("the token has characters that no bearer token has")
        check_extensions(self.extensions)
        wanted = self.authorization_id.replace("=", "=3D").replace(",", "=2C")
        header = f"n,a={wanted}," if wanted else "n,,"
        pairs = {_AUTH: f"Bearer {self.token}", **self.extensions}
        return "\x01".join(
            [header, *(f"{name}={value}" for name, value in pairs.items()), "\x01"]
        ).encode()


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise SaslMessageError, with the extension's name, for an invalid extension (KIP-342)."""
    for name, value in extensions.items():
        if name == _AUTH:
            raise SaslMessageError(f"no extension may have the name {_AUTH}")
        if not _PAIR_NAME.fullmatch(name):
            raise SaslMessageError(f"the name of the extension {name!r} must have letters only")
        if not _PAIR_VALUE.fullmatch(value):
            raise SaslMessageError(f"the value of the extension {name} has forbidden characters")


def parse_oauthbearer(data: bytes) -> OAuthBearerMessage:
    """The message in a client's first token. Raises SaslMessageError."""
    problem = SaslMessageError("Invalid OAUTHBEARER client first message")
    if len(data) > MESSAGE_BYTES_MAX:
        raise problem
    try:
        found = _MESSAGE.fullmatch(data.decode())
    except UnicodeDecodeError:
        raise problem from None
    if found is None:
        raise problem
    pairs = {}
    for pair in found["pairs"].split("\x01")[:-1]:
        name, _, value = pair.partition("=")
        if name in pairs:
            raise problem
        pairs[name] = value
    authorization = pairs.pop(_AUTH, None)
    if authorization is None:
        raise SaslMessageError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    bearer = _BEARER.fullmatch(authorization)
    if bearer is None:
        raise SaslMessageError(
            "Invalid OAUTHBEARER client first message: 'auth' is no bearer token"
        )
    wanted = (found["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
    return OAuthBearerMessage(bearer["token"], wanted, pairs)
