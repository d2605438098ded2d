"""PLAIN and OAUTHBEARER: encoded messages are decoded again, and malformed ones are refused."""

from __future__ import annotations

import pytest

from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.sasl.oauthbearer import (
    OAuthBearerMessage,
    check_extensions,
    parse_oauthbearer,
)
from odradek_protocol.sasl.plain import PlainMessage, parse_plain


def test_a_plain_message_has_authorization_id_user_and_password() -> None:
    message = PlainMessage("alice", "größe=,", "bob")
    assert message.encode() == b"bob\0alice\0gr\xc3\xb6\xc3\x9fe=,"
    assert parse_plain(message.encode()) == message
    assert "größe" not in repr(message)


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0alice\0\xff", "no UTF-8"),
    ],
)
def test_an_invalid_plain_message_is_refused(token: bytes, problem: str) -> None:
    with pytest.raises(SaslMessageError, match=problem):
        parse_plain(token)


def test_a_plain_message_with_nul_is_refused() -> None:
    with pytest.raises(SaslMessageError, match="NUL"):
        PlainMessage("a\0b", "c").encode()


def test_an_oauthbearer_message_has_a_token_and_extensions() -> None:
    message = OAuthBearerMessage("ab.cd.ef=", "", {"trace": "a=b, c"})
    assert message.encode() == b"n,,\x01auth=Bearer ab.cd.ef=\x01trace=a=b, c\x01\x01"
    assert parse_oauthbearer(message.encode()) == message
    assert "ab.cd" not in repr(message)
    named = OAuthBearerMessage("t", "a,b=c")
    assert named.encode().startswith(b"n,a=a=2Cb=3Dc,\x01")
    assert parse_oauthbearer(named.encode()) == named


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,auth=Bearer t\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01auth=Bearer t\x01tr4ce=x\x01\x01",
        b"n,,\x01auth=Bearer t\x01trace=\xc3\xb6\x01\x01",
        b"n,,\x01auth=Bearer t\x01\x01 ",
        b"n,,\x01auth=Bearer t\x01" + b"a=\x01" * 100 + b"\x01",
        b"n,a=" + b"x" * 131_072 + b",\x01auth=Bearer t\x01\x01",
        b"\xff",
    ],
)
def test_an_invalid_oauthbearer_message_is_refused(data: bytes) -> None:
    with pytest.raises(SaslMessageError, match="OAUTHBEARER"):
        parse_oauthbearer(data)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [("auth", "x", "name auth"), ("a1", "x", "letters"), ("a", "\x01", "forbidden")],
)
def test_invalid_extensions_are_refused(name: str, value: str, problem: str) -> None:
    with pytest.raises(SaslMessageError, match=problem):
        check_extensions({name: value})


def test_an_invalid_token_is_refused_without_being_shown() -> None:
    with pytest.raises(SaslMessageError, match="token") as raised:
        OAuthBearerMessage("secret token").encode()
    assert "secret" not in str(raised.value)
