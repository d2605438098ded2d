"""TLS between our client and an Apache Kafka, and between Kafka's tools and our broker."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from kafka_cluster import KafkaCluster, class_path, java
from odradek import Admin, Consumer, NewTopic, Producer
from odradek.broker import BrokerFailed, SubprocessBroker
from odradek_client.errors import TlsFailed

pytestmark = pytest.mark.kafka

CA = Authority()
PASSWORD = "changeit"
_PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    CA.write(folder / "ca.pem")
    CA.issue().write(folder / "broker.pem")
    CA.issue("client", ()).write(folder / "client.pem")
    (folder / "broker.p12").write_bytes(CA.issue().pkcs12(PASSWORD))
    return folder


def listener_settings(folder: Path) -> dict[str, str]:
    """Settings of the TLS listener, the same for both brokers."""
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "broker.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
    }


def client_settings(folder: Path) -> dict[str, str]:
    """Settings of the client, the same for both clients."""
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "client.pem"),
    }


@pytest.fixture(scope="module")
def kafka_with_tls(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The addresses of Kafka's listeners: PLAINTEXT, SSL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cluster = KafkaCluster(tmp_path_factory.mktemp("kafka"), settings=listener_settings(folder))
    cluster.nodes[0].add_listener("SSL", port)
    with cluster:
        yield cluster.bootstrap, f"127.0.0.1:{port}"


async def test_n19_our_client_connects_to_kafka_over_tls(
    folder: Path, kafka_with_tls: tuple[str, str]
) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": kafka_with_tls[1], **client_settings(folder)}
    async with Admin(**settings) as admin:
        await admin.create_topics([NewTopic("t", 1)])
    values = [bytes([number]) * 100_000 for number in range(20)]
    async with Producer(**settings) as producer:
        for value in values:
            await producer.send("t", value)
    read: list[bytes | None] = []
    async with (
        asyncio.timeout(_PATIENCE_S),
        Consumer("t", auto_offset_reset="earliest", **settings) as consumer,
    ):
        while len(read) < len(values):
            read += [record.value for record in await consumer.poll(200)]
    assert read == values


async def test_n22_our_client_names_the_cause_of_a_tls_failure_at_kafka(
    folder: Path, kafka_with_tls: tuple[str, str]
) -> None:
    plaintext, tls = kafka_with_tls
    trusting = client_settings(folder)
    stranger = {key: trusting[key] for key in trusting if "keystore" not in key}
    cases: list[tuple[str, dict[str, str], str]] = [
        (tls, {}, "set security.protocol=SSL"),
        (plaintext, trusting, "PLAINTEXT listener"),
        (tls, stranger, "ssl.keystore"),
    ]
    for address, settings, words in cases:
        given: dict[str, Any] = {"bootstrap_servers": address, **settings}
        with pytest.raises(TlsFailed) as caught:
            async with Admin(**given):
                pass
        assert words in str(caught.value)


def test_n19_kafkas_tools_connect_to_our_broker_over_tls(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    lines = [f"{key}={value}\n" for key, value in client_settings(folder).items()]
    config.write_text("".join(lines), "utf-8")
    settings = {"listeners": "SSL://127.0.0.1:0", **listener_settings(folder)}
    with SubprocessBroker(settings=settings) as broker:
        tool = [java(), "-cp", class_path(), "org.apache.kafka.tools.TopicCommand"]
        tool += ["--bootstrap-server", broker.bootstrap, "--command-config", str(config)]
        for arguments in (["--create", "--topic", "made-by-java"], ["--list"]):
            done = subprocess.run(
                [*tool, *arguments],
                check=False,
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    assert "made-by-java" in done.stdout


@pytest.mark.skipif(shutil.which("keytool") is None, reason="no keytool")
def test_n19_keystores_made_by_keytool_are_read_or_refused(folder: Path, tmp_path: Path) -> None:
    """PKCS12 is read under any file name; for JKS the error names the command that converts it."""

    def make(name: str, kind: str) -> str:
        command = ["keytool", "-genkeypair", "-alias", "broker", "-keyalg", "EC"]
        command += ["-dname", "CN=localhost", "-storetype", kind, "-storepass", PASSWORD]
        command += ["-keystore", str(tmp_path / name)]
        subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE_S)
        return str(tmp_path / name)

    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.password": PASSWORD}
    modern = {"ssl.keystore.location": make("modern.jks", "PKCS12")}
    with SubprocessBroker(settings=settings | modern) as broker:
        assert broker.bootstrap
    old = {"ssl.keystore.location": make("old.jks", "JKS")}
    with pytest.raises(BrokerFailed, match="keytool -importkeystore") as caught:
        SubprocessBroker(settings=settings | old).start()
    line = str(caught.value).partition("convert it: ")[2].partition(",")[0].split()
    line += ["-srcstorepass", PASSWORD, "-deststorepass", PASSWORD, "-noprompt"]
    subprocess.run(line, check=True, capture_output=True, timeout=_PATIENCE_S)
    with SubprocessBroker(
        settings=settings | {"ssl.keystore.location": str(tmp_path / "old.jks.p12")}
    ) as broker:
        assert broker.bootstrap
