"""Quotas in the cluster metadata: their checks, their description, and their state after a
restart."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from fake_node import FakeNode
from handler_calls import ask
from node_world import NodeWorld
from odradek_broker.metadata import client_quotas
from odradek_broker.metadata.client_quotas import EntityChanges, QuotaChange, alter_client_quotas
from odradek_broker.quotas.client_quotas import QuotaEntity, quota_entity
from odradek_broker.request import RequestContext
from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntryData,
    OpData,
)
from odradek_protocol.schemas.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

USER = (("user", "u"),)


def changes(entity: QuotaEntity, **limits: float | None) -> EntityChanges:
    return EntityChanges(entity, [QuotaChange(key, limit) for key, limit in limits.items()])


def altered(node: Any, *wanted: EntityChanges) -> list[ErrorCode]:
    records, results = alter_client_quotas(node.metadata, wanted)
    node.metadata_log.commit(records)
    return [result.error for result in results]


def request(entity: QuotaEntity, **limits: float | None) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[
                    QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                ops=[
                    OpData(key=key, value=limit or 0.0, remove=limit is None)
                    for key, limit in limits.items()
                ],
            )
        ]
    )


@pytest.mark.parametrize(
    ("pairs", "taken"),
    [
        ([("user", "u")], True),
        ([("user", None)], True),
        ([("client-id", "c"), ("user", "u")], True),
        ([], False),
        ([("group", "g")], False),
        ([("user", "")], False),
        ([("user", "u"), ("ip", "192.0.2.1")], False),
    ],
)
def test_q03_entities_are_users_and_client_ids(
    pairs: list[tuple[str, str | None]], taken: bool
) -> None:
    node = FakeNode()
    error = ErrorCode.NONE if taken else ErrorCode.INVALID_REQUEST
    assert altered(node, changes(quota_entity(pairs), producer_byte_rate=1)) == [error]
    assert bool(node.metadata.client_quotas) == taken


@pytest.mark.parametrize(
    ("name", "taken"),
    [("192.0.2.1", True), ("2001:db8::1", True), (None, True), ("localhost", False), ("x", False)],
)
def test_q03_an_ip_quota_takes_addresses_and_no_host_names(name: str | None, taken: bool) -> None:
    error = ErrorCode.NONE if taken else ErrorCode.INVALID_REQUEST
    wanted = changes(quota_entity([("ip", name)]), connection_creation_rate=10)
    assert altered(FakeNode(), wanted) == [error]


@pytest.mark.parametrize("limit", [0, -1, 1.5, nan, inf, 2.0**64])
def test_q03_a_byte_rate_must_be_a_whole_number_above_0(limit: float) -> None:
    node = FakeNode()
    assert altered(node, changes(USER, consumer_byte_rate=limit)) == [ErrorCode.INVALID_REQUEST]
    assert not node.metadata.client_quotas


def test_q03_all_changes_of_an_entity_are_made_or_none() -> None:
    node = FakeNode()
    assert altered(
        node,
        changes(USER, producer_byte_rate=5, rubbish=1),
        changes(quota_entity([("user", "v")]), producer_byte_rate=6),
    ) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert node.metadata.client_quotas == {(("user", "v"),): {"producer_byte_rate": 6}}


def test_q03_an_entity_given_twice_in_a_request_is_refused() -> None:
    node = FakeNode()
    twice = [changes(USER, producer_byte_rate=5), changes(USER, consumer_byte_rate=6)]
    assert altered(node, *twice) == [ErrorCode.INVALID_REQUEST]
    key_twice = EntityChanges(USER, [QuotaChange("producer_byte_rate", x) for x in (1, 2)])
    assert altered(node, key_twice) == [ErrorCode.INVALID_REQUEST]
    assert not node.metadata.client_quotas


def test_an_unchanged_quota_is_not_recorded_again() -> None:
    node = FakeNode()
    altered(node, changes(USER, producer_byte_rate=5))
    altered(node, changes(USER, producer_byte_rate=5, consumer_byte_rate=None))
    assert len(node.recorded) == 1


def test_the_number_of_quota_entities_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "_ENTITIES_MAX", 2)
    node = FakeNode()
    wanted = [changes(quota_entity([("user", name)]), producer_byte_rate=1) for name in "abc"]
    assert altered(node, *wanted) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert altered(node, changes(quota_entity([("user", "a")]), producer_byte_rate=2)) == [
        ErrorCode.NONE
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_q03_q04_quotas_are_altered_described_and_removed(version: int) -> None:
    node = FakeNode()
    both = quota_entity([("user", "u"), ("client-id", None)])
    ask(node, request(both, request_percentage=12.5, producer_byte_rate=7), version)
    checked = request(both, request_percentage=1.0)
    checked.validate_only = True
    assert ask(node, checked, version).entries[0].error_code == 0
    components = [
        ComponentData(entity_type="user", match_type=0, match="u"),
        ComponentData(entity_type="client-id", match_type=1, match=None),
    ]
    described = ask(
        node, DescribeClientQuotasRequest(components=components, strict=True), version
    ).entries
    assert [(value.key, value.value) for value in described[0].values] == [
        ("producer_byte_rate", 7.0),
        ("request_percentage", 12.5),
    ]
    ask(node, request(both, request_percentage=None, producer_byte_rate=None), version)
    assert ask(node, DescribeClientQuotasRequest(), version).entries == []


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("group", 0, "g")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "u"), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "u"), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_q04_impossible_quota_filters_are_refused(components: list[Any], error: ErrorCode) -> None:
    parts = [ComponentData(entity_type=t, match_type=m, match=n) for t, m, n in components]
    answer = ask(FakeNode(), DescribeClientQuotasRequest(components=parts), 1)
    assert (answer.error_code, answer.entries) == (error, None)


@pytest.mark.parametrize("strict", [False, True])
def test_q04_a_strict_filter_leaves_out_entities_with_more_types(strict: bool) -> None:
    node = FakeNode()
    for pairs in ([("user", "u")], [("user", "u"), ("client-id", "c")], [("client-id", "c")]):
        altered(node, changes(quota_entity(pairs), producer_byte_rate=1))
    component = ComponentData(entity_type="user", match_type=2, match=None)
    answer = ask(node, DescribeClientQuotasRequest(components=[component], strict=strict), 1)
    assert len(answer.entries) == (1 if strict else 2)


def limit_of(world: NodeWorld) -> float | None:
    produce = world.node.quotas.produce
    context = RequestContext(9, "c", "host", 1, user="u")
    return None if produce is None else produce.most_at_once(context) / 10


def test_q03_quotas_hold_at_once_and_after_a_restart() -> None:
    world = NodeWorld()
    assert altered(world.node, changes(USER, producer_byte_rate=5)) == [ErrorCode.NONE]
    assert limit_of(world) == 5
    world.flush()
    world.crash(keep_page_cache=False)
    assert limit_of(world) == 5
    altered(world.node, changes(USER, producer_byte_rate=None))
    assert limit_of(world) is None
    world.flush()
    world.crash(keep_page_cache=False)
    assert limit_of(world) is None
    assert not world.node.metadata.client_quotas
