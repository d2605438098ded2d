"""The quota that applies to a client, and the usage that is compared with it."""

from __future__ import annotations

from functools import partial
from math import inf

import pytest

from odradek_broker.quotas.client_quotas import (
    ANY,
    Applied,
    ClientQuotas,
    QuotaEntity,
    QuotaKey,
    quota_entity,
)
from odradek_broker.quotas.managers import QuotaManagers
from odradek_broker.quotas.rates import SampledRate, Windows
from odradek_broker.request import RequestContext
from odradek_testkit.simulation.clock import SimulatedClock
from steps import steps_of

WINDOWS = Windows(11, 1000)
#: Quota entities, the most specific first.
ORDER: list[QuotaEntity] = [
    quota_entity([("user", "u"), ("client-id", "c")]),
    quota_entity([("user", "u"), ("client-id", None)]),
    quota_entity([("user", "u")]),
    quota_entity([("user", None), ("client-id", "c")]),
    quota_entity([("user", None), ("client-id", None)]),
    quota_entity([("user", None)]),
    quota_entity([("client-id", "c")]),
    quota_entity([("client-id", None)]),
]


def quotas() -> ClientQuotas[SampledRate]:
    return ClientQuotas(lambda: SampledRate(WINDOWS))


def asks(client_id: str | None, user: str = "u") -> RequestContext:
    return RequestContext(9, client_id, "host", 1, user=user)


def test_q01_the_most_specific_quota_applies() -> None:
    held = quotas()
    for limit, entity in enumerate(ORDER, 1):
        held.update(entity, limit)
    for limit, entity in enumerate(ORDER, 1):
        found = held.find("u", "c")
        assert found is not None
        assert found.limit == limit
        held.update(entity, None)
    assert held.find("u", "c") is None
    assert not held


def test_n57_a_quota_is_set_and_removed_quickly_however_many_there_are() -> None:
    held = quotas()
    for number in range(2_000):
        held.update(quota_entity([("user", f"user-{number}")]), 1.0)
    for limit in (1.0, 2.0, None, None):
        assert steps_of(partial(held.update, ORDER[0], limit)) < 500
        kinds = {(True, False)} if limit is None else {(True, False), (True, True)}
        assert set(held._kinds) == kinds


def test_n57_usage_of_many_clients_is_not_dropped_at_once() -> None:
    held = quotas()
    applied = [Applied(inf, "", f"client-{number}") for number in range(2_001)]
    for each in applied[1:]:
        held.usage(each, 0)
    assert steps_of(partial(held.usage, applied[0], 3_600_000)) < 10_000
    for now_ms in range(2_000):
        held.usage(applied[0], 3_600_001 + now_ms)
    assert len(held._usages) == 1


def test_clients_above_their_quota_are_throttled() -> None:
    held = quotas()
    assert list(held.throttled(0)) == []
    for name, limit in (("slow", 1), ("fast", 1_000_000)):
        held.update(quota_entity([("client-id", name)]), limit)
    for client_id in ("slow", "fast", "without"):
        held.usage(held.applied("", client_id), 0).record(1_000, 0)
    assert sorted(held.throttled(0)) == [False, False, True]
    # The usage has expired with its window.
    assert sorted(held.throttled(20_000)) == [False, False, False]


@pytest.mark.parametrize(
    ("entity", "user", "client_id"),
    list(
        zip(
            ORDER,
            ["u", "u", "u", "u", "u", "u", ANY, ANY],
            ["c", "c", ANY, "c", "c", ANY, "c", "c"],
            strict=True,
        )
    ),
)
def test_q02_clients_that_share_a_quota_share_its_usage(
    entity: QuotaEntity, user: str, client_id: str
) -> None:
    held = quotas()
    held.update(entity, 5)
    found = held.find("u", "c")
    assert found is not None
    assert (found.user, found.client_id) == (user, client_id)


def test_q01_a_quota_does_not_apply_to_other_users_and_clients() -> None:
    held = quotas()
    held.update(quota_entity([("user", "u"), ("client-id", "c")]), 5)
    held.update(quota_entity([("client-id", "c")]), 6)
    assert held.find("u", "d") is None
    assert held.find("v", "d") is None
    other = held.find("v", "c")
    assert other is not None
    assert other.limit == 6


def test_q01_the_default_client_quota_applies_to_an_empty_client_id() -> None:
    held = quotas()
    held.update(quota_entity([("client-id", "c")]), 5)
    assert held.find("u", "") is None
    held.update(quota_entity([("client-id", None)]), 6)
    found = held.find("u", "")
    assert found is not None
    assert (found.limit, found.user, found.client_id) == (6, ANY, "")


def test_usage_is_kept_for_a_bounded_number_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek_broker.quotas.client_quotas._USAGES_MAX", 3)
    held = quotas()
    held.update(quota_entity([("client-id", None)]), 5)
    for name in "abcad":
        found = held.find("u", name)
        assert found is not None
        held.usage(found, 0).record(1, 0)
    assert [client_id for _, client_id, _ in held.usages()] == ["c", "a", "d"]


def test_the_characters_of_names_with_kept_usage_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek_broker.quotas.client_quotas._CHARACTERS_MAX", 50)
    held = quotas()
    held.update(quota_entity([("client-id", None)]), 5)
    for letter in "abc":
        found = held.find("u", letter * 20)
        assert found is not None
        held.usage(found, 0)
    assert [client_id[0] for _, client_id, _ in held.usages()] == ["b", "c"]


def test_usage_is_dropped_after_an_hour_without_requests() -> None:
    held = quotas()
    held.update(quota_entity([("client-id", None)]), 5)
    for name, now_ms in (("a", 0), ("b", 3_599_999), ("c", 3_600_000)):
        found = held.find("u", name)
        assert found is not None
        held.usage(found, now_ms)
    assert [client_id for _, client_id, _ in held.usages()] == ["b", "c"]


def managers() -> tuple[QuotaManagers, SimulatedClock]:
    clock = SimulatedClock()
    return QuotaManagers(clock, WINDOWS, WINDOWS), clock


def test_quota_managers_exist_only_while_quotas_are_set() -> None:
    held, _ = managers()
    assert [held.produce, held.fetch, held.request] == [None] * 3
    assert held.controller_mutation is None
    entity = quota_entity([("user", "u")])
    held.update(entity, QuotaKey.PRODUCER_BYTE_RATE, 10)
    assert held.produce is not None
    assert held.fetch is None
    held.update(entity, QuotaKey.PRODUCER_BYTE_RATE, None)
    assert held.produce is None


@pytest.mark.parametrize(
    ("others", "own"),
    [
        ([("client-id", "other")], [("client-id", "c")]),
        ([("user", "other")], [("user", "u")]),
        ([("user", "other"), ("client-id", "x")], [("user", "u"), ("client-id", "c")]),
    ],
)
def test_q02_usage_before_a_clients_quota_counts_if_other_quotas_exist(
    others: list[tuple[str, str | None]], own: list[tuple[str, str | None]]
) -> None:
    held, _ = managers()
    held.update(quota_entity(others), QuotaKey.PRODUCER_BYTE_RATE, 10)
    assert held.produce is not None
    assert held.produce.record(asks("c"), 200) == 0
    held.update(quota_entity(own), QuotaKey.PRODUCER_BYTE_RATE, 10)
    assert held.produce.record(asks("c"), 0) == 10_000


def test_q02_usage_survives_the_end_of_the_last_quota() -> None:
    held, _ = managers()
    entity = quota_entity([("user", "u")])
    held.update(entity, QuotaKey.PRODUCER_BYTE_RATE, 10)
    assert held.produce is not None
    held.produce.record(asks("c"), 200)
    held.update(entity, QuotaKey.PRODUCER_BYTE_RATE, None)
    assert held.produce is None
    held.update(entity, QuotaKey.PRODUCER_BYTE_RATE, 10)
    assert held.produce is not None
    assert held.produce.record(asks("c"), 0) == 10_000


@pytest.mark.parametrize("others", [False, True])
def test_q10_a_bucket_refills_without_a_quota_only_if_other_quotas_exist(others: bool) -> None:
    held, clock = managers()
    entity = quota_entity([("client-id", "c")])
    if others:
        other = quota_entity([("client-id", "other")])
        held.update(other, QuotaKey.CONTROLLER_MUTATION_RATE, 1)
    held.update(entity, QuotaKey.CONTROLLER_MUTATION_RATE, 1)
    context = RequestContext(6, "c", "host", 1, user="u")
    assert held.mutations(context, 6)(25)
    assert not held.mutations(context, 6)(1)
    held.update(entity, QuotaKey.CONTROLLER_MUTATION_RATE, None)
    assert held.mutations(context, 6)(1)
    clock.advance(1)
    held.update(entity, QuotaKey.CONTROLLER_MUTATION_RATE, 1)
    assert held.mutations(context, 6)(1) is others


def test_q06_the_longest_throttle_time_of_several_quotas_applies() -> None:
    held, _ = managers()
    held.update(quota_entity([("user", "u")]), QuotaKey.PRODUCER_BYTE_RATE, 10)
    held.update(quota_entity([("client-id", "c")]), QuotaKey.CONSUMER_BYTE_RATE, 20)
    assert held.produce is not None
    assert held.fetch is not None
    context = asks("c")
    assert held.produce.record(context, 200) == 10_000
    assert held.fetch.record(context, 300) == 5_000
    assert (context.throttle_ms, context.throttled_by) == (10_000, "Produce")


def test_q09_a_request_quota_throttles_for_at_most_a_window() -> None:
    held, clock = managers()
    held.update(quota_entity([("user", "u")]), QuotaKey.REQUEST_PERCENTAGE, 1)
    assert held.request is not None
    context = asks("c")
    held.request.record(context, 9)
    assert context.throttle_ms == 0
    held.request.record(context, 900)
    assert context.throttle_ms == 1000
    clock.advance(1000)
    held.request.record_only(context, 50)
    assert {user: rate for user, _, rate in held.request.usages()} == {"u": 959 / 10}


@pytest.mark.parametrize(("version", "allowed"), [(5, [True, True]), (6, [True, False])])
def test_q10_old_clients_are_throttled_without_an_error(version: int, allowed: list[bool]) -> None:
    held, clock = managers()
    held.update(quota_entity([("user", "u")]), QuotaKey.CONTROLLER_MUTATION_RATE, 1)
    context = RequestContext(version, "c", "host", 1, user="u")
    take = held.mutations(context, 6)
    assert [take(14), take(1)] == allowed
    # The bucket is overdrawn by 3 tokens; a client that does not know the error overdraws it by 1
    # more.
    assert context.throttle_ms == (4000 if version == 5 else 3000)
    clock.advance(context.throttle_ms)
    later = RequestContext(version, "c", "host", 1, user="u")
    assert held.mutations(later, 6)(1)


def test_q10_controller_mutations_are_unlimited_without_a_quota() -> None:
    held, _ = managers()
    assert held.mutations(asks("c"), 6)(1_000_000)
