"""The four messages of SCRAM (RFC 5802, section 7), parsed and written.

A client sends `ClientFirst`, gets `ServerFirst`, sends `ClientFinal` and gets `ServerFinal`.
Channel binding and mandatory extensions are refused, as both sides of Kafka do; `tokenauth=true`
says that the name is that of a delegation token (KIP-48).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_protocol.sasl.errors import SaslMessageError

#: Kafka's extension of the first message.
TOKEN_AUTHENTICATION = "tokenauth"
#: c= of a client without channel binding and without an authorization id.
_PLAIN_HEADER = "n,,"

# The parts of RFC 5802's grammar. Names may have any character besides those that are escaped.
_NAME = r"(?:[^\0=,]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE = r"[^\0,]+"
_BASE64 = r"(?:[a-zA-Z0-9+/]{4})*(?:[a-zA-Z0-9+/]{3}=|[a-zA-Z0-9+/]{2}==)?"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"

_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})",
    re.DOTALL,
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,8}}){_EXTENSIONS}",
    re.DOTALL,
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})",
    re.DOTALL,
)
_SERVER_FINAL = re.compile(
    rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}", re.DOTALL
)


def escape_name(name: str) -> str:
    """A user name as a saslname."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(escaped: str) -> str:
    """The user name of a saslname, which the grammar has checked."""
    return escaped.replace("=2C", ",").replace("=3D", "=")


@dataclass(frozen=True)
class ClientFirst:
    """The client's first message: the user, and the client's half of the nonce."""

    username: str
    nonce: str
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    #: The message without its header, as it came; made where it is empty.
    received_bare: str = ""

    @property
    def header(self) -> str:
        """The GS2 header, which the final message repeats."""
        wanted = self.authorization_id
        return f"n,a={escape_name(wanted)}," if wanted else _PLAIN_HEADER

    @property
    def bare(self) -> str:
        """The part that is signed."""
        extensions = "".join(f",{name}={value}" for name, value in self.extensions.items())
        return self.received_bare or f"n={escape_name(self.username)},r={self.nonce}{extensions}"

    def encode(self) -> bytes:
        """The bytes of the token."""
        return (self.header + self.bare).encode()


@dataclass(frozen=True)
class ServerFirst:
    """With what the password was salted. `nonce`: the client's half and the server's."""

    nonce: str
    salt: bytes
    iterations: int
    #: The message as it came; made where it is empty.
    received: str = ""

    @property
    def text(self) -> str:
        """The message, all of which is signed."""
        return self.received or f"r={self.nonce},s={_base64(self.salt)},i={self.iterations}"

    def encode(self) -> bytes:
        """The bytes of the token."""
        return self.text.encode()


@dataclass(frozen=True)
class ClientFinal:
    """The client's final message: the proof that it knows the password. `header`: the GS2 header of
    its first message."""

    nonce: str
    proof: bytes = field(default=b"", repr=False)
    header: str = _PLAIN_HEADER
    #: The message without its proof, as it came; made where it is empty.
    received_without_proof: str = ""

    @property
    def without_proof(self) -> str:
        """The part that is signed."""
        made = f"c={_base64(self.header.encode())},r={self.nonce}"
        return self.received_without_proof or made

    def encode(self) -> bytes:
        """The bytes of the token."""
        return f"{self.without_proof},p={_base64(self.proof)}".encode()


@dataclass(frozen=True)
class ServerFinal:
    """The server's final message: the `signature` that proves that it has the credential, or the
    `error` that ends the exchange."""

    signature: bytes = b""
    error: str = ""

    def encode(self) -> bytes:
        """The bytes of the token."""
        return (f"e={self.error}" if self.error else f"v={_base64(self.signature)}").encode()


def auth_message(first: ClientFirst, server: ServerFirst, final: ClientFinal) -> bytes:
    """The bytes that both sides sign."""
    return f"{first.bare},{server.text},{final.without_proof}".encode()


# --- Parsing --------------------------------------------------------------------------------------


def parse_client_first(token: bytes) -> ClientFirst:
    """SaslMessageError for anything else."""
    found = _match(_CLIENT_FIRST, token, "Invalid SCRAM client first message format")
    return ClientFirst(
        unescape_name(found["name"]),
        found["nonce"],
        unescape_name(found["authorization_id"] or ""),
        _extensions(found["extensions"]),
        found["bare"],
    )


def parse_server_first(token: bytes) -> ServerFirst:
    """SaslMessageError for anything else."""
    found = _match(_SERVER_FIRST, token, "Invalid SCRAM server first message format")
    salt = base64.b64decode(found["salt"])
    return ServerFirst(found["nonce"], salt, int(found["iterations"]), found[0])


def parse_client_final(token: bytes) -> ClientFinal:
    """SaslMessageError for anything else."""
    found = _match(_CLIENT_FINAL, token, "Invalid SCRAM client final message format")
    try:
        header = base64.b64decode(found["binding"]).decode()
    except UnicodeDecodeError:
        raise SaslMessageError("Invalid SCRAM client final message format") from None
    proof = base64.b64decode(found["proof"])
    return ClientFinal(found["nonce"], proof, header, found["without_proof"])


def parse_server_final(token: bytes) -> ServerFinal:
    """SaslMessageError for anything else."""
    found = _match(_SERVER_FINAL, token, "Invalid SCRAM server final message format")
    if found["error"]:
        return ServerFinal(error=found["error"])
    return ServerFinal(base64.b64decode(found["signature"]))


def _match(pattern: re.Pattern[str], token: bytes, problem: str) -> re.Match[str]:
    try:
        found = pattern.fullmatch(token.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise SaslMessageError(problem)
    return found


def _extensions(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split(",") if each)
    return {name: value for name, _, value in pairs}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
