"""The decisions of a transactional producer without a loop, rule by rule (C-33, C-42 to C-70, T-60
to T-68)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from many_cases import looped
from odradek_client.backoff import Backoff
from odradek_client.errors import (
    Abortable,
    ConnectionLost,
    Fatal,
    GroupMovedOn,
    IllegalState,
    InvalidProducerEpoch,
    InvalidTopic,
    OdradekError,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    UnsupportedByBroker,
)
from odradek_client.producer.batch import ProducerBatch, ProducerIdAndEpoch
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_client.producer.transaction_requests import (
    AddOffsetsToTxnHandler,
    AddPartitionsToTxnHandler,
    EndTxnHandler,
    EpochBumpHandler,
    InitProducerIdHandler,
    RequestPriority,
    TransactionCall,
    TxnOffsetCommitHandler,
    TxnReaction,
    TxnRequestHandler,
    reaction_to,
)
from odradek_client.producer.transaction_states import ALLOWED_FROM, ClientTxnState
from odradek_client.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnResponse
from odradek_protocol.schemas.end_txn import EndTxnResponse
from odradek_protocol.schemas.init_producer_id import InitProducerIdResponse
from producer_world import batch
from transaction_model import add_partitions_response, offset_commit_response
from transaction_refusals import refusal

_E = ErrorCode
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME = ProducerIdAndEpoch(7, 0)
GROUP = ConsumerGroupMetadata("g", 3, "member", None)
OFFSETS = {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(7, "note", 2)}


class Bench:
    """A transaction manager, whose requests the test answers as its coordinator.

    `level`: the level of the feature transaction.version.
    """

    def __init__(self, level: int = 0, *, init_version: int = 5, two_phase: bool = False) -> None:
        self.level = level
        self.init_version = init_version
        self.now_ms = 0.0
        self.active: list[TopicPartition] = []
        self.incomplete = False
        self.tm = TransactionManager(
            "id",
            60_000,
            new_future=None,  # type: ignore[arg-type]
            feature_level=lambda: self.level,
            backoff=Backoff(100, 1000, random.Random(1)),
            two_phase=two_phase,
        )

    @property
    def state(self) -> ClientTxnState:
        return self.tm.state

    def ask(self) -> TxnRequestHandler | None:
        return self.tm.next_request(self.active, self.incomplete, self.now_ms)[0]

    def expect(self, kind: type[TxnRequestHandler]) -> Any:
        self.now_ms += 2000
        ask = self.ask()
        assert type(ask) is kind, ask
        return ask

    def answer(self, ask: TxnRequestHandler, response: Any, version: int | None = None) -> bool:
        return self.tm.answered(ask, response, version or self.init_version, self.now_ms)

    def refuse(self, ask: TxnRequestHandler, code: ErrorCode) -> bool:
        """Answer the request with this error code."""
        return self.answer(ask, refusal(ask, code))

    def initialize(self, identity: ProducerIdAndEpoch = ME) -> Bench:
        operation = self.tm.lifecycle.operation("init_transactions", self.tm.init)
        ask = self.expect(InitProducerIdHandler)
        self.answer(ask, identified(identity))
        self.tm.lifecycle.seen(operation)
        return self

    def begin(self) -> Bench:
        self.tm.begin()
        return self

    def write(self, tp: TopicPartition = T0, count: int = 1) -> ProducerBatch:
        """Add a batch to the open transaction, as the sender does."""
        made = batch(tp, count)
        if not self.tm.is_v2 and not self.tm.may_drain(made):
            self.active = [tp]
            add = self.expect(AddPartitionsToTxnHandler)
            self.answer(add, add_partitions_response(add.message(self.tm.identity), _E.NONE))
        self.active = []
        assert self.tm.may_drain(made) or self.tm.sequences.of(tp).in_flight
        self.tm.drained(made)
        made.was_sent = True
        return made

    def wrote(self, tp: TopicPartition = T0, count: int = 1) -> ProducerBatch:
        made = self.write(tp, count)
        self.tm.acknowledged(made, 0)
        return made

    def commit(self) -> TransactionCall:
        return self.tm.lifecycle.operation("commit_transaction", self.tm.commit)

    def abort(self) -> TransactionCall:
        return self.tm.lifecycle.operation("abort_transaction", self.tm.abort)

    def end(self, operation: TransactionCall) -> None:
        """Answer EndTxn, so that the commit or abort succeeds."""
        ask = self.expect(EndTxnHandler)
        epoch = self.tm.identity.epoch
        self.answer(ask, EndTxnResponse(producer_id=7, producer_epoch=epoch + 1), 5)
        self.tm.lifecycle.seen(operation)


def identified(identity: ProducerIdAndEpoch) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


# --- C-60, C-61: states and calls -----------------------------------------------------------------


def test_c60_begin_transaction_sends_no_request() -> None:
    bench = Bench().initialize()
    bench.tm.begin()
    assert bench.state is ClientTxnState.IN_TRANSACTION
    assert bench.ask() is None


def test_c32_c60_a_new_producer_gets_its_id_from_the_transaction_coordinator() -> None:
    bench = Bench()
    bench.tm.init()
    ask = bench.expect(InitProducerIdHandler)
    assert (ask.key, ask.key_type) == ("id", 1)
    request: Any = ask.message(bench.tm.identity)
    assert (request.transactional_id, request.transaction_timeout_ms) == ("id", 60_000)
    assert (request.producer_id, request.producer_epoch) == (-1, -1)


def at(state: ClientTxnState, level: int) -> Bench:
    """A manager in a state, after the calls that lead to this state."""
    bench = Bench(level)
    if state is ClientTxnState.UNINITIALIZED:
        return bench
    if state is ClientTxnState.INITIALIZING:
        bench.tm.init()
        return bench
    bench.initialize()
    if state is ClientTxnState.READY:
        return bench
    if state is ClientTxnState.FATAL_ERROR:
        bench.tm.fail(ProducerFenced("gone"))
        return bench
    bench.begin()
    bench.wrote()
    if state is ClientTxnState.COMMITTING:
        bench.tm.commit()
    elif state is ClientTxnState.ABORTING:
        bench.tm.abort()
    elif state is ClientTxnState.ABORTABLE_ERROR:
        bench.tm.batch_failed(InvalidTopic("no such topic"))
    return bench


#: Call -> the state that it leads to, and the method of the manager.
CALLS: dict[str, tuple[ClientTxnState, Callable[[TransactionManager], Any]]] = {
    "init_transactions": (ClientTxnState.INITIALIZING, lambda tm: tm.init()),
    "begin_transaction": (ClientTxnState.IN_TRANSACTION, lambda tm: tm.begin()),
    "commit_transaction": (ClientTxnState.COMMITTING, lambda tm: tm.commit()),
    "abort_transaction": (ClientTxnState.ABORTING, lambda tm: tm.abort()),
}


@looped("state, call, level", itertools.product(ClientTxnState, CALLS, [0, 2]))
def test_c61_calls_are_legal_in_the_states_of_the_table_only(
    state: ClientTxnState, call: str, level: int
) -> None:
    """A call that the table does not allow in a state raises, and changes nothing."""
    bench = at(state, level)
    assert bench.state is state
    target, carry_out = CALLS[call]
    # INITIALIZING also follows COMMITTING and ABORTING, after a bump of the epoch, but not by a
    # call.
    by_call = not (
        target is ClientTxnState.INITIALIZING and state is not ClientTxnState.UNINITIALIZED
    )
    if state in ALLOWED_FROM[target] and by_call and state is not ClientTxnState.FATAL_ERROR:
        carry_out(bench.tm)
        assert bench.state is target
        return
    with pytest.raises(OdradekError) as refused:
        carry_out(bench.tm)
    assert bench.state is state
    if state is ClientTxnState.FATAL_ERROR:
        assert isinstance(refused.value, ProducerFenced) and "close it" in str(refused.value)
    elif state is ClientTxnState.ABORTABLE_ERROR:
        assert isinstance(refused.value, Abortable)
        assert "abort_transaction()" in str(refused.value)
    else:
        assert isinstance(refused.value, IllegalState)
        assert str(refused.value).startswith(f"{call}() cannot be called now: ")


@pytest.mark.parametrize(
    "state", [s for s in ClientTxnState if s is not ClientTxnState.IN_TRANSACTION]
)
def test_c61_records_and_offsets_need_an_open_transaction(state: ClientTxnState) -> None:
    bench = at(state, 0)
    for call in (
        lambda: bench.tm.check_open("send"),
        lambda: bench.tm.send_offsets(OFFSETS, GROUP),
        bench.tm.prepare,
    ):
        with pytest.raises(OdradekError):
            call()
        assert bench.state is state


def test_c61_an_illegal_step_in_the_sender_is_fatal() -> None:
    bench = Bench().initialize()
    bench.tm.batch_failed(InvalidTopic("a batch without a transaction cannot be"))
    assert bench.state is ClientTxnState.FATAL_ERROR
    with pytest.raises(Fatal, match="cannot be"):
        bench.tm.begin()


# --- C-62: partitions -----------------------------------------------------------------------------


def test_c62_v1_adds_partitions_before_their_batches_are_sent() -> None:
    bench = Bench().initialize().begin()
    first = batch(T0)
    bench.active = [T0, T1]
    assert not bench.tm.may_drain(first)
    ask = bench.expect(AddPartitionsToTxnHandler)
    request: Any = ask.message(bench.tm.identity)
    assert ask.max_version == 3, "what is above is between brokers (T-22)"
    assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == (7, 0)
    assert [(t.name, t.partitions) for t in request.v3_and_below_topics] == [("t", [0, 1])]
    assert not bench.tm.may_drain(first) and bench.ask() is None, "one question at a time"
    bench.answer(ask, add_partitions_response(request, _E.NONE))
    assert bench.tm.may_drain(first)
    assert bench.ask() is None, "once per transaction"


def test_c62_v2_adds_partitions_without_a_request() -> None:
    bench = Bench(2).initialize().begin()
    bench.active = [T0]
    assert bench.ask() is None and bench.tm.may_drain(batch(T0))


def test_c62_each_v1_transaction_adds_its_partitions_and_continues_sequences() -> None:
    bench = Bench().initialize().begin()
    bench.wrote(T0, 3)
    bench.end(bench.commit())
    bench.begin()
    assert not bench.tm.may_drain(batch(T0))
    assert bench.write(T0).base_sequence == 3, "C-65: v1 keeps epoch and sequences going"
    assert bench.tm.identity == (7, 0)


def test_c62_t21_a_refused_partition_fails_the_transaction_and_is_named() -> None:
    bench = Bench().initialize().begin()
    bench.active = [T0, T1]
    ask = bench.expect(AddPartitionsToTxnHandler)
    request: Any = ask.message(bench.tm.identity)
    bench.answer(
        ask,
        add_partitions_response(request, _E.OPERATION_NOT_ATTEMPTED, _E.TOPIC_AUTHORIZATION_FAILED),
    )
    assert bench.state is ClientTxnState.ABORTABLE_ERROR
    with pytest.raises(Abortable):
        bench.tm.commit()
    operation = bench.abort()
    # Because no partition was added, there is no transaction to end, but the epoch is bumped
    # (C-66).
    bench.answer(bench.expect(EpochBumpHandler), identified(ProducerIdAndEpoch(7, 1)))
    assert operation.done and operation.error is None


def _asked_to_add(bench: Bench) -> tuple[AddPartitionsToTxnHandler, Any]:
    bench.active = [T0, T1]
    ask = bench.expect(AddPartitionsToTxnHandler)
    return ask, ask.message(bench.tm.identity)


@pytest.mark.parametrize("refused", [T0, T1])
def test_c62_the_refused_partition_is_distinguished_from_those_not_attempted(
    refused: TopicPartition,
) -> None:
    bench = Bench().initialize().begin()
    ask, request = _asked_to_add(bench)
    codes = [_E.OPERATION_NOT_ATTEMPTED, _E.OPERATION_NOT_ATTEMPTED]
    codes[refused.partition] = _E.TOPIC_AUTHORIZATION_FAILED
    bench.answer(ask, add_partitions_response(request, *codes))
    assert bench.tm.refused_partition == refused
    assert isinstance(bench.tm.lifecycle.abortable_error, TopicAuthorizationFailed)


@pytest.mark.parametrize("unknown", [T0, T1])
def test_c62_t21_an_unknown_partition_is_retried_without_an_abort(unknown: TopicPartition) -> None:
    """OPERATION_NOT_ATTEMPTED for the other partitions does not cause an abort, as in Java's
    producer."""
    bench = Bench().initialize().begin()
    ask, request = _asked_to_add(bench)
    codes = [_E.OPERATION_NOT_ATTEMPTED, _E.OPERATION_NOT_ATTEMPTED]
    codes[unknown.partition] = _E.UNKNOWN_TOPIC_OR_PARTITION
    bench.answer(ask, add_partitions_response(request, *codes))
    assert (bench.state, bench.tm.refused_partition) == (ClientTxnState.IN_TRANSACTION, None)
    again = bench.expect(AddPartitionsToTxnHandler)
    assert again.partitions == {T0, T1}
    bench.answer(again, add_partitions_response(request, _E.NONE))
    assert bench.tm.may_drain(batch(T0))


def test_c62_a_partition_added_on_the_second_attempt_is_not_refused() -> None:
    bench = Bench().initialize().begin()
    ask, request = _asked_to_add(bench)
    busy = [_E.CONCURRENT_TRANSACTIONS, _E.CONCURRENT_TRANSACTIONS]
    bench.answer(ask, add_partitions_response(request, *busy))
    assert bench.tm.refused_partition is None
    bench.answer(bench.expect(AddPartitionsToTxnHandler), add_partitions_response(request, _E.NONE))
    bench.tm.batch_failed(TopicAuthorizationFailed("another topic"))
    assert bench.state is ClientTxnState.ABORTABLE_ERROR and bench.tm.refused_partition is None


# --- C-63: offsets --------------------------------------------------------------------------------


def test_c63_v1_adds_the_group_before_the_offset_commit() -> None:
    bench = Bench().initialize().begin()
    operation = bench.tm.send_offsets(OFFSETS, GROUP)
    add = bench.expect(AddOffsetsToTxnHandler)
    request: Any = add.message(bench.tm.identity)
    assert (add.key, add.key_type, request.group_id) == ("id", 1, "g")
    bench.answer(add, AddOffsetsToTxnResponse())
    commit = bench.expect(TxnOffsetCommitHandler)
    assert (commit.key, commit.key_type, commit.max_version) == ("g", 0, 4)
    request = commit.message(bench.tm.identity)
    assert (request.generation_id, request.member_id) == (3, "member"), "KIP-447"
    first, second = request.topics[0].partitions
    assert (first.partition_index, first.committed_offset) == (0, 5)
    assert (second.committed_offset, second.committed_metadata) == (7, "note")
    assert second.committed_leader_epoch == 2
    bench.answer(commit, offset_commit_response(request, _E.NONE))
    assert operation.done and operation.error is None


def test_c63_t60_v2_commits_offsets_without_adding_the_group() -> None:
    bench = Bench(2).initialize().begin()
    operation = bench.tm.send_offsets(OFFSETS, GROUP)
    commit = bench.expect(TxnOffsetCommitHandler)
    assert commit.min_version == 5
    bench.answer(commit, offset_commit_response(commit.message(bench.tm.identity), _E.NONE))
    assert operation.done
    end = bench.commit()
    assert isinstance(bench.ask(), EndTxnHandler) and not end.done, (
        "offsets alone are a transaction too"
    )


def test_c63_a_partial_offset_commit_is_repeated_for_the_failed_partitions() -> None:
    bench = Bench(2).initialize().begin()
    operation = bench.tm.send_offsets(OFFSETS, GROUP)
    ask = bench.expect(TxnOffsetCommitHandler)
    request: Any = ask.message(bench.tm.identity)
    bench.answer(ask, offset_commit_response(request, _E.NONE, _E.UNKNOWN_TOPIC_OR_PARTITION))
    assert not operation.done
    again = bench.expect(TxnOffsetCommitHandler)
    request = again.message(bench.tm.identity)
    assert [p.partition_index for t in request.topics for p in t.partitions] == [1]
    bench.answer(again, offset_commit_response(request, _E.NONE))
    assert operation.done and operation.error is None


@pytest.mark.parametrize("code", [_E.ILLEGAL_GENERATION, _E.UNKNOWN_MEMBER_ID])
def test_c68_an_offset_commit_of_an_older_generation_is_abortable(code: ErrorCode) -> None:
    bench = Bench(2).initialize().begin()
    operation = bench.tm.send_offsets(OFFSETS, GROUP)
    bench.refuse(bench.expect(TxnOffsetCommitHandler), code)
    with pytest.raises(GroupMovedOn, match="abort"):
        bench.tm.lifecycle.seen(operation)
    with pytest.raises(GroupMovedOn):
        bench.tm.commit()


def test_c63_group_metadata_needs_a_broker_with_kip447() -> None:
    bench = Bench().initialize().begin()
    bench.tm.send_offsets(OFFSETS, GROUP)
    bench.answer(bench.expect(AddOffsetsToTxnHandler), AddOffsetsToTxnResponse())
    commit = bench.expect(TxnOffsetCommitHandler)
    with pytest.raises(UnsupportedByBroker, match="KIP-447"):
        commit.check_version(2, "TxnOffsetCommit")
    bare = TxnOffsetCommitHandler(
        "id", ConsumerGroupMetadata("g"), OFFSETS, commit.operation, v2=False
    )
    bare.check_version(0, "TxnOffsetCommit")


# --- C-64: commit ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 2])
def test_c64_end_txn_waits_for_every_batch(level: int) -> None:
    bench = Bench(level).initialize().begin()
    bench.wrote()
    bench.commit()
    bench.incomplete = True
    assert bench.ask() is None
    bench.incomplete = False
    ask = bench.expect(EndTxnHandler)
    request: Any = ask.message(bench.tm.identity)
    assert (request.producer_id, request.producer_epoch, request.committed) == (7, 0, True)
    assert (ask.max_version, ask.min_version) == ((None, 5) if level else (4, 0)), "T-60"


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("while_committing", [False, True])
def test_c64_a_failed_batch_makes_the_commit_fail(level: int, while_committing: bool) -> None:
    bench = Bench(level).initialize().begin()
    failing = bench.write()
    operation = bench.commit() if while_committing else None
    bench.tm.gave_up(failing, may_be_written=False)
    bench.tm.batch_failed(InvalidTopic("it is internal", code=_E.INVALID_TOPIC_EXCEPTION))
    assert bench.tm.lifecycle.abortable_error is not None
    with pytest.raises(TransactionAborted, match=r"it is internal; call abort_transaction") as told:
        if operation is None:
            bench.commit()
        else:
            bench.tm.lifecycle.seen(operation)
    assert told.value.code is _E.INVALID_TOPIC_EXCEPTION
    assert isinstance(told.value.__cause__, InvalidTopic)
    abort = bench.abort()
    ask = bench.expect(EndTxnHandler)
    assert not ask.committed
    bench.answer(ask, EndTxnResponse(producer_id=7, producer_epoch=1), 5)
    if level == 0:
        bench.answer(bench.expect(EpochBumpHandler), identified(ProducerIdAndEpoch(7, 1)))
    bench.tm.lifecycle.seen(abort)
    assert bench.state is ClientTxnState.READY and bench.tm.identity == (7, 1)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("level", [0, 2])
def test_c64_t65_an_empty_transaction_ends_without_a_request(level: int, commit: bool) -> None:
    bench = Bench(level).initialize().begin()
    operation = bench.commit() if commit else bench.abort()
    assert bench.ask() is None and operation.done
    bench.tm.lifecycle.seen(operation)
    assert bench.state is ClientTxnState.READY


def test_c64_v2_ends_a_transaction_whose_only_batch_failed() -> None:
    bench = Bench(2).initialize().begin()
    failing = bench.write()
    bench.tm.gave_up(failing, may_be_written=False)
    bench.tm.batch_failed(InvalidTopic("x"))
    bench.end(bench.abort())
    assert bench.tm.identity == (7, 1)


def test_an_unanswered_add_partitions_request_is_repeated_before_the_abort() -> None:
    """The answer to AddPartitionsToTxn is lost: only a repetition shows if there is a transaction
    to end."""
    bench = Bench().initialize().begin()
    bench.active = [T0]
    ask = bench.expect(AddPartitionsToTxnHandler)
    assert bench.tm.unanswered(ask, ConnectionLost("cut"), bench.now_ms)
    bench.active = []
    operation = bench.abort()
    again = bench.expect(AddPartitionsToTxnHandler)
    assert again is ask
    bench.answer(again, add_partitions_response(again.message(bench.tm.identity), _E.NONE))
    bench.end(operation)


def test_an_abort_drops_requests_that_were_never_sent() -> None:
    bench = Bench().initialize().begin()
    operation = bench.tm.send_offsets(OFFSETS, GROUP)
    abort = bench.abort()
    assert bench.ask() is None and abort.done
    with pytest.raises(TransactionAborted):
        bench.tm.lifecycle.seen(operation)


# --- C-65, T-66: the next identity ----------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_c65_v2_adopts_the_epoch_of_end_txn_and_restarts_sequences(commit: bool) -> None:
    bench = Bench(2).initialize().begin()
    assert bench.wrote(T0, 3).base_sequence == 0
    assert bench.wrote(T0, 2).base_sequence == 3
    bench.end(bench.commit() if commit else bench.abort())
    bench.begin()
    following = bench.write(T0)
    assert following.identity == (7, 1) and following.base_sequence == 0


def test_t66_another_producer_id_follows_the_last_epoch() -> None:
    bench = Bench(2).initialize(ProducerIdAndEpoch(7, 32766)).begin()
    bench.wrote()
    operation = bench.commit()
    bench.answer(bench.expect(EndTxnHandler), EndTxnResponse(producer_id=8, producer_epoch=0), 5)
    bench.tm.lifecycle.seen(operation)
    assert bench.tm.identity == (8, 0)


def test_t67_an_end_txn_answer_without_a_producer_id_is_fatal() -> None:
    bench = Bench(2).initialize().begin()
    bench.wrote()
    operation = bench.commit()
    bench.answer(bench.expect(EndTxnHandler), EndTxnResponse(), 5)
    with pytest.raises(Fatal, match="without saying what comes next"):
        bench.tm.lifecycle.seen(operation)


def test_t65_end_txn_without_an_answer_is_repeated_with_the_old_epoch() -> None:
    bench = Bench(2).initialize().begin()
    bench.wrote()
    operation = bench.commit()
    ask = bench.expect(EndTxnHandler)
    assert bench.tm.unanswered(ask, ConnectionLost("cut"), bench.now_ms), "look for the coordinator"
    again = bench.expect(EndTxnHandler)
    request: Any = again.message(bench.tm.identity)
    assert (request.producer_epoch, request.committed) == (0, True)
    bench.answer(again, EndTxnResponse(producer_id=7, producer_epoch=1), 5)
    bench.tm.lifecycle.seen(operation)
    assert bench.tm.identity == (7, 1)


@pytest.mark.parametrize("level", [0, 2])
def test_p14_p15_only_v1_sends_the_first_batch_alone(level: int) -> None:
    bench = Bench(level).initialize().begin()
    bench.write()
    assert bench.tm.may_drain(batch()) == (level == 2)


# --- C-66: bumps in v1 ----------------------------------------------------------------------------


def test_c66_v1_bumps_the_epoch_after_the_abort_of_a_failed_transaction() -> None:
    bench = Bench().initialize().begin()
    failing = bench.write()
    bench.tm.gave_up(failing, may_be_written=False)
    bench.tm.batch_failed(InvalidProducerEpoch("old"))
    operation = bench.abort()
    bench.answer(bench.expect(EndTxnHandler), EndTxnResponse())
    assert bench.state is ClientTxnState.INITIALIZING and not operation.done
    bump = bench.expect(EpochBumpHandler)
    request: Any = bump.message(bench.tm.identity)
    assert (request.producer_id, request.producer_epoch) == (7, 0), "KIP-360"
    bench.answer(bump, identified(ProducerIdAndEpoch(7, 1)))
    bench.tm.lifecycle.seen(operation)
    bench.begin()
    following = bench.write()
    assert following.identity == (7, 1) and following.base_sequence == 0


def test_c66_an_abort_by_choice_needs_no_new_epoch() -> None:
    bench = Bench().initialize().begin()
    bench.wrote()
    bench.end(bench.abort())
    assert bench.state is ClientTxnState.READY and bench.ask() is None


def test_c66_an_old_coordinator_is_not_asked_for_an_epoch_bump() -> None:
    bench = Bench(init_version=2).initialize().begin()
    failing, behind = bench.wrote(), None
    failing, behind = bench.write(T0, 2), bench.write(T0, 1)
    assert (failing.base_sequence, behind.base_sequence) == (1, 3)
    bench.tm.gave_up(failing, may_be_written=False)
    bench.tm.batch_failed(InvalidTopic("x"))
    assert behind.base_sequence == 1, "C-45"
    bench.tm.acknowledged(behind, 5)
    operation = bench.abort()
    bench.answer(bench.expect(EndTxnHandler), EndTxnResponse(), 1)
    bench.tm.lifecycle.seen(operation)
    bench.begin()
    assert bench.write().base_sequence == 2


def test_c42_unresolved_sequences_need_a_new_epoch_or_are_fatal() -> None:
    for version, state in ((5, ClientTxnState.ABORTABLE_ERROR), (2, ClientTxnState.FATAL_ERROR)):
        bench = Bench(init_version=version).initialize().begin()
        lost = bench.write()
        bench.tm.gave_up(lost, may_be_written=True)
        bench.tm.batch_failed(InvalidTopic("it timed out"))
        bench.tm.resolve()
        assert bench.state is state


def test_c45_a_refused_batch_lowers_the_sequences_after_it() -> None:
    bench = Bench().initialize().begin()
    bench.wrote()
    refused, second, third = bench.write(T0, 5), bench.write(T0, 2), bench.write(T0, 1)
    bench.tm.gave_up(refused, may_be_written=False)
    assert (second.base_sequence, third.base_sequence) == (1, 3)
    assert bench.tm.out_of_order(second), "under the old sequence: just retry (C-50)"


def test_c50_out_of_order_in_a_transaction_fails() -> None:
    bench = Bench(2).initialize().begin()
    bench.wrote()
    assert not bench.tm.out_of_order(bench.write())


# --- C-67: operations that continue after their callers -------------------------------------------


def test_c67_only_the_same_call_may_follow_a_timed_out_call() -> None:
    bench = Bench(2).initialize().begin()
    bench.wrote()
    operation = bench.commit()
    for name, begin in (
        ("abort_transaction", bench.tm.abort),
        ("init_transactions", bench.tm.init),
    ):
        with pytest.raises(IllegalState, match=r"call commit_transaction\(\) again"):
            bench.tm.lifecycle.operation(name, begin)
    with pytest.raises(IllegalState, match="commit_transaction"):
        bench.tm.begin()
    assert bench.commit() is operation
    ask = bench.expect(EndTxnHandler)
    bench.answer(ask, EndTxnResponse(producer_id=7, producer_epoch=1), 5)
    with pytest.raises(IllegalState, match=r"call commit_transaction\(\) again"):
        bench.tm.begin()
    bench.tm.lifecycle.seen(bench.commit())
    bench.begin()


def test_c67_a_failed_commit_does_not_block_the_abort() -> None:
    bench = Bench(2).initialize().begin()
    bench.write()
    bench.commit()
    bench.tm.batch_failed(InvalidTopic("x"))
    bench.end(bench.abort())


def test_c67_t59_a_timed_out_init_transactions_continues() -> None:
    bench = Bench()
    operation = bench.tm.lifecycle.operation("init_transactions", bench.tm.init)
    bench.refuse(bench.expect(InitProducerIdHandler), _E.CONCURRENT_TRANSACTIONS)
    assert bench.tm.lifecycle.operation("init_transactions", bench.tm.init) is operation
    bench.answer(bench.expect(InitProducerIdHandler), identified(ProducerIdAndEpoch(7, 4)))
    bench.tm.lifecycle.seen(operation)
    bench.begin()


# --- C-68: every coordinator error ----------------------------------------------------------------

FIND = {_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR}
ABORTABLE = {
    _E.TOPIC_AUTHORIZATION_FAILED,
    _E.GROUP_AUTHORIZATION_FAILED,
    _E.OPERATION_NOT_ATTEMPTED,
    _E.TRANSACTION_ABORTABLE,
    _E.UNKNOWN_PRODUCER_ID,
}
OF_OFFSETS = {
    _E.ILLEGAL_GENERATION,
    _E.UNKNOWN_MEMBER_ID,
    _E.FENCED_INSTANCE_ID,
    _E.OFFSET_METADATA_TOO_LARGE,
}
OF_INIT = {_E.CLUSTER_AUTHORIZATION_FAILED, _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


def asked(kind: RequestPriority) -> tuple[Bench, TxnRequestHandler, TransactionCall | None]:
    """A bench, its request of this kind in flight, and the call that waits for the request."""
    bench = Bench()
    if kind is RequestPriority.INIT:
        operation = bench.tm.lifecycle.operation("init_transactions", bench.tm.init)
        return bench, bench.expect(InitProducerIdHandler), operation
    bench.initialize().begin()
    if kind is RequestPriority.ADD_PARTITIONS:
        bench.active = [T0]
        return bench, bench.expect(AddPartitionsToTxnHandler), None
    if kind in {RequestPriority.ADD_OFFSETS, RequestPriority.COMMIT_OFFSETS}:
        operation = bench.tm.send_offsets(OFFSETS, GROUP)
        ask: TxnRequestHandler = bench.expect(AddOffsetsToTxnHandler)
        if kind is RequestPriority.COMMIT_OFFSETS:
            bench.answer(ask, AddOffsetsToTxnResponse())
            ask = bench.expect(TxnOffsetCommitHandler)
        return bench, ask, operation
    bench.wrote()
    if kind is RequestPriority.END:
        operation = bench.commit()
        return bench, bench.expect(EndTxnHandler), operation
    bench.tm.batch_failed(InvalidTopic("x"))
    operation = bench.abort()
    bench.answer(bench.expect(EndTxnHandler), EndTxnResponse())
    return bench, bench.expect(EpochBumpHandler), operation


@looped(
    "kind, code",
    itertools.product(RequestPriority, [code for code in ErrorCode if code is not ErrorCode.NONE]),
    by=lambda kind, code: kind.name,
)
def test_c68_every_error_code_of_every_request_has_its_reaction(
    kind: RequestPriority, code: ErrorCode
) -> None:
    bench, ask, operation = asked(kind)
    find = bench.refuse(ask, code)
    assert find == (code in FIND)
    if code in FIND or code.retriable:
        again = bench.expect(type(ask))
        assert again is ask and (operation is None or not operation.done)
        return
    if operation is not None:
        assert operation.done and operation.error is not None
    if kind is RequestPriority.INIT and code in OF_INIT:
        assert bench.state is ClientTxnState.UNINITIALIZED
        # the call is allowed again
        bench.tm.lifecycle.operation("init_transactions", bench.tm.init)
    elif code in ABORTABLE or (kind is RequestPriority.COMMIT_OFFSETS and code in OF_OFFSETS):
        assert bench.state is ClientTxnState.ABORTABLE_ERROR
        with pytest.raises(Abortable, match="abort_transaction"):
            bench.tm.commit()
        bench.abort()
    else:
        assert bench.state is ClientTxnState.FATAL_ERROR
        with pytest.raises(Fatal, match="close it and start a new one") as told:
            bench.tm.begin()
        assert told.value.code in {code, None} or told.value.code is not None
        if code in {_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED}:
            assert isinstance(told.value, ProducerFenced)


def test_c68_unknown_producer_id_is_fatal_if_the_epoch_cannot_be_bumped() -> None:
    bench = Bench(init_version=2).initialize().begin()
    bench.active = [T0]
    bench.refuse(bench.expect(AddPartitionsToTxnHandler), _E.UNKNOWN_PRODUCER_ID)
    assert bench.state is ClientTxnState.FATAL_ERROR


def test_c68_an_abort_refused_as_abortable_is_fatal() -> None:
    bench = Bench().initialize().begin()
    bench.wrote()
    bench.abort()
    bench.refuse(bench.expect(EndTxnHandler), _E.TRANSACTION_ABORTABLE)
    assert bench.state is ClientTxnState.FATAL_ERROR


def test_c68_an_unknown_error_code_is_fatal() -> None:
    assert reaction_to(RequestPriority.END, ErrorCode.of(31999)) is TxnReaction.FATAL


def test_c68_a_refused_transactional_id_may_be_initialized_again() -> None:
    bench = Bench()
    operation = bench.tm.lifecycle.operation("init_transactions", bench.tm.init)
    # FindCoordinator returns this error first.
    refused = TransactionalIdAuthorizationFailed(
        "no", code=_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    bench.tm.unanswered(bench.expect(InitProducerIdHandler), refused, 0.0)
    with pytest.raises(TransactionalIdAuthorizationFailed):
        bench.tm.lifecycle.seen(operation)
    bench.initialize()


def test_c68_a_broker_without_transactions_is_fatal() -> None:
    bench = Bench()
    operation = bench.tm.lifecycle.operation("init_transactions", bench.tm.init)
    bench.tm.unanswered(bench.expect(InitProducerIdHandler), UnsupportedByBroker("too old"), 0.0)
    with pytest.raises(UnsupportedByBroker, match="close it"):
        bench.tm.lifecycle.seen(operation)


# --- C-30, C-33: order and waits ------------------------------------------------------------------


def test_c30_transaction_requests_are_sent_in_order() -> None:
    bench = Bench().initialize().begin()
    bench.tm.send_offsets(OFFSETS, GROUP)
    bench.active = [T0]
    bench.commit()
    first = bench.expect(AddOffsetsToTxnHandler)
    bench.answer(first, AddOffsetsToTxnResponse())
    second = bench.expect(AddPartitionsToTxnHandler)
    bench.answer(second, add_partitions_response(second.message(bench.tm.identity), _E.NONE))
    third = bench.expect(TxnOffsetCommitHandler)
    bench.answer(third, offset_commit_response(third.message(bench.tm.identity), _E.NONE))
    bench.expect(EndTxnHandler)


def test_c30_one_transaction_request_is_in_flight_at_a_time() -> None:
    bench = Bench().initialize().begin()
    bench.tm.send_offsets(OFFSETS, GROUP)
    bench.active = [T0]
    first = bench.expect(AddOffsetsToTxnHandler)
    bench.now_ms += 10_000
    assert bench.ask() is None, "the first one is not answered"
    bench.answer(first, AddOffsetsToTxnResponse())
    bench.expect(AddPartitionsToTxnHandler)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("end", [Bench.commit, Bench.abort], ids=["commit", "abort"])
def test_c30_commit_and_abort_wait_for_every_batch(
    level: int, end: Callable[[Bench], TransactionCall]
) -> None:
    bench = Bench(level).initialize().begin()
    bench.wrote()
    bench.incomplete = True
    end(bench)
    bench.now_ms += 10_000
    assert bench.ask() is None
    bench.incomplete = False
    bench.expect(EndTxnHandler)


def test_c33_a_retried_transaction_request_waits_for_its_backoff() -> None:
    bench = Bench().initialize().begin()
    bench.active = [T0]
    ask = bench.expect(AddPartitionsToTxnHandler)
    bench.refuse(ask, _E.CONCURRENT_TRANSACTIONS)
    found, wait_ms = bench.tm.next_request([T0], False, bench.now_ms)
    assert found is None and wait_ms == 20.0, "the first of a transaction"
    bench.answer(
        bench.expect(AddPartitionsToTxnHandler),
        add_partitions_response(ask.message(bench.tm.identity), _E.NONE),
    )
    bench.active = [T0, T1]
    bench.refuse(bench.expect(AddPartitionsToTxnHandler), _E.CONCURRENT_TRANSACTIONS)
    found, wait_ms = bench.tm.next_request(bench.active, False, bench.now_ms)
    assert found is None and wait_ms is not None and 80 <= wait_ms <= 120


def test_c30_undrained_batches_fail_once_the_transaction_is_lost() -> None:
    bench = Bench().initialize().begin()
    assert bench.tm.undrained_error is None
    bench.tm.batch_failed(InvalidTopic("the reason"))
    assert "the reason" in str(bench.tm.undrained_error)
    bench.abort()
    assert isinstance(bench.tm.undrained_error, TransactionAborted)


# --- C-70: the version to use ---------------------------------------------------------------------


def test_c70_transaction_version_changes_between_transactions_only() -> None:
    bench = Bench(0).initialize().begin()
    bench.level = 2
    assert not bench.tm.is_v2 and not bench.tm.may_drain(batch()), "never in the middle"
    bench.wrote()
    operation = bench.commit()
    ask = bench.expect(EndTxnHandler)
    assert ask.max_version == 4, "the last one of v1 ends as v1"
    bench.answer(ask, EndTxnResponse(), 4)
    bump = bench.expect(EpochBumpHandler)
    assert not operation.done and bench.state is ClientTxnState.INITIALIZING
    bench.answer(bump, identified(ProducerIdAndEpoch(7, 1)))
    bench.tm.lifecycle.seen(operation)
    bench.begin()
    assert bench.tm.is_v2
    assert bench.write().identity == (7, 1)


def test_c70_an_empty_transaction_switches_to_v2_too() -> None:
    bench = Bench(0).initialize().begin()
    bench.level = 2
    operation = bench.commit()
    bench.answer(bench.expect(EpochBumpHandler), identified(ProducerIdAndEpoch(7, 1)))
    bench.tm.lifecycle.seen(operation)
    bench.begin()
    assert bench.tm.is_v2


def test_c70_a_transactional_producer_switches_back_to_v1() -> None:
    bench = Bench(2).initialize().begin()
    bench.wrote()
    bench.level = 1
    bench.end(bench.commit())
    bench.begin()
    assert not bench.tm.is_v2 and bench.tm.identity == (7, 1)


# --- KIP-939 --------------------------------------------------------------------------------------


def test_kip939_a_prepared_transaction_is_ended_by_another_producer() -> None:
    first = Bench(2, two_phase=True).initialize().begin()
    first.wrote()
    prepared = first.tm.prepare()
    assert prepared == PreparedTransaction("id", 7, 0, 2)
    assert first.tm.prepare() == prepared and not first.tm.has_open_transaction
    with pytest.raises(IllegalState, match="prepared"):
        first.tm.check_open("send")
    for _ in range(2):  # a producer without the answer repeats the request (T-65)
        second = Bench(2, two_phase=True)
        second.tm.resume(prepared)
        operation = second.commit()
        ask = second.expect(EndTxnHandler)
        assert ask.message(second.tm.identity).producer_epoch == 0
        second.answer(ask, EndTxnResponse(producer_id=7, producer_epoch=1), 5)
        second.tm.lifecycle.seen(operation)
        assert second.tm.identity == (7, 1)


def test_kip939_init_producer_id_enables_two_phase_commit() -> None:
    bench = Bench(2, two_phase=True)
    bench.tm.init()
    ask = bench.expect(InitProducerIdHandler)
    request: Any = ask.message(bench.tm.identity)
    assert request.enable2_pc and not request.keep_prepared_txn
    with pytest.raises(UnsupportedByBroker, match="InitProducerId up to version 5"):
        ask.check_version(5, "InitProducerId")


def test_kip939_illegal_prepares_and_resumes_are_errors() -> None:
    bench = Bench(2).initialize().begin()
    bench.wrote()
    with pytest.raises(IllegalState, match="transaction_two_phase_commit_enable"):
        bench.tm.prepare()
    bench = Bench(2, two_phase=True).initialize().begin()
    with pytest.raises(IllegalState, match="nothing to prepare"):
        bench.tm.prepare()
    with pytest.raises(IllegalState, match="new producer"):
        bench.tm.resume(PreparedTransaction("id", 7, 0, 2))
    with pytest.raises(IllegalState, match="of transactional_id 'other'"):
        bench.tm.resume(PreparedTransaction("other", 7, 0, 2))


def test_kip939_v1_continues_with_a_new_epoch() -> None:
    bench = Bench(0, two_phase=True)
    bench.tm.resume(PreparedTransaction("id", 7, 3, 1))
    operation = bench.abort()
    bench.answer(bench.expect(EndTxnHandler), EndTxnResponse(), 4)
    bench.answer(bench.expect(EpochBumpHandler), identified(ProducerIdAndEpoch(7, 4)), 6)
    bench.tm.lifecycle.seen(operation)
    assert bench.tm.identity == (7, 4)
