"""Our client with the SASL listener of an Apache Kafka."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_sasl import PASSWORD, SESSION_MS, kafka_of_sasl
from odradek import Admin, Consumer, NewTopic, Producer
from odradek_client.admin import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from odradek_client.errors import AuthenticationFailed, Refused

pytestmark = pytest.mark.kafka

_PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def kafka_with_sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of Kafka's listeners: PLAINTEXT, SASL_PLAINTEXT."""
    with kafka_of_sasl(tmp_path_factory.mktemp("kafka")) as addresses:
        yield addresses


def settings_of(address: str, mechanism: str, **more: Any) -> dict[str, Any]:
    who = {"sasl_username": "alice", "sasl_password": PASSWORD}
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        **(who if mechanism != "OAUTHBEARER" else {}),
        **more,
    }


def unsecured_token(lasts_s: float) -> tuple[str, float]:
    now = time.time()
    claims = {"sub": "alice", "iat": now, "exp": now + lasts_s}
    parts = (
        base64.urlsafe_b64encode(json.dumps(each).encode()) for each in ({"alg": "none"}, claims)
    )
    return ".".join(part.decode().rstrip("=") for part in parts) + ".", now + lasts_s


async def in_and_out(settings: dict[str, Any], topic: str) -> None:
    """Produce and consume, with a transaction and in a group."""
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
    async with asyncio.timeout(_PATIENCE_S), Consumer(topic, **reading) as consumer:
        while len(read) < len(values):
            read += [record.value for record in await consumer.poll(200)]
    assert read == values


async def test_c71_our_client_logs_in_with_plain_at_kafka(kafka_with_sasl: tuple[str, str]) -> None:
    await in_and_out(settings_of(kafka_with_sasl[1], "PLAIN"), "plain")


async def test_c72_c78_our_client_stores_scram_credentials_in_kafka_and_logs_in(
    kafka_with_sasl: tuple[str, str],
) -> None:
    plaintext, sasl = kafka_with_sasl
    async with Admin(bootstrap_servers=plaintext) as admin:
        assert await admin.describe_user_scram_credentials() == {}
        with pytest.raises(Refused):
            await admin.describe_user_scram_credentials("alice")
        both = [
            UserScramCredentialUpsertion("alice", PASSWORD, "SCRAM-SHA-256"),
            UserScramCredentialUpsertion("alice", PASSWORD, "SCRAM-SHA-512", 8192),
        ]
        with pytest.raises(Refused, match="twice"):
            await admin.alter_user_scram_credentials(both)
        for each in both:
            await admin.alter_user_scram_credentials(each)
        stored = [
            ScramCredentialInfo("SCRAM-SHA-256", 4096),
            ScramCredentialInfo("SCRAM-SHA-512", 8192),
        ]
        assert await admin.describe_user_scram_credentials("alice") == {"alice": stored}
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            await in_and_out(settings_of(sasl, mechanism), mechanism)
        await admin.alter_user_scram_credentials(
            UserScramCredentialDeletion("alice", "SCRAM-SHA-256")
        )
        assert await admin.describe_user_scram_credentials() == {"alice": stored[1:]}
        with pytest.raises(Refused):
            await admin.alter_user_scram_credentials(
                UserScramCredentialDeletion("alice", "SCRAM-SHA-256")
            )


async def test_c74_our_client_logs_in_with_tokens_at_kafka(
    kafka_with_sasl: tuple[str, str],
) -> None:
    tokens = 0

    async def token() -> tuple[str, float]:
        nonlocal tokens
        tokens += 1
        return unsecured_token(3600)

    settings = settings_of(kafka_with_sasl[1], "OAUTHBEARER", sasl_oauth_token_provider=token)
    await in_and_out(settings, "oauthbearer")
    assert tokens == 3, "one for each client, whatever its connections"


async def test_c73_a_session_is_renewed_on_its_connection(kafka_with_sasl: tuple[str, str]) -> None:
    """The broker would close a connection that is used after the end of its session."""
    plaintext, sasl = kafka_with_sasl
    async with Admin(bootstrap_servers=plaintext) as admin:
        await admin.create_topics([NewTopic("renewed", 1)])
    async with Producer(**settings_of(sasl, "PLAIN")) as producer:
        await producer.send_and_wait("renewed", b"first")
        nodes = producer.network.connections.nodes
        before = {key: node.connection for key, node in nodes.items() if key[0] >= 0}
        end = time.monotonic() + 3 * SESSION_MS / 1000
        while time.monotonic() < end:
            await producer.send_and_wait("renewed", b"more")
        assert before and {key: nodes[key].connection for key in before} == before


def expired() -> tuple[str, float]:
    return unsecured_token(-60)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sasl_password": "wrong"}, "Invalid username or password; check sasl.username"),
        (
            {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "nobody"},
            "user 'nobody' .SCRAM-SHA-512.: .*invalid credentials.* credential of SCRAM-SHA-512",
        ),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": expired},
            "the token as 'invalid_token'.*has expired",
        ),
        ({"security_protocol": "SASL_SSL"}, "set security.protocol=SASL_PLAINTEXT"),
        ({"security_protocol": "PLAINTEXT"}, "set security.protocol=SASL_PLAINTEXT .*PLAIN, SCRAM"),
        ({"security_protocol": "SSL"}, "that is a PLAINTEXT listener"),
    ],
)
async def test_c75_c76_wrong_sasl_settings_are_named_at_once(
    kafka_with_sasl: tuple[str, str], change: dict[str, Any], words: str
) -> None:
    settings = settings_of(kafka_with_sasl[1], "PLAIN") | change
    if not settings["security_protocol"].startswith("SASL"):
        settings = {key: value for key, value in settings.items() if not key.startswith("sasl")}
    elif settings["sasl_mechanism"] == "OAUTHBEARER":
        settings = {
            key: settings[key] for key in settings if key not in ("sasl_username", "sasl_password")
        }
    await fails_with(settings, words)


async def test_c76_a_sasl_client_at_a_listener_without_sasl_names_the_setting(
    kafka_with_sasl: tuple[str, str],
) -> None:
    await fails_with(settings_of(kafka_with_sasl[0], "PLAIN"), "set security.protocol=PLAINTEXT")


async def fails_with(settings: dict[str, Any], words: str) -> None:
    producer = Producer(**settings, max_block_ms=2**31 - 1)
    try:
        with pytest.raises(Exception, match=words) as caught:
            async with asyncio.timeout(60):
                await producer.start()
    finally:
        await producer.close()
    if settings["security_protocol"] in ("SASL_PLAINTEXT", "PLAINTEXT"):
        assert isinstance(caught.value, AuthenticationFailed)
    assert PASSWORD not in str(caught.value)
