"""Prepared transactions (KIP-939): the rules T-70 to T-77."""

from __future__ import annotations

from typing import Any

import pytest

import handler_calls
from acl_rules import Rule, RuleList
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.constants import NO_TRANSACTION_TIMEOUT_MS
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transaction_world import ID, T0, T1, TransactionWorld

E = ErrorCode
S = TransactionState
VERSIONS = pytest.mark.parametrize("version", [1, 2])
RESULTS = pytest.mark.parametrize("commit", [True, False])
DAY_MS = 24 * 3_600_000
YEAR_MS = 365 * DAY_MS


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld(
        transaction_abort_timed_out_transaction_cleanup_interval_ms=YEAR_MS // 100
    )


def prepared(world: TransactionWorld, version: int = 2) -> tuple[int, int]:
    """A prepared transaction, whose producer sends no more requests."""
    who = world.begin(two_phase=True, timeout_ms=-1)
    if version == 2:
        assert world.verify(who, T0, T1, add=True).result() == {T0: E.NONE, T1: E.NONE}
    else:
        assert world.add(who, T0, T1) is E.NONE
    return who


def take_over(world: TransactionWorld) -> Any:
    answer = world.init(two_phase=True, keep=True)
    assert answer.error is E.NONE
    return answer


def ask(world: TransactionWorld, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=ID, **{"transaction_timeout_ms": 60_000, **fields}
    )
    response: InitProducerIdResponse = handler_calls.ask(world, request, 6)
    return response


@pytest.mark.parametrize("fields", [{"enable2_pc": True}, {"keep_prepared_txn": True}])
def test_t70_two_phase_commit_is_refused_if_it_is_disabled(fields: dict[str, bool]) -> None:
    world = TransactionWorld(transaction_two_phase_commit_enable=False)
    assert ask(world, **fields).error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ask(world).error_code == E.NONE


def test_t70_two_phase_commit_needs_its_own_right(world: TransactionWorld) -> None:
    world.authorizer = RuleList(Rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID))
    assert ask(world, enable2_pc=True).error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ask(world).error_code == E.NONE
    world.authorizer = RuleList(
        Rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Rule(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, ID),
    )
    assert ask(world, enable2_pc=True).error_code == E.NONE


def test_t71_a_prepared_transaction_has_no_timeout(world: TransactionWorld) -> None:
    who = prepared(world)
    assert world.held().timeout_ms == NO_TRANSACTION_TIMEOUT_MS
    for _ in range(2):
        world.wait(YEAR_MS)
        assert world.state() is S.ONGOING
        world.restart()
    assert world.end(who, version=2).error is E.NONE


@pytest.mark.parametrize("restarts", [False, True])
def test_t71_an_id_without_an_open_transaction_expires_as_any_other(
    world: TransactionWorld, restarts: bool
) -> None:
    """A prepared transaction never expires; an id without an open transaction does, as in Kafka."""
    who = prepared(world)
    world.wait(YEAR_MS)
    assert world.state() is S.ONGOING, "prepared is for ever"
    world.end(who, version=2)
    world.begin(name="never used", two_phase=True)
    if restarts:
        world.restart()
    world.wait(6 * DAY_MS)
    assert (world.state(), world.state("never used")) == (S.COMPLETE_COMMIT, S.EMPTY)
    world.wait(2 * DAY_MS)
    assert world.transactions.transaction(ID) is None
    assert world.transactions.transaction("never used") is None
    answer = ask(world, enable2_pc=True, keep_prepared_txn=True)
    assert (answer.error_code, answer.ongoing_txn_producer_id) == (E.NONE, -1)
    assert (answer.producer_id, answer.producer_epoch) != who, "it begins anew"


def test_t71_an_init_without_two_phase_commit_restores_the_timeout(world: TransactionWorld) -> None:
    who = prepared(world)
    world.end(who, version=2)
    world.begin(timeout_ms=5_000)
    assert world.held().timeout_ms == 5_000
    assert world.init(timeout_ms=NO_TRANSACTION_TIMEOUT_MS).error is E.INVALID_TRANSACTION_TIMEOUT


def test_t72_keep_prepared_without_two_phase_commit_is_an_invalid_request(
    world: TransactionWorld,
) -> None:
    assert ask(world, keep_prepared_txn=True).error_code == E.INVALID_REQUEST


@VERSIONS
def test_t73_an_open_transaction_is_taken_over(world: TransactionWorld, version: int) -> None:
    who = prepared(world, version)
    answer = ask(world, enable2_pc=True, keep_prepared_txn=True)
    assert answer.error_code == E.NONE
    assert (answer.producer_id, answer.producer_epoch) == (who[0], who[1] + 1)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == who
    held = world.held()
    assert (held.state, held.partitions) == (S.ONGOING, frozenset({T0, T1}))
    assert world.markers.requests == []


@VERSIONS
def test_t73_the_old_identity_is_fenced_and_no_partition_is_added(
    world: TransactionWorld, version: int
) -> None:
    old = prepared(world, version)
    answer = take_over(world)
    new = (answer.producer_id, answer.epoch)
    assert world.end(old, version=version).error is E.PRODUCER_FENCED
    assert world.init(*old).error is E.PRODUCER_FENCED
    for who in (old, new):
        assert world.add(who, ("topic", 5)) is E.PRODUCER_FENCED
    assert world.held().partitions == {T0, T1}


def test_t73_a_transaction_may_be_taken_over_repeatedly(world: TransactionWorld) -> None:
    who = prepared(world)
    seen = [take_over(world) for _ in range(3)]
    assert [answer.epoch for answer in seen] == [1, 2, 3]
    assert {(answer.ongoing_producer_id, answer.ongoing_epoch) for answer in seen} == {who}
    for answer in seen[:-1]:
        error = world.end((answer.producer_id, answer.epoch), version=1).error
        assert error is E.PRODUCER_FENCED
    last = seen[-1]
    assert world.end((last.producer_id, last.epoch), version=2).error is E.NONE


def test_t73_a_takeover_at_the_last_epoch_gets_a_new_producer_id() -> None:
    world = TransactionWorld()
    world.put(state=S.ONGOING, epoch=32_766, client_version=2, timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
    answer = take_over(world)
    assert (answer.producer_id, answer.epoch) == (1_001, 0)
    assert (answer.ongoing_producer_id, answer.ongoing_epoch) == (7, 32_766)
    ended = world.end((1_001, 0), version=2)
    assert (ended.error, ended.producer_id, ended.epoch) == (E.NONE, 1_001, 1)
    (marker,) = world.markers.written[T0]
    assert (marker.producer_id, marker.epoch) == (7, 32_767)


@RESULTS
@VERSIONS
@pytest.mark.parametrize("restarts", [False, True])
def test_t74_markers_have_the_identity_of_the_data_after_a_takeover(
    world: TransactionWorld, version: int, commit: bool, restarts: bool
) -> None:
    data = prepared(world, version)
    answer = take_over(world)
    new = (answer.producer_id, answer.epoch)
    if restarts:
        world.restart()
    world.markers.hold = True
    ended = world.end(new, commit, version=version)
    assert (ended.error, ended.epoch) == (E.NONE, new[1] + version - 1)
    if restarts:
        world.restart()
    assert world.end(new, commit, version=version).error is E.CONCURRENT_TRANSACTIONS
    world.markers.release()
    for part in (T0, T1):
        (marker,) = world.markers.written[part]
        assert (marker.producer_id, marker.commit) == (data[0], commit)
        assert marker.epoch == data[1] + version - 1
    assert world.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert world.end(new, commit, version=version) == ended, "the client's retry"
    assert world.add((ended.producer_id, ended.epoch)) is E.NONE


def test_t74_ending_a_takeover_at_the_last_epoch_changes_the_producer_id() -> None:
    world = TransactionWorld()
    world.put(
        state=S.ONGOING,
        epoch=3,
        next_producer_id=7,
        next_epoch=32_766,
        client_version=2,
        timeout_ms=NO_TRANSACTION_TIMEOUT_MS,
    )
    world.markers.hold = True
    ended = world.end((7, 32_766), version=2)
    assert (ended.producer_id, ended.epoch) == (1_001, 0)
    assert world.end((7, 32_766), version=2).error is E.CONCURRENT_TRANSACTIONS
    world.markers.release()
    assert world.markers.written[T0][0].epoch == 4
    assert world.end((7, 32_766), version=2) == ended


def test_t75_an_init_without_an_open_transaction_keeps_none(world: TransactionWorld) -> None:
    first = take_over(world)
    assert (first.epoch, first.ongoing_producer_id, first.ongoing_epoch) == (0, -1, -1)
    second = take_over(world)
    assert (second.producer_id, second.epoch) == (first.producer_id, 1)
    assert (second.ongoing_producer_id, second.ongoing_epoch) == (-1, -1)


def test_t75_a_takeover_waits_while_the_transaction_is_being_ended(world: TransactionWorld) -> None:
    who = prepared(world)
    world.markers.hold = True
    world.end(who, version=2)
    answer = world.init(two_phase=True, keep=True)
    assert answer.error is E.CONCURRENT_TRANSACTIONS
    world.markers.release()
    assert take_over(world).ongoing_producer_id == -1


@pytest.mark.parametrize("taken_over", [False, True])
def test_t76_an_init_without_keep_prepared_aborts_the_transaction(
    world: TransactionWorld, taken_over: bool
) -> None:
    who = prepared(world)
    given = {who}
    if taken_over:
        answer = take_over(world)
        given.add((answer.producer_id, answer.epoch))
    assert world.init(two_phase=True).error is E.CONCURRENT_TRANSACTIONS
    for part in (T0, T1):
        (marker,) = world.markers.written[part]
        assert (marker.producer_id, marker.epoch, marker.commit) == (who[0], who[1] + 1, False)
    assert world.begin() not in given
    for identity in given:
        assert world.end(identity, version=1).error is E.PRODUCER_FENCED


@RESULTS
@VERSIONS
def test_t77_any_client_with_the_identity_may_end_the_transaction(
    world: TransactionWorld, version: int, commit: bool
) -> None:
    who = prepared(world, version)
    world.restart()
    world.wait(YEAR_MS)
    ended = world.end(who, commit, version=version)
    assert ended.error is E.NONE
    assert world.end(who, commit, version=version) == ended, "the answer was lost"
    assert world.end(who, not commit, version=version).error is E.INVALID_TXN_STATE
    assert {mark.commit for mark in world.markers.written[T0]} == {commit}
