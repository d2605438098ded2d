"""Producer ids, epochs and sequences without a loop: rules C-20 to C-24 and C-40 to C-52."""

from __future__ import annotations

import itertools

import pytest

from odradek_client.errors import Fatal, ProducerFenced
from odradek_client.producer.batch import EPOCH_MAX, ProducerBatch, ProducerIdAndEpoch
from odradek_client.producer.idempotence import IdempotenceManager
from odradek_client.producer.transaction_states import (
    ALLOWED_FROM,
    ClientTxnState,
    IllegalTransition,
    step,
)
from odradek_client.structs import TopicPartition
from producer_world import batch

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
ME = ProducerIdAndEpoch(7, 0)


def manager(identity: ProducerIdAndEpoch = ME) -> IdempotenceManager:
    made = IdempotenceManager()
    made.begin_identity()
    made.identity_given(identity)
    return made


def drained(tm: IdempotenceManager, count: int = 1, tp: TopicPartition = T0) -> ProducerBatch:
    made = batch(tp, count)
    assert tm.may_drain(made) or tm.sequences.of(tp).in_flight
    tm.drained(made)
    made.was_sent = True
    return made


# --- states ---------------------------------------------------------------------------------------


def test_only_the_steps_of_the_state_table_are_legal() -> None:
    for current, target in itertools.product(ClientTxnState, ClientTxnState):
        legal = current in ALLOWED_FROM[target]
        if current is ClientTxnState.FATAL_ERROR and target is not ClientTxnState.FATAL_ERROR:
            legal = False
        if legal:
            assert step(current, target) is target
        else:
            with pytest.raises(IllegalTransition):
                step(current, target)


def test_c20_no_batch_is_sent_without_a_producer_id() -> None:
    tm = IdempotenceManager()
    assert tm.needs_identity and not tm.may_drain(batch())
    tm.begin_identity()
    assert not tm.needs_identity and not tm.may_drain(batch())
    tm.identity_refused()
    assert tm.needs_identity
    tm.begin_identity()
    tm.identity_given(ME)
    assert tm.may_drain(batch())


def test_c32_an_idempotent_producer_requests_its_id_without_transactional_id() -> None:
    request = IdempotenceManager().begin_identity()
    assert request.transactional_id is None
    assert request.transaction_timeout_ms == 2**31 - 1


def test_c20_no_batch_is_sent_after_a_fatal_error() -> None:
    tm = manager()
    tm.fail(ProducerFenced("x"))
    tm.fail(Fatal("later"))
    assert not tm.may_drain(batch())
    assert isinstance(tm.fatal_error, ProducerFenced), "the first reason stays"


# --- sequences ------------------------------------------------------------------------------------


def test_c22_sequences_count_records_per_partition_and_stay_on_retry() -> None:
    tm = manager()
    batches = [drained(tm, 3), drained(tm, 2), drained(tm, 4, T1), drained(tm, 1)]
    assert [b.base_sequence for b in batches] == [0, 3, 0, 5]
    assert {b.identity for b in batches} == {ME}
    tm.drained(batches[0])
    assert batches[0].base_sequence == 0, "a retry keeps its sequence"


def test_p20_sequences_wrap_to_zero() -> None:
    tm = manager()
    drained(tm)
    tm.sequences.of(T0).next_sequence = 2**31 - 2
    straddling, following = drained(tm, 3), drained(tm, 1)
    assert straddling.base_sequence == 2**31 - 2
    assert following.base_sequence == 1
    tm.sequences.of(T0).last_acked_sequence = 2**31 - 3
    tm.acknowledged(straddling, 10)
    assert tm.sequences.of(T0).last_acked_sequence == 0
    tm.acknowledged(following, 13)
    assert tm.sequences.of(T0).last_acked_sequence == 1


def test_p14_the_first_batch_of_a_producer_id_is_sent_alone() -> None:
    tm = manager()
    first = drained(tm)
    assert not tm.may_drain(batch()), "a broker that forgot us would take it before the first"
    assert tm.may_drain(batch(tp=T1))
    tm.acknowledged(first, 0)
    drained(tm)
    assert tm.may_drain(batch())


def test_c21_a_retry_waits_until_it_is_the_oldest_in_flight() -> None:
    tm = manager()
    first, second = drained(tm), drained(tm)
    assert tm.may_drain(first) and not tm.may_drain(second)
    tm.acknowledged(first, 0)
    assert tm.may_drain(second)


def test_c21_p05_no_new_batch_overtakes_a_retry() -> None:
    tm = manager()
    tm.acknowledged(drained(tm), 0)
    retried = drained(tm)
    assert tm.may_drain(batch())
    retried.attempts = 1
    assert not tm.may_drain(batch()), "it may leave the broker's window of five"
    tm.acknowledged(retried, 1)
    assert tm.may_drain(batch())


def test_c24_acknowledgements_out_of_order_keep_the_highest_sequence() -> None:
    tm = manager()
    first, second = drained(tm, 2), drained(tm, 2)
    tm.acknowledged(second, 2)
    tm.acknowledged(first, 0)
    sequences = tm.sequences.of(T0)
    assert (sequences.last_acked_sequence, sequences.last_acked_offset) == (3, 3)
    assert not sequences.in_flight


# --- unresolved -----------------------------------------------------------------------------------


def test_c41_an_unresolved_partition_sends_retries_but_no_new_batch() -> None:
    tm = manager()
    lost, later = drained(tm), drained(tm)
    tm.gave_up(lost, may_be_written=True)
    assert tm.sequences.has_unresolved(T0)
    assert not tm.may_drain(batch())
    assert tm.may_drain(later), "stamped ones may go on"
    assert tm.may_drain(batch(tp=T1)), "another partition is not concerned"


def test_c42_a_later_success_resolves_the_sequence_without_an_epoch_bump() -> None:
    tm = manager()
    lost, later = drained(tm, 2), drained(tm, 1)
    tm.gave_up(lost, may_be_written=True)
    tm.resolve()
    assert tm.sequences.has_unresolved(T0), "something is in flight"
    tm.acknowledged(later, 2)
    tm.resolve()
    assert not tm.sequences.has_unresolved(T0) and not tm.sequences.bump_requested
    assert tm.may_drain(batch())


def test_c42_c43_c44_an_unresolved_sequence_bumps_the_epoch() -> None:
    tm = manager()
    written = drained(tm, 2)
    tm.acknowledged(written, 0)
    lost = drained(tm, 1)
    tm.gave_up(lost, may_be_written=True)
    tm.resolve()
    assert tm.sequences.bump_requested and tm.bump_if_requested()
    assert tm.identity == ProducerIdAndEpoch(7, 1)
    assert not tm.needs_identity, "no broker is asked"
    fresh = drained(tm)
    assert (fresh.identity.epoch, fresh.base_sequence) == (1, 0)


def test_c45_a_batch_that_never_reached_the_log_leaves_no_gap() -> None:
    tm = manager()
    refused, behind = drained(tm, 2), drained(tm, 3)
    tm.gave_up(refused, may_be_written=False)
    assert tm.bump_if_requested()
    assert (behind.identity.epoch, behind.base_sequence) == (1, 0)
    assert behind.sequence_was_reset
    assert drained(tm).base_sequence == 3


def test_c44_a_batch_that_may_be_written_keeps_its_sequence() -> None:
    tm = manager()
    maybe, refused, behind = drained(tm), drained(tm), drained(tm)
    tm.gave_up(refused, may_be_written=False)
    assert not tm.bump_if_requested(), "under another sequence `maybe` would be written twice"
    assert not tm.may_drain(batch())
    tm.acknowledged(maybe, 0)
    assert tm.bump_if_requested()
    assert (behind.identity.epoch, behind.base_sequence) == (1, 0)


def test_c44_other_partitions_change_epoch_only_when_nothing_is_in_flight() -> None:
    tm = manager()
    other = drained(tm, 1, T1)
    tm.sequences.request_bump(T0)
    tm.bump_if_requested()
    assert other.identity == ME, "not restamped"
    assert not tm.may_drain(batch(tp=T1)), "two epochs in flight"
    tm.acknowledged(other, 0)
    fresh = drained(tm, 1, T1)
    assert (fresh.identity.epoch, fresh.base_sequence) == (1, 0)


def test_c44_a_new_producer_id_follows_the_last_epoch() -> None:
    tm = manager(ProducerIdAndEpoch(7, EPOCH_MAX))
    waiting = drained(tm, 2)
    tm.sequences.request_bump(T0)
    assert tm.bump_if_requested()
    assert tm.needs_identity and not tm.may_drain(batch())
    tm.begin_identity()
    tm.identity_given(ProducerIdAndEpoch(8, 0))
    assert (waiting.identity, waiting.base_sequence) == (ProducerIdAndEpoch(8, 0), 0)
    assert drained(tm).base_sequence == 2
    assert not tm.bump_if_requested()


# --- answers of brokers ---------------------------------------------------------------------------


def test_c50_an_out_of_order_batch_after_a_retried_one_is_retried() -> None:
    tm = manager()
    drained(tm)
    second = drained(tm)
    assert tm.out_of_order(second)
    assert not tm.sequences.bump_requested


def test_c50_out_of_order_of_the_next_batch_needs_an_epoch_bump() -> None:
    tm = manager()
    first = drained(tm)
    assert tm.out_of_order(first)
    assert tm.sequences.bump_requested


def test_c50_a_batch_restamped_meanwhile_is_just_retried() -> None:
    tm = manager()
    first = drained(tm)
    tm.sequences.request_bump(T0)
    tm.bump_if_requested()
    assert first.sequence_was_reset
    assert tm.out_of_order(first) and not tm.sequences.bump_requested


def test_c50_only_the_direct_follower_of_an_unresolved_batch_bumps_the_epoch() -> None:
    tm = manager()
    lost, next_one, last = drained(tm), drained(tm), drained(tm)
    tm.gave_up(lost, may_be_written=True)
    assert tm.out_of_order(last) and not tm.sequences.bump_requested
    assert tm.out_of_order(next_one) and tm.sequences.bump_requested


def test_c52_unknown_producer_id_with_a_log_start_bumps_the_epoch_once() -> None:
    tm = manager()
    first = drained(tm)
    assert tm.unknown_producer_id(first, -1) and not tm.sequences.bump_requested, (
        "the broker did not say enough"
    )
    assert tm.unknown_producer_id(first, 100) and tm.sequences.bump_requested
    tm.bump_if_requested()
    assert tm.unknown_producer_id(first, 100) and not tm.sequences.bump_requested, (
        "restamped already"
    )


def test_c25_parts_replace_the_split_batch_with_its_sequences() -> None:
    tm = manager()
    before, whole, behind = drained(tm, 1), drained(tm, 4), drained(tm, 1)
    parts = whole.split(whole.builder.estimated_bytes // 2)
    tm.sequences.replaced(whole, parts)
    assert tm.sequences.of(T0).in_flight == [before, *parts, behind]
    assert len(parts) >= 2
    assert [p.base_sequence for p in parts] == list(
        itertools.accumulate([1] + [p.record_count for p in parts[:-1]])
    )
    assert sum(p.record_count for p in parts) == 4
