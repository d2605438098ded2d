"""ACLs by the admin clients of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import SubprocessBroker

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
