"""Brokers for tests with users, TLS and ACLs."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import pytest

from odradek import Broker, NewTopic, Producer, sync
from odradek.broker import SubprocessBroker
from odradek.clusters import Clusters
from odradek.security import MECHANISMS, CryptographyMissing, Security
from odradek.testcontainers import KafkaContainer
from odradek_client.admin import AclBinding, AclOperation
from odradek_client.errors import (
    AuthenticationFailed,
    IllegalState,
    MetadataTimeout,
    TlsFailed,
    TopicAuthorizationFailed,
)

pytestmark = pytest.mark.own_broker

#: A password with all characters that are special in JAAS, properties or lists.
PASSWORD = 'a "b" \\c ${env:HOME}, d=e; #f:!'
USERS = {"alice": PASSWORD, "bob": "for tests", "shop.app@x-1": "p"}
SETTINGS = {"log.durability": "page-cache", "connection.failed.authentication.delay.ms": 0}


@pytest.fixture(scope="module")
def plain() -> Iterator[SubprocessBroker]:
    with SubprocessBroker(settings=SETTINGS, users=USERS) as broker:
        yield broker


@pytest.fixture(scope="module")
def guarded() -> Iterator[SubprocessBroker]:
    """A broker with TLS, at which bob has only the rights of ACLs, and alice is a super user."""
    with SubprocessBroker(settings=SETTINGS, users=USERS, tls=True, superusers=["alice"]) as broker:
        with sync.Admin(**broker.client_settings()) as admin:
            admin.create_topics([NewTopic("orders"), NewTopic("secrets")])
            rights = (AclOperation.READ, AclOperation.WRITE)
            admin.create_acls([AclBinding.topic("orders", "User:bob", each) for each in rights])
        yield broker


def produce_confluent(settings: Mapping[str, Any], topic: str) -> str:
    """Produce with librdkafka; returns the name of the error, or "" for none."""
    errors: list[str] = []

    def failed(error: Any) -> None:
        errors.append(error.name())

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            errors.append(error.name())

    producer = confluent_kafka.Producer(
        {**settings, "error_cb": failed, "log_level": 0, "linger.ms": 0}
    )
    producer.produce(topic, b"4 apples", on_delivery=delivered)
    while len(producer) and not errors:
        producer.poll(0.05)
    producer.purge()
    return errors[0] if errors else ""


async def produce_aiokafka(settings: Mapping[str, Any], topic: str) -> None:
    async with (
        asyncio.timeout(20),
        aiokafka.AIOKafkaProducer(**settings) as producer,
    ):
        await producer.send_and_wait(topic, b"4 apples")


# --- Passwords ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_our_client_logs_in_with_the_right_password_only(
    plain: SubprocessBroker, mechanism: str
) -> None:
    for user in USERS:
        async with Producer(**plain.client_settings(user, mechanism=mechanism)) as producer:
            await producer.send_and_wait("orders", b"4 apples")
    guessed = plain.client_settings("alice", mechanism=mechanism, password="guessed")
    with pytest.raises(AuthenticationFailed):
        await Producer(**guessed).start()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in_with_the_right_password_only(
    plain: SubprocessBroker, mechanism: str
) -> None:
    right = plain.confluent_settings("alice", mechanism=mechanism)
    assert produce_confluent(right, "orders") == ""
    wrong = plain.confluent_settings("alice", mechanism=mechanism, password="guessed")
    assert produce_confluent(wrong, "orders") == "_AUTHENTICATION"


@pytest.mark.full
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_logs_in_with_the_right_password_only(
    plain: SubprocessBroker, mechanism: str
) -> None:
    await produce_aiokafka(plain.aiokafka_settings("bob", mechanism=mechanism), "orders")
    wrong = plain.aiokafka_settings("bob", mechanism=mechanism, password="guessed")
    with pytest.raises(aiokafka.errors.KafkaError):
        await produce_aiokafka(wrong, "orders")


def test_kafka_python_logs_in(plain: SubprocessBroker) -> None:
    producer = kafka.KafkaProducer(**plain.aiokafka_settings("bob"), metrics_enabled=False)
    try:
        assert producer.send("orders", b"4 apples").get(20).topic == "orders"
    finally:
        producer.close()


def test_a_client_without_a_password_is_refused(plain: SubprocessBroker) -> None:
    with pytest.raises(MetadataTimeout):
        sync.Producer(bootstrap_servers=plain.bootstrap).start(timeout_ms=500)


def test_passwords_are_not_in_the_command_line(plain: SubprocessBroker) -> None:
    line = Path(f"/proc/{plain.pid}/cmdline")
    if not line.exists():
        pytest.skip("this system has no /proc")
    assert b"for tests" not in line.read_bytes()
    assert (plain.security.folder / "bob.password").stat().st_mode & 0o077 == 0


@pytest.mark.full
def test_users_and_certificates_survive_a_restart_with_a_data_directory(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with SubprocessBroker(data_dir=folder, users=USERS, tls=True) as broker:
        ca, address = broker.ca_file.read_bytes(), broker.bootstrap
        broker.kill()
        broker.restart()
        assert (broker.ca_file.read_bytes(), broker.bootstrap) == (ca, address)
        with sync.Producer(**broker.client_settings("bob")) as producer:
            producer.send_and_wait("orders", b"4 apples")
        files = broker.security.folder
    assert folder.is_dir() and not files.exists()


# --- TLS ------------------------------------------------------------------------------------------


def other_authority(folder: Path) -> Path:
    return Security(folder, tls=True).ca_file


async def test_our_client_trusts_only_the_brokers_certificate_authority(
    guarded: SubprocessBroker, tmp_path: Path
) -> None:
    settings = guarded.client_settings("bob")
    assert settings["security_protocol"] == "SASL_SSL"
    async with Producer(**settings) as producer:
        await producer.send_and_wait("orders", b"4 apples")
    settings["ssl_truststore_location"] = str(other_authority(tmp_path))
    with pytest.raises(TlsFailed):
        await Producer(**settings).start()


def test_confluent_kafka_trusts_only_the_brokers_certificate_authority(
    guarded: SubprocessBroker, tmp_path: Path
) -> None:
    settings = guarded.confluent_settings("bob")
    assert produce_confluent(settings, "orders") == ""
    settings["ssl.ca.location"] = str(other_authority(tmp_path))
    assert produce_confluent(settings, "orders") in ("_SSL", "_ALL_BROKERS_DOWN", "_TRANSPORT")


@pytest.mark.full
async def test_aiokafka_trusts_only_the_brokers_certificate_authority(
    guarded: SubprocessBroker, tmp_path: Path
) -> None:
    settings = guarded.aiokafka_settings("bob")
    await produce_aiokafka(settings, "orders")
    settings["ssl_context"] = ssl.create_default_context(cafile=str(other_authority(tmp_path)))
    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        await produce_aiokafka(settings, "orders")


async def test_a_broker_may_have_tls_without_users() -> None:
    async with Broker(tls=True) as broker:
        settings = broker.client_settings()
        assert settings["security_protocol"] == "SSL" and "sasl_mechanism" not in settings
        async with Producer(**settings) as producer:
            await producer.send_and_wait("orders", b"4 apples")
        await broker.assertions.assert_produced("orders", b"4 apples")


def test_tls_without_the_package_cryptography_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(CryptographyMissing, match=r"pip install 'odradek\[tls\]'"):
        _ = Security(tmp_path, tls=True).ca_file


# --- Rights ---------------------------------------------------------------------------------------


async def test_our_client_may_not_write_to_a_denied_topic(guarded: SubprocessBroker) -> None:
    async with Producer(**guarded.client_settings("bob")) as producer:
        await producer.send_and_wait("orders", b"4 apples")
        with pytest.raises(TopicAuthorizationFailed, match="secrets"):
            await producer.send_and_wait("secrets", b"4 apples")
    async with Producer(**guarded.client_settings("alice")) as producer:
        await producer.send_and_wait("secrets", b"4 apples")


def test_confluent_kafka_may_not_write_to_a_denied_topic(guarded: SubprocessBroker) -> None:
    settings = guarded.confluent_settings("bob")
    assert produce_confluent(settings, "secrets") == "TOPIC_AUTHORIZATION_FAILED"
    assert produce_confluent(guarded.confluent_settings("alice"), "secrets") == ""


@pytest.mark.full
async def test_aiokafka_may_not_write_to_a_denied_topic(guarded: SubprocessBroker) -> None:
    with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
        await produce_aiokafka(guarded.aiokafka_settings("bob"), "secrets")


def test_assertions_log_in_as_a_superuser(guarded: SubprocessBroker) -> None:
    with sync.Producer(**guarded.client_settings()) as producer:
        producer.send_and_wait("secrets", b"5 pears")
    assert guarded.assertions.assert_produced("secrets", b"5 pears")


# --- Other brokers --------------------------------------------------------------------------------


@pytest.mark.full
def test_a_container_may_have_users_and_tls(tmp_path: Path) -> None:
    with KafkaContainer(users=USERS, tls=True) as container:
        settings = container.broker.client_settings("bob")
        assert settings["bootstrap_servers"] == container.get_bootstrap_server()
        with sync.Producer(**settings) as producer:
            producer.send_and_wait("orders", b"4 apples")


def test_a_virtual_cluster_may_have_users_and_tls(
    odradek_clusters: Clusters, tmp_path: Path
) -> None:
    security = Security(tmp_path, users=USERS, tls=True, superusers=["alice"])
    with odradek_clusters.create(security.broker_settings()) as cluster:
        with sync.Producer(**security.client_settings(cluster.bootstrap)) as producer:
            producer.send_and_wait("orders", b"4 apples")
        settings = security.client_settings(cluster.bootstrap, "alice", password="guessed")
        with pytest.raises(AuthenticationFailed):
            sync.Producer(**settings).start()


# --- Mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"users": {"a b": "x"}}, "the name 'a b' must be of letters"),
        ({"users": {"a": ""}}, "the password of a must be one line"),
        ({"users": {"a": "x\ny"}}, "the password of a must be one line"),
        ({"users": {"a": "x"}, "superusers": ["b"]}, "b is not among users"),
        ({"acls": True}, "acls=True needs superusers"),
    ],
)
def test_unusable_security_options_are_refused(options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Broker(**options)


def test_unusable_logins_are_refused(plain: SubprocessBroker) -> None:
    with pytest.raises(ValueError, match="no user 'eve', only alice, bob"):
        plain.client_settings("eve")
    with pytest.raises(ValueError, match="mechanism='GSSAPI' must be one of PLAIN"):
        plain.client_settings(mechanism="GSSAPI")
    with pytest.raises(IllegalState, match="without tls=True"):
        _ = plain.ca_file
    assert plain.client_settings()["sasl_username"] == "alice"
