"""The handlers of the transaction APIs: every version, with encoding and decoding."""

from __future__ import annotations

from typing import Any

import pytest

from acl_rules import Rule, RuleList
from handler_calls import received, send
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_broker.deferred import Deferred
from odradek_broker.patterns import Pattern
from odradek_broker.security.authorizer import (
    CLUSTER,
    Operation,
    Resource,
    ResourceType,
    group,
    topic,
    transactional_id,
)
from odradek_broker.slices import TURN_US
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek_protocol.schemas.describe_transactions import DescribeTransactionsRequest
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.list_transactions import ListTransactionsRequest
from transaction_world import ID, T0, TransactionWorld

E = ErrorCode
S = TransactionState
CLIENT_VERSIONS = range(4)
BROKER_VERSIONS = (4, 5)


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def ask(world: TransactionWorld, request: Message, version: int) -> Any:
    """The decoded answer to an encoded request. If the answer is not immediate, 5 s pass."""
    answer = send(world, request, version)
    if isinstance(answer, Deferred) and not answer.done:
        world.wait(5_000)
    return received(request, version, answer)


def allow(world: TransactionWorld, operation: Operation, resource: Resource) -> None:
    """Allow only this operation on this resource."""
    world.authorizer = RuleList(Rule(operation, resource.type, resource.name))


def deny(world: TransactionWorld, operation: Operation, resource: Resource) -> None:
    """Deny this operation on this resource, and allow everything else."""
    everything = [Rule(each, kind) for each in Operation for kind in ResourceType]
    world.authorizer = RuleList(Rule(operation, *resource, deny=True), *everything)


def init_request(version: int, name: str | None = ID, **fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name, **{"transaction_timeout_ms": 60_000, **fields}
    )


# --- InitProducerId ---


@pytest.mark.parametrize("version", range(6))
def test_t11_init_producer_id_returns_an_identity_in_every_version(
    world: TransactionWorld, version: int
) -> None:
    answer = ask(world, init_request(version), version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.NONE, 1_001, 0)


@pytest.mark.parametrize("version", range(6))
def test_p30_a_request_without_a_transactional_id_gets_a_new_producer_id(
    world: TransactionWorld, version: int
) -> None:
    first = ask(world, init_request(version, None, transaction_timeout_ms=-5), version)
    second = ask(world, init_request(version, None), version)
    assert (first.error_code, first.producer_epoch) == (E.NONE, 0)
    assert second.producer_id != first.producer_id
    assert world.log.records == [], "nothing of it is kept"


@pytest.mark.parametrize("version", range(6))
def test_t10_an_empty_id_is_an_invalid_request(world: TransactionWorld, version: int) -> None:
    answer = ask(world, init_request(version, "", transaction_timeout_ms=0), version)
    assert (answer.error_code, answer.producer_id) == (E.INVALID_REQUEST, -1)


@pytest.mark.parametrize("name", [ID, None])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5), (-1, 0)])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_t10_half_an_identity_is_an_invalid_request(
    world: TransactionWorld, version: int, producer_id: int, epoch: int, name: str | None
) -> None:
    half = {"producer_id": producer_id, "producer_epoch": epoch, "transaction_timeout_ms": 0}
    answer = ask(world, init_request(version, name, **half), version)
    assert (answer.error_code, answer.producer_id) == (E.INVALID_REQUEST, -1)
    assert world.log.records == []


@pytest.mark.parametrize("version", [3, 4, 5])
def test_t15_below_version_4_a_fenced_producer_gets_invalid_producer_epoch(
    world: TransactionWorld, version: int
) -> None:
    world.begin()
    answer = ask(world, init_request(version, producer_id=99, producer_epoch=0), version)
    expected = E.INVALID_PRODUCER_EPOCH if version < 4 else E.PRODUCER_FENCED
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (expected, -1, -1)


def test_a04_init_producer_id_needs_write_on_the_id_or_idempotent_write(
    world: TransactionWorld,
) -> None:
    deny(world, Operation.WRITE, transactional_id(ID))
    answer = ask(world, init_request(5), 5)
    assert answer.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    world.authorizer = RuleList()
    assert ask(world, init_request(5, None), 5).error_code == E.CLUSTER_AUTHORIZATION_FAILED
    allow(world, Operation.IDEMPOTENT_WRITE, CLUSTER)
    assert ask(world, init_request(5, None), 5).error_code == E.NONE
    allow(world, Operation.WRITE, topic("any"))
    assert ask(world, init_request(5, None), 5).error_code == E.NONE


# --- AddPartitionsToTxn ---


def add_request(
    who: tuple[int, int],
    *topics: tuple[str, list[int]],
    name: str = ID,
    version: int = 3,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    asked = [AddPartitionsToTxnTopic(name=each, partitions=indexes) for each, indexes in topics]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=asked,
        )
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=who[0],
                producer_epoch=who[1],
                verify_only=verify_only,
                topics=asked,
            )
        ]
    )


def added(answer: Any, version: int, at: int = 0) -> dict[tuple[str, int], int]:
    results = answer.results_by_topic_v3_and_below
    if version >= 4:
        assert answer.error_code == E.NONE
        results = answer.results_by_transaction[at].topic_results
    return {
        (each.name, part.partition_index): part.partition_error_code
        for each in results
        for part in each.results_by_partition
    }


@pytest.mark.parametrize("version", range(6))
def test_t20_partitions_are_added_in_every_version(world: TransactionWorld, version: int) -> None:
    who = world.begin()
    request = add_request(who, ("topic", [0, 3]), ("other", [1]), version=version)
    codes = added(ask(world, request, version), version)
    assert codes == {("topic", 0): 0, ("topic", 3): 0, ("other", 1): 0}
    assert world.held().partitions == set(codes)
    assert world.held().client_version == (2 if version >= 4 else 1)


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_t20_below_version_2_a_fenced_producer_gets_invalid_producer_epoch(
    world: TransactionWorld, version: int
) -> None:
    who = world.begin()
    request = add_request((who[0], 9), ("topic", [0]), version=version)
    expected = E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED
    assert added(ask(world, request, version), version) == {T0: expected}


@pytest.mark.parametrize("version", range(6))
def test_t20_an_empty_id_is_an_invalid_request(world: TransactionWorld, version: int) -> None:
    request = add_request((1, 0), ("topic", [0]), name="", version=version)
    assert added(ask(world, request, version), version) == {T0: E.INVALID_REQUEST}


@pytest.mark.parametrize("version", range(6))
def test_t20_a_transaction_may_begin_without_partitions(
    world: TransactionWorld, version: int
) -> None:
    who = world.begin()
    assert added(ask(world, add_request(who, version=version), version), version) == {}
    assert (world.state(), world.held().partitions) == (S.ONGOING, frozenset())
    world.restart()
    assert world.state() is S.ONGOING
    assert world.end(who).error is E.NONE
    assert world.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("version", range(6))
def test_t21_an_unknown_partition_prevents_the_whole_addition(
    world: TransactionWorld, version: int
) -> None:
    who = world.begin()
    request = add_request(who, ("topic", [0, 10]), ("none", [0]), version=version)
    assert added(ask(world, request, version), version) == {
        ("topic", 0): E.OPERATION_NOT_ATTEMPTED,
        ("topic", 10): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert world.state() is S.EMPTY


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_t21_a05_a_topic_without_write_right_prevents_the_whole_addition(
    world: TransactionWorld, version: int
) -> None:
    who = world.begin()
    deny(world, Operation.WRITE, topic("other"))
    world.metadata.counts["__consumer_offsets"] = 1
    request = add_request(
        who, ("topic", [0]), ("other", [0]), ("__consumer_offsets", [0]), version=version
    )
    assert added(ask(world, request, version), version) == {
        ("topic", 0): E.OPERATION_NOT_ATTEMPTED,
        ("other", 0): E.TOPIC_AUTHORIZATION_FAILED,
        ("__consumer_offsets", 0): E.TOPIC_AUTHORIZATION_FAILED,
    }
    assert world.state() is S.EMPTY


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_a05_the_right_to_the_id_is_checked_before_the_topics(
    world: TransactionWorld, version: int
) -> None:
    deny(world, Operation.WRITE, transactional_id(ID))
    request = add_request((1, 0), ("topic", [0]), ("none", [0]), version=version)
    codes = added(ask(world, request, version), version)
    assert set(codes.values()) == {E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", BROKER_VERSIONS)
def test_t22_between_brokers_each_transaction_has_its_own_answer(
    world: TransactionWorld, version: int
) -> None:
    who = world.begin()
    other = world.begin(name="b")
    request = add_request(who, ("topic", [0]), version=version)
    request.transactions += add_request(
        other, ("topic", [0]), name="b", version=version, verify_only=True
    ).transactions
    request.transactions += add_request(
        (9, 9), ("topic", [1]), name="c", version=version
    ).transactions
    answer = ask(world, request, version)
    assert [each.transactional_id for each in answer.results_by_transaction] == [ID, "b", "c"]
    assert added(answer, version, 0) == {T0: E.NONE}
    assert added(answer, version, 1) == {T0: E.TRANSACTION_ABORTABLE}
    assert added(answer, version, 2) == {("topic", 1): E.INVALID_PRODUCER_ID_MAPPING}
    assert world.state("b") is S.EMPTY
    assert ask(world, AddPartitionsToTxnRequest(), version).results_by_transaction == []


@pytest.mark.parametrize("version", BROKER_VERSIONS)
def test_t22_adding_to_several_transactions_needs_cluster_action(
    world: TransactionWorld, version: int
) -> None:
    who = world.begin()
    deny(world, Operation.CLUSTER_ACTION, CLUSTER)
    answer = ask(world, add_request(who, ("topic", [0]), version=version), version)
    assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
    assert world.state() is S.EMPTY


# --- AddOffsetsToTxn ---


def offsets_request(who: tuple[int, int], name: str = ID) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=who[0], producer_epoch=who[1], group_id="g"
    )


@pytest.mark.parametrize("version", range(5))
def test_t23_the_offsets_partition_of_the_group_is_added(version: int) -> None:
    world = TransactionWorld(partitions=1)
    who = world.begin()
    assert ask(world, offsets_request(who), version).error_code == E.NONE
    assert world.held().partitions == {("__consumer_offsets", 7)}


@pytest.mark.parametrize("version", range(5))
def test_t23_add_offsets_has_the_errors_of_add_partitions(
    world: TransactionWorld, version: int
) -> None:
    assert ask(world, offsets_request((1, 0)), version).error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert ask(world, offsets_request((1, 0), ""), version).error_code == E.INVALID_REQUEST
    who = world.begin()
    expected = E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED
    assert ask(world, offsets_request((who[0], 9)), version).error_code == expected


def test_a06_add_offsets_needs_write_on_the_id_and_read_on_the_group(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    deny(world, Operation.READ, group("g"))
    assert ask(world, offsets_request(who), 4).error_code == E.GROUP_AUTHORIZATION_FAILED
    deny(world, Operation.WRITE, transactional_id(ID))
    answer = ask(world, offsets_request(who), 4)
    assert answer.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# --- EndTxn ---


def end_request(who: tuple[int, int], commit: bool = True, name: str = ID) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=commit
    )


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_t30_t67_end_txn_returns_an_identity_only_since_version_5(
    world: TransactionWorld, version: int, commit: bool
) -> None:
    who = world.begin()
    world.add(who)
    answer = ask(world, end_request(who, commit), version)
    assert answer.error_code == E.NONE
    assert world.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    expected = (who[0], who[1] + 1) if version == 5 else (-1, -1)
    assert (answer.producer_id, answer.producer_epoch) == expected


@pytest.mark.parametrize("version", range(6))
def test_t30_t67_end_txn_has_the_errors_of_its_version(
    world: TransactionWorld, version: int
) -> None:
    assert ask(world, end_request((1, 0), name=""), version).error_code == E.INVALID_REQUEST
    who = world.begin()
    answer = ask(world, end_request((who[0], 9)), version)
    expected = E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (expected, -1, -1)


def test_a07_end_txn_needs_write_on_the_id(world: TransactionWorld) -> None:
    deny(world, Operation.WRITE, transactional_id(ID))
    answer = ask(world, end_request((1, 0)), 5)
    assert answer.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# --- FindCoordinator ---


@pytest.mark.parametrize("version", range(1, 7))
def test_t01_find_coordinator_returns_this_broker_for_every_id(version: int) -> None:
    world = TransactionWorld(topic=False, partitions=50)
    request = FindCoordinatorRequest(key_type=1)
    if version < 4:
        request.key = ID
        found = ask(world, request, version)
    else:
        request.coordinator_keys = [ID]
        (found,) = ask(world, request, version).coordinators
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "host", 9092)
    assert world.metadata.partition_count("__transaction_state") == 50


def test_a12_find_coordinator_needs_describe_on_the_key(world: TransactionWorld) -> None:
    deny(world, Operation.DESCRIBE, transactional_id(ID))
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID, "b"])
    first, second = ask(world, request, 6).coordinators
    assert first.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert second.error_code == E.NONE
    deny(world, Operation.DESCRIBE, group("g"))
    found = ask(world, FindCoordinatorRequest(key_type=0, key="g"), 3)
    assert found.error_code == E.GROUP_AUTHORIZATION_FAILED


# --- Describe and list ---


def test_describe_transactions_returns_all_fields_of_a_transaction(world: TransactionWorld) -> None:
    who = world.begin(timeout_ms=1_234)
    world.add(who, ("topic", 2), ("topic", 1), ("other", 0))
    request = DescribeTransactionsRequest(transactional_ids=[ID, "none", ""])
    known, unknown, empty = ask(world, request, 0).transaction_states
    assert (known.error_code, known.transactional_id) == (E.NONE, ID)
    assert known.transaction_state == "Ongoing"
    assert (known.transaction_timeout_ms, known.producer_id, known.producer_epoch) == (1_234, *who)
    assert known.transaction_start_time_ms == world.held().start_ms
    assert [(each.topic, each.partitions) for each in known.topics] == [
        ("other", [0]),
        ("topic", [1, 2]),
    ]
    assert (unknown.transactional_id, unknown.error_code) == ("none", E.TRANSACTIONAL_ID_NOT_FOUND)
    assert empty.error_code == E.INVALID_REQUEST
    for failed in (unknown, empty):
        assert (failed.producer_id, failed.producer_epoch, failed.transaction_state) == (0, 0, "")
        assert (failed.transaction_timeout_ms, failed.transaction_start_time_ms) == (0, 0)
    assert ask(world, DescribeTransactionsRequest(), 0).transaction_states == []


def test_a18_describe_transactions_needs_describe_on_id_and_topics(world: TransactionWorld) -> None:
    who = world.begin()
    world.add(who, ("topic", 2), ("other", 0))
    request = DescribeTransactionsRequest(transactional_ids=[ID])
    deny(world, Operation.DESCRIBE, topic("other"))
    (known,) = ask(world, request, 0).transaction_states
    assert [each.topic for each in known.topics] == ["topic"]
    deny(world, Operation.DESCRIBE, transactional_id(ID))
    (known,) = ask(world, request, 0).transaction_states
    assert known.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ask(world, ListTransactionsRequest(), 0).transaction_states == []


@pytest.mark.parametrize("version", range(3))
def test_list_transactions_applies_its_filters(version: int) -> None:
    world = TransactionWorld(partitions=3)
    a, b = world.begin(name="a-1"), world.begin(name="a-2")
    world.begin(name="b-1")
    world.add(a, name="a-1")
    world.wait(5_000)
    world.add(b, name="a-2")
    world.wait(1)
    c = world.begin(name="c-1")
    world.add(c, name="c-1")
    world.end(c, name="c-1")

    def listed(**filters: Any) -> set[str]:
        answer = ask(world, ListTransactionsRequest(**filters), version)
        assert answer.error_code == E.NONE
        return {each.transactional_id for each in answer.transaction_states}

    assert listed() == {"a-1", "a-2", "b-1", "c-1"}
    assert listed(state_filters=["Ongoing"]) == {"a-1", "a-2"}
    assert listed(state_filters=["Empty", "Nonsense"]) == {"b-1"}
    assert listed(state_filters=["Nonsense"]) == set()
    assert listed(producer_id_filters=[b[0]]) == {"a-2"}
    if version >= 1:
        # The filter compares the time since the transaction began. For b-1, no transaction has
        # begun, so the time is infinite. The transaction of c-1 has just begun.
        assert listed(duration_filter=5_000) == {"a-1", "b-1"}
        assert listed(duration_filter=5_001) == {"b-1"}
        assert listed(duration_filter=0) == {"a-1", "a-2", "b-1"}
        assert listed(duration_filter=-2) == {"a-1", "a-2", "b-1", "c-1"}
        world.wait(1)
        assert listed(duration_filter=0) == {"a-1", "a-2", "b-1", "c-1"}
        assert listed(duration_filter=2**63 - 1) == set()
    if version >= 2:
        assert listed(transactional_id_pattern="a.*") == {"a-1", "a-2"}
        assert listed(transactional_id_pattern="a") == set(), "the whole id"
        assert listed(transactional_id_pattern="[ab]-1") == {"a-1", "b-1"}
        assert listed(transactional_id_pattern="") == {"a-1", "a-2", "b-1", "c-1"}


def test_list_transactions_returns_unknown_state_filters(world: TransactionWorld) -> None:
    request = ListTransactionsRequest(state_filters=["Empty", "Nonsense"])
    assert ask(world, request, 0).unknown_state_filters == ["Nonsense"]


@pytest.mark.parametrize("pattern", ["(", "[", r"(a)\1", "(?=a)", "x" * 5_000])
def test_list_transactions_refuses_an_invalid_pattern(
    world: TransactionWorld, pattern: str
) -> None:
    request = ListTransactionsRequest(transactional_id_pattern=pattern)
    assert ask(world, request, 2).error_code == E.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["a?" * 60 + "a" * 60, "(a+)+b", "(a|a)*b", "(a|a)" * 60 + "b"])
def test_d11_no_pattern_of_list_transactions_backtracks_without_end(
    world: TransactionWorld, pattern: str
) -> None:
    """Backtracking would try 2^60 possibilities."""
    world.begin(name="a" * 60)
    answer = ask(world, ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert answer.error_code == E.NONE
    assert len(answer.transaction_states) == (not pattern.endswith("b"))


def test_a18_only_ids_that_the_user_may_describe_are_matched(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A match takes much longer than a check of a right, and users without rights may ask."""
    for at in range(3):
        world.begin(name=f"id-{at}")
    matched: list[str] = []
    matches = Pattern.matches

    def note(pattern: Pattern, name: str) -> bool:
        matched.append(name)
        return matches(pattern, name)

    monkeypatch.setattr(Pattern, "matches", note)
    allow(world, Operation.DESCRIBE, transactional_id("id-1"))
    answer = ask(world, ListTransactionsRequest(transactional_id_pattern="id.*"), 2)
    assert [each.transactional_id for each in answer.transaction_states] == matched == ["id-1"]


def test_n57_list_transactions_matches_ids_in_slices(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(100):
        world.begin(name=f"id-{at}")
    matches, now_us = Pattern.matches, 0

    def slow(pattern: Pattern, name: str) -> bool:
        nonlocal now_us
        now_us += 500
        return matches(pattern, name)

    monkeypatch.setattr(Pattern, "matches", slow)
    world.now_us = lambda: now_us
    request = ListTransactionsRequest(transactional_id_pattern="id.*")
    answer = send(world, request, 2)
    slices = 1
    while not answer.done:
        assert world.turns.turn()
        slices += 1
    assert slices >= 100 * 500 // TURN_US
    assert len(received(request, 2, answer).transaction_states) == 100


def test_list_transactions_of_a_closed_coordinator_is_refused(world: TransactionWorld) -> None:
    world.transactions.shards.close()
    answer = ask(world, ListTransactionsRequest(), 2)
    assert answer.error_code == E.NOT_COORDINATOR
