"""The inputs of a client that authenticates: SASL messages of brokers, answers of token endpoints,
tokens, JAAS configurations.

The first byte of an input chooses its kind. The client must not accept a broker that does not know
the password.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.adversity.fuzz.conversation import framed, split
from tests.adversity.fuzz.target import Broken, Target

from odradek_client.errors import AuthenticationFailed
from odradek_client.sasl import token_endpoint
from odradek_client.sasl.exchanges import OAuthBearerExchange, Password, ScramExchange
from odradek_client.sasl.settings import TokenEndpoint
from odradek_client.sasl.token_endpoint import EndpointBusy
from odradek_client.sasl.tokens import RefreshWindow, Token, token_of
from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.sasl.jaas import JaasError, parse_jaas
from odradek_protocol.sasl.oauthbearer import ABORT
from odradek_protocol.sasl.scram import ScramMechanism

#: A random password, which no input contains.
_PASSWORD = Password("alice", "h3p8-of-nobody-who-asks-here", "the settings")
_NONCE = "rOprNGfwEbeRWgbNEkqO"
_ENDPOINT = TokenEndpoint(url="https://identity.example.org/token")
_STATUSES = (200, 200, 200, 302, 400, 401, 500, 503)


def _scram(data: bytes) -> None:
    exchange = ScramExchange(ScramMechanism.SHA_256, _PASSWORD, _NONCE)
    exchange.first()
    for token in split(data):
        if isinstance(token, bytes) and exchange.answer(token) is None:
            raise Broken("a broker is believed that does not know the password")


def _bearer(data: bytes) -> None:
    exchange = OAuthBearerExchange(Token("token"), "the settings", 0)
    for token in split(data):
        if isinstance(token, bytes):
            expected = ABORT if token else None
            if exchange.answer(token) != expected:
                raise Broken("an error of the broker is not taken as one")


def _endpoint(data: bytes) -> None:
    status = _STATUSES[data[0] % len(_STATUSES)] if data else 200
    value, lasts_s = token_endpoint._token_in(_ENDPOINT, status, "Said", data[1:])
    if status != 200:
        raise Broken(f"a token from an answer with {status}")
    ends_ms = None if lasts_s is None else lasts_s * 1000
    RefreshWindow().refresh_ms(token_of(value, ends_ms), 0, 0.5)


def _token(data: bytes) -> None:
    token = token_of(data.decode("utf-8", "replace"))
    RefreshWindow().refresh_ms(token, 0, 0.5)


def _jaas(data: bytes) -> None:
    for module in parse_jaas(data.decode("utf-8", "replace")):
        assert module.name and module.short_name in module.name


_KINDS = (_scram, _bearer, _endpoint, _token, _jaas)


def _check(data: bytes) -> None:
    if not data:
        return
    try:
        _KINDS[data[0] % len(_KINDS)](data[1:])
    except (AuthenticationFailed, SaslMessageError, EndpointBusy, JaasError) as error:
        if _PASSWORD.password in str(error):
            raise Broken("an error shows the password") from error


def _said(kind: int, *tokens: bytes) -> bytes:
    return bytes((kind,)) + b"".join(map(framed, tokens))


def _seeds() -> Iterator[bytes]:
    first = f"r={_NONCE}server,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    last = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    yield _said(0, first, last)
    yield _said(0, first, b"e=unknown-user")
    yield _said(0, first.replace(b"4096", b"4095"))
    yield _said(0, first + b",x=1", last + b",y=2")
    yield _said(1, b'{"status":"invalid_token","scope":"a"}')
    yield _said(1, b"")
    for status in (0, 4, 7):
        yield bytes((2, status)) + b'{"access_token":"a.e30.c","expires_in":3600}'
        yield bytes((2, status)) + b'{"error":"invalid_client","error_description":"no"}'
    yield b"\x03e30.eyJleHAiOjEwMCwiaWF0Ijo0MC41fQ.sig"
    yield b'\x04a.PlainLoginModule required username="alice" // who\n password="\\"\\101";'
    yield b"\x04/* two */ A required x=y; B optional;"


TARGET = Target(_check, _seeds)
