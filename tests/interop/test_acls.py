"""ACLs set by other projects' admin clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek import Admin, Consumer, NewTopic, Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import AclBinding, AclOperation, AclResourceType, PatternType
from odradek_client.errors import GroupAuthorizationFailed, TopicAuthorizationFailed

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with SubprocessBroker(data_dir=tmp_path / "data", settings=AUTHORIZER) as broker:
        yield broker.bootstrap


def test_librdkafka_creates_describes_and_deletes_acls(bootstrap: str) -> None:
    import confluent_kafka.admin

    rd: Any = confluent_kafka.admin
    admin = rd.AdminClient({"bootstrap.servers": bootstrap})

    def acl(name: str, pattern: Any, operation: Any) -> Any:
        allow = rd.AclPermissionType.ALLOW
        return rd.AclBinding(
            rd.ResourceType.TOPIC, name, pattern, "User:alice", "*", operation, allow
        )

    literal, prefixed = rd.ResourcePatternType.LITERAL, rd.ResourcePatternType.PREFIXED
    first = acl("orders", literal, rd.AclOperation.READ)
    second = acl("pay", prefixed, rd.AclOperation.WRITE)
    for future in admin.create_acls([first, second]).values():
        future.result(30)
    anything = rd.AclBindingFilter(
        *(rd.ResourceType.ANY, None, rd.ResourcePatternType.ANY, None, None),
        *(rd.AclOperation.ANY, rd.AclPermissionType.ANY),
    )
    assert set(admin.describe_acls(anything).result(30)) == {first, second}
    holds = rd.AclBindingFilter(
        *(rd.ResourceType.TOPIC, "payments", rd.ResourcePatternType.MATCH, None, None),
        *(rd.AclOperation.ANY, rd.AclPermissionType.ANY),
    )
    assert admin.describe_acls(holds).result(30) == [second]
    (deleted,) = admin.delete_acls([holds]).values()
    assert deleted.result(30) == [second]
    assert admin.describe_acls(anything).result(30) == [first]


def test_kafka_python_creates_describes_and_deletes_acls(bootstrap: str) -> None:
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        KafkaAdminClient,
        ResourcePattern,
        ResourcePatternFilter,
        ResourceType,
    )

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        acl = ACL(
            principal="User:alice",
            host="*",
            operation=ACLOperation.READ,
            permission_type=ACLPermissionType.DENY,
            resource_pattern=ResourcePattern(
                ResourceType.GROUP, "g", ACLResourcePatternType.PREFIXED
            ),
        )
        created = admin.create_acls([acl])
        assert created["succeeded"] == [acl] and not created["failed"]
        wanted = ACLFilter(
            principal=None,
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(
                ResourceType.ANY, None, ACLResourcePatternType.ANY
            ),
        )
        found = admin.describe_acls(wanted)
        assert acl in (found[0] if isinstance(found, tuple) else found)
        admin.delete_acls([wanted])
        left = admin.describe_acls(wanted)
        assert not (left[0] if isinstance(left, tuple) else left)
    finally:
        admin.close()


# --- Users with and without rights ----------------------------------------------------------------

USERS = {
    **AUTHORIZER,
    "super.users": "User:admin",
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_admin="secret" user_loader="secret" user_reports="secret";'
    ),
    "group.initial.rebalance.delay.ms": "0",
}


def ours(bootstrap: str, user: str) -> dict[str, Any]:
    """Settings of our clients for a user."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": "secret",
    }


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[str]:
    """A broker where `loader` may write to topics whose names begin with `in-`, and `reports` may
    read them in its own group."""
    with SubprocessBroker(data_dir=tmp_path / "data", settings=USERS) as broker:
        topic = AclResourceType.TOPIC, "in-", PatternType.PREFIXED
        async with Admin(**ours(broker.bootstrap, "admin")) as admin:
            await admin.create_topics([NewTopic("in-1", 1), NewTopic("other", 1)])
            await admin.create_acls(
                [
                    AclBinding("User:loader", AclOperation.WRITE, *topic),
                    AclBinding("User:reports", AclOperation.READ, *topic),
                    AclBinding.group("reports", "User:reports", AclOperation.READ),
                ]
            )
        yield broker.bootstrap


async def test_our_clients_are_limited_to_their_acls(secured: str) -> None:
    async with Producer(**ours(secured, "loader")) as producer:
        await producer.send_and_wait("in-1", b"x")
        with pytest.raises(TopicAuthorizationFailed, match="'other'"):
            await producer.send_and_wait("other", b"x")
    async with Producer(**ours(secured, "reports"), enable_idempotence=False) as producer:
        with pytest.raises(TopicAuthorizationFailed, match="in-1"):
            await producer.send_and_wait("in-1", b"x")
    reader = ours(secured, "reports") | {"auto_offset_reset": "earliest"}
    async with Consumer("in-1", group_id="reports", **reader) as consumer:
        records = await consumer.poll(timeout_ms=30_000)
        assert [record.value for record in records] == [b"x"]
        await consumer.commit()
    async with Consumer("in-1", group_id="another", **reader) as consumer:
        with pytest.raises(GroupAuthorizationFailed, match="another"):
            await consumer.poll(timeout_ms=30_000)


def test_librdkafka_is_limited_to_its_acls(secured: str) -> None:
    import confluent_kafka

    def settings(user: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": secured,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": "secret",
            **more,
        }

    told: dict[str, int | None] = {}

    def delivered(error: Any, message: Any) -> None:
        told[message.topic()] = None if error is None else error.code()

    producer = confluent_kafka.Producer(settings("loader", **{"enable.idempotence": True}))
    for name in ("in-1", "other"):
        producer.produce(name, b"y", on_delivery=delivered)
    assert producer.flush(30) == 0
    denied = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert told == {"in-1": None, "other": denied}

    def first_of(group: str) -> Any:
        reads = {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(settings("reports", **reads))
        consumer.subscribe(["in-1"])
        try:
            return consumer.poll(30)
        finally:
            consumer.close()

    assert first_of("reports").value() == b"y"
    refused = first_of("another").error().code()
    assert refused == confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED


async def test_aiokafka_is_limited_to_its_acls(secured: str) -> None:
    import aiokafka
    import aiokafka.errors

    def settings(user: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": secured,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": "secret",
        }

    async with aiokafka.AIOKafkaProducer(**settings("loader")) as producer:
        await producer.send_and_wait("in-1", b"z")
        with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
            await producer.send_and_wait("other", b"z")
    more = {"auto_offset_reset": "earliest"}
    consumer = aiokafka.AIOKafkaConsumer("in-1", group_id="reports", **settings("reports"), **more)
    async with consumer:
        assert (await consumer.getone()).value == b"z"
