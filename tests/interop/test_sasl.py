"""Foreign clients with SASL listeners: the credentials that authenticate, and the errors for
others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import aiokafka.helpers
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

import budget
from certificates import Authority
from odradek.broker import SubprocessBroker
from odradek_broker.config.broker import parse_config
from odradek_broker.security.passwords import hash_password
from odradek_broker.server.server import Server

pytestmark = pytest.mark.own_broker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "al,i=ce", "a password, = with signs: größe"
_PATIENCE_S = 60.0
_admin: Any = confluent_kafka.admin
CA = Authority()


def write_files(folder: Path) -> None:
    """Write the certificates, and the users of PLAIN and SCRAM."""
    CA.write(folder / "ca.pem")
    CA.issue().write(folder / "broker.pem")
    hashed = hash_password(PASSWORD, bytes(range(16)))
    (folder / "users").write_text(f"{USER}:{hashed}\nalice:{hashed}\n", "utf-8")
    (folder / "password").write_text(f"{PASSWORD}\n", "utf-8")


def broker_settings(folder: Path, protocol: str) -> dict[str, Any]:
    return {
        "listeners": f"{protocol}://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.plain.users.file": folder / "users",
        "sasl.scram.initial.users": f"alice=file:{folder / 'password'}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "group.initial.rebalance.delay.ms": 0,
        "log.durability": "page-cache",
    }


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str, Path]]:
    """The address, the protocol, and the folder with the files."""
    folder = tmp_path_factory.mktemp("sasl")
    write_files(folder)
    with SubprocessBroker(settings=broker_settings(folder, request.param)) as started:
        yield started.bootstrap, request.param, folder


Settings = tuple[str, str, Path, str, str]


# --- The clients ----------------------------------------------------------------------------------


def confluent_settings(given: Settings) -> dict[str, Any]:
    address, protocol, folder, mechanism, password = given
    return {
        "bootstrap.servers": address,
        "security.protocol": protocol,
        "ssl.ca.location": str(folder / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "log_level": 0,
    }


def by_confluent(given: Settings, topic: str, values: list[bytes]) -> list[bytes]:
    settings = confluent_settings(given)
    producer = confluent_kafka.Producer(settings)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(_PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    read: list[bytes] = []
    while len(read) < len(values):
        message = consumer.poll(_PATIENCE_S)
        assert message is not None and message.error() is None
        read.append(message.value() or b"")
    consumer.close()
    return read


def python_settings(given: Settings) -> dict[str, Any]:
    """The settings of aiokafka and kafka-python."""
    address, protocol, _, mechanism, password = given
    return {
        "bootstrap_servers": address,
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


def by_aiokafka(given: Settings, topic: str, values: list[bytes]) -> list[bytes]:
    settings = python_settings(given)
    if given[1] == "SASL_SSL":
        settings["ssl_context"] = aiokafka.helpers.create_ssl_context(cafile=given[2] / "ca.pem")

    async def main() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for value in values:
                await producer.send_and_wait(topic, value)
        consumer = aiokafka.AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", **settings
        )
        async with consumer, asyncio.timeout(_PATIENCE_S):
            return [(await consumer.getone()).value for _ in values]

    return asyncio.run(main())


def by_kafka_python(given: Settings, topic: str, values: list[bytes]) -> list[bytes]:
    settings = python_settings(given)
    if given[1] == "SASL_SSL":
        settings["ssl_cafile"] = str(given[2] / "ca.pem")
    producer = kafka.KafkaProducer(**settings)
    for value in values:
        producer.send(topic, value).get(_PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
    read = [next(consumer).value for _ in values]
    consumer.close()
    return read


By = Callable[[Settings, str, list[bytes]], list[bytes]]
CLIENTS: dict[str, By] = {
    "confluent": by_confluent,
    "aiokafka": by_aiokafka,
    "kafka-python": by_kafka_python,
}


@pytest.mark.parametrize("mechanism", budget.of_which(MECHANISMS, ["SCRAM-SHA-512"]))
@pytest.mark.parametrize("client", CLIENTS)
def test_a43_clients_produce_and_consume(
    broker: tuple[str, str, Path], client: str, mechanism: str
) -> None:
    values = [b"%d" % number for number in range(20)]
    topic = f"{client}-{mechanism}"
    assert CLIENTS[client]((*broker, mechanism, PASSWORD), topic, values) == values


def hears(heard: list[str], poll: Callable[[float], object], words: str) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not any(words in each for each in heard):
        assert time.monotonic() < deadline_s, heard
        poll(0.1)


@pytest.mark.full
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_n26_confluent_kafka_is_told_that_its_password_is_wrong(
    broker: tuple[str, str, Path], mechanism: str
) -> None:
    heard: list[str] = []
    settings = confluent_settings((*broker, mechanism, "wrong"))
    producer = confluent_kafka.Producer({**settings, "error_cb": lambda e: heard.append(str(e))})
    hears(heard, producer.poll, "uthentication fail")


@pytest.mark.full
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_n26_aiokafka_is_told_that_its_password_is_wrong(
    broker: tuple[str, str, Path], mechanism: str
) -> None:
    async def main() -> None:
        settings = python_settings((*broker, mechanism, "wrong"))
        if broker[1] == "SASL_SSL":
            settings["ssl_context"] = aiokafka.helpers.create_ssl_context(
                cafile=broker[2] / "ca.pem"
            )
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises((aiokafka.errors.KafkaError, aiokafka.errors.KafkaConnectionError)):
        asyncio.run(main())


@pytest.mark.full
def test_n25_confluent_kafka_is_told_the_mechanisms_of_the_broker(
    broker: tuple[str, str, Path],
) -> None:
    heard: list[str] = []
    settings = confluent_settings((*broker, "OAUTHBEARER", ""))
    del settings["sasl.username"], settings["sasl.password"]
    settings["oauth_cb"] = lambda _: ("a.b.c", time.time() + 600)
    producer = confluent_kafka.Producer({**settings, "error_cb": lambda e: heard.append(str(e))})
    hears(heard, producer.poll, "PLAIN")


def test_a40_a41_confluent_kafka_manages_scram_users(broker: tuple[str, str, Path]) -> None:
    admin = _admin.AdminClient(confluent_settings((*broker, "PLAIN", PASSWORD)))

    def alter(*changes: Any) -> None:
        for each in changes:
            for done in admin.alter_user_scram_credentials([each]).values():
                done.result(_PATIENCE_S)

    info = _admin.ScramCredentialInfo(_admin.ScramMechanism.SCRAM_SHA_512, 8192)
    alter(_admin.UserScramCredentialUpsertion(USER, info, PASSWORD.encode()))
    (described,) = admin.describe_user_scram_credentials([USER]).values()
    told = described.result(_PATIENCE_S).scram_credential_infos
    assert [(each.mechanism, each.iterations) for each in told] == [
        (_admin.ScramMechanism.SCRAM_SHA_512, 8192)
    ]
    settings = confluent_settings((*broker, "SCRAM-SHA-512", PASSWORD))
    as_user = _admin.AdminClient({**settings, "sasl.username": USER})
    assert as_user.list_topics(timeout=_PATIENCE_S).cluster_id
    alter(_admin.UserScramCredentialDeletion(USER, _admin.ScramMechanism.SCRAM_SHA_512))
    (gone,) = admin.describe_user_scram_credentials([USER]).values()
    with pytest.raises(confluent_kafka.KafkaException, match="does not exist"):
        gone.result(_PATIENCE_S)


@pytest.mark.full
async def test_n28_confluent_kafka_re_authenticates(tmp_path: Path) -> None:
    write_files(tmp_path)
    given = broker_settings(tmp_path, "SASL_PLAINTEXT") | {
        "connections.max.reauth.ms": 1500,
        "log.dirs": tmp_path / "data",
    }
    config, _ = parse_config({key: str(value) for key, value in given.items()})
    server = Server(config)
    host, port = await server.start()
    count = server.metrics.authentications
    again = "SASL_PLAINTEXT", "SCRAM-SHA-256", True, False

    def produce_until_it_has() -> list[Any]:
        settings = confluent_settings(
            (f"{host}:{port}", "SASL_PLAINTEXT", tmp_path, "SCRAM-SHA-256", PASSWORD)
        )
        producer = confluent_kafka.Producer(settings)
        errors: list[Any] = []
        deadline_s = time.monotonic() + _PATIENCE_S
        while count.get(again, 0) < 2 and time.monotonic() < deadline_s:
            producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
            producer.flush(_PATIENCE_S)
        return errors

    try:
        errors = await asyncio.to_thread(produce_until_it_has)
    finally:
        await server.stop()
    assert set(errors) == {None}
    assert count[again] >= 2
    assert server.metrics.sessions_expired_total == 0
