"""The client's side of the SASL mechanisms: the tokens that it sends and accepts."""

from __future__ import annotations

import pytest

from odradek_client.errors import AuthenticationFailed
from odradek_client.sasl.exchanges import (
    OAuthBearerExchange,
    Password,
    PlainExchange,
    ScramExchange,
)
from odradek_client.sasl.tokens import Token
from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.sasl.scram import ScramMechanism

ALICE = Password("alice", "secret", "the settings")
#: The nonce in the example of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def rfc_exchange() -> ScramExchange:
    return ScramExchange(ScramMechanism.SHA_256, Password("user", "pencil", "x"), NONCE)


def test_c72_scram_follows_the_example_of_rfc7677() -> None:
    exchange = rfc_exchange()
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.answer(SERVER_FIRST) == PROOF
    assert exchange.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize(
    ("final", "words"),
    [
        (b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "signature is wrong"),
        (b"v=", "signature is wrong"),
        (b"e=unknown-user", "refuses user 'user': unknown-user; check x"),
    ],
)
def test_c72_a_wrong_scram_server_signature_is_refused(final: bytes, words: str) -> None:
    exchange = rfc_exchange()
    exchange.answer(SERVER_FIRST)
    with pytest.raises(AuthenticationFailed, match=words):
        exchange.answer(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"s=W22Z", b"s=!"),
        SERVER_FIRST.replace(b"i=4096", b"i=-1"),
        SERVER_FIRST.replace(b"i=4096", b"i=99999999999999999999"),
        b"\xff",
    ],
)
def test_c72_an_invalid_first_scram_answer_is_an_error(first: bytes) -> None:
    with pytest.raises(SaslMessageError):
        rfc_exchange().answer(first)


def test_a_delegation_token_is_marked_in_the_scram_exchange() -> None:
    token = Password("id", "hmac", "x", is_delegation_token=True)
    exchange = ScramExchange(ScramMechanism.SHA_512, token, "abc")
    assert exchange.first() == b"n,,n=id,r=abc,tokenauth=true"
    assert exchange.who == "delegation token 'id'"
    assert "has expired or was ended" in exchange.advice
    assert "get another token, as with `odradek token create`" in exchange.advice


def test_plain_sends_the_name_and_password() -> None:
    exchange = PlainExchange(ALICE)
    assert exchange.first() == b"\0alice\0secret" and exchange.answer(b"") is None


def test_oauthbearer_ends_after_an_error_of_the_broker() -> None:
    exchange = OAuthBearerExchange(Token("abc", extensions={"a": "b"}), "the place", 0)
    assert exchange.first() == b"n,,\x01auth=Bearer abc\x01a=b\x01\x01"
    assert exchange.answer(b'{"status":"invalid_token"}') == b"\x01"
    assert exchange.who == "the token as 'invalid_token'"
    assert OAuthBearerExchange(Token("abc"), "", 0).answer(b"") is None
    for odd in (b"no JSON", b"[1]", b'{"status": 5}', b"[" * 10_000):
        other = OAuthBearerExchange(Token("abc"), "", 0)
        assert other.answer(odd) == b"\x01" and other.who == "the token"


def test_a_token_that_has_expired_is_named() -> None:
    assert "has expired" in OAuthBearerExchange(Token("abc", 1000), "x", 1000).advice
    assert "has expired" not in OAuthBearerExchange(Token("abc", 1000), "x", 999).advice
