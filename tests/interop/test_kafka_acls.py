"""ACLs of Apache Kafka, administered by our client and command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli_runner import Commands
from kafka_cluster import KafkaCluster
from odradek import Admin
from odradek_client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from odradek_client.errors import InvalidRequest

pytestmark = pytest.mark.kafka

_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KafkaCluster(tmp_path_factory.mktemp("kafka"), settings=_AUTHORIZER) as cluster:
        yield cluster.bootstrap


async def test_our_admin_creates_describes_and_deletes_acls_of_kafka(bootstrap: str) -> None:
    read = AclBinding.topic("orders", "User:alice", AclOperation.READ)
    prefixed = AclBinding(
        *("User:*", AclOperation.ALL, AclResourceType.TOPIC, "ord", PatternType.PREFIXED),
        *("10.0.0.1", AclPermission.DENY),
    )
    holds = AclBindingFilter(AclResourceType.TOPIC, "orders", PatternType.MATCH)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_acls([read, prefixed])
        # A broker receives a change from the controller a moment later.
        while len(found := await admin.describe_acls(holds)) < 2:
            pass
        assert set(found) == {read, prefixed}
        deleted = await admin.delete_acls(holds)
        assert set(deleted[holds]) == {read, prefixed}
        with pytest.raises(InvalidRequest, match="alice"):
            await admin.create_acls(AclBinding.topic("orders", "alice", AclOperation.READ))


def test_our_command_line_administers_acls_of_kafka(bootstrap: str) -> None:
    odradek = Commands(bootstrap)
    odradek.run(
        *("acl", "add", "--allow-principal", "bob", "--consumer"),
        *("--topic", "t", "--group", "g"),
    )
    while len(rows := odradek.rows("acl", "list", "--principal", "bob")) < 3:
        pass
    assert {(row["resource"], row["operation"]) for row in rows} == {
        ("topic", "read"),
        ("topic", "describe"),
        ("group", "read"),
    }
    gone = odradek.rows("acl", "delete", "--allow-principal", "bob")
    assert len(gone) == 3
