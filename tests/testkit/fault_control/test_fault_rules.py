"""The rules for injected faults: the requests that a rule matches, its number of uses, its
duration, and the JSON orders from which rules are made."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_protocol.common_structs import AcknowledgementBatch
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_protocol.schemas.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from odradek_testkit.fault_control.answers import named_in
from odradek_testkit.fault_control.orders import (
    MS_MAX,
    NAME_CHARS_MAX,
    AbortTransaction,
    BadOrder,
    ExpireLock,
    ExpireSession,
    parse_order,
)
from odradek_testkit.fault_control.rules import (
    RULES_MAX,
    FaultEffect,
    FaultRule,
    FaultRules,
    Named,
    TooManyRules,
)

NOW_MS = 1_000
NOTHING = Named()


def rule(**order: Any) -> FaultRule:
    parsed = parse_order(order, NOW_MS)
    assert isinstance(parsed, FaultRule)
    return parsed


def meets(rules: FaultRules, api: ApiKey, named: Named = NOTHING, client_id: str = "c") -> bool:
    return rules.meet(api, named, client_id, NOW_MS) is not None


def one(**order: Any) -> FaultRules:
    rules = FaultRules()
    rules.add(rule(**order), NOW_MS)
    return rules


def test_a_fault_rule_applies_once_by_default() -> None:
    rules = one(fault="drop_reply", api="Produce")
    assert not meets(rules, ApiKey.FETCH)
    assert [meets(rules, ApiKey.PRODUCE) for _ in range(3)] == [True, False, False]
    (held,) = rules.all()
    assert (held.met, held.left, held.is_over(NOW_MS)) == (1, 0, True)


def test_a_fault_rule_with_times_null_applies_always() -> None:
    rules = one(fault="cut", api="*", times=None)
    assert all(meets(rules, api) for api in (ApiKey.FETCH, ApiKey.HEARTBEAT) * 5)


def test_a_fault_rule_with_skip_lets_the_first_requests_pass() -> None:
    rules = one(fault="cut", api="fetch", skip=2, times=2)
    assert [meets(rules, ApiKey.FETCH) for _ in range(5)] == [False, False, True, True, False]


def test_a_fault_rule_ends_after_for_ms() -> None:
    rules = one(fault="delay", api="Fetch", ms=5, times=None, for_ms=50)
    assert rules.meet(ApiKey.FETCH, NOTHING, None, NOW_MS + 49)
    assert not rules.meet(ApiKey.FETCH, NOTHING, None, NOW_MS + 50)


@pytest.mark.parametrize(
    ("match", "named", "fits"),
    [
        ({"topic": "t"}, Named(frozenset({("t", 3)})), True),
        ({"topic": "t"}, Named(frozenset({("u", 3)})), False),
        ({"topic": "t", "partition": 3}, Named(frozenset({("t", 3)})), True),
        ({"topic": "t", "partition": 4}, Named(frozenset({("t", 3), ("u", 4)})), False),
        ({"topic": "t", "partition": 4}, Named(frozenset({("t", -1)})), True),
        ({"group": "g"}, Named(groups=frozenset({"g", "h"})), True),
        ({"group": "g"}, NOTHING, False),
        ({"transactional_id": "x"}, Named(transactional_ids=frozenset({"x"})), True),
        ({"transactional_id": "x"}, Named(groups=frozenset({"x"})), False),
        ({"client_id": "c"}, NOTHING, True),
        ({"client_id": "d"}, NOTHING, False),
    ],
)
def test_a_fault_rule_applies_to_requests_that_name_its_subject(
    match: dict[str, Any], named: Named, fits: bool
) -> None:
    assert meets(one(fault="cut", api="*", **match), ApiKey.PRODUCE, named) is fits


def test_the_first_matching_fault_rule_applies() -> None:
    rules = one(fault="cut", api="Fetch")
    rules.add(rule(fault="delay", api="*", ms=1), NOW_MS)
    actions = []
    while (met := rules.meet(ApiKey.FETCH, NOTHING, None, NOW_MS)) is not None:
        actions.append(met.action)
    assert actions == [FaultEffect.CUT, FaultEffect.DELAY]


def test_requests_do_not_match_fault_rules_of_the_disk() -> None:
    rules = one(fault="full_disk", for_ms=10)
    assert not meets(rules, ApiKey.PRODUCE)
    assert rules.meet_disk(FaultEffect.FULL_DISK, NOW_MS + 9)
    assert not rules.meet_disk(FaultEffect.FULL_DISK, NOW_MS + 10)
    assert not rules.meet_disk(FaultEffect.SLOW_DISK, NOW_MS)


def test_fault_rules_of_the_disk_count_times_and_skip() -> None:
    for_ever = one(fault="full_disk")
    assert all(for_ever.meet_disk(FaultEffect.FULL_DISK, NOW_MS) for _ in range(9))
    (held,) = for_ever.all()
    assert (held.met, held.left) == (9, None)
    rules = one(fault="slow_disk", ms=5, skip=1, times=2)
    found = [bool(rules.meet_disk(FaultEffect.SLOW_DISK, NOW_MS)) for _ in range(5)]
    assert found == [False, True, True, False, False]
    (held,) = rules.all()
    assert (held.met, held.left, held.is_over(NOW_MS)) == (2, 0, True)


def test_the_number_of_fault_rules_is_limited() -> None:
    rules = FaultRules()
    for _ in range(RULES_MAX):
        rules.add(rule(fault="cut", api="Fetch"), NOW_MS)
    with pytest.raises(TooManyRules):
        rules.add(rule(fault="cut", api="Produce"), NOW_MS)
    assert meets(rules, ApiKey.FETCH)
    added = rules.add(rule(fault="cut", api="Produce"), NOW_MS)
    assert added.number == RULES_MAX + 1
    assert [each.number for each in rules.all()] == [*range(2, RULES_MAX + 2)]
    assert rules.remove(added.number)
    assert not rules.remove(added.number)
    rules.clear()
    assert not rules


def test_lose_leader_and_move_coordinator_are_rules_of_fail() -> None:
    lost = rule(fault="lose_leader", topic="t", partition=0, times=4)
    assert (lost.action, lost.code, lost.left) == (
        FaultEffect.FAIL,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        4,
    )
    assert lost.apis is not None
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS} <= lost.apis
    moved = rule(fault="move_coordinator", group="g")
    assert moved.code is ErrorCode.NOT_COORDINATOR
    assert moved.apis is not None
    assert {ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT} <= moved.apis
    moved = rule(fault="move_coordinator", transactional_id="x")
    assert moved.apis is not None
    assert ApiKey.END_TXN in moved.apis
    assert ApiKey.OFFSET_COMMIT not in moved.apis


def test_orders_to_expire_or_abort_are_no_rules() -> None:
    assert parse_order({"fault": "expire_session", "group": "g"}, 0) == ExpireSession("g", None)
    assert parse_order({"fault": "abort_transaction", "transactional_id": "x"}, 0) == (
        AbortTransaction("x")
    )
    assert parse_order({"fault": "expire_lock", "group": "g"}, 0) == ExpireLock("g", None, None)
    order = {"fault": "expire_lock", "group": "g", "topic": "t", "partition": 2}
    assert parse_order(order, 0) == ExpireLock("g", "t", 2)


def test_lose_acknowledgement_matches_acknowledgements_of_a_share_group() -> None:
    lost = rule(fault="lose_acknowledgement", group="g", topic="t", partition=1)
    assert (lost.action, lost.handled, lost.left) == (FaultEffect.CUT, True, 1)
    assert not rule(fault="lose_acknowledgement", group="g", handled=False).handled

    def meets(named: Named) -> bool:
        return lost.matches(ApiKey.SHARE_FETCH, named, None)

    groups, fetched = frozenset({"g"}), frozenset({("t", 0), ("t", 1)})
    assert meets(Named(fetched, groups, acknowledged=frozenset({("t", 1)})))
    assert not meets(Named(fetched, groups, acknowledged=frozenset({("t", 0)})))
    assert not meets(Named(fetched, groups))
    assert not meets(Named(fetched, frozenset({"h"}), acknowledged=fetched))
    anything = rule(fault="lose_acknowledgement", group="g")
    assert not anything.matches(ApiKey.SHARE_FETCH, Named(fetched, groups), None)
    assert anything.matches(
        ApiKey.SHARE_ACKNOWLEDGE, Named(fetched, groups, acknowledged=fetched), None
    )


def test_acknowledged_partitions_of_a_share_fetch_are_found() -> None:
    batch = AcknowledgementBatch(first_offset=0, last_offset=4, acknowledge_types=[1])
    partitions = [
        ShareFetchPartition(partition_index=0),
        ShareFetchPartition(partition_index=1, acknowledgement_batches=[batch]),
    ]
    request = ShareFetchRequest(
        group_id="g", topics=[ShareFetchTopic(topic_id=bytes(16), partitions=partitions)]
    )
    named = named_in(request, lambda _: "t")
    assert named == Named(
        frozenset({("t", 0), ("t", 1)}), frozenset({"g"}), acknowledged=frozenset({("t", 1)})
    )


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ([], "JSON object"),
        ({"fault": "burn"}, "no fault 'burn'"),
        ({"fault": 7}, "fault must be a text"),
        ({"fault": "cut"}, "needs api"),
        ({"fault": "cut", "api": []}, "needs api"),
        ({"fault": "cut", "api": "Prod"}, "no API 'Prod'"),
        ({"fault": "cut", "api": "*", "code": 3}, "takes no code"),
        ({"fault": "cut", "api": "*", "times": 0}, "times must be"),
        ({"fault": "cut", "api": "*", "times": True}, "times must be"),
        ({"fault": "cut", "api": "*", "handled": 1}, "handled must be"),
        ({"fault": "cut", "api": "*", "partition": 1}, "partition goes with topic"),
        ({"fault": "cut", "api": "*", "topic": "t" * (NAME_CHARS_MAX + 1)}, "topic must be"),
        ({"fault": "cut", "api": "Produc"}, "did you mean 'Produce'"),
        ({"fault": "cut", "api": "Zz"}, "it has Produce, "),
        ({"fault": "fail", "api": "*"}, "needs code"),
        (
            {"fault": "fail", "api": "*", "code": "NOT_ENOUGH"},
            "did you mean 'NOT_ENOUGH_REPLICAS'",
        ),
        (
            {"fault": "fail", "api": "*", "code": "not_coordinater"},
            "did you mean 'NOT_COORDINATOR'",
        ),
        ({"fault": "fail", "api": "*", "code": "ZZZZ"}, "needs code"),
        ({"fault": "fail", "api": "*", "code": "NONE"}, "needs code"),
        ({"fault": "fail", "api": "*", "code": 30_000}, "needs code"),
        ({"fault": "delay", "api": "*"}, "needs ms"),
        ({"fault": "delay", "api": "*", "ms": MS_MAX + 1}, "ms must be"),
        ({"fault": "slow_disk", "ms": 5, "times": 0}, "times must be"),
        ({"fault": "full_disk", "topic": "t"}, "takes no topic"),
        ({"fault": "lose_leader"}, "needs topic"),
        ({"fault": "move_coordinator"}, "either group or transactional_id"),
        ({"fault": "expire_session"}, "needs group"),
        ({"fault": "abort_transaction"}, "needs transactional_id"),
        ({"fault": "expire_lock"}, "needs group"),
        ({"fault": "expire_lock", "group": "g", "partition": 1}, "partition goes with topic"),
        ({"fault": "expire_lock", "group": "g", "times": 2}, "takes no times"),
        ({"fault": "lose_acknowledgement"}, "needs group"),
        ({"fault": "lose_acknowledgement", "group": "g", "handled": 1}, "handled must be"),
    ],
)
def test_invalid_fault_orders_are_refused(order: Any, says: str) -> None:
    with pytest.raises(BadOrder, match=says):
        parse_order(order, NOW_MS)


def no_topic(_: bytes) -> str | None:
    return None


def test_topics_groups_and_transactional_ids_of_a_request_are_found() -> None:
    topics = {b"0" * 16: "t"}
    produce = ProduceRequest(
        transactional_id="x",
        topic_data=[
            TopicProduceData(topic_id=b"0" * 16, partition_data=[PartitionProduceData(index=2)]),
            TopicProduceData(topic_id=b"1" * 16, partition_data=[PartitionProduceData(index=3)]),
        ],
    )
    assert named_in(produce, topics.get) == Named(
        frozenset({("t", 2)}), frozenset(), frozenset({"x"})
    )
    fetch = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
            )
        ]
    )
    assert named_in(fetch, no_topic) == Named(
        frozenset({("t", 0), ("t", 1)}), frozenset({"g"}), frozenset()
    )
    found = named_in(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), no_topic)
    assert found == Named(transactional_ids=frozenset({"x"}))
