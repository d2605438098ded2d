"""Consoles for brokers with TLS and with tokens: sign-ins, and the errors of refused sign-ins."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from structlog.testing import capture_logs

import sasl_brokers
from certificates import Authority
from odradek.broker import Broker
from odradek_console.server import Console, ConsoleOptions

_WRITE = {"origin": "http://127.0.0.1:8080", "X-Odradek-Console": "1"}
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_KEY = ec.generate_private_key(ec.SECP256R1())
_ADMIN = {"mechanism": "PLAIN", "user": "admin", "password": sasl_brokers.ADMIN_PASSWORD}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificates of two authorities, and the public key of tokens."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority()
    (folder / "ca.pem").write_text(authority.pem, "utf-8")
    (folder / "other.pem").write_text(Authority("Other CA").pem, "utf-8")
    authority.issue().write(folder / "broker.pem")
    algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
    public = algorithm.to_jwk(_KEY.public_key(), as_dict=True)
    keys = {"keys": [public | {"kid": "k", "alg": "ES256"}]}
    (folder / "jwks.json").write_text(json.dumps(keys), "utf-8")
    return folder


@pytest.fixture(scope="module")
def tls(folder: Path) -> dict[str, Any]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": folder / "broker.pem"}


@pytest.fixture(scope="module")
def encrypted(tls: dict[str, Any]) -> Iterator[str]:
    """A broker with TLS and without users."""
    with Broker.subprocess(settings={"listeners": "SSL://127.0.0.1:0", **tls}) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def with_users(tls: dict[str, Any], folder: Path) -> Iterator[str]:
    """A broker with TLS, passwords and tokens."""
    users = sasl_brokers.LISTENER["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": _OAUTH,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": users,
    }
    with Broker.subprocess(settings=settings | tls) as broker:
        yield broker.bootstrap


@asynccontextmanager
async def _console(
    bootstrap: str, protocol: str, authority: Path | None
) -> AsyncIterator[httpx.AsyncClient]:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": protocol,
        "request_timeout_ms": 10_000,
        "default_api_timeout_ms": 10_000,
    }
    if authority is not None:
        settings |= {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(authority)}
    clients = {"admin": settings, "consumer": settings, "producer": settings}
    app = Console(ConsoleOptions({"one": clients})).app()
    assert isinstance(app, Starlette)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080", headers=_WRITE
        ) as client,
    ):
        yield client


def _token(lasts_s: float = 3_600, audience: str = "kafka", key: Any = _KEY) -> str:
    now = time.time()
    claims = {"sub": "carol", "iat": now - 60, "exp": now + lasts_s, "aud": audience}
    return jwt.encode(claims, key, "ES256", {"kid": "k"})


async def test_an_accepted_token_signs_in_its_subject(with_users: str, folder: Path) -> None:
    async with _console(with_users, "SASL_SSL", folder / "ca.pem") as client:
        with capture_logs() as lines:
            given = {"mechanism": "OAUTHBEARER", "token": f" {_token()}\n"}
            answer = await client.post("/api/sign-in", json=given)
        assert answer.status_code == 200, answer.text
        assert (await client.get("/api/console")).json()["user"] == "carol"
        assert (await client.get("/api/topics")).status_code == 200
        (line,) = [line for line in lines if line["event"] == "signed in"]
        assert (line["user"], line["mechanism"]) == ("carol", "OAUTHBEARER")


async def test_a_refused_token_does_not_sign_in_and_is_not_shown(
    with_users: str, folder: Path
) -> None:
    tokens = (
        _token(-1_000),
        _token(audience="another"),
        _token(key=ec.generate_private_key(ec.SECP256R1())),
        "opaque",
    )
    async with _console(with_users, "SASL_SSL", folder / "ca.pem") as client:
        for token in tokens:
            with capture_logs() as lines:
                given = {"mechanism": "OAUTHBEARER", "token": token}
                answer = await client.post("/api/sign-in", json=given)
            assert answer.status_code == 403, answer.text
            assert answer.json()["error"]["title"] == "The broker does not accept this token"
            assert token not in answer.text and token not in str(lines)
            # The user of the page has no client settings, so the text must not name any.
            assert "sasl" not in answer.json()["error"]["detail"].replace("SASL_SSL", "")
            assert "audience" in answer.json()["error"]["what_to_do"]
            assert [line["event"] for line in lines] == ["sign-in refused"]
        assert (await client.get("/api/topics")).status_code == 401


async def test_a_password_signs_in_over_tls(with_users: str, folder: Path) -> None:
    async with _console(with_users, "SASL_SSL", folder / "ca.pem") as client:
        assert (await client.post("/api/sign-in", json=_ADMIN)).status_code == 200
        assert (await client.get("/api/topics")).status_code == 200


@pytest.mark.parametrize("authority", ["other.pem", None])
async def test_sign_in_over_untrusted_tls_fails(
    with_users: str, folder: Path, authority: str | None
) -> None:
    path = None if authority is None else folder / authority
    async with _console(with_users, "SASL_SSL", path) as client:
        answer = await client.post("/api/sign-in", json=_ADMIN)
        assert 500 < answer.status_code < 505, answer.text
        assert "certificate" in answer.json()["error"]["detail"]


async def test_a_tls_listener_without_users_needs_a_trusted_authority(
    encrypted: str, folder: Path
) -> None:
    async with _console(encrypted, "SSL", folder / "ca.pem") as client:
        assert (await client.get("/api/topics")).status_code == 200
    async with _console(encrypted, "SSL", folder / "other.pem") as client:
        answer = await client.get("/api/topics")
        assert 500 < answer.status_code < 505
        assert "certificate" in answer.json()["error"]["detail"]
