"""SCRAM-SHA-256 and SCRAM-SHA-512, both sides (RFC 5802, RFC 7677, KIP-84).

    ScramClient                                          ScramServer
    first            n=user,r=nonce                   >  receive_first
    receive_first    r=both nonces,s=salt,i=count     <  challenge
    prove            c=header,r=both nonces,p=proof   >  receive_final
    receive_final    v=signature, or e=error          <  signature

As in Kafka, names and passwords are used unchanged, in UTF-8, without SASLprep. Channel binding and
mandatory extensions are refused, as in Kafka; `tokenauth=true` means that the name is that of a
delegation token (KIP-48).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from enum import Enum

from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.sasl.errors import SaslMessageError

#: Kafka's limits of iterations (KIP-554).
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384


# --- keys -----------------------------------------------------------------------------------------


class ScramMechanism(Enum):
    """A SCRAM mechanism of Kafka: its name, its number in requests, its hash function."""

    SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, mechanism: str, number: int, hash_name: str) -> None:
        self.mechanism = mechanism
        self.number = number
        self.hash_name = hash_name
        self.key_bytes: int = hashlib.new(hash_name).digest_size

    @classmethod
    def of_name(cls, mechanism: str) -> ScramMechanism | None:
        return next((each for each in cls if each.mechanism == mechanism), None)

    @classmethod
    def of_number(cls, number: int) -> ScramMechanism | None:
        return next((each for each in cls if each.number == number), None)


@dataclass(frozen=True)
class ScramCredential:
    """The values that a broker stores instead of a password. With the server key one can
    impersonate the broker to the user."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Hi() of RFC 5802, that is PBKDF2. Takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, data).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential that a broker stores, from a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    server_key = _hmac(mechanism, salted, b"Server Key")
    return ScramCredential(salt, _hash(mechanism, client_key), server_key, iterations)


def new_credential(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """The credential that a broker stores, from a password."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """The proof that a client knows the password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    signature = _hmac(mechanism, _hash(mechanism, client_key), auth_message)
    return _xor(client_key, signature)


def proof_is_right(
    mechanism: ScramMechanism, credential: ScramCredential, auth_message: bytes, proof: bytes
) -> bool:
    """True if a client's proof matches this credential; the comparison takes the same time for
    every proof."""
    if len(proof) != mechanism.key_bytes or len(credential.stored_key) != mechanism.key_bytes:
        return False
    signature = _hmac(mechanism, credential.stored_key, auth_message)
    client_key = _xor(proof, signature)
    return hmac.compare_digest(_hash(mechanism, client_key), credential.stored_key)


def server_signature(mechanism: ScramMechanism, server_key: bytes, auth_message: bytes) -> bytes:
    """The proof that a broker has the user's credential."""
    return _hmac(mechanism, server_key, auth_message)


def server_signature_of_password(
    mechanism: ScramMechanism, salted: bytes, auth_message: bytes
) -> bytes:
    """The server signature that a client expects."""
    return server_signature(mechanism, _hmac(mechanism, salted, b"Server Key"), auth_message)


#: Kafka's extension of the first message.
TOKEN_AUTHENTICATION = "tokenauth"

#: The c= attribute of a client without channel binding and without an authorization id.
_PLAIN_HEADER = "n,,"

# --- messages -------------------------------------------------------------------------------------

#: The maximum length of a message: room for two names of 1,024 characters. Longer messages would
#: take long to parse, and clients that have not authenticated may send them.
MESSAGE_BYTES_MAX = 12_288

# The parts of RFC 5802's grammar. Names may have any character; some are escaped.
_NAME = r"(?:[^\0=,]++|=2C|=3D)++"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE = r"[^\0,]+"
_BASE64 = r"(?:[a-zA-Z0-9+/]{4})*+(?:[a-zA-Z0-9+/]{3}=|[a-zA-Z0-9+/]{2}==)?"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"

# The patterns are compiled by `re` at their first use, because most listeners have no SASL.
_CLIENT_FIRST = (
    rf"(?P<header>n,(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST = (
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,8}}){_EXTENSIONS}"
)
_CLIENT_FINAL = rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
_SERVER_FINAL = rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}"


def escape_name(name: str) -> str:
    """A user name as a saslname."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(escaped: str) -> str:
    """The user name in a saslname. The grammar has already checked the saslname."""
    return escaped.replace("=2C", ",").replace("=3D", "=")


@dataclass(frozen=True)
class ClientFirst:
    """The client's first message: the user, and the client's half of the nonce."""

    username: str
    nonce: str
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    #: The message as received, without its header; empty in a message that is to be sent.
    received_bare: str = ""

    @property
    def header(self) -> str:
        """The GS2 header. The client's final message repeats it."""
        wanted = self.authorization_id
        return f"n,a={escape_name(wanted)}," if wanted else _PLAIN_HEADER

    @property
    def bare(self) -> str:
        """The part of the message that is signed."""
        extensions = "".join(f",{name}={value}" for name, value in self.extensions.items())
        return self.received_bare or f"n={escape_name(self.username)},r={self.nonce}{extensions}"

    def encode(self) -> bytes:
        return (self.header + self.bare).encode()


@dataclass(frozen=True)
class ServerFirst:
    """The server's first message: the user's salt. `nonce`: the client's half and the server's."""

    nonce: str
    salt: bytes
    iterations: int
    #: The message as received; empty in a message that is to be sent.
    received: str = ""

    @property
    def text(self) -> str:
        """The text of the message. The signatures cover all of it."""
        return self.received or f"r={self.nonce},s={_base64(self.salt)},i={self.iterations}"

    def encode(self) -> bytes:
        return self.text.encode()


@dataclass(frozen=True)
class ClientFinal:
    """The client's final message: the proof that it knows the password. `header`: the GS2 header of
    the client's first message."""

    nonce: str
    proof: bytes = field(default=b"", repr=False)
    header: str = _PLAIN_HEADER
    #: The message as received, without its proof; empty in a message that is to be sent.
    received_without_proof: str = ""

    @property
    def without_proof(self) -> str:
        """The part of the message that is signed."""
        made = f"c={_base64(self.header.encode())},r={self.nonce}"
        return self.received_without_proof or made

    def encode(self) -> bytes:
        return f"{self.without_proof},p={_base64(self.proof)}".encode()


@dataclass(frozen=True)
class ServerFinal:
    """The server's final message: the `signature` that proves that the server has the credential,
    or the `error` that ends the exchange."""

    signature: bytes = b""
    error: str = ""

    def encode(self) -> bytes:
        return (f"e={self.error}" if self.error else f"v={_base64(self.signature)}").encode()


def auth_message(first: ClientFirst, server: ServerFirst, final: ClientFinal) -> bytes:
    """The bytes that both sides sign."""
    return f"{first.bare},{server.text},{final.without_proof}".encode()


# --- parsing --------------------------------------------------------------------------------------


def parse_client_first(token: bytes) -> ClientFirst:
    """The message in a client's first token. Raises SaslMessageError."""
    found = _match(_CLIENT_FIRST, token, "Invalid SCRAM client first message format")
    return ClientFirst(
        unescape_name(found["name"]),
        found["nonce"],
        unescape_name(found["authorization_id"] or ""),
        _extensions(found["extensions"]),
        found["bare"],
    )


def parse_server_first(token: bytes) -> ServerFirst:
    """The message in a server's first token. Raises SaslMessageError."""
    found = _match(_SERVER_FIRST, token, "Invalid SCRAM server first message format")
    salt = base64.b64decode(found["salt"])
    return ServerFirst(found["nonce"], salt, int(found["iterations"]), found[0])


def parse_client_final(token: bytes) -> ClientFinal:
    """The message in a client's final token. Raises SaslMessageError."""
    found = _match(_CLIENT_FINAL, token, "Invalid SCRAM client final message format")
    try:
        header = base64.b64decode(found["binding"]).decode()
    except UnicodeDecodeError:
        raise SaslMessageError("Invalid SCRAM client final message format") from None
    proof = base64.b64decode(found["proof"])
    return ClientFinal(found["nonce"], proof, header, found["without_proof"])


def parse_server_final(token: bytes) -> ServerFinal:
    """The message in a server's final token. Raises SaslMessageError."""
    found = _match(_SERVER_FINAL, token, "Invalid SCRAM server final message format")
    if found["error"]:
        return ServerFinal(error=found["error"])
    return ServerFinal(base64.b64decode(found["signature"]))


def _match(pattern: str, token: bytes, problem: str) -> re.Match[str]:
    found = None
    if len(token) <= MESSAGE_BYTES_MAX:
        with suppress(UnicodeDecodeError):
            found = re.fullmatch(pattern, token.decode(), re.DOTALL)
    if found is None:
        raise SaslMessageError(problem)
    return found


def _extensions(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split(",") if each)
    return {name: value for name, _, value in pairs}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- the two sides --------------------------------------------------------------------------------


class ScramState(Enum):
    """The states of an exchange, for the client and for the broker. Each message of the peer
    changes the state."""

    FIRST = "waits for the first message"
    FINAL = "waits for the final message"
    ENDED = "is over"


_NEXT = {ScramState.FIRST: ScramState.FINAL, ScramState.FINAL: ScramState.ENDED}


class _Side:
    """The common part of both sides of an exchange. Each message of the peer, accepted or not,
    leads to the next state."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.mechanism = mechanism
        self.state = ScramState.FIRST
        self._first: ClientFirst
        self._server: ServerFirst

    def _receive(self, state: ScramState) -> None:
        if self.state is not state:
            raise RuntimeError(f"this exchange {self.state.value}")
        self.state = _NEXT[state]

    def end(self) -> None:
        """Accept no more messages."""
        self.state = ScramState.ENDED


class ScramServer(_Side):
    """The broker's side: `receive_first`, `challenge`, `receive_final`, `signature`."""

    _credential: ScramCredential
    _signed: bytes

    def receive_first(self, token: bytes) -> ClientFirst:
        """Take the client's first message. Raises SaslMessageError."""
        self._receive(ScramState.FIRST)
        self._first = parse_client_first(token)
        return self._first

    def challenge(self, credential: ScramCredential, nonce: str) -> bytes:
        """The answer to the first message. `nonce`: the server's half, printable, without commas,
        and new each time."""
        self._credential = credential
        self._server = ServerFirst(
            self._first.nonce + nonce, credential.salt, credential.iterations
        )
        return self._server.encode()

    def receive_final(self, token: bytes) -> bool:
        """Take the client's final message; True if its proof matches the credential. Raises
        SaslMessageError."""
        self._receive(ScramState.FINAL)
        final = parse_client_final(token)
        name = self.mechanism.mechanism
        if final.nonce != self._server.nonce:
            raise SaslMessageError(f"{name}: another nonce in the final message")
        if final.header != self._first.header:
            raise SaslMessageError(f"{name}: another header in the final message")
        self._signed = auth_message(self._first, self._server, final)
        return proof_is_right(self.mechanism, self._credential, self._signed, final.proof)

    def signature(self) -> bytes:
        """The answer to a final message with a valid proof."""
        key = self._credential.server_key
        return ServerFinal(server_signature(self.mechanism, key, self._signed)).encode()


class ScramClient(_Side):
    """The client's side: `receive_first`, `prove`, `receive_final`."""

    _signature: bytes

    def __init__(self, mechanism: ScramMechanism, first: ClientFirst) -> None:
        super().__init__(mechanism)
        self._first = first

    def receive_first(self, token: bytes) -> ServerFirst:
        """Take the server's first message. Raises SaslMessageError."""
        self._receive(ScramState.FIRST)
        server = parse_server_first(token)
        if not server.nonce.startswith(self._first.nonce) or server.nonce == self._first.nonce:
            raise SaslMessageError("the broker's nonce is not made from ours")
        self._server = server
        return server

    def prove(self, password: str) -> bytes:
        """The answer to the server's first message. Takes milliseconds."""
        server, header = self._server, self._first.header
        salted = salted_password(self.mechanism, password, server.salt, server.iterations)
        signed = auth_message(self._first, server, ClientFinal(server.nonce, header=header))
        self._signature = server_signature_of_password(self.mechanism, salted, signed)
        proof = client_proof(self.mechanism, salted, signed)
        return ClientFinal(server.nonce, proof, header).encode()

    def receive_final(self, token: bytes) -> tuple[bool, str]:
        """Take the server's final message. Returns (true if the message proves that the server has
        the credential, the server's error or an empty text). Raises SaslMessageError."""
        self._receive(ScramState.FINAL)
        final = parse_server_final(token)
        return hmac.compare_digest(final.signature, self._signature), final.error
