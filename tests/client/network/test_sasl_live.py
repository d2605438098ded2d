"""Clients with SASL at a broker of Odradek: every mechanism, writing and reading, and refusals."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from certificates import Authority
from odradek import Admin, Broker, Consumer, NewTopic, Producer
from odradek_client.admin import UserScramCredentialDeletion, UserScramCredentialUpsertion
from odradek_client.errors import AuthenticationFailed
from sasl_brokers import LISTENER, as_admin, as_user

StartBroker = Callable[..., Awaitable[Broker]]
CA = Authority()
PASSWORD = "alice=secret,word"
_KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
async def start_broker() -> AsyncIterator[StartBroker]:
    running: list[Broker] = []

    async def start(**settings: str) -> Broker:
        given = {key.replace("__", "."): value for key, value in settings.items()}
        broker = Broker(settings=LISTENER | given)
        running.append(broker)
        await broker.start()
        return broker

    yield start
    for broker in running:
        await broker.close()


async def in_and_out(settings: dict[str, Any], topic: str) -> None:
    """Produce in a transaction, and consume in a group."""
    async with Admin(**settings) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    values = [bytes([number]) * 50_000 for number in range(20)]
    async with Producer(transactional_id=topic, **settings) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            for value in values:
                await producer.send(topic, value)
    read: list[bytes | None] = []
    reading = settings | {"group_id": topic, "auto_offset_reset": "earliest"}
    async with asyncio.timeout(60), Consumer(topic, **reading) as consumer:
        while len(read) < len(values):
            read += [record.value for record in await consumer.poll(200)]
    assert read == values


async def failure(settings: dict[str, Any]) -> str:
    """The error text of a refused client. Checks that the client fails before its timeout."""
    producer = Producer(**settings, max_block_ms=2**31 - 1)
    try:
        with pytest.raises(AuthenticationFailed) as caught:
            async with asyncio.timeout(60):
                await producer.start()
    finally:
        await producer.close()
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


async def test_c71_c72_clients_log_in_with_plain_and_scram(start_broker: StartBroker) -> None:
    broker = await start_broker()
    await in_and_out(as_admin(broker.bootstrap), "plain")
    async with Admin(**as_admin(broker.bootstrap)) as admin:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            await admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion("alice", PASSWORD, mechanism)
            )
            await in_and_out(as_user(broker.bootstrap, mechanism, "alice", PASSWORD), mechanism)


async def test_c72_clients_log_in_with_scram_over_tls(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    CA.write(tmp_path / "ca.pem")
    CA.issue().write(tmp_path / "broker.pem")
    broker = await start_broker(
        listeners="SASL_SSL://127.0.0.1:0",
        ssl__keystore__type="PEM",
        ssl__keystore__location=str(tmp_path / "broker.pem"),
        listener__name__sasl_ssl__plain__sasl__jaas__config=LISTENER[
            "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        ],
    )
    tls = {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(tmp_path / "ca.pem"),
    }
    settings = as_admin(broker.bootstrap) | tls
    await in_and_out(settings, "t")
    assert "Invalid username or password" in await failure(settings | {"sasl_password": "wrong"})
    without = {key: settings[key] for key in settings if not key.startswith("sasl")}
    said = await failure(without | {"security_protocol": "SSL"})
    assert "set security.protocol=SASL_SSL and sasl.mechanism (the broker has PLAIN, SCRAM" in said


async def test_c75_a_failed_authentication_names_its_reason(start_broker: StartBroker) -> None:
    broker = await start_broker()
    admin_settings = as_admin(broker.bootstrap)
    async with Admin(**admin_settings) as admin:
        await admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion("alice", PASSWORD, "SCRAM-SHA-256")
        )
        alice = as_user(broker.bootstrap, "SCRAM-SHA-256", "alice", PASSWORD)
        for change, words in (
            ({"sasl_password": "wrong"}, "user 'alice' (SCRAM-SHA-256)"),
            ({"sasl_mechanism": "SCRAM-SHA-512"}, "there is a credential of SCRAM-SHA-512"),
            ({"sasl_username": "nobody"}, "user 'nobody'"),
            ({"sasl_mechanism": "PLAIN"}, "Invalid username or password; check sasl.username"),
        ):
            assert words in await failure(alice | change)
        await admin.alter_user_scram_credentials(
            UserScramCredentialDeletion("alice", "SCRAM-SHA-256")
        )
        assert "user 'alice'" in await failure(alice)
    bearer = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: "x"}
    given = {key: alice[key] for key in ("bootstrap_servers", "security_protocol")} | bearer
    assert "the broker has PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in await failure(given)


async def test_c76_a_listener_and_a_client_that_do_not_match_name_the_setting(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    said = await failure({"bootstrap_servers": broker.bootstrap})
    assert "set security.protocol=SASL_PLAINTEXT and sasl.mechanism (the broker has PLAIN" in said
    plain = await start_broker(listeners="PLAINTEXT://127.0.0.1:0")
    assert "set security.protocol=PLAINTEXT" in await failure(as_admin(plain.bootstrap))


@pytest.mark.full
async def test_c73_a_session_is_renewed(start_broker: StartBroker) -> None:
    broker = await start_broker(connections__max__reauth__ms="2000")
    async with Admin(**as_admin(broker.bootstrap)) as admin:
        await admin.create_topics([NewTopic("t", 1)])
    async with Producer(**as_admin(broker.bootstrap)) as producer:
        await producer.send_and_wait("t", b"first")
        nodes = producer.network.connections.nodes
        before = {key: node.connection for key, node in nodes.items() if key[0] >= 0}
        end = time.monotonic() + 5
        while time.monotonic() < end:
            await producer.send_and_wait("t", b"more")
        assert before and {key: nodes[key].connection for key in before} == before


@pytest.mark.full
async def test_c73_a_refused_re_authentication_leads_to_another_connection(
    start_broker: StartBroker,
) -> None:
    """Brokers refuse a re-authentication in the first second of a session, so the client connects
    again."""
    broker = await start_broker(connections__max__reauth__ms="1000")
    async with Admin(**as_admin(broker.bootstrap)) as admin:
        await admin.create_topics([NewTopic("t", 1)])
    async with Producer(**as_admin(broker.bootstrap)) as producer:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            await producer.send_and_wait("t", b"more")


# --- tokens ---------------------------------------------------------------------------------------


def signed(lasts_s: float, audience: str = "kafka") -> tuple[str, float]:
    now = time.time()
    claims = {"sub": "alice", "iat": now, "exp": now + lasts_s, "aud": audience}
    return jwt.encode(claims, _KEY, "ES256", {"kid": "k"}), now + lasts_s


async def test_c74_clients_log_in_with_valid_tokens_only(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    public = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).to_jwk(
        _KEY.public_key(), as_dict=True
    )
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [public | {"kid": "k", "alg": "ES256"}]}), "utf-8")
    broker = await start_broker(
        sasl__enabled__mechanisms="OAUTHBEARER",
        sasl__oauthbearer__jwks__endpoint__url=jwks.as_uri(),
        sasl__oauthbearer__expected__audience="kafka",
        listener__name__sasl_plaintext__oauthbearer__sasl__server__callback__handler__class=(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    )
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    await in_and_out(settings | {"sasl_oauth_token_provider": lambda: signed(3600)}, "provided")
    (tmp_path / "token").write_text(signed(3600)[0], "utf-8")
    file = {"sasl_oauthbearer_token_endpoint_url": (tmp_path / "token").as_uri()}
    await in_and_out(settings | file, "filed")
    for token, words in (
        (signed(-3600), "has expired, says the clock of this machine"),
        (signed(3600, "another"), "check sasl_oauth_token_provider, and the audience"),
    ):
        said = await failure(settings | {"sasl_oauth_token_provider": lambda token=token: token})
        assert words in said and token[0] not in said


@pytest.mark.full
async def test_c73_c74_a_session_is_renewed_before_its_token_expires(
    start_broker: StartBroker,
) -> None:
    handler = (
        "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
        "OAuthBearerUnsecuredValidatorCallbackHandler"
    )
    broker = await start_broker(
        sasl__enabled__mechanisms="OAUTHBEARER",
        listener__name__sasl_plaintext__oauthbearer__sasl__server__callback__handler__class=handler,
    )
    tokens: list[str] = []

    def provider() -> tuple[str, float]:
        end = time.time() + 2
        claims = {"sub": "alice", "iat": time.time(), "exp": end}
        tokens.append(jwt.encode(claims, "", "none"))
        return tokens[-1], end

    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }
    async with Admin(**settings) as admin:
        nodes = admin.network.connections.nodes
        async with asyncio.timeout(60):
            while len(tokens) < 4:
                await admin.list_topics()
                await asyncio.sleep(0.05)
        assert all(node.failure == "" for node in nodes.values())
