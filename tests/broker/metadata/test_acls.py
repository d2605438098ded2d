"""ACLs in the cluster metadata: created, found, deleted, and kept after a restart (A-68, A-70 to
A-73)."""

from __future__ import annotations

from typing import Any

import pytest

from fake_node import FakeNode
from handler_calls import ask, send
from node_world import NodeWorld
from odradek_broker.handlers import create_acls, delete_acls
from odradek_broker.metadata.errors import MetadataError
from odradek_broker.request import CloseConnection
from odradek_broker.security.authorizer import ALLOW_EVERYTHING
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_acls import AclCreation, CreateAclsRequest
from odradek_protocol.schemas.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek_protocol.schemas.describe_acls import DescribeAclsRequest
from odradek_protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

E = ErrorCode
CLASS = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC, CLUSTER = AclResourceType.TOPIC, AclResourceType.CLUSTER
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH
ANY = 1


class SecuredNode(FakeNode):
    """A node with an authorizer, so that ACLs are supported; it allows everything."""

    def __init__(self) -> None:
        super().__init__()
        self.authorizer = AnyAuthorizer()


class AnyAuthorizer:
    def allows(self, *question: object) -> bool:
        return True

    would_allow = allows

    async def allows_any(self, *_: object) -> bool:
        return True


def acl(name: str = "orders", pattern: int = LITERAL, **more: Any) -> AclCreation:
    given: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermission.ALLOW,
    }
    return AclCreation(**{**given, **more})


def created(node: Any, *acls: AclCreation, version: int = 3) -> list[int]:
    answer = ask(node, CreateAclsRequest(creations=list(acls)), version)
    return [result.error_code for result in answer.results]


def filter_of(name: str | None = None, pattern: int = ANY, **more: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **more,
    }


def described(node: Any, version: int = 3, **wanted: Any) -> set[tuple[str, int, str]]:
    """(name, pattern type, principal) of each ACL."""
    answer = ask(node, DescribeAclsRequest(**wanted), version)
    assert answer.error_code == E.NONE
    return {
        (resource.resource_name, resource.pattern_type, held.principal)
        for resource in answer.resources
        for held in resource.acls
    }


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a70_a73_acls_are_created_described_and_deleted(version: int) -> None:
    node = SecuredNode()
    assert created(node, acl(), acl("pay", PREFIXED), version=version) == [E.NONE] * 2
    assert described(node, version, **filter_of()) == {
        ("orders", LITERAL, "User:alice"),
        ("pay", PREFIXED, "User:alice"),
    }
    wanted = [DeleteAclsFilter(**filter_of("orders")), DeleteAclsFilter(**filter_of("nothing"))]
    answer = ask(node, DeleteAclsRequest(filters=wanted), version)
    first, second = answer.filter_results
    (gone,) = first.matching_acls
    assert (gone.resource_name, gone.principal, gone.operation) == ("orders", "User:alice", 3)
    assert (first.error_message, gone.error_message) == (None, None)
    assert (second.error_code, second.matching_acls) == (E.NONE, [])
    assert described(node, version, **filter_of()) == {("pay", PREFIXED, "User:alice")}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (acl(resource_type=CLUSTER, resource_name="orders"), "kafka-cluster"),
        (acl(""), "empty"),
        (acl(pattern=ANY), "patternType ANY"),
        (acl(pattern=MATCH), "patternType MATCH"),
        (acl(pattern=9), "patternType UNKNOWN"),
        (acl(resource_type=ANY), "resourceType ANY"),
        (acl(operation=ANY), "operation ANY"),
        (acl(operation=99), "operation UNKNOWN"),
        (acl(permission_type=ANY), "permissionType ANY"),
        (acl(principal="alice"), "no colon"),
        (acl(principal=""), "no colon"),
    ],
)
def test_a70_an_invalid_acl_is_refused_and_the_others_are_created(
    bad: AclCreation, says: str
) -> None:
    node = SecuredNode()
    answer = ask(node, CreateAclsRequest(creations=[acl("a"), bad, acl("b")]), 3)
    assert [result.error_code for result in answer.results] == [E.NONE, E.INVALID_REQUEST, E.NONE]
    assert says in answer.results[1].error_message
    assert len(node.metadata.acls) == 2


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation"])
def test_a70_an_unknown_type_or_operation_closes_the_connection(field: str) -> None:
    node = SecuredNode()
    with pytest.raises(CloseConnection):
        created(node, acl(), acl("b", **{field: 0}))
    assert not len(node.metadata.acls)
    with pytest.raises(CloseConnection):
        described(node, **filter_of(operation=0))
    with pytest.raises(CloseConnection):
        unknown = DeleteAclsFilter(**filter_of(permission_type=0))
        ask(node, DeleteAclsRequest(filters=[unknown]), 3)


def test_a71_an_existing_acl_is_not_recorded_again() -> None:
    node = SecuredNode()
    assert created(node, acl(), acl()) == [E.NONE] * 2
    assert created(node, acl()) == [E.NONE]
    assert len(node.recorded) == 1


def test_a72_the_number_of_acls_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek_broker.metadata.acls._ACLS_MAX", 2)
    node = SecuredNode()
    assert created(node, *map(acl, "abc")) == [E.NONE, E.NONE, E.POLICY_VIOLATION]
    assert created(node, acl("a")) == [E.NONE]


def test_a72_the_number_of_lengths_of_prefixes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of a name is looked up in each length (N-57)."""
    monkeypatch.setattr("odradek_broker.metadata.acls._PREFIX_LENGTHS_MAX", 2)
    node = SecuredNode()
    prefixes = [acl(name, PREFIXED) for name in ("a", "bb", "ccc", "dd")]
    assert created(node, *prefixes) == [E.NONE, E.NONE, E.POLICY_VIOLATION, E.NONE]
    assert created(node, acl("ddd", PREFIXED), acl("e", PREFIXED)) == [E.POLICY_VIOLATION, E.NONE]
    group = acl("ddd", PREFIXED, resource_type=AclResourceType.GROUP)
    assert created(node, acl("ddd"), group) == [E.NONE] * 2


def test_a72_a_request_over_the_limit_creates_and_deletes_no_acl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(create_acls, "NEW_MAX", 2)
    monkeypatch.setattr(delete_acls, "GONE_MAX", 2)
    node = SecuredNode()
    assert created(node, *map(acl, "abc")) == [E.POLICY_VIOLATION] * 3
    assert created(node, *map(acl, "ab")) == [E.NONE] * 2
    assert created(node, *map(acl, "bc")) == [E.NONE] * 2
    every, one = DeleteAclsFilter(**filter_of()), DeleteAclsFilter(**filter_of("a"))
    answer = ask(node, DeleteAclsRequest(filters=[one, every]), 3)
    assert [(r.error_code, r.matching_acls) for r in answer.filter_results] == [
        (E.INVALID_REQUEST, [])
    ] * 2
    assert len(node.metadata.acls) == 3


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (filter_of("orders", LITERAL), {"orders"}),
        (filter_of("orders", MATCH), {"orders", "ord", "*"}),
        (filter_of("ord", PREFIXED), {"ord"}),
        (filter_of("orders", ANY), {"orders"}),
        (filter_of(None, PREFIXED), {"ord", "pay"}),
        (filter_of("*", LITERAL), {"*"}),
        (filter_of("other", MATCH), {"*"}),
        (filter_of(principal_filter="User:bob"), {"pay"}),
        (filter_of(host_filter="10.0.0.1"), {"pay"}),
        (filter_of(operation=AclOperation.WRITE), set()),
        (filter_of(permission_type=AclPermission.DENY), set()),
        (filter_of(resource_type_filter=AclResourceType.GROUP), set()),
        (filter_of(resource_type_filter=TOPIC), {"orders", "ord", "pay", "*"}),
    ],
)
def test_a73_a_filter_finds_the_acls_that_match(wanted: dict[str, Any], found: set[str]) -> None:
    node = SecuredNode()
    created(
        node,
        acl(),
        acl("ord", PREFIXED),
        acl("*"),
        acl("pay", PREFIXED, principal="User:bob", host="10.0.0.1"),
    )
    assert {name for name, _, _ in described(node, **wanted)} == found


def test_a73_an_acl_that_two_filters_match_is_answered_twice_and_removed_once() -> None:
    node = SecuredNode()
    created(node, acl())
    wanted = [DeleteAclsFilter(**filter_of()), DeleteAclsFilter(**filter_of("orders"))]
    answer = ask(node, DeleteAclsRequest(filters=wanted), 3)
    assert [len(result.matching_acls) for result in answer.filter_results] == [1, 1]
    assert not len(node.metadata.acls)


def test_a19_acl_requests_without_an_authorizer_are_refused() -> None:
    node = FakeNode()
    assert node.authorizer is ALLOW_EVERYTHING
    answer = ask(node, DescribeAclsRequest(**filter_of()), 3)
    assert (answer.error_code, answer.resources) == (E.SECURITY_DISABLED, [])
    assert created(node, acl(), acl("b")) == [E.SECURITY_DISABLED] * 2
    deleted = ask(node, DeleteAclsRequest(filters=[DeleteAclsFilter(**filter_of())]), 3)
    assert deleted.filter_results[0].error_code == E.SECURITY_DISABLED


def test_a68_a_crash_keeps_acls_and_does_not_restore_deleted_ones() -> None:
    world = NodeWorld(authorizer_class_name=CLASS, super_users="User:ANONYMOUS")
    request = CreateAclsRequest(creations=[acl(), acl("pay", PREFIXED)])
    deferred = send(world.node, request, 3)
    assert not deferred.done, "it is answered when it is durable"
    world.flush()
    assert [result.error_code for result in deferred.result().results] == [E.NONE] * 2
    world.crash(keep_page_cache=False)
    assert {held.name for held in world.node.metadata.acls.by_id.values()} == {"orders", "pay"}
    (acl_id, _), *_ = world.node.metadata.acls.by_id.items()
    world.node.metadata_log.commit([RemoveAccessControlEntryRecord(id=acl_id)])
    world.flush()
    world.crash(keep_page_cache=False)
    assert {held.name for held in world.node.metadata.acls.by_id.values()} == {"pay"}


@pytest.mark.parametrize(
    "record",
    [
        AccessControlEntryRecord(id=b"1" * 16, operation=99, resource_type=2, pattern_type=3),
        RemoveAccessControlEntryRecord(id=b"2" * 16),
    ],
)
def test_d4_the_replay_of_an_impossible_acl_record_is_refused(record: Any) -> None:
    with pytest.raises(MetadataError, match="ACL"):
        FakeNode().metadata.replay(record)
