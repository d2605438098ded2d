"""The transaction coordinator, rule by rule (semantics, section T)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import budget
from handler_calls import handled
from many_cases import looped
from node_world import SoonScheduler
from odradek_broker.coordinator.runtime import RuntimeState
from odradek_broker.coordinator.shards import partition_for
from odradek_broker.coordinator.transactions.decisions import InitCall
from odradek_broker.coordinator.transactions.shard import TOMBSTONES_MAX
from odradek_broker.coordinator.transactions.transaction import (
    ENTERED_FROM,
    TRANSACTION_APPEND_ERRORS,
    IllegalTxnTransition,
    Transaction,
    TransactionState,
    check_step,
    decode,
    decode_in_pieces,
    encode,
    encode_in_pieces,
)
from odradek_broker.explain.sentences import EventKind
from odradek_broker.slices import Slices
from odradek_protocol.constants import NO_TRANSACTION_TIMEOUT_MS
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored import transaction_log
from transaction_world import ID, O0, T0, T1, TransactionWorld

E = ErrorCode
S = TransactionState


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


# --- Placement, storage, states ---


def test_t01_a_transactional_id_is_stored_in_the_partition_of_its_hash() -> None:
    world = TransactionWorld(partitions=5)
    names = [f"id-{number}" for number in range(20)]
    for name in names:
        world.begin(name=name)
    for index, partition in enumerate(world.topic_partitions):
        stored = set()
        for key, _ in partition.records:
            assert key is not None
            decoded = transaction_log.decode_key(key)
            assert decoded is not None
            stored.add(decoded.transactional_id)
        assert stored == {name for name in names if partition_for(name, 5) == index}


def test_t01_ids_of_another_broker_get_not_coordinator(world: TransactionWorld) -> None:
    other = TransactionWorld(topic=False)
    assert other.init().error is E.COORDINATOR_NOT_AVAILABLE
    other.metadata.leader = 2
    other.metadata.counts["__transaction_state"] = 1
    assert other.init().error is E.NOT_COORDINATOR


def test_t01_a_transaction_topic_that_is_created_later_is_served() -> None:
    world = TransactionWorld(topic=False)
    world.ensure_internal_topic("__transaction_state")
    assert world.init().error is E.NONE


def test_t02_each_change_is_one_record_and_the_last_one_wins(world: TransactionWorld) -> None:
    who = world.begin()
    assert len(world.log.records) == 1
    world.add(who)
    assert len(world.log.records) == 2
    world.end(who)
    assert len(world.log.records) == 4, "Prepare and Complete"
    held = world.held()
    world.restart()
    assert world.held() == held


def test_t02_a_null_value_removes_the_transactional_id(world: TransactionWorld) -> None:
    world.begin()
    world.log.append_internal([(transaction_log.encode_key(ID), None)], 0)
    world.restart()
    assert world.transactions.transaction(ID) is None


def test_t02_stored_partitions_are_null_only_in_the_state_empty(world: TransactionWorld) -> None:
    who = world.begin()
    world.add(who, T0, T1, O0)
    world.end(who)
    values = [transaction_log.decode_value(value) for _, value in world.log.records if value]
    empty, ongoing, prepared, complete = [each.transaction_partitions for each in values]
    assert empty is None
    assert ongoing == prepared
    assert ongoing is not None and len(ongoing) == 2
    assert complete == []


@pytest.mark.parametrize(("topics", "indexes"), [(700, 1), (1, 700), (50, 9)])
def test_t02_pieces_of_a_large_transaction_make_the_same_record(topics: int, indexes: int) -> None:
    parts = frozenset((f"topic-{n}", index) for n in range(topics) for index in range(indexes))
    large = Transaction(ID, 1, 2, 3, S.ONGOING, parts, 4, 5, 6, 7, 2, 8, 9)
    turns = SoonScheduler()
    slices = Slices(lambda: 0, turns)
    made = slices.deferred(encode_in_pieces(large))
    turns.run()
    assert made.result() == encode(large)
    value = made.result()[1]
    assert value is not None
    read = slices.deferred(decode_in_pieces(ID, value))
    turns.run()
    assert read.result() == decode(ID, value) == large


def test_t02_a_state_that_is_never_stored_is_refused() -> None:
    for state in (S.DEAD, S.PREPARE_EPOCH_FENCE):
        _, value = encode(Transaction(ID, 1, 0, 1, state))
        assert value is not None
        with pytest.raises(DecodeError, match=ID):
            decode(ID, value)


def test_t02_an_unreadable_record_closes_its_partition() -> None:
    world = TransactionWorld()
    world.log.append_internal([(transaction_log.encode_key(ID), b"\x00\x09")], 0)
    world.restart()
    assert world.init().error is E.COORDINATOR_NOT_AVAILABLE


def test_t03_requests_are_answered_when_their_records_are_durable(world: TransactionWorld) -> None:
    world.log.hold = True
    first = world.init_later()
    assert not first.done
    world.log.flush()
    who = first.result().producer_id, first.result().epoch
    added = world.add_later(who)
    assert not added.done
    world.log.flush()
    ended = world.end_later(who)
    assert not ended.done and world.markers.requests == []
    world.log.flush()
    assert ended.result().error is E.NONE
    assert len(world.markers.requests) == 1


def test_t03_requests_during_a_pending_step_get_concurrent_transactions(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.add(who)
    world.log.hold = True
    ended = world.end_later(who)
    others: list[Any] = [
        world.init_later(),
        world.end_later(who),
        world.end_later(who, False),
        world.verify(who, T1, add=True),
    ]
    world.log.hold = False
    world.markers.hold = True
    world.log.flush()
    world.wait(10_000)
    assert ended.result().error is E.NONE
    assert others[0].result().error is E.CONCURRENT_TRANSACTIONS
    assert others[1].result().error is E.CONCURRENT_TRANSACTIONS
    assert others[2].result().error is E.CONCURRENT_TRANSACTIONS
    assert others[3].result() == {T1: E.CONCURRENT_TRANSACTIONS}


def test_t03_a_refused_append_leaves_the_transaction_as_it_was(world: TransactionWorld) -> None:
    who = world.begin()
    world.add(who)
    before = world.held()
    world.log.refuse = E.NOT_ENOUGH_REPLICAS
    assert world.end(who).error is E.COORDINATOR_NOT_AVAILABLE
    assert world.add(who, T1) is E.COORDINATOR_NOT_AVAILABLE
    assert world.init().error is E.COORDINATOR_NOT_AVAILABLE
    assert world.held() == before
    world.log.refuse = E.NONE
    assert world.end(who).error is E.NONE


def test_t03_partitions_may_be_added_while_earlier_ones_are_not_durable(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.log.hold = True
    answers = [world.verify(who, part, add=True) for part in (T0, T1, O0)]
    assert not any(answer.done for answer in answers)
    world.log.flush()
    assert [answer.result() for answer in answers] == [{T0: E.NONE}, {T1: E.NONE}, {O0: E.NONE}]
    assert world.held().partitions == {T0, T1, O0}


def test_t03_requests_get_not_coordinator_after_the_log_has_failed(world: TransactionWorld) -> None:
    who = world.begin()
    world.log.hold = True
    added = world.add_later(who)
    world.log.flush(E.KAFKA_STORAGE_ERROR)
    assert added.result() is E.NOT_COORDINATOR
    assert world.init().error is E.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("storage", "told"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_t04_storage_errors_become_errors_of_the_coordinator(
    world: TransactionWorld, storage: ErrorCode, told: ErrorCode
) -> None:
    assert TRANSACTION_APPEND_ERRORS[storage] is told
    world.log.refuse = storage
    assert world.init().error is told


def test_t05_all_fields_of_a_transaction_survive_a_restart(world: TransactionWorld) -> None:
    given = world.put(
        state=S.ONGOING,
        previous_producer_id=3,
        next_producer_id=9,
        next_epoch=4,
        last_epoch=4,
        client_version=2,
        partitions=frozenset({T0, T1, O0}),
        start_ms=123,
    )
    assert world.held() == given


@looped("before, after", itertools.product(S, S))
def test_every_state_transition_is_in_the_table_or_raises(
    before: TransactionState, after: TransactionState
) -> None:
    if before in ENTERED_FROM[after]:
        check_step(ID, before, after)
    else:
        with pytest.raises(IllegalTxnTransition, match=f"{before.label} to {after.label}"):
            check_step(ID, before, after)


def test_the_table_of_state_transitions_is_that_of_kafka() -> None:
    idle = {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    assert {
        S.EMPTY: idle,
        S.ONGOING: {S.ONGOING, *idle},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE, *idle},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
        S.DEAD: idle,
        S.PREPARE_EPOCH_FENCE: {S.ONGOING},
    } == ENTERED_FROM
    assert [int(state) for state in S] == list(range(8))


# --- T-06 expiry ---

WEEK_MS = 604_800_000


@pytest.mark.parametrize(
    "state", budget.of_which([S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT], [S.COMPLETE_COMMIT])
)
def test_t06_an_idle_id_expires_after_a_week(state: TransactionState) -> None:
    world = TransactionWorld()
    old = world.put(state=state)
    world.wait(WEEK_MS)
    assert world.transactions.transaction(ID) is not None
    world.wait(2 * 3_600_000)
    assert world.transactions.transaction(ID) is None
    assert world.log.records[-1] == (transaction_log.encode_key(ID), None)
    answer = world.init(old.producer_id, old.epoch)
    assert (answer.error, answer.epoch) == (E.NONE, 0)
    assert answer.producer_id != old.producer_id
    assert world.add((old.producer_id, old.epoch)) is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_t06_an_open_transaction_never_expires(state: TransactionState) -> None:
    world = TransactionWorld(
        transaction_abort_timed_out_transaction_cleanup_interval_ms=WEEK_MS // 10
    )
    world.markers.hold = True
    world.put(state=state, timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
    world.wait(3 * WEEK_MS)
    assert world.state() is state


def test_t06_many_ids_expire_in_batches() -> None:
    world = TransactionWorld()
    count = 2 * TOMBSTONES_MAX + 1
    records = [
        encode(Transaction(f"i{n}", n, 0, 1, S.EMPTY, last_update_ms=0)) for n in range(count)
    ]
    world.log.append_internal(list(records), 0)
    world.restart()
    world.wait(3_600_000)
    assert len(list(world.transactions.transactions())) == count - TOMBSTONES_MAX
    world.wait(5_000)
    assert not list(world.transactions.transactions())


def test_t06_a_refused_tombstone_is_written_at_the_next_check() -> None:
    world = TransactionWorld()
    world.put()
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    world.wait(WEEK_MS + 3_600_000)
    assert world.transactions.transaction(ID) is not None
    world.log.refuse = E.NONE
    world.wait(3_600_000)
    assert world.transactions.transaction(ID) is None


# --- InitProducerId ---


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_t10_a_timeout_out_of_bounds_is_refused(world: TransactionWorld, timeout_ms: int) -> None:
    assert world.init(timeout_ms=timeout_ms).error is E.INVALID_TRANSACTION_TIMEOUT
    assert world.log.records == []


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_t10_the_bounds_of_the_timeout_are_allowed(
    world: TransactionWorld, timeout_ms: int
) -> None:
    assert world.init(timeout_ms=timeout_ms).error is E.NONE


def test_t10_the_timeout_is_checked_before_the_coordinator() -> None:
    world = TransactionWorld(topic=False)
    assert world.init(5, -1, timeout_ms=0).error is E.INVALID_TRANSACTION_TIMEOUT
    assert world.init(5, -1).error is E.COORDINATOR_NOT_AVAILABLE


def test_t11_an_unknown_id_gets_a_new_producer_id_and_epoch_0(world: TransactionWorld) -> None:
    answer = world.init()
    assert (answer.error, answer.producer_id, answer.epoch) == (E.NONE, 1_001, 0)
    assert world.state() is S.EMPTY


def test_t11_an_id_is_pending_while_its_producer_id_is_allocated(world: TransactionWorld) -> None:
    world.hold_ids = True
    first, second = world.init_later(), world.init_later()
    assert not first.done
    assert second.result().error is E.CONCURRENT_TRANSACTIONS
    world.hold_ids = False
    world.give_ids()
    assert first.result().epoch == 0


def test_t11_without_a_producer_id_the_coordinator_is_not_available(
    world: TransactionWorld,
) -> None:
    world.hold_ids = True
    first = world.init_later()
    world.held_ids.pop().resolve(None)
    assert first.result().error is E.COORDINATOR_NOT_AVAILABLE
    world.hold_ids = False
    assert world.init().error is E.NONE


def test_t11_an_init_whose_producer_id_comes_after_the_close_is_refused(
    world: TransactionWorld,
) -> None:
    world.hold_ids = True
    first = world.init_later()
    world.transactions.shards.close()
    world.give_ids()
    assert first.result().error is E.NOT_COORDINATOR


def test_t12_a_new_instance_raises_the_epoch(world: TransactionWorld) -> None:
    who = world.begin()
    for epoch in range(1, 5):
        assert world.begin() == (who[0], epoch)


def test_t12_a_repeated_init_with_the_old_epoch_gets_the_same_answer(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    raised = world.begin(producer_id=who[0], epoch=who[1])
    assert raised == (who[0], 1)
    assert world.begin(producer_id=who[0], epoch=who[1]) == raised
    assert world.begin(producer_id=who[0], epoch=1) == (who[0], 2)


def test_t12_a_fenced_instance_cannot_recover(world: TransactionWorld) -> None:
    old = world.begin()
    world.begin()
    assert world.init(*old).error is E.PRODUCER_FENCED
    assert world.init(99, 0).error is E.PRODUCER_FENCED


def test_t12_a_fenced_instance_does_not_abort_its_successors_transaction(
    world: TransactionWorld,
) -> None:
    old = world.begin()
    new = world.begin()
    world.add(new)
    assert world.init(*old).error is E.PRODUCER_FENCED
    assert world.state() is S.ONGOING


def test_t12_an_init_aborts_an_open_transaction_and_must_be_repeated(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.add(who)
    assert world.init().error is E.CONCURRENT_TRANSACTIONS
    assert [marker.commit for marker in world.markers.written[T0]] == [False]
    assert world.begin() == (who[0], 2)


def test_t12_the_owner_may_recover_from_its_own_open_transaction(world: TransactionWorld) -> None:
    who = world.begin()
    world.add(who)
    assert world.init(*who).error is E.CONCURRENT_TRANSACTIONS
    answer = world.init(*who)
    assert answer.error is E.NONE
    assert (answer.producer_id, answer.epoch) > who


def test_t12_the_timeout_of_the_last_instance_counts(world: TransactionWorld) -> None:
    world.begin(timeout_ms=1_000)
    world.begin(timeout_ms=2_000)
    assert world.held().timeout_ms == 2_000


def test_t13_an_exhausted_epoch_makes_a_new_producer_id() -> None:
    world = TransactionWorld()
    world.put(epoch=32_765)
    assert world.begin() == (7, 32_766)
    assert world.begin() == (1_001, 0)
    assert world.held().previous_producer_id == 7
    assert world.init(7, 32_766).error is E.PRODUCER_FENCED


def test_t13_a_repeated_init_at_the_last_epoch_gets_the_same_answer() -> None:
    world = TransactionWorld()
    world.put(epoch=32_766)
    assert world.begin(producer_id=7, epoch=32_766) == (1_001, 0)
    assert world.begin(producer_id=7, epoch=32_766) == (1_001, 0), "the answer was lost"
    world.restart()
    assert world.begin(producer_id=7, epoch=32_766) == (1_001, 0)


@pytest.mark.full
def test_t13_33000_instances_get_33000_identities() -> None:
    world = TransactionWorld()
    seen = {world.begin() for _ in range(33_000)}
    assert len(seen) == 33_000
    assert max(epoch for _, epoch in seen) == 32_766


def test_t14_the_epoch_of_a_fencing_abort_is_given_to_no_producer(world: TransactionWorld) -> None:
    who = world.begin()
    world.add(who)
    world.init()
    assert world.markers.written[T0][0].epoch == who[1] + 1
    assert world.begin()[1] == who[1] + 2


def test_t14_a_refused_fencing_abort_raises_the_epoch_only_once(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.add(who)
    world.log.refuse = E.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert world.init().error is E.COORDINATOR_NOT_AVAILABLE
    world.log.refuse = E.NONE
    assert world.init().error is E.CONCURRENT_TRANSACTIONS
    assert world.markers.written[T0][0].epoch == who[1] + 1


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("epoch", [0, 32_764, 32_765, 32_766])
def test_t16_a_fencing_abort_has_a_marker_above_the_data_and_a_new_identity(
    epoch: int, version: int
) -> None:
    world = TransactionWorld()
    world.put(state=S.ONGOING, epoch=epoch, client_version=version)
    assert world.init().error is E.CONCURRENT_TRANSACTIONS
    (marker,) = world.markers.written[T0]
    assert (marker.producer_id, marker.epoch, marker.commit) == (7, epoch + 1, False)
    fresh = world.begin()
    assert fresh not in ((7, epoch), (7, epoch + 1))
    assert 0 <= fresh[1] <= 32_766
    assert world.end((7, epoch), version=1).error in (
        E.PRODUCER_FENCED,
        E.INVALID_PRODUCER_ID_MAPPING,
    )


# --- Partitions ---


def test_t20_the_first_partition_begins_the_transaction(world: TransactionWorld) -> None:
    who = world.begin()
    world.wait(500)
    assert world.add(who) is E.NONE
    held = world.held()
    assert (held.state, held.partitions) == (S.ONGOING, frozenset({T0}))
    assert held.start_ms == world.clock.wall_ms()
    world.wait(500)
    assert world.add(who, T1) is E.NONE
    assert world.held().partitions == {T0, T1}
    assert world.held().start_ms == held.start_ms


def test_t20_adding_present_partitions_writes_no_record(world: TransactionWorld) -> None:
    who = world.begin()
    world.add(who, T0, T1)
    count = len(world.log.records)
    assert world.add(who, T0) is E.NONE
    assert len(world.log.records) == count


def test_t20_an_addition_with_a_wrong_identity_is_refused(world: TransactionWorld) -> None:
    assert world.add((1, 0)) is E.INVALID_PRODUCER_ID_MAPPING
    who = world.begin()
    assert world.add((who[0] + 1, who[1])) is E.INVALID_PRODUCER_ID_MAPPING
    assert world.add((who[0], who[1] + 1)) is E.PRODUCER_FENCED
    assert world.add((who[0], who[1] - 1)) is E.PRODUCER_FENCED


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_t20_kafka_18660_an_ending_transaction_is_checked_before_the_identity(
    state: TransactionState,
) -> None:
    world = TransactionWorld()
    world.markers.hold = True
    world.put(state=state)
    for who in ((7, 5), (7, 6), (8, 0)):
        answer = world.add_later(who)
        world.wait(1_000)
        assert answer.result() is E.CONCURRENT_TRANSACTIONS


def test_t22_verification_has_a_code_for_each_partition(world: TransactionWorld) -> None:
    who = world.begin()
    world.add(who, T0)
    count = len(world.log.records)
    assert world.verify(who, T0, T1).result() == {T0: E.NONE, T1: E.TRANSACTION_ABORTABLE}
    assert world.verify((99, 0), T0).result() == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    assert world.verify((who[0], 9), T0).result() == {T0: E.PRODUCER_FENCED}
    assert world.verify(who, T0, name="else").result() == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    world.markers.hold = True
    world.end(who)
    assert world.verify(who, T0).result() == {T0: E.CONCURRENT_TRANSACTIONS}
    world.markers.release()
    assert world.verify(who, T0).result() == {T0: E.TRANSACTION_ABORTABLE}
    assert len(world.log.records) == count + 2, "verification writes nothing"


def test_t22_verification_uses_only_durable_state(world: TransactionWorld) -> None:
    who = world.begin()
    world.log.hold = True
    world.add_later(who, T0)
    verified = world.verify(who, T0)
    assert not verified.done
    world.log.flush()
    assert verified.result() == {T0: E.NONE}


# --- EndTxn ---


def test_t31_an_end_is_answered_before_its_markers_are_written(world: TransactionWorld) -> None:
    who = world.begin()
    world.add(who)
    world.markers.hold = True
    assert world.end(who).error is E.NONE
    assert world.state() is S.PREPARE_COMMIT
    assert world.markers.written == {}
    world.markers.release()
    assert world.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("commit", [True, False])
def test_t32_a_decided_transaction_keeps_its_result(world: TransactionWorld, commit: bool) -> None:
    who = world.begin()
    world.add(who)
    world.markers.hold = True
    world.end(who, commit)
    assert world.end(who, not commit).error is E.CONCURRENT_TRANSACTIONS
    assert world.init().error is E.CONCURRENT_TRANSACTIONS
    world.wait(10_000_000)
    world.restart()
    world.markers.hold = False
    world.restart()
    assert {marker.commit for marker in world.markers.written[T0]} == {commit}


@pytest.mark.parametrize("commit", [True, False])
def test_t33_complete_keeps_the_identity_and_drops_the_partitions(
    world: TransactionWorld, commit: bool
) -> None:
    who = world.begin()
    world.add(who, T0, T1)
    world.end(who, commit)
    held = world.held()
    assert held.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert (held.producer_id, held.epoch, held.partitions) == (*who, frozenset())
    assert world.add(who) is E.NONE, "the next transaction"


def test_t33_a_transaction_is_complete_when_every_partition_has_its_marker(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.add(who, T0, T1)
    world.markers.codes[T1] = E.NOT_LEADER_OR_FOLLOWER
    assert world.end(who).error is E.NONE
    assert world.markers.written.keys() == {T0}
    assert (world.state(), world.held().partitions) == (S.PREPARE_COMMIT, frozenset({T0, T1}))
    world.restart()
    assert world.state() is S.PREPARE_COMMIT, "nothing else was recorded"
    world.markers.codes.clear()
    world.wait(10_000)
    assert world.state() is S.COMPLETE_COMMIT
    assert world.markers.written.keys() == {T0, T1}


def test_t34_the_coordinators_own_abort_raises_the_epoch_by_one(world: TransactionWorld) -> None:
    who = world.begin(timeout_ms=1_000)
    world.add(who)
    world.wait(20_000)
    assert world.markers.written[T0][0].epoch == who[1] + 1
    assert world.held().epoch == who[1] + 1


# --- Markers ---


def test_t40_every_partition_gets_the_producers_marker(world: TransactionWorld) -> None:
    who = world.begin()
    parts = [T0, T1, O0, ("__consumer_offsets", 3)]
    world.metadata.counts["__consumer_offsets"] = 50
    world.add(who, *parts)
    world.end(who)
    assert set(world.markers.written) == set(parts)
    for (marker,) in world.markers.written.values():
        assert (marker.producer_id, marker.epoch, marker.commit) == (*who, True)
        assert (marker.coordinator_epoch, marker.version) == (0, 1)


def test_t40_in_version_2_markers_carry_the_raised_epoch(world: TransactionWorld) -> None:
    who = world.begin()
    world.verify(who, T0, add=True)
    world.end(who, version=2)
    (marker,) = world.markers.written[T0]
    assert (marker.epoch, marker.version) == (who[1] + 1, 2)


RETRIED = [
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_LEADER_OR_FOLLOWER,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.KAFKA_STORAGE_ERROR,
]


@pytest.mark.parametrize("code", RETRIED, ids=lambda code: code.name)
def test_t43_markers_that_did_not_arrive_are_written_again(
    world: TransactionWorld, code: ErrorCode
) -> None:
    who = world.begin()
    world.add(who, T0, T1)
    world.markers.codes[T1] = code
    assert world.end(who).error is E.NONE
    assert world.state() is S.PREPARE_COMMIT
    world.wait(30_000)
    assert world.state() is S.PREPARE_COMMIT
    assert len(world.markers.written[T0]) == 1, "only what is left is asked for"
    attempts = len(world.markers.requests)
    assert 3 <= attempts <= 20, "with pauses that grow"
    world.markers.codes.clear()
    world.wait(10_000)
    assert world.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("code", RETRIED, ids=lambda code: code.name)
def test_t43_a_deleted_topic_needs_no_marker(world: TransactionWorld, code: ErrorCode) -> None:
    who = world.begin()
    world.add(who, T0, O0)
    world.markers.codes[O0] = code
    del world.metadata.counts["other"]
    world.end(who)
    assert world.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("code", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
def test_t43_a_partition_that_cannot_store_markers_needs_none(
    world: TransactionWorld, code: ErrorCode
) -> None:
    who = world.begin()
    world.add(who)
    world.markers.codes[T0] = code
    world.end(who)
    assert world.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize(
    "code",
    [
        E.INVALID_PRODUCER_EPOCH,
        E.TRANSACTION_COORDINATOR_FENCED,
        E.CORRUPT_MESSAGE,
        E.MESSAGE_TOO_LARGE,
        E.RECORD_LIST_TOO_LARGE,
        E.INVALID_REQUIRED_ACKS,
    ],
    ids=lambda code: code.name,
)
def test_t43_markers_stop_at_a_fatal_error_which_the_history_tells(
    world: TransactionWorld, code: ErrorCode
) -> None:
    who = world.begin()
    world.add(who)
    world.markers.codes[T0] = code
    world.end(who)
    world.wait(1_000_000)
    assert len(world.markers.requests) == 1
    assert world.state() is S.PREPARE_COMMIT
    told = world.transaction_history.about(ID).events[-1]
    assert told.kind is EventKind.MARKERS_STOPPED
    assert (told.error, told.partitions) == (code, (T0,))


def test_t43_a_complete_record_that_is_refused_is_written_later(world: TransactionWorld) -> None:
    who = world.begin()
    world.add(who)
    world.markers.hold = True
    world.end(who)
    world.log.refuse = E.NOT_ENOUGH_REPLICAS
    world.markers.release()
    assert world.state() is S.PREPARE_COMMIT
    world.log.refuse = E.NONE
    world.wait(10_000)
    assert world.state() is S.COMPLETE_COMMIT
    assert len(world.markers.requests) == 1


# --- Timeout and fencing ---


def test_t55_a_transaction_that_takes_too_long_is_aborted(world: TransactionWorld) -> None:
    who = world.begin(timeout_ms=25_000)
    world.wait(9_000)
    world.add(who)
    world.wait(25_000)
    assert world.state() is S.ONGOING
    world.wait(10_000)
    assert world.state() is S.COMPLETE_ABORT
    assert [marker.commit for marker in world.markers.written[T0]] == [False]
    assert world.end(who).error is E.PRODUCER_FENCED
    assert world.add(who) is E.PRODUCER_FENCED
    assert world.init(*who).error is E.PRODUCER_FENCED
    assert world.init().error is E.NONE


@pytest.mark.parametrize("jump_ms", [-3_600_000, 86_400_000])
def test_t55_setting_the_wall_clock_neither_ends_nor_extends_a_transaction(
    world: TransactionWorld, jump_ms: int
) -> None:
    """The wall clock is set back by an hour, then forward by a day."""
    who = world.begin(timeout_ms=60_000)
    world.add(who)
    world.clock.jump(jump_ms)
    world.wait(55_000)
    assert world.state() is S.ONGOING
    world.wait(15_000)
    assert world.state() is S.COMPLETE_ABORT


def test_t55_the_time_before_a_restart_counts_for_the_timeout(world: TransactionWorld) -> None:
    who = world.begin(timeout_ms=60_000)
    world.add(who)
    world.wait(40_000)
    world.restart()
    world.clock.jump(86_400_000)
    world.wait(19_000)
    assert world.state() is S.ONGOING
    world.wait(11_000)
    assert world.state() is S.COMPLETE_ABORT


def test_t55_no_scan_is_due_while_no_transaction_is_open(world: TransactionWorld) -> None:
    def due_in_ms() -> int:
        return (world._shards.next_deadline_ms() or 0) - world.clock.now_ms

    assert due_in_ms() > 60_000
    who = world.begin()
    world.add(who)
    assert due_in_ms() <= 10_000
    world.end(who)
    world.wait(20_000)
    assert due_in_ms() > 60_000


@pytest.mark.parametrize("commit_first", [True, False])
def test_t55_a_commit_and_a_timeout_at_one_moment_have_one_outcome(
    world: TransactionWorld, commit_first: bool
) -> None:
    """The outcome is that of the earlier event, although its record is not yet on disk when the
    later event comes."""
    who = world.begin(timeout_ms=1_000)
    world.add(who)
    world.wait(9_000)
    world.log.hold = True
    if commit_first:
        ended = world.end_later(who)
        world.wait(3_000)
    else:
        world.wait(3_000)
        ended = world.end_later(who)
    assert world.state() in (S.PREPARE_COMMIT, S.PREPARE_ABORT), "both have come"
    world.log.hold = False
    world.log.flush()
    assert world.state() is (S.COMPLETE_COMMIT if commit_first else S.COMPLETE_ABORT)
    answers = [ended.result().error, world.end(who).error]
    assert answers == [E.NONE if commit_first else E.PRODUCER_FENCED] * 2
    assert [marker.commit for marker in world.markers.written[T0]] == [commit_first]


def test_t55_the_timeout_starts_with_the_first_partition(world: TransactionWorld) -> None:
    who = world.begin(timeout_ms=1_000)
    world.wait(1_000_000)
    assert world.state() is S.EMPTY
    assert world.add(who) is E.NONE


def test_t55_a_transaction_with_a_pending_step_waits_for_the_next_scan(
    world: TransactionWorld,
) -> None:
    who = world.begin(timeout_ms=1_000)
    world.add(who)
    world.wait(5_000)
    world.log.hold = True
    ended = world.end_later(who)
    world.log.hold = False
    world.log.flush()
    world.wait(10_000)
    assert ended.result().error is E.NONE
    assert world.state() is S.COMPLETE_COMMIT


def test_t55_a_timeout_at_the_last_epoch_changes_the_producer_id() -> None:
    world = TransactionWorld()
    world.put(state=S.ONGOING, epoch=32_766, client_version=2)
    world.wait(80_000)
    held = world.held()
    assert (held.state, held.producer_id, held.epoch) == (S.COMPLETE_ABORT, 1_001, 0)
    assert world.markers.written[T0][0].epoch == 32_767


def test_t55_a_timeout_without_a_new_producer_id_is_repeated() -> None:
    world = TransactionWorld()
    world.put(state=S.ONGOING, epoch=32_766, client_version=2)
    world.hold_ids = True
    world.wait(75_000)
    world.held_ids.pop().resolve(None)
    assert world.state() is S.ONGOING
    world.hold_ids = False
    world.wait(10_000)
    assert world.state() is S.COMPLETE_ABORT


def test_t56_an_older_producer_is_fenced_by_every_request(world: TransactionWorld) -> None:
    old = world.begin()
    world.begin()
    assert world.add(old) is E.PRODUCER_FENCED
    assert world.end(old).error is E.PRODUCER_FENCED
    assert world.end(old, version=2).error in (E.PRODUCER_FENCED,)
    assert world.init(*old).error is E.PRODUCER_FENCED


def test_t57_markers_carry_the_coordinator_epoch(world: TransactionWorld) -> None:
    who = world.begin()
    world.restart()
    world.add(who)
    world.end(who)
    assert [marker.coordinator_epoch for marker in world.markers.written[T0]] == [1]


def test_t57_a_coordinator_whose_partition_was_taken_over_refuses_requests(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.metadata.leader_epoch += 1
    assert world.init().error is E.NOT_COORDINATOR
    assert world.add(who) is E.NOT_COORDINATOR
    assert world.end(who).error is E.NOT_COORDINATOR


def test_t58_a_loading_coordinator_answers_load_in_progress() -> None:
    world = TransactionWorld()
    who = world.begin()
    loading = world.transactions = world.new_transactions()
    expected = E.COORDINATOR_LOAD_IN_PROGRESS
    for step in range(2):
        assert loading.init_producer_id(InitCall(ID, 1_000)).result().error is expected
        assert handled(loading.list_all())[0] is expected
        assert world.add(who) is expected
        if step == 0:
            loading.shards.begin_load()
    while not loading.shards.load_some():
        pass
    assert world.add(who) is E.NONE


def test_t58_a_coordinator_closed_before_its_load_loads_nothing() -> None:
    world = TransactionWorld()
    world.begin()
    closed = world.new_transactions()
    closed.shards.close()
    closed.shards.load()
    assert list(closed.transactions()) == []
    assert closed.init_producer_id(InitCall(ID, 1_000)).result().error is E.NOT_COORDINATOR


def test_t59_a_successor_waits_until_the_old_transaction_is_complete(
    world: TransactionWorld,
) -> None:
    old = world.begin()
    world.add(old)
    world.markers.hold = True
    world.end(old)
    for _ in range(5):
        assert world.init().error is E.CONCURRENT_TRANSACTIONS
        world.wait(100)
    world.markers.release()
    assert world.begin() == (old[0], old[1] + 1)


# --- Transactions v2 ---


def test_t61_an_addition_by_a_leader_is_answered_when_it_is_durable(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.log.hold = True
    added = world.verify(who, T0, T1, add=True)
    assert not added.done
    world.log.flush()
    assert added.result() == {T0: E.NONE, T1: E.NONE}
    assert world.held().partitions == {T0, T1}
    assert world.held().client_version == 2


def test_t61_a_leader_gets_the_error_codes_of_the_coordinator(world: TransactionWorld) -> None:
    assert world.verify((1, 0), T0, add=True).result() == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    who = world.begin()
    assert world.verify((who[0], 9), T0, add=True).result() == {T0: E.PRODUCER_FENCED}


def test_t63_every_end_raises_the_epoch(world: TransactionWorld) -> None:
    who = world.begin()
    for round_ in range(10):
        world.verify(who, T0, add=True)
        answer = world.end(who, commit=round_ % 2 == 0, version=2)
        assert (answer.error, answer.producer_id, answer.epoch) == (E.NONE, who[0], who[1] + 1)
        assert world.held().last_epoch == who[1]
        who = (answer.producer_id, answer.epoch)


def test_t64_an_end_at_the_last_epoch_gets_a_new_producer_id() -> None:
    world = TransactionWorld()
    world.put(state=S.ONGOING, epoch=32_766, client_version=2)
    world.markers.hold = True
    answer = world.end((7, 32_766), version=2)
    assert (answer.producer_id, answer.epoch) == (1_001, 0)
    held = world.held()
    assert (held.producer_id, held.epoch, held.next_producer_id) == (7, 32_767, 1_001)
    waiting = world.verify((1_001, 0), T1, add=True)
    assert not waiting.done, "KAFKA-18660: the next transaction waits, it is not fenced"
    assert world.end((7, 32_766), version=2).error is E.CONCURRENT_TRANSACTIONS
    world.markers.release()
    assert waiting.result() == {T1: E.NONE}
    held = world.held()
    assert (held.producer_id, held.epoch, held.last_epoch) == (1_001, 0, 32_766)
    assert (held.previous_producer_id, held.state) == (7, S.ONGOING)
    assert world.markers.written[T0][0].epoch == 32_767


def test_t64_a_repeated_end_at_the_last_epoch_gets_the_same_answer() -> None:
    world = TransactionWorld()
    world.put(state=S.ONGOING, epoch=32_766, client_version=2)
    first = world.end((7, 32_766), version=2)
    assert world.end((7, 32_766), version=2) == first
    world.restart()
    assert world.end((7, 32_766), version=2) == first
    assert world.end((7, 32_766), False, version=2).error is E.INVALID_TXN_STATE


def test_t65_an_abort_of_an_empty_transaction_raises_the_epoch(world: TransactionWorld) -> None:
    who = world.begin()
    answer = world.end(who, False, version=2)
    assert (answer.error, answer.epoch) == (E.NONE, who[1] + 1)
    assert world.state() is S.COMPLETE_ABORT
    assert world.markers.requests == []
    again = world.end((who[0], answer.epoch), False, version=2)
    assert again.epoch == who[1] + 2


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_t65_a_producer_with_the_next_epoch_waits_for_the_markers(
    world: TransactionWorld, commit: bool, again: bool
) -> None:
    """A producer ends its next transaction without having sent a record. Its request has the new
    epoch, while the markers of the previous transaction are in flight."""
    who = world.begin()
    world.verify(who, T0, add=True)
    world.markers.hold = True
    ended = world.end(who, commit, version=2)
    following = (ended.producer_id, ended.epoch)
    assert world.end(following, again, version=2).error is E.CONCURRENT_TRANSACTIONS
    world.markers.release()
    assert world.end(following, False, version=2).error is E.NONE


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_t65_requests_wait_until_the_complete_record_is_durable(
    world: TransactionWorld, version: int, commit: bool
) -> None:
    who = world.begin()
    world.add(who, version=version)
    world.markers.hold = True
    ended = world.end(who, commit, version=version)
    world.log.hold = True
    world.markers.release()
    assert world.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    following = (ended.producer_id, ended.epoch) if version == 2 else who
    asked = [
        world.end_later(following, False, version=version),
        world.end_later(who, commit, version=version),
    ]
    began = world.init_later()
    world.log.flush()
    assert [later.result().error for later in asked] == [E.CONCURRENT_TRANSACTIONS] * 2
    assert began.result().error is E.CONCURRENT_TRANSACTIONS
    world.log.hold = False
    assert world.end(who, commit, version=version).error is E.NONE, "a retry, once it is complete"


def test_t65_requests_wait_without_end_once_markers_have_stopped(world: TransactionWorld) -> None:
    """A coordinator whose markers are fenced was replaced: it always answers that clients must wait
    (T-43)."""
    who = world.begin()
    world.verify(who, T0, add=True)
    world.markers.codes = {T0: E.TRANSACTION_COORDINATOR_FENCED}
    ended = world.end(who, version=2)
    for identity in (who, (ended.producer_id, ended.epoch)):
        for commit in (True, False):
            answer = world.end(identity, commit, version=2)
            assert answer.error is E.CONCURRENT_TRANSACTIONS


def test_t66_a_client_never_gets_an_epoch_above_32766() -> None:
    """Transactions of version 2 raise the epoch of one id until its epochs are exhausted."""
    world = TransactionWorld()
    world.put(epoch=32_700)
    who = (7, 32_700)
    seen = {who}
    for _ in range(300):
        assert world.verify(who, T0, add=True).result() == {T0: E.NONE}
        answer = world.end(who, version=2)
        assert answer.error is E.NONE
        who = (answer.producer_id, answer.epoch)
        seen.add(who)
    assert len(seen) == 301
    assert max(epoch for _, epoch in seen) == 32_766
    assert len({producer_id for producer_id, _ in seen}) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_t67_an_error_carries_no_identity(world: TransactionWorld, version: int) -> None:
    answer = world.end((1, 0), version=version)
    assert (answer.error, answer.producer_id, answer.epoch) == (
        E.INVALID_PRODUCER_ID_MAPPING,
        -1,
        -1,
    )


def test_t68_the_next_transaction_waits_for_the_markers_of_the_last(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.verify(who, T0, add=True)
    world.markers.hold = True
    ended = world.end(who, version=2)
    following = (ended.producer_id, ended.epoch)
    waiting = [world.verify(following, part, add=True) for part in (T0, T1)]
    assert not any(each.done for each in waiting)
    world.markers.release()
    assert [each.result() for each in waiting] == [{T0: E.NONE}, {T1: E.NONE}]
    held = world.held()
    assert (held.state, held.epoch, held.partitions) == (
        S.ONGOING,
        following[1],
        frozenset({T0, T1}),
    )


def test_t68_a_waiting_addition_is_refused_after_a_time_limit(world: TransactionWorld) -> None:
    who = world.begin()
    world.verify(who, T0, add=True)
    world.markers.hold = True
    ended = world.end(who, version=2)
    waiting = world.verify((ended.producer_id, ended.epoch), T0, add=True)
    world.wait(60_000)
    assert waiting.result() == {T0: E.CONCURRENT_TRANSACTIONS}


def test_t68_the_number_of_waiting_additions_is_limited(world: TransactionWorld) -> None:
    who = world.begin()
    world.verify(who, T0, add=True)
    world.markers.hold = True
    ended = world.end(who, version=2)
    following = (ended.producer_id, ended.epoch)
    waiting = [world.verify(following, T0, add=True) for _ in range(101)]
    assert [each.done for each in waiting] == [False] * 100 + [True]
    assert waiting[-1].result() == {T0: E.CONCURRENT_TRANSACTIONS}


def test_t68_closing_the_coordinator_answers_waiting_additions(world: TransactionWorld) -> None:
    who = world.begin()
    world.verify(who, T0, add=True)
    world.markers.hold = True
    ended = world.end(who, version=2)
    waiting = world.verify((ended.producer_id, ended.epoch), T0, add=True)
    world.transactions.shards.close()
    assert waiting.result() == {T0: E.NOT_COORDINATOR}
    world.markers.release()
    assert handled(world.transactions.list_all())[0] is E.NOT_COORDINATOR


def test_t68_a_waiting_addition_with_an_older_epoch_is_fenced(world: TransactionWorld) -> None:
    who = world.begin()
    world.verify(who, T0, add=True)
    world.markers.hold = True
    world.end(who, version=2)
    waiting = world.verify(who, T0, add=True)
    world.markers.release()
    assert waiting.result() == {T0: E.PRODUCER_FENCED}


# --- Limits and periodic checks ---


def test_the_number_of_markers_in_flight_is_limited() -> None:
    from odradek_broker.coordinator.transactions.completion import MARKERS_IN_FLIGHT_MAX

    world = TransactionWorld()
    count = 2 * MARKERS_IN_FLIGHT_MAX + 10
    records = [
        encode(Transaction(f"i{n}", n, 0, 1, S.PREPARE_ABORT, frozenset({T0}), start_ms=0))
        for n in range(count)
    ]
    world.log.append_internal(list(records), 0)
    world.markers.hold = True
    world.restart()
    assert len(world.markers.held) == MARKERS_IN_FLIGHT_MAX
    while world.markers.held:
        world.markers.release()
    assert {held.state for held in world.transactions.transactions()} == {S.COMPLETE_ABORT}


def test_describing_and_listing_wait_for_durability(world: TransactionWorld) -> None:
    world.log.hold = True
    world.init_later()
    described, listed = world.transactions.describe(ID), handled(world.transactions.list_all())
    assert not described.done and not listed.done
    world.log.flush()
    error, held = described.result()
    assert error is E.NONE and held == world.held()
    assert listed.result() == (E.NONE, [held])
    assert world.transactions.describe("x").result() == (E.TRANSACTIONAL_ID_NOT_FOUND, None)


def test_the_history_tells_the_requests_of_a_transaction(world: TransactionWorld) -> None:
    old = world.begin()
    new = world.begin()
    world.add(old)
    world.add(new)
    world.end(new)
    told = [
        (event.kind, event.fields.get("request"), event.fields.get("after"), event.error)
        for event in world.transaction_history.about(ID).events
    ]
    step, none = EventKind.TRANSACTION_STEP, E.NONE
    assert told == [
        (step, "InitProducerId", "Empty", none),
        (step, "InitProducerId", "Empty", none),
        (
            EventKind.TRANSACTION_REFUSED,
            "AddPartitionsToTxn by a partition's leader",
            None,
            E.PRODUCER_FENCED,
        ),
        (step, "AddPartitionsToTxn by a partition's leader", "Ongoing", none),
        (step, "EndTxn(commit)", "PrepareCommit", none),
        (EventKind.MARKERS_SENT, None, None, none),
        (EventKind.TRANSACTION_COMPLETE, None, "CompleteCommit", none),
    ]


def test_closing_the_coordinator_disarms_its_timer(world: TransactionWorld) -> None:
    world.add(world.begin())
    at_ms, callback = world.timers[-1]
    assert at_ms == 1_000 + 10_000
    world.transactions.shards.close()
    callback()
    assert all(runtime.state is RuntimeState.CLOSED for runtime in world.transactions.shards)


# --- D11: the number of ids ---


def test_d11_new_ids_beyond_the_limit_are_refused_until_others_expire() -> None:
    world = TransactionWorld(partitions=3, max_transactional_ids=4)
    names = [f"id-{number}" for number in range(4)]
    for name in names:
        world.begin(name=name)
    full = world.init(name="one-more")
    assert full.error is E.POLICY_VIOLATION
    assert (full.producer_id, full.epoch) == (-1, -1)
    assert world.transactions.transaction("one-more") is None
    for name in names:
        assert world.begin(name=name)[1] == 1, "those that are known go on"
    world.restart()
    assert world.init(name="one-more").error is E.POLICY_VIOLATION
    world.wait(8 * 24 * 3_600_000)
    assert world.begin(name="one-more")[1] == 0


def test_d11_ids_that_wait_for_producer_ids_count_for_the_limit() -> None:
    world = TransactionWorld(max_transactional_ids=2)
    world.hold_ids = True
    asked = [world.init_later(name=f"id-{number}") for number in range(5)]
    world.hold_ids = False
    world.give_ids()
    errors = [answer.result().error for answer in asked]
    assert errors == [E.NONE] * 2 + [E.POLICY_VIOLATION] * 3
