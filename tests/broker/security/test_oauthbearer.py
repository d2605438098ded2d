"""Tokens of OAUTHBEARER: the user of a token, and refused tokens."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from odradek_broker.config.sasl import SignedTokens, UnsecuredTokens
from odradek_broker.deferred import Deferred
from odradek_broker.security.oauthbearer import (
    OAuthBearerMechanism,
    SignedValidator,
    TokenRefused,
    UnsecuredValidator,
)
from odradek_broker.security.sasl import Authenticated, Challenge, SaslFailure
from odradek_broker.server.host import StartError
from odradek_broker.server.jwks import JwksError, JwksKeys, parse_jwks
from odradek_protocol.codec import encode_bytes
from odradek_protocol.sasl.oauthbearer import ABORT, OAuthBearerMessage
from odradek_protocol.schemas.sasl_authenticate import SaslAuthenticateResponse

NOW_S = 1_700_000_000
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60, "aud": "kafka", "iss": "https://i"}
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
SETTINGS = SignedTokens(
    jwks_url="file:///keys",
    refresh_ms=60_000,
    retry_backoff_ms=100,
    retry_backoff_max_ms=1_000,
    audiences=("kafka", "other"),
    issuer="https://i",
    scope_claim="scope",
    subject_claim="sub",
    clock_skew_s=30,
    algorithms=("RS256", "ES256"),
)


def public(key: Any, key_id: str | None) -> dict[str, Any]:
    algorithm: Any = jwt.algorithms.RSAAlgorithm if key is RSA_KEY else jwt.algorithms.ECAlgorithm
    found: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    return found | ({} if key_id is None else {"kid": key_id})


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


JWKS = jwks(public(RSA_KEY, "r"), public(EC_KEY, "e"))


class Keys:
    def __init__(self, data: bytes = JWKS) -> None:
        self.keys = parse_jwks(data)

    def key(self, key_id: str | None) -> Any:
        return next((each for each in self.keys if each.key_id == key_id), None)


def signed(key: Any = RSA_KEY, key_id: str = "r", algorithm: str = "RS256", **claims: Any) -> str:
    given = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={"kid": key_id})


def validator(**settings: Any) -> SignedValidator:
    made = SignedTokens(**{**vars(SETTINGS), **settings})
    return SignedValidator(made, Keys(), lambda: NOW_S * 1000)


def refusal(found: SignedValidator | UnsecuredValidator, token: str) -> str:
    with pytest.raises(TokenRefused) as raised:
        found.validate(token)
    assert token not in str(raised.value)
    return str(raised.value)


def test_a46_a_signed_token_has_a_user_and_an_expiry() -> None:
    expected = Authenticated("alice", expires_at_ms=(NOW_S + 60) * 1000)
    assert validator().validate(signed()) == expected
    assert validator().validate(signed(EC_KEY, "e", "ES256")) == expected
    assert validator().validate(signed(aud=["x", "other"])) == expected
    assert validator(audiences=(), issuer="").validate(signed(aud="x", iss="y")) == expected
    found = validator(subject_claim="email").validate(signed(email="a@b"))
    assert isinstance(found, Authenticated)
    assert found.user == "a@b"


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": True}, "exp is no time"),
        ({"exp": -1}, "exp is no time"),
        ({"exp": 10**400}, "exp is no time"),
        ({"iat": 10**400}, "iat is no time"),
        ({"exp": 1e999}, "exp is no time"),
        ({"iat": None}, "iat"),
        ({"iat": NOW_S + 31}, "issued in the future"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"aud": "x"}, "another audience"),
        ({"aud": None}, "aud"),
        ({"iss": "https://j"}, "another issuer"),
        ({"iss": None}, "iss"),
        ({"sub": None}, "no claim sub"),
        ({"sub": "  "}, "no claim sub"),
        ({"sub": "x" * 2000}, "characters"),
        ({"sub": "x\ud800"}, "half of a surrogate pair"),
        ({"scope": 5}, "scope"),
    ],
)
def test_a46_a_token_with_invalid_claims_is_refused(claims: dict[str, Any], problem: str) -> None:
    # PyJWT's own encoder refuses some of these claims.
    header = {"alg": "RS256", "kid": "r", "typ": "JWT"}
    given = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    token = jwt.PyJWS().encode(json.dumps(given).encode(), RSA_KEY, "RS256", header)
    assert problem in refusal(validator(), token)


def test_a46_times_of_a_token_may_differ_by_the_clock_skew() -> None:
    apart: list[dict[str, Any]] = [{"exp": NOW_S - 29}, {"nbf": NOW_S + 29}, {"iat": NOW_S + 29}]
    for claims in apart:
        assert isinstance(validator().validate(signed(**claims)), Authenticated)


def test_a46_a_token_with_an_invalid_signature_is_refused() -> None:
    good = signed()
    head, payload, signature = good.split(".")
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    bare = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    public_pem = "-----any text that is public-----"
    for token, problem in (
        (signed(other), "signature"),
        (signed(key_id="x"), "not in the JWKS"),
        (signed(EC_KEY, "r", "ES256"), "algorithm"),
        (f"{bare}.{payload}.", "algorithm that is not taken"),
        (jwt.encode(CLAIMS, public_pem * 2, "HS256", {"kid": "r"}), "algorithm that is not taken"),
        (signed(algorithm="RS512"), "algorithm that is not taken"),
        (f"{head}.{payload}x.{signature}", "no JWT"),
        (f"{head}.{payload}.{signature[:-8]}", "signature"),
        (f"{head}.{payload}", "three parts"),
        ("a.b.c", "JWT"),
        ("..", "JWT"),
    ):
        assert problem in refusal(validator(), token), token


# --- Without a signature --------------------------------------------------------------------------


def unsigned(header: dict[str, Any] | None = None, signature: str = "", **claims: Any) -> str:
    given = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    parts = (header or {"alg": "none"}, given)
    texts = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in parts)
    return ".".join([*(text.rstrip("=") for text in texts), signature])


def test_a46_the_unsecured_validator_takes_unsigned_tokens_only() -> None:
    found = UnsecuredValidator(UnsecuredTokens("name", "scp", ("a", "b")), lambda: NOW_S * 1000)
    token = unsigned(name="bob", scp=["b", "a", "c"], iat=None)
    assert found.validate(token) == Authenticated("bob", expires_at_ms=(NOW_S + 60) * 1000)
    assert found.validate(unsigned(name="bob", scp="a b")).user == "bob"
    assert "signed" in refusal(found, signed(name="bob"))
    assert "signed" in refusal(found, unsigned(signature="x", name="bob"))
    assert "expired" in refusal(found, unsigned(name="bob", exp=NOW_S))
    with pytest.raises(TokenRefused) as raised:
        found.validate(unsigned(name="bob", scp="a"))
    assert (raised.value.status, raised.value.scope) == ("insufficient_scope", "a b")


# --- The exchange ---------------------------------------------------------------------------------


def test_a46_a_refused_token_is_answered_with_an_error_challenge() -> None:
    exchange = OAuthBearerMechanism(validator()).begin("host")
    told = exchange.step(OAuthBearerMessage(signed(exp=NOW_S - 100)).encode())
    assert told == Challenge(b'{"status":"invalid_token"}')
    ended = exchange.step(ABORT)
    assert ended == SaslFailure("OAUTHBEARER: it has expired", '{"status":"invalid_token"}')


def test_a46_an_exchange_accepts_no_second_token() -> None:
    exchange = OAuthBearerMechanism(validator()).begin("host")
    exchange.step(OAuthBearerMessage(signed(exp=NOW_S - 100)).encode())
    assert isinstance(exchange.step(OAuthBearerMessage(signed()).encode()), SaslFailure)
    assert isinstance(OAuthBearerMechanism(validator()).begin("host").step(ABORT), SaslFailure)


def test_a46_another_authorization_id_is_refused() -> None:
    mechanism = OAuthBearerMechanism(validator())
    same = mechanism.begin("host").step(OAuthBearerMessage(signed(), "alice").encode())
    assert isinstance(same, Authenticated)
    other = mechanism.begin("host").step(OAuthBearerMessage(signed(), "bob").encode())
    assert isinstance(other, SaslFailure)
    assert other.client_message is not None
    assert "(bob)" in other.client_message
    # Old versions of the answer have no room for 32,768 bytes.
    long = mechanism.begin("host").step(OAuthBearerMessage(signed(), "b" * 40_000).encode())
    assert isinstance(long, SaslFailure)
    encode_bytes(SaslAuthenticateResponse(error_message=long.client_message, auth_bytes=b""), 1)


# --- The keys -------------------------------------------------------------------------------------


class Source:
    """A source of keys: its answer, and the reads that have not finished."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data: bytes | JwksError = JWKS
        self.waiting: list[Any] = []
        self.readings = 0
        self.now_ms = 0
        monkeypatch.setattr("odradek_broker.server.jwks.read_jwks", lambda _: self._read())

    def _read(self) -> bytes:
        self.readings += 1
        if isinstance(self.data, JwksError):
            raise self.data
        return self.data

    def beside(self, work: Any, done: Any) -> None:
        self.waiting.append((work, done))

    def answer(self) -> None:
        work, done = self.waiting.pop(0)
        try:
            work()
        except JwksError as error:
            done(error)
        else:
            done(None)

    def keys(self) -> JwksKeys:
        settings = SignedTokens(**{**vars(SETTINGS), "jwks_url": "https://keys"})
        return JwksKeys(settings, self.beside, lambda: self.now_ms)


def key_id(found: Any) -> Any:
    value = found.result() if isinstance(found, Deferred) else found
    return None if value is None else value.key_id


def test_a47_jwks_keys_are_read_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    keys = source.keys()
    waits = keys.key("r")
    assert isinstance(waits, Deferred)
    assert not waits.done
    source.answer()
    assert key_id(waits) == key_id(keys.key("r")) == "r"
    assert not source.waiting
    # A token may be signed with a key that was added later.
    source.data = jwks(public(RSA_KEY, "new"))
    assert keys.key("new") is None, "not so soon"
    source.now_ms = 10_000
    waits = keys.key("new")
    source.answer()
    assert key_id(waits) == "new"
    assert key_id(keys.key(None)) == "new", "there is only one"


def test_a47_unreadable_jwks_keys_are_read_again_with_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(monkeypatch)
    source.data = JwksError("away")
    keys = source.keys()
    source.answer()
    assert keys.key("r") is None
    source.now_ms = 100
    assert isinstance(keys.key("r"), Deferred)
    source.answer()
    source.now_ms = 299
    assert keys.key("r") is None, "it waits longer each time"
    source.now_ms, source.data = 300, JWKS
    waits = keys.key("r")
    source.answer()
    assert key_id(waits) == "r"
    source.now_ms, source.data = 70_000, JwksError("away")
    assert key_id(keys.key("r")) == "r"
    source.answer()
    assert key_id(keys.key("r")) == "r", "old keys stay"
    assert source.readings == 4


def test_a47_an_invalid_jwks_is_refused() -> None:
    secret = {"kty": "oct", "k": base64.urlsafe_b64encode(b"x" * 32).decode(), "kid": "s"}
    encrypting = public(RSA_KEY, "enc") | {"use": "enc"}
    for data in (b"", b"[]", b'{"keys":5}', b'{"keys":[5,{}]}', jwks(secret), jwks(encrypting)):
        with pytest.raises(JwksError):
            parse_jwks(data)
    found = parse_jwks(jwks(secret, {"kty": "strange"}, public(EC_KEY, None)))
    assert [each.key_type for each in found] == ["EC"]


def test_a47_a_jwks_file_must_exist_at_the_start(tmp_path: Any) -> None:
    path = tmp_path / "jwks.json"
    settings = SignedTokens(**{**vars(SETTINGS), "jwks_url": path.as_uri()})
    with pytest.raises(StartError, match=r"jwks\.json"):
        JwksKeys(settings, lambda work, done: None, lambda: 0)
    path.write_bytes(JWKS)
    assert key_id(JwksKeys(settings, lambda work, done: None, lambda: 0).key("e")) == "e"
