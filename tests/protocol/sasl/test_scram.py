"""SCRAM with the example of RFC 7677, and with malformed messages."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.sasl.scram import (
    ClientFinal,
    ClientFirst,
    ScramMechanism,
    ServerFinal,
    ServerFirst,
    auth_message,
    client_proof,
    escape_name,
    new_credential,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
    proof_is_right,
    salted_password,
    server_signature,
    server_signature_of_password,
    unescape_name,
)

# RFC 7677, section 3: user "user", password "pencil".
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

SHA_256 = ScramMechanism.SHA_256


def test_the_messages_of_a_client_equal_the_rfcs_example() -> None:
    first = ClientFirst("user", "rOprNGfwEbeRWgbNEkqO")
    assert first.encode() == CLIENT_FIRST
    server = parse_server_first(SERVER_FIRST)
    salted = salted_password(SHA_256, "pencil", server.salt, server.iterations)
    final = ClientFinal(server.nonce)
    signed = auth_message(first, server, final)
    final = ClientFinal(server.nonce, client_proof(SHA_256, salted, signed))
    assert final.encode() == CLIENT_FINAL
    expected = server_signature_of_password(SHA_256, salted, signed)
    assert parse_server_final(SERVER_FINAL).signature == expected


def test_the_messages_of_a_server_equal_the_rfcs_example() -> None:
    first = parse_client_first(CLIENT_FIRST)
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = new_credential(SHA_256, "pencil", salt, 4096)
    server = ServerFirst(first.nonce + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", salt, 4096)
    assert server.encode() == SERVER_FIRST
    final = parse_client_final(CLIENT_FINAL)
    assert (final.nonce, final.header) == (server.nonce, first.header)
    signed = auth_message(first, server, final)
    assert proof_is_right(SHA_256, credential, signed, final.proof)
    signature = server_signature(SHA_256, credential.server_key, signed)
    assert ServerFinal(signature).encode() == SERVER_FINAL
    wrong = new_credential(SHA_256, "pencils", salt, 4096)
    assert not proof_is_right(SHA_256, wrong, signed, final.proof)
    assert not proof_is_right(SHA_256, credential, signed, final.proof[:-1])


def test_extensions_and_authorization_id_are_kept_as_received() -> None:
    token = b"n,a=b=3Db,n=a=2Cz,r=xyz,tokenauth=true,other=1=2"
    first = parse_client_first(token)
    assert (first.username, first.authorization_id) == ("a,z", "b=b")
    assert first.extensions == {"tokenauth": "true", "other": "1=2"}
    assert first.encode() == token
    made = ClientFirst("a,z", "xyz", "b=b", {"tokenauth": "true", "other": "1=2"})
    assert made.encode() == token


@given(st.text(min_size=1).filter(lambda text: "\0" not in text and text.isprintable()))
def test_every_printable_name_is_escaped_and_read_again(name: str) -> None:
    assert unescape_name(escape_name(name)) == name
    assert parse_client_first(ClientFirst(name, "n").encode()).username == name


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,n=user",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=abc,tokenauth",
        b"n,,n=user,r=abc\xff",
        b" n,,n=user,r=abc",
    ],
)
def test_an_invalid_client_first_message_is_refused(token: bytes) -> None:
    with pytest.raises(SaslMessageError, match="client first"):
        parse_client_first(token)


def test_n57_messages_are_too_short_to_hold_the_loop() -> None:
    name = "\U0001f642" * 1_024
    longest = ClientFirst(name, "a" * 100, name).encode()
    assert parse_client_first(longest).username == name
    for token in (
        b"n,,n=" + b"x" * 12_288 + b",r=abc",
        b"n,a=" + b"=2C" * 4_096 + b",n=x,r=abc",
        b"n,,n=x,r=" + b"a" * 12_288,
        b"n,,n=x,r=abc" + b",a=b" * 3_072,
    ):
        with pytest.raises(SaslMessageError, match="client first"):
            parse_client_first(token)
    with pytest.raises(SaslMessageError, match="client final"):
        parse_client_final(b"c=biws,r=a,p=" + b"AAAA" * 3_072)


@pytest.mark.parametrize(
    "token", [b"", b"r=a,s=AA==", b"r=a,s=A,i=4096", b"r=a,s=AA==,i=-1", b"r=a,s=AA==,i=0"]
)
def test_an_invalid_server_first_message_is_refused(token: bytes) -> None:
    with pytest.raises(SaslMessageError, match="server first"):
        parse_server_first(token)


@pytest.mark.parametrize(
    "token", [b"", b"c=biws,r=a", b"c=biws,r=a,p=A", b"c=/w==,r=a,p=AA==", b"r=a,c=biws,p=AA=="]
)
def test_an_invalid_client_final_message_is_refused(token: bytes) -> None:
    with pytest.raises(SaslMessageError, match="client final"):
        parse_client_final(token)


def test_a_server_final_message_may_have_an_error() -> None:
    assert parse_server_final(b"e=unknown-user").error == "unknown-user"
    assert parse_server_final(ServerFinal(error="other-error").encode()).error == "other-error"
    with pytest.raises(SaslMessageError, match="server final"):
        parse_server_final(b"v=*")


def test_credentials_show_no_keys() -> None:
    shown = repr(new_credential(SHA_256, "pencil", b"salt", 4096))
    assert shown == "ScramCredential(iterations=4096)"
    assert "xyz" not in repr(ClientFinal("n", b"xyz"))
