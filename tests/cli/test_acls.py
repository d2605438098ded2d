"""`odradek acl` against a broker in another process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cli_runner import Commands
from odradek.broker import SubprocessBroker

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("acls")
    with SubprocessBroker(data_dir=folder / "data", settings=AUTHORIZER) as broker:
        yield broker.bootstrap


@pytest.fixture
def odradek(bootstrap: str) -> Commands:
    commands = Commands(bootstrap)
    commands.run("acl", "delete", "--all")
    return commands


def rights(odradek: Commands, *arguments: str) -> set[tuple[str, ...]]:
    """(principal, permission and operation, resource) of each ACL."""

    def shown(row: dict[str, Any]) -> tuple[str, ...]:
        pattern = "" if row["pattern"] == "literal" else "~"
        resource = f"{row['resource']} {pattern}{row['name']}"
        sign = "" if row["permission"] == "allow" else "not "
        host = "" if row["host"] == "*" else f"@{row['host']}"
        return f"{row['principal'].removeprefix('User:')}{host}", sign + row["operation"], resource

    return {shown(row) for row in odradek.rows("acl", "list", *arguments)}


def test_acls_are_added_listed_and_deleted(odradek: Commands) -> None:
    odradek.run("acl", "list")
    assert "there are no ACLs" in odradek.stderr
    odradek.run(
        *("acl", "add", "--allow-principal", "alice", "--allow-principal", "Group:x"),
        *("--operation", "read", "--operation", "DescribeConfigs", "--topic", "orders"),
    )
    assert "added: ALLOW READ on topic 'orders' to User:alice from *" in odradek.stderr
    assert odradek.table("acl", "list", "--principal", "alice") == [
        ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"],
        ["User:alice", "allow", "read", "topic", "orders", "literal", "*"],
        ["User:alice", "allow", "describe_configs", "topic", "orders", "literal", "*"],
    ]
    odradek.run(
        *("acl", "add", "--deny-principal", "*", "--deny-host", "10.0.0.1"),
        *("--topic", "or", "--resource-pattern-type", "prefixed"),
    )
    everybody = ("*@10.0.0.1", "not all", "topic ~or")
    assert rights(odradek, "--topic", "orders", "--principal", "*") == {everybody}
    assert rights(odradek, "--topic", "payments") == set()
    odradek.run("acl", "delete", "--allow-principal", "alice", "--operation", "read")
    assert "deleted: ALLOW READ on topic 'orders' to User:alice" in odradek.stderr
    assert rights(odradek, "--principal", "alice") == {
        ("alice", "describe_configs", "topic orders")
    }
    odradek.run("acl", "delete", "--topic", "or")
    assert "there is no such ACL" in odradek.stderr
    odradek.run("acl", "delete", "--topic", "or", "--resource-pattern-type", "prefixed")
    assert everybody not in rights(odradek)


def test_producer_and_consumer_options_add_all_needed_acls(odradek: Commands) -> None:
    odradek.run(
        *("acl", "add", "--allow-principal", "loader", "--producer", "--idempotent"),
        *("--topic", "raw.", "--resource-pattern-type", "prefixed", "--transactional-id", "l"),
    )
    loader = {
        ("loader", "write", "topic ~raw."),
        ("loader", "describe", "topic ~raw."),
        ("loader", "create", "topic ~raw."),
        ("loader", "write", "transactional_id ~l"),
        ("loader", "describe", "transactional_id ~l"),
        ("loader", "idempotent_write", "cluster kafka-cluster"),
    }
    assert rights(odradek) == loader
    odradek.run(
        *("acl", "add", "--allow-principal", "reports", "--consumer"),
        *("--topic", "orders", "--group", "reports"),
    )
    assert rights(odradek, "--principal", "reports") == {
        ("reports", "read", "topic orders"),
        ("reports", "describe", "topic orders"),
        ("reports", "read", "group reports"),
    }
    odradek.run("acl", "delete", "--consumer", "--topic", "orders", "--group", "reports")
    assert rights(odradek) == loader
    odradek.run(
        *("acl", "add", "--allow-principal", "root", "--cluster", "--group", "*"),
        *("--user-principal", "alice", "--delegation-token", "t", "--operation", "describe"),
    )
    assert rights(odradek, "--cluster", "--principal", "root") == {
        ("root", "describe", "cluster kafka-cluster")
    }
    gone = odradek.rows("acl", "delete", "--allow-principal", "root")
    assert {row["resource"] for row in gone} == {"cluster", "group", "user", "delegation_token"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "--topic", "t"), "say who: --allow-principal"),
        (("add", "--allow-principal", "a"), "say what: --topic"),
        (("add", "--allow-principal", "a", "--producer", "--group", "g"), "need a --topic"),
        (("add", "--allow-principal", "a", "--consumer", "--topic", "t"), "need a --group"),
        (("add", "--allow-principal", "a", "--idempotent", "--topic", "t"), "goes with --producer"),
        (
            ("add", "--allow-principal", "a", "--topic", "t", "--operation", "fly"),
            "one of all, read, write",
        ),
        (
            ("add", "--allow-principal", "a", "--producer", "--operation", "read", "--topic", "t"),
            "leave --operation out",
        ),
        (
            ("add", "--allow-principal", "a", "--topic", "t", "--resource-pattern-type", "any"),
            "one of literal, prefixed",
        ),
        (("add", "--allow-host", "10.0.0.1", "--topic", "t"), "for a --allow-principal"),
        (("delete",), "--all for every one"),
        (("delete", "--consumer"), "need the resources"),
    ],
)
def test_incomplete_or_contradictory_acl_options_are_refused(
    odradek: Commands, arguments: tuple[str, ...], words: str
) -> None:
    odradek.run("acl", *arguments, code=2)
    assert words in odradek.stderr
