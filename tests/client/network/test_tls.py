"""Clients with TLS: successful connections, and immediate errors that name the cause."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from odradek import Admin, Broker, Consumer, NewTopic, Producer
from odradek_client.errors import ConfigError, TlsFailed
from waiting import until

CA = Authority()
OTHER_CA = Authority("Other CA")
StartBroker = Callable[..., Awaitable[Broker]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    CA.write(folder / "ca.pem")
    OTHER_CA.write(folder / "other-ca.pem")
    CA.issue().write(folder / "broker.pem")
    CA.issue(hosts=["elsewhere"]).write(folder / "elsewhere.pem")
    CA.issue(days=(-3, -1)).write(folder / "expired.pem")
    CA.issue("client", ()).write(folder / "client.pem", "secret")
    OTHER_CA.issue("stranger", ()).write(folder / "stranger.pem")
    (folder / "client.p12").write_bytes(CA.issue("client", ()).pkcs12("secret"))
    return folder


@pytest.fixture
async def start_broker(folder: Path) -> AsyncIterator[StartBroker]:
    running: list[Broker] = []

    async def start(certificate: str = "broker.pem", **settings: str) -> Broker:
        given = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": str(folder / certificate),
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": str(folder / "ca.pem"),
            "group_initial_rebalance_delay_ms": "0",
        } | settings
        broker = Broker(settings={key.replace("_", "."): text for key, text in given.items()})
        running.append(broker)
        await broker.start()
        return broker

    yield start
    for broker in running:
        await broker.close()


def client_settings(folder: Path, broker: Broker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(folder / "ca.pem"),
    } | more


def own(folder: Path, name: str = "client.pem") -> dict[str, str]:
    return {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(folder / name)}


@pytest.mark.full
async def test_n19_all_clients_connect_over_mutual_tls(
    folder: Path, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_KEY_PASSWORD", "secret")
    broker = await start_broker(ssl_client_auth="required")
    more = own(folder) | {"ssl_key_password": "${env:CLIENT_KEY_PASSWORD}"}
    settings = client_settings(folder, broker, **more)
    async with Admin(**settings) as admin:
        await admin.create_topics([NewTopic("t", 2)])
    values = [bytes([number]) * 200_000 for number in range(40)]
    async with Producer(**settings) as producer:
        for value in values:
            await producer.send("t", value, partition=0)
    read = []
    async with Consumer("t", group_id="g", auto_offset_reset="earliest", **settings) as consumer:
        async for record in consumer:
            read.append(record.value)
            if len(read) == len(values):
                break
    assert read == values


async def test_n19_a_client_connects_with_a_pkcs12_keystore(
    folder: Path, start_broker: StartBroker
) -> None:
    broker = await start_broker(ssl_client_auth="required")
    more = {
        "ssl_keystore_location": str(folder / "client.p12"),
        "ssl_keystore_password": "secret",
        "ssl_enabled_protocols": "TLSv1.2",
    }
    async with Admin(**client_settings(folder, broker, **more)) as admin:
        assert len((await admin.describe_cluster()).brokers) == 1


async def failure(settings: dict[str, Any]) -> str:
    """The error text of a client that cannot connect. Checks that the client fails before its
    timeout."""
    producer = Producer(**settings, max_block_ms=2**31 - 1)
    try:
        with pytest.raises(TlsFailed) as caught:
            async with asyncio.timeout(60):
                await producer.start()
    finally:
        await producer.close()
    assert settings["bootstrap_servers"] in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("certificate", "change", "words"),
    [
        ("broker.pem", {"ssl_truststore_location": "other-ca.pem"}, "CA that is trusted here"),
        ("elsewhere.pem", {}, "not for the name 127.0.0.1"),
        ("expired.pem", {}, "has expired"),
        ("broker.pem", {"security_protocol": "PLAINTEXT"}, "set security.protocol=SSL"),
    ],
)
async def test_n22_a_failed_tls_connection_names_its_cause_at_once(
    folder: Path, start_broker: StartBroker, certificate: str, change: dict[str, str], words: str
) -> None:
    broker = await start_broker(certificate)
    settings = client_settings(folder, broker)
    for key, value in change.items():
        settings[key] = str(folder / value) if value.endswith(".pem") else value
    if settings["security_protocol"] == "PLAINTEXT":
        settings = {name: settings[name] for name in settings if not name.startswith("ssl_")}
    assert words in await failure(settings)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_n22_a_missing_or_untrusted_client_certificate_is_named(
    folder: Path, start_broker: StartBroker, version: str
) -> None:
    broker = await start_broker(ssl_client_auth="required", ssl_enabled_protocols=version)
    assert "ssl.keystore" in await failure(client_settings(folder, broker))
    stranger = client_settings(folder, broker, **own(folder, "stranger.pem"))
    assert "does not trust our certificate" in await failure(stranger)


async def test_n22_tls_at_a_plaintext_listener_is_named(
    folder: Path, start_broker: StartBroker
) -> None:
    broker = await start_broker(listeners="PLAINTEXT://127.0.0.1:0")
    assert "PLAINTEXT listener" in await failure(client_settings(folder, broker))


async def test_n22_a_tls_alert_to_a_plaintext_client_names_the_setting(folder: Path) -> None:
    """Apache Kafka's TLS listener answers plaintext with a TLS alert."""

    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x50")
        writer.close()

    async with await asyncio.start_server(alert, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        said = await failure({"bootstrap_servers": f"{host}:{port}"})
    assert "set security.protocol=SSL" in said


async def test_a_port_that_hangs_up_is_retried(folder: Path) -> None:
    """The client does not give up, because the port may be that of a broker that is still
    starting."""
    calls = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        producer = Producer(bootstrap_servers=f"{host}:{port}", max_block_ms=2**31 - 1)
        starting = asyncio.ensure_future(producer.start())
        await until(lambda: calls >= 5)
        assert not starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await producer.close()


async def test_the_host_name_is_not_verified_if_that_is_switched_off(
    folder: Path, start_broker: StartBroker
) -> None:
    broker = await start_broker("elsewhere.pem")
    settings = client_settings(folder, broker, ssl_endpoint_identification_algorithm="")
    async with Admin(**settings) as admin:
        assert len((await admin.describe_cluster()).brokers) == 1


def test_wrong_tls_settings_are_refused_before_any_connection(folder: Path) -> None:
    for given, words in (
        ({"ssl_truststore_location": str(folder / "none.pem")}, "cannot read"),
        ({"ssl_truststore_location": str(folder / "ca.pem")}, "ssl.truststore.type=PEM"),
        ({"ssl_keystore_location": str(folder / "client.p12")}, "password"),
        ({"ssl_truststore_type": "CSV"}, "one of JKS, PKCS12, PEM"),
        ({"ssl_endpoint_identification_algorithm": "http"}, "https"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "TLSv1.2"),
        ({"ssl_ca_location": "x"}, "ssl_truststore_location"),
    ):
        with pytest.raises(ConfigError, match=words):
            Producer(**{"security_protocol": "SSL", **given})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="set security_protocol=SSL"):
        Producer(ssl_truststore_location=str(folder / "ca.pem"))


async def test_errors_and_logs_show_no_secret(
    folder: Path, start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    broker = await start_broker(ssl_client_auth="required")
    certificate = CA.issue("client", ())
    secret = "a-secret-word"
    settings = client_settings(folder, broker) | {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_key": certificate.key(secret),
        "ssl_keystore_certificate_chain": certificate.pem,
        "ssl_key_password": secret,
    }
    async with Admin(**settings) as admin:
        shown = repr(admin.network.config) + repr(admin.network.config.tls) + repr(admin)
    with pytest.raises(ConfigError) as caught:
        Admin(**settings | {"ssl_key_password": secret + "!"})
    for text in (shown, str(caught.value), caplog.text):
        assert secret not in text and "PRIVATE KEY" not in text
