"""Admin calls about ACLs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek import Admin, Broker, Consumer, Producer
from odradek_client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    NewTopic,
    PatternType,
)
from odradek_client.errors import (
    InvalidRequest,
    OdradekError,
    Refused,
    TopicAuthorizationFailed,
)
from odradek_protocol.errors import ErrorCode

O, T = AclOperation, AclResourceType
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ALICE = "User:alice"


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with ACLs and without super users."""
    async with Broker(data_dir=tmp_path / "data", settings=AUTHORIZER) as broker:
        yield broker


async def test_acls_are_created_described_and_deleted(secured: Broker) -> None:
    read = AclBinding.topic("orders", ALICE, O.READ)
    prefixed = AclBinding(ALICE, O.WRITE, T.TOPIC, "ord", PatternType.PREFIXED, "10.0.0.1")
    denied = AclBinding("User:*", O.ALL, T.GROUP, "*", permission=AclPermission.DENY)
    cluster = AclBinding.cluster("User:bob", O.ALTER)
    group = AclBinding.group("g", "User:bob", O.READ)
    every = [read, prefixed, denied, cluster, group]
    async with Admin(bootstrap_servers=secured.bootstrap) as admin:
        assert await admin.describe_acls() == []
        assert set(await admin.create_acls(every)) == set(every)
        await admin.create_acls(read)
        assert set(await admin.describe_acls()) == set(every)
        holds = AclBindingFilter(T.TOPIC, "orders", PatternType.MATCH)
        assert set(await admin.describe_acls(holds)) == {read, prefixed}
        assert await admin.describe_acls(AclBindingFilter(principal="User:bob")) == [group, cluster]
        of_alice, of_all = AclBindingFilter(principal=ALICE), AclBindingFilter(operation=O.ALL)
        deleted = await admin.delete_acls([of_alice, of_all])
        assert set(deleted[of_alice]) == {read, prefixed} and deleted[of_all] == [denied]
        assert set(await admin.describe_acls()) == {cluster, group}


async def test_an_invalid_acl_is_an_error_and_the_valid_ones_are_created(secured: Broker) -> None:
    async with Admin(bootstrap_servers=secured.bootstrap) as admin:
        bad = AclBinding.topic("orders", "alice", O.READ)
        good = AclBinding.topic("orders", ALICE, O.READ)
        with pytest.raises(InvalidRequest, match=r"READ on topic 'orders' to alice.*no colon"):
            await admin.create_acls([bad, good])
        assert await admin.describe_acls() == [good]
        with pytest.raises(TypeError, match="give AclBinding"):
            await admin.create_acls("orders")  # type: ignore[arg-type]


async def test_acl_calls_without_an_authorizer_name_the_setting_to_set(
    odradek_broker: Broker,
) -> None:
    async with Admin(bootstrap_servers=odradek_broker.bootstrap) as admin:
        for call in (
            admin.describe_acls(),
            admin.create_acls(AclBinding.topic("t", ALICE, O.READ)),
            admin.delete_acls(AclBindingFilter()),
        ):
            with pytest.raises(Refused, match=r"authorizer\.class\.name") as raised:
                await call
            assert raised.value.code is ErrorCode.SECURITY_DISABLED


async def test_authorization_errors_name_the_resource_and_the_missing_right(tmp_path: Path) -> None:
    settings = {**AUTHORIZER, "super.users": "User:nobody-here"}
    async with Broker(data_dir=tmp_path / "data", settings=settings) as broker:
        bootstrap = broker.bootstrap

        async def refusal(what: object) -> OdradekError:
            with pytest.raises(OdradekError) as raised:
                await what  # type: ignore[misc]
            return raised.value

        async with Admin(bootstrap_servers=bootstrap) as admin:
            refused = await refusal(admin.create_topics(NewTopic("orders", 1)))
            assert isinstance(refused, TopicAuthorizationFailed)
            assert "right CREATE on the topic 'orders'" in str(refused)
            text = str(await refusal(admin.describe_acls()))
            assert "right DESCRIBE on the cluster" in text and "odradek acl add" in text
        async with Producer(bootstrap_servers=bootstrap, enable_idempotence=False) as producer:
            text = str(await refusal(producer.send_and_wait("orders", b"x")))
            assert "'orders'" in text and "WRITE to produce" in text
        consumer = Consumer("orders", bootstrap_servers=bootstrap, group_id="reports")
        async with consumer:
            text = str(await refusal(consumer.poll(timeout_ms=10_000)))
            assert "READ to consume" in text or "READ to be a member" in text
            assert "orders" in text or "reports" in text
