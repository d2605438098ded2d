"""librdkafka with TLS, where both sides have certificates."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from certificates import Authority
from odradek.broker import SubprocessBroker

CA = Authority()
_PATIENCE_S = 60.0
_admin: Any = confluent_kafka.admin


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificate files of broker and client."""
    folder = tmp_path_factory.mktemp("tls")
    CA.write(folder / "ca.pem")
    Authority("Other CA").write(folder / "other-ca.pem")
    CA.issue().write(folder / "broker.pem")
    CA.issue(hosts=["elsewhere"]).write(folder / "elsewhere.pem")
    CA.issue("client", ()).write(folder / "client.pem", "secret")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """The address of a broker with mutual TLS."""
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
        "ssl.client.auth": "required",
        "group.initial.rebalance.delay.ms": 0,
        "log.durability": "page-cache",
    }
    with SubprocessBroker(settings=settings) as broker:
        yield broker.bootstrap


def client_settings(folder: Path, address: str, **more: str) -> dict[str, Any]:
    given = {
        "bootstrap_servers": address,
        "security_protocol": "SSL",
        "ssl_ca_location": str(folder / "ca.pem"),
        "ssl_certificate_location": str(folder / "client.pem"),
        "ssl_key_location": str(folder / "client.pem"),
        "ssl_key_password": "secret",
    } | more
    return {key.replace("_", "."): value for key, value in given.items()} | {"log_level": 0}


def test_n19_librdkafka_produces_and_consumes_over_mutual_tls(folder: Path, address: str) -> None:
    settings = client_settings(folder, address)
    admin = _admin.AdminClient(settings)
    for made in admin.create_topics([_admin.NewTopic("t", 1)]).values():
        made.result(_PATIENCE_S)
    dice = random.Random(1)
    values = [dice.randbytes(400_000) for _ in range(20)] + [b"small"] * 500
    producer = confluent_kafka.Producer(settings)
    errors: list[Any] = []
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(_PATIENCE_S) == 0
    assert errors == [None] * len(values)
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    read: list[bytes | None] = []
    while len(read) < len(values):
        message = consumer.poll(_PATIENCE_S)
        assert message is not None and message.error() is None
        read.append(message.value())
    consumer.close()
    assert read == values


def test_n22_librdkafka_is_told_that_the_certificate_is_not_trusted(
    folder: Path, address: str
) -> None:
    settings = client_settings(folder, address, ssl_ca_location=str(folder / "other-ca.pem"))
    heard: list[str] = []
    producer = confluent_kafka.Producer(
        {**settings, "error_cb": lambda error: heard.append(str(error))}
    )
    deadline_s = time.monotonic() + _PATIENCE_S
    while not any("certificate verify failed" in each for each in heard):
        assert time.monotonic() < deadline_s, heard
        producer.poll(0.1)
