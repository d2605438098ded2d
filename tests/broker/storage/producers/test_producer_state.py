"""Producer state, rule by rule (P-01 to P-28, T-41, T-42, T-45)."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import budget
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.producers.snapshot import (
    SNAPSHOT,
    TRAILER_MAGIC,
    CorruptProducerSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from odradek_broker.storage.producers.state import (
    ABORT_MARKER,
    COMMIT_MARKER,
    Accepted,
    CachedBatch,
    Duplicate,
    ProducerStateError,
    ProducerStateManager,
)
from odradek_broker.storage.transaction_index import AbortedTxn
from odradek_protocol.checksums import crc32c
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import BatchHeader
from odradek_protocol.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT

PID = 4711
MAX = 2**31 - 1
NOW = 1_700_000_000_000
CLIENT, COORDINATOR, REPLAY = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLAY
BAD_SEQUENCE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
BAD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


def restored(content: bytes, *, map_end_offset: int, **limits: Any) -> ProducerStateManager:
    state = ProducerStateManager(**limits)
    state.restore(decode_snapshot(content, map_end_offset=map_end_offset), map_end_offset)
    return state


def first_open(state: ProducerStateManager) -> int | None:
    """The first offset of the earliest open transaction."""
    first = state.first_open_transaction
    return None if first is None else first[0]


def batch(
    sequence: int = 0,
    count: int = 1,
    *,
    pid: int = PID,
    epoch: int = 0,
    offset: int = 0,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = NOW,
) -> BatchHeader:
    attributes = (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    return BatchHeader(
        base_offset=offset,
        size_bytes=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


class Partition:
    """The part of a log that these tests need: it checks a batch, assigns offsets, and updates the
    state."""

    def __init__(self, **limits: Any) -> None:
        self.state = ProducerStateManager(**limits)
        self.end = 0

    def append(
        self, header: BatchHeader, origin: AppendOrigin = CLIENT
    ) -> tuple[int, int] | Duplicate:
        verdict = self.state.check(header, origin, NOW)
        if isinstance(verdict, Duplicate):
            return verdict
        assert isinstance(verdict, Accepted)
        base, last = self.end, self.end + header.last_offset_delta
        self.state.update(header, base, last, NOW)
        self.end = last + 1
        return base, last

    def mark(
        self, control_type: int, *, pid: int = PID, epoch: int = 0, coordinator_epoch: int = 0
    ) -> AbortedTxn | None:
        self.state.check_marker(pid, epoch, coordinator_epoch)
        aborted = self.state.apply_marker(
            pid, epoch, coordinator_epoch, control_type, self.end, NOW
        )
        self.end += 1
        return aborted

    def refuses(self, header: BatchHeader, error: ErrorCode, origin: AppendOrigin = CLIENT) -> str:
        """Check that the append is refused with `error`, and leaves the state unchanged. Returns
        the message of the refusal."""
        before = encode_snapshot(self.state.entries())
        with pytest.raises(ProducerStateError) as caught:
            self.append(header, origin)
        assert caught.value.error is error
        assert encode_snapshot(self.state.entries()) == before
        return caught.value.message

    def reload(self, **limits: Any) -> None:
        self.state = restored(
            encode_snapshot(self.state.entries()), map_end_offset=self.end, **limits
        )

    def batches(self, pid: int = PID) -> list[CachedBatch]:
        entry = self.state.entry(pid)
        assert entry is not None
        return list(entry.batches())


@pytest.fixture
def log() -> Partition:
    return Partition()


# -- state ----------------------------------------------------------------------------------------


def test_p01_a_producer_entry_has_the_last_five_batches(log: Partition) -> None:
    for number in range(7):
        log.append(batch(number * 3, 3, epoch=2, timestamp=NOW + number))
    entry = log.state.entry(PID)
    assert entry is not None
    assert (entry.epoch, entry.coordinator_epoch, entry.transaction_first_offset) == (2, -1, None)
    assert entry.last_timestamp == NOW + 6
    assert (entry.last_sequence, entry.last_offset) == (20, 20)
    assert log.batches() == [CachedBatch(n * 3 + 2, n * 3 + 2, 2, NOW + n) for n in (2, 3, 4, 5, 6)]


def test_p02_first_sequence_and_offset_are_derived() -> None:
    plain = CachedBatch(last_sequence=9, last_offset=109, offset_delta=4, timestamp=0)
    assert (plain.base_sequence, plain.base_offset) == (5, 105)
    wrapped = CachedBatch(last_sequence=0, last_offset=109, offset_delta=2, timestamp=0)
    assert (wrapped.base_sequence, wrapped.base_offset) == (MAX - 1, 107)


def test_p03_producers_and_partitions_share_no_state(log: Partition) -> None:
    assert log.append(batch(0, 2)) == (0, 1)
    assert log.append(batch(0, 2, pid=PID + 1)) == (2, 3)
    assert log.append(batch(0, 2)) == Duplicate(0, 1, NOW)
    assert Partition().append(batch(0, 2)) == (0, 1)


def test_p04_another_epoch_clears_the_cache(log: Partition) -> None:
    log.append(batch(0))
    log.append(batch(1))
    log.append(batch(0, epoch=1))
    assert log.batches() == [CachedBatch(0, 2, 0, NOW)]
    log.refuses(batch(1, epoch=0), BAD_EPOCH)


def test_p04_a_sixth_batch_evicts_the_oldest(log: Partition) -> None:
    for sequence in range(6):
        log.append(batch(sequence))
    assert log.append(batch(1)) == Duplicate(1, 1, NOW)
    log.refuses(batch(0), BAD_SEQUENCE)


def test_p05_the_last_five_batches_may_be_repeated(log: Partition) -> None:
    for sequence in range(100):
        log.append(batch(sequence))
    for sequence in range(95, 100):
        assert log.append(batch(sequence)) == Duplicate(sequence, sequence, NOW)
    assert log.append(batch(100)) == (100, 100)


# -- checks ---------------------------------------------------------------------------------------


def test_p08_a_batch_without_a_producer_id_leaves_no_state(log: Partition) -> None:
    for _ in range(3):
        log.append(batch(-1, 2, pid=-1, epoch=-1))
    assert len(log.state) == 0
    assert log.state.map_end_offset == 6


def test_p09_duplicate_answers_original_offset(log: Partition) -> None:
    log.append(batch(0, 10, timestamp=NOW - 5))
    log.append(batch(10, 1))
    assert log.append(batch(0, 10, timestamp=NOW)) == Duplicate(0, 9, NOW - 5)


@pytest.mark.parametrize(("sequence", "count"), [(0, 9), (1, 9), (0, 11), (5, 5), (9, 1), (9, 2)])
def test_p09_partial_overlap_is_no_duplicate(log: Partition, sequence: int, count: int) -> None:
    log.append(batch(0, 10))
    log.refuses(batch(sequence, count), BAD_SEQUENCE)


def test_p09_same_sequences_of_another_epoch_are_no_duplicate(log: Partition) -> None:
    log.append(batch(0, 3, epoch=1))
    log.refuses(batch(0, 3, epoch=0), BAD_EPOCH)
    assert log.append(batch(0, 3, epoch=2)) == (3, 5)


def test_p09_only_batches_of_clients_are_checked_for_duplicates(log: Partition) -> None:
    assert log.append(batch(0, 2), COORDINATOR) == (0, 1)
    assert log.append(batch(0, 2), COORDINATOR) == (2, 3)
    assert log.append(batch(0, 2), REPLAY) == (4, 5)


def test_p09_duplicates_are_recognized_before_the_sequence_check(log: Partition) -> None:
    log.append(batch(MAX, 1))  # any first sequence is accepted (P-13)
    log.append(batch(0, 1))
    assert log.append(batch(MAX, 1)) == Duplicate(0, 0, NOW)


def test_p10_a_duplicate_changes_nothing(log: Partition) -> None:
    for sequence in range(5):
        log.append(batch(sequence))
    before, end = encode_snapshot(log.state.entries()), log.state.map_end_offset
    for sequence in range(5):
        assert isinstance(log.append(batch(sequence, timestamp=NOW + 99)), Duplicate)
    assert (encode_snapshot(log.state.entries()), log.state.map_end_offset) == (before, end)


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_p12_older_epoch_is_invalid_not_fenced(log: Partition, origin: AppendOrigin) -> None:
    log.append(batch(0, epoch=5))
    message = log.refuses(batch(1, epoch=4), BAD_EPOCH, origin)
    assert "epoch 4" in message and "at least 5" in message


E, L = 5, 41
# The whole table of rule P-13: stored (epoch, last sequence), request, outcome.
P13 = [
    ("no state", None, (0, 0), None),
    ("no state", None, (3, 17), None),
    ("no state", None, (0, MAX), None),
    ("newer epoch, 0", (E, L), (E + 1, 0), None),
    ("newer epoch, 0", (E, L), (32767, 0), None),
    ("newer epoch, next", (E, L), (E + 1, L + 1), BAD_SEQUENCE),
    ("newer epoch, other", (E, L), (E + 1, 1), BAD_SEQUENCE),
    ("newer epoch, none cached", (E, None), (E + 1, 0), None),
    ("newer epoch, none cached, other", (E, None), (E + 1, 1), BAD_SEQUENCE),
    ("same epoch, none cached, 0", (E, None), (E, 0), None),
    ("same epoch, none cached, other", (E, None), (E, 1), BAD_SEQUENCE),
    ("same epoch, none cached, other", (E, None), (E, MAX), BAD_SEQUENCE),
    ("same epoch, next", (E, L), (E, L + 1), None),
    ("same epoch, last 0, next", (E, 0), (E, 1), None),
    ("same epoch, wrap", (E, MAX), (E, 0), None),
    ("same epoch, gap", (E, L), (E, L + 2), BAD_SEQUENCE),
    ("same epoch, below", (E, L), (E, L - 7), BAD_SEQUENCE),
    ("same epoch, 0 without wrap", (E, L), (E, 0), BAD_SEQUENCE),
    ("same epoch, beyond wrap", (E, MAX), (E, 1), BAD_SEQUENCE),
    ("same epoch, just before wrap", (E, MAX - 1), (E, 0), BAD_SEQUENCE),
    ("older epoch, next", (E, L), (E - 1, L + 1), BAD_EPOCH),
    ("older epoch, 0", (E, L), (0, 0), BAD_EPOCH),
    ("older epoch, other", (E, L), (E - 1, 999), BAD_EPOCH),
    ("older epoch, none cached", (E, None), (E - 1, 0), BAD_EPOCH),
]


@pytest.mark.parametrize(("case", "stored", "request_", "error"), P13)
def test_p13_sequences_are_checked_by_the_table(
    log: Partition,
    case: str,
    stored: tuple[int, int | None] | None,
    request_: tuple[int, int],
    error: ErrorCode | None,
) -> None:
    if stored is not None and stored[1] is None:
        log.mark(COMMIT_MARKER, epoch=stored[0])
    elif stored is not None and stored[1] is not None:
        log.append(batch(stored[1], epoch=stored[0]))
    header = batch(request_[1], 3, epoch=request_[0])
    if error is not None:
        message = log.refuses(header, error)
        assert str(PID) in message and "expected" in message
        return
    start = log.end
    assert log.append(header) == (start, start + 2)
    assert log.batches()[-1].base_sequence == request_[1]


def test_p13_message_names_expected_and_actual(log: Partition) -> None:
    log.append(batch(0, 10))
    message = log.refuses(batch(15), BAD_SEQUENCE)
    assert "sequence 15, expected 10" in message


def test_p14_unknown_producer_may_start_anywhere(log: Partition) -> None:
    assert log.append(batch(12345, 2)) == (0, 1)
    log.refuses(batch(12346), BAD_SEQUENCE)
    assert log.append(batch(12347)) == (2, 2)


def test_p15_v2_transaction_begins_at_zero_on_an_unknown_partition(log: Partition) -> None:
    guard = log.state.begin_verification(PID, 0, 1, must_start_at_zero=True, now_ms=NOW)
    log.refuses(batch(1, transactional=True), BAD_SEQUENCE)
    assert log.state.verifications.is_verified(PID, guard)
    log.state.begin_verification(PID, 0, 0, must_start_at_zero=True, now_ms=NOW)
    assert log.append(batch(0, transactional=True)) == (0, 0)
    assert log.append(batch(1, transactional=True)) == (1, 1)


def test_p15_v1_transaction_may_begin_anywhere(log: Partition) -> None:
    log.state.begin_verification(PID, 0, 9, must_start_at_zero=False, now_ms=NOW)
    assert log.append(batch(9, transactional=True)) == (0, 0)


def test_p15_a_later_batch_cannot_overtake_one_being_verified(log: Partition) -> None:
    first = log.state.begin_verification(PID, 0, 3, must_start_at_zero=False, now_ms=NOW)
    assert first == log.state.begin_verification(PID, 0, 5, must_start_at_zero=False, now_ms=NOW)
    message = log.refuses(batch(5, transactional=True), BAD_SEQUENCE)
    assert "at most 3" in message
    assert log.append(batch(3, 2, transactional=True)) == (0, 1)
    assert log.append(batch(5, transactional=True)) == (2, 2)


def test_p15_a_newer_epoch_restarts_the_lowest_sequence(log: Partition) -> None:
    log.state.begin_verification(PID, 0, 0, must_start_at_zero=False, now_ms=NOW)
    log.state.begin_verification(PID, 1, 4, must_start_at_zero=False, now_ms=NOW)
    log.state.begin_verification(PID, 0, 1, must_start_at_zero=False, now_ms=NOW)
    assert log.append(batch(4, epoch=1, transactional=True)) == (0, 0)


def test_p15_a_marker_revokes_the_guard(log: Partition) -> None:
    guard = log.state.begin_verification(PID, 0, 0, must_start_at_zero=True, now_ms=NOW)
    assert log.state.verifications.is_verified(PID, guard)
    log.mark(ABORT_MARKER)
    assert not log.state.verifications.is_verified(PID, guard)
    later = log.state.begin_verification(PID, 0, 0, must_start_at_zero=True, now_ms=NOW)
    assert later != guard and not log.state.verifications.is_verified(PID, guard)


def test_p16_a_plain_batch_inside_a_transaction_is_refused(log: Partition) -> None:
    log.append(batch(0, transactional=True))
    for origin in (CLIENT, COORDINATOR):
        message = log.refuses(batch(1), ErrorCode.INVALID_TXN_STATE, origin)
        assert "offset 0" in message
    log.mark(COMMIT_MARKER)
    assert log.append(batch(1)) == (2, 2)


def test_p16_epoch_and_sequence_are_checked_before_the_transaction(log: Partition) -> None:
    log.append(batch(0, epoch=1, transactional=True))
    log.refuses(batch(1, epoch=0), BAD_EPOCH)
    log.refuses(batch(7, epoch=1), BAD_SEQUENCE)


def test_p17_each_origin_has_its_own_checks(log: Partition) -> None:
    log.append(batch(0, epoch=3))
    log.refuses(batch(50, epoch=3), BAD_SEQUENCE, CLIENT)
    log.refuses(batch(50, epoch=2), BAD_EPOCH, COORDINATOR)
    assert log.append(batch(50, epoch=3), COORDINATOR) == (1, 1)
    assert log.append(batch(700, epoch=1), REPLAY) == (2, 2)


def test_p17_control_batches_of_coordinators_have_their_epoch_checked(log: Partition) -> None:
    log.append(batch(0, epoch=3, transactional=True))
    marker = batch(-1, epoch=2, transactional=True, control=True)
    log.refuses(marker, BAD_EPOCH, COORDINATOR)
    assert isinstance(log.state.check(batch(-1, epoch=3, control=True), COORDINATOR, NOW), Accepted)


def test_p18_a_check_changes_no_state_and_an_update_does(log: Partition) -> None:
    header = batch(0, 5, transactional=True)
    for _ in range(3):
        assert isinstance(log.state.check(header, CLIENT, NOW), Accepted)
    assert (len(log.state), log.state.map_end_offset) == (0, 0)
    assert first_open(log.state) is None
    log.state.update(header, 0, 4, NOW)
    assert (len(log.state), log.state.map_end_offset) == (1, 5)
    assert first_open(log.state) == 0


def test_p18_control_batch_in_update_moves_only_the_end(log: Partition) -> None:
    log.append(batch(0, transactional=True))
    before = encode_snapshot(log.state.entries())
    log.state.update(batch(-1, control=True, transactional=True), 1, 1, NOW)
    assert log.state.map_end_offset == 2
    assert encode_snapshot(log.state.entries()) == before


@pytest.mark.parametrize("count", [1, 2, 3, 4, 1000])
def test_p20_batches_may_straddle_the_wrap_of_sequences(log: Partition, count: int) -> None:
    log.append(batch(MAX - 1, count))
    end = log.end
    following = (MAX - 1 + count) % 2**31
    for wrong in {following + 1, (following - 1) % 2**31} - {MAX - 1}:
        log.refuses(batch(wrong), BAD_SEQUENCE)
    assert log.append(batch(following, 7)) == (end, end + 6)
    assert log.append(batch(MAX - 1, count)) == Duplicate(0, count - 1, NOW)
    log.reload()
    assert log.append(batch(MAX - 1, count)) == Duplicate(0, count - 1, NOW)


def test_p21_extreme_ids_epochs_and_sequences_are_accepted(log: Partition) -> None:
    log.append(batch(MAX, pid=2**63 - 1, epoch=32767))
    log.reload()
    assert log.append(batch(0, pid=2**63 - 1, epoch=32767)) == (1, 1)
    log.refuses(batch(1, pid=2**63 - 1, epoch=32766), BAD_EPOCH)


# -- lifetime -------------------------------------------------------------------------------------


def test_p24_idle_producers_expire() -> None:
    log = Partition(expiration_ms=1000)
    log.append(batch(0, pid=1, timestamp=NOW))
    log.append(batch(0, pid=2, timestamp=NOW + 1))
    log.append(batch(0, pid=3, timestamp=NOW, transactional=True))
    assert log.state.remove_expired(NOW + 999) == []
    assert log.state.remove_expired(NOW + 1000) == [1]
    assert log.state.remove_expired(NOW + 10_000) == [2]
    assert [entry.producer_id for entry in log.state.entries()] == [3]
    log.mark(COMMIT_MARKER, pid=3)
    assert log.state.remove_expired(NOW + 10_000) == [3]
    # accepted like a batch of an unknown producer (P-14)
    assert log.append(batch(77, pid=1)) == (4, 4)


def test_p24_idle_time_is_measured_from_the_timestamp_of_the_last_batch() -> None:
    log = Partition(expiration_ms=1000)
    log.append(batch(0, timestamp=NOW - 5000))
    assert log.state.remove_expired(NOW) == [PID]


def test_p24_the_last_batch_counts_even_if_its_timestamp_is_older() -> None:
    """Clients choose timestamps: after a batch with an old timestamp, the producer expires at the
    next check, and its next batch is accepted as that of an unknown producer, as in Kafka."""
    log = Partition(expiration_ms=1000)
    log.append(batch(0, timestamp=NOW))
    log.append(batch(1, timestamp=NOW - 2000))
    entry = log.state.entry(PID)
    assert entry is not None and entry.last_timestamp == NOW - 2000
    log.append(batch(0, pid=2, timestamp=NOW + 5000))
    log.append(batch(0, pid=3, timestamp=NOW - 3000))
    assert sorted(log.state.remove_expired(NOW)) == sorted([PID, 3])
    assert [entry.producer_id for entry in log.state.entries()] == [2]
    assert log.append(batch(1, timestamp=NOW - 2000)) == (4, 4), "taken again"


def test_p24_a_transaction_of_old_records_is_kept_until_its_marker() -> None:
    log = Partition(expiration_ms=1000)
    log.append(batch(0, timestamp=NOW - 90_000, transactional=True))
    assert log.state.remove_expired(NOW) == []
    log.mark(COMMIT_MARKER)
    assert log.state.remove_expired(NOW) == [], "the marker was written just now"


def test_p24_unanswered_verifications_expire() -> None:
    log = Partition(expiration_ms=1000)
    guard = log.state.begin_verification(PID, 0, 0, must_start_at_zero=True, now_ms=NOW)
    log.state.remove_expired(NOW + 999)
    assert log.state.verifications.is_verified(PID, guard)
    log.state.remove_expired(NOW + 1000)
    assert not log.state.verifications.is_verified(PID, guard)


def test_p24_the_limit_removes_the_producer_that_wrote_longest_ago() -> None:
    log = Partition(max_producer_ids=3)
    for pid in (1, 2, 3):
        log.append(batch(0, pid=pid, transactional=pid == 2))
    log.append(batch(1, pid=1))
    log.append(batch(0, pid=4))
    assert [entry.producer_id for entry in log.state.entries()] == [2, 1, 4]
    log.append(batch(0, pid=5))
    assert [entry.producer_id for entry in log.state.entries()] == [2, 4, 5]


def test_p24_a_new_producer_must_wait_if_all_others_have_open_transactions() -> None:
    log = Partition(max_producer_ids=2)
    log.append(batch(0, pid=1, transactional=True))
    log.append(batch(0, pid=2, transactional=True))
    log.refuses(batch(0, pid=3), ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(ProducerStateError):
        log.state.check_marker(3, 0, 0)
    assert ErrorCode.NOT_ENOUGH_REPLICAS.retriable
    log.append(batch(0, pid=3), REPLAY)  # a replay accepts what the log has
    log.mark(ABORT_MARKER, pid=1)
    log.append(batch(0, pid=4))
    assert len(log.state) <= 3


def test_p26_snapshot_bytes_are_kafkas() -> None:
    """The bytes are written by hand from the format's table."""
    log = Partition()
    log.append(batch(10, 3, pid=7, epoch=2, timestamp=NOW))
    log.mark(COMMIT_MARKER, pid=8, epoch=4, coordinator_epoch=6)
    log.append(batch(0, 2, pid=9, transactional=True, timestamp=NOW + 1))
    entries = struct.pack(">i", 3)
    entries += struct.pack(">qhiqiqiq", 7, 2, 12, 2, 2, NOW, -1, -1)
    entries += struct.pack(">qhiqiqiq", 8, 4, -1, -1, 0, NOW, 6, -1)
    entries += struct.pack(">qhiqiqiq", 9, 0, 1, 5, 1, NOW + 1, -1, 4)
    content = encode_snapshot(log.state.entries())
    assert content[:2] == b"\x00\x01"
    assert content[6 : 6 + len(entries)] == entries
    assert content[2:6] == struct.pack(">I", crc32c(content[6:]))


def test_p26_a_snapshot_written_by_kafka_is_read() -> None:
    body = struct.pack(">i", 2)
    body += struct.pack(">qhiqiqiq", 7, 2, 12, 2, 2, NOW, -1, -1)
    body += struct.pack(">qhiqiqiq", 9, 0, 1, 5, 1, NOW, 3, 4)
    content = struct.pack(">hI", 1, crc32c(body)) + body
    state = restored(content, map_end_offset=6)
    assert (state.map_end_offset, first_open(state)) == (6, 4)
    assert state.check(batch(10, 3, pid=7, epoch=2), CLIENT, NOW) == Duplicate(0, 2, NOW)
    assert isinstance(state.check(batch(13, pid=7, epoch=2), CLIENT, NOW), Accepted)
    entry = state.entry(9)
    assert entry is not None and entry.coordinator_epoch == 3


def test_p26_the_last_five_batches_survive_a_restart(log: Partition) -> None:
    for sequence in range(8):
        log.append(batch(sequence, timestamp=NOW + sequence))
    log.reload()
    for sequence in range(3, 8):
        assert log.append(batch(sequence)) == Duplicate(sequence, sequence, NOW + sequence)
    log.refuses(batch(2), BAD_SEQUENCE)
    assert log.append(batch(8)) == (8, 8)


def test_p26_the_last_batch_before_a_marker_keeps_its_timestamp(log: Partition) -> None:
    log.append(batch(0, transactional=True, timestamp=NOW - 700))
    log.mark(COMMIT_MARKER)
    log.reload()
    assert log.append(batch(0, transactional=True)) == Duplicate(0, 0, NOW - 700)


def test_p26_the_declared_snapshot_format_agrees_with_the_encoder() -> None:
    log = Partition()
    for pid in range(20):
        for sequence in range(pid % 7):
            log.append(batch(sequence * 2, 2, pid=pid, epoch=pid, transactional=pid % 3 == 0))
        if pid % 4 == 0:
            log.mark(ABORT_MARKER, pid=pid, epoch=pid, coordinator_epoch=pid)
    content = encode_snapshot(log.state.entries())
    parsed = SNAPSHOT.parse(content)
    assert SNAPSHOT.build(parsed) == content
    assert parsed.crc == crc32c(content[6:])
    entries = list(log.state.entries())
    assert [e.producer_id for e in parsed.producer_entries] == [e.producer_id for e in entries]
    for declared, entry in zip(parsed.producer_entries, entries, strict=True):
        assert declared.epoch == entry.epoch
        assert declared.last_sequence == entry.last_sequence
        assert declared.last_offset == entry.last_offset
        assert declared.timestamp == entry.last_timestamp
        assert declared.coordinator_epoch == entry.coordinator_epoch
        first = entry.transaction_first_offset
        assert declared.current_txn_first_offset == (-1 if first is None else first)
    for kept in parsed.trailer.producers:
        stored = log.state.entry(kept.producer_id)
        assert stored is not None
        assert [
            CachedBatch(b.last_sequence, b.last_offset, b.offset_delta, b.timestamp)
            for b in kept.batches
        ] == list(stored.batches())


def _resealed(content: bytes) -> bytes:
    return content[:2] + struct.pack(">I", crc32c(content[6:])) + content[6:]


def test_p26_unknown_snapshot_trailers_are_ignored(log: Partition) -> None:
    log.append(batch(0))
    log.append(batch(1))
    content = encode_snapshot(log.state.entries())
    at = content.index(TRAILER_MAGIC)
    for tail in (
        b"",
        b"x",
        b"????" + content[at + 4 :],
        content[at : at + 4] + b"\x00\x63" + b"?" * 40,
    ):
        state = restored(_resealed(content[:at] + tail), map_end_offset=2)
        entry = state.entry(PID)
        assert entry is not None
        assert list(entry.batches()) == [CachedBatch(1, 1, 0, NOW)]


def test_p28_any_damaged_byte_of_a_snapshot_is_noticed(log: Partition) -> None:
    for sequence in range(3):
        log.append(batch(sequence))
    content = encode_snapshot(log.state.entries())
    for at in range(len(content)):
        for damaged in (
            content[:at],
            content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :],
        ):
            with pytest.raises(CorruptProducerSnapshot):
                restored(damaged, map_end_offset=3)


def _body(*entries: tuple[int, ...]) -> bytes:
    packed = [struct.pack(">qhiqiqiq", *entry) for entry in entries]
    return struct.pack(">i", len(entries)) + b"".join(packed)


GOOD = (7, 2, 12, 2, 2, NOW, -1, -1)
_HEAD = TRAILER_MAGIC + struct.pack(">HI", 1, 1)
_BATCH = struct.pack(">iqiq", 12, 2, 2, NOW)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (2, _body(GOOD)),
        (1, struct.pack(">i", 2**31 - 1)),
        (1, struct.pack(">i", -1)),
        (1, _body(GOOD)[:-1]),
        (1, _body(GOOD, GOOD)),
        (1, _body((-1, *GOOD[1:]))),
        (1, _body((7, 2, 12, 6, 2, NOW, -1, -1))),
        (1, _body((7, 2, 12, 2, 2, NOW, -1, 6))),
        (1, _body((7, 2, 12, 2, 2, NOW, -1, 1), (8, 2, 12, 2, 2, NOW, -1, 1))),
        (1, _body(GOOD) + TRAILER_MAGIC + struct.pack(">HI", 1, 2**32 - 1)),
        (1, _body(GOOD) + _HEAD + struct.pack(">qB", 8, 1) + _BATCH),
        (1, _body(GOOD) + _HEAD + struct.pack(">qB", 7, 0)),
        (1, _body(GOOD) + _HEAD + struct.pack(">qB", 7, 6) + _BATCH * 6),
        (1, _body(GOOD) + _HEAD + struct.pack(">qB", 7, 2) + _BATCH),
        (1, _body(GOOD) + _HEAD + struct.pack(">qB", 7, 1) + struct.pack(">iqiq", 13, 2, 2, NOW)),
        (1, _body((7, 2, -1, -1, 0, NOW, 0, -1)) + _HEAD + struct.pack(">qB", 7, 1) + _BATCH),
    ],
)
def test_p28_an_invalid_snapshot_with_a_good_checksum_is_refused(version: int, body: bytes) -> None:
    content = struct.pack(">hI", version, crc32c(body)) + body
    with pytest.raises(CorruptProducerSnapshot):
        restored(content, map_end_offset=6)


def test_p28_reload_and_replay_give_the_same_state(log: Partition) -> None:
    log.append(batch(0, 2, pid=1, transactional=True))
    log.append(batch(0, 2, pid=2, transactional=True))
    saved, saved_end = encode_snapshot(log.state.entries()), log.end
    replayed: list[tuple[BatchHeader, int, int]] = []
    for header in (batch(2, 4, pid=1, transactional=True), batch(0, 3, pid=3)):
        base, last = log.append(header)  # type: ignore[misc]
        replayed.append((header, base, last))
    marker_at = log.end
    aborted = log.mark(ABORT_MARKER, pid=1, epoch=1, coordinator_epoch=4)
    again = restored(saved, map_end_offset=saved_end)
    for header, base, last in replayed:
        assert isinstance(again.check(header, REPLAY, NOW), Accepted)
        again.update(header, base, last, NOW)
    assert again.apply_marker(1, 1, 4, ABORT_MARKER, marker_at, NOW) == aborted
    assert aborted == AbortedTxn(1, 0, marker_at, 2)
    assert sorted(_view(again)) == sorted(_view(log.state))
    assert first_open(again) == first_open(log.state) == 2
    assert again.map_end_offset == log.state.map_end_offset


def _view(state: ProducerStateManager) -> list[tuple[Any, ...]]:
    return [
        (e.producer_id, e.epoch, e.coordinator_epoch, e.last_timestamp, *e.batches())
        for e in state.entries()
    ]


# -- markers --------------------------------------------------------------------------------------


def test_t41_a_marker_with_an_older_epoch_is_refused(log: Partition) -> None:
    log.append(batch(0, epoch=5, transactional=True))
    with pytest.raises(ProducerStateError, match="epoch 4, expected at least 5") as caught:
        log.mark(ABORT_MARKER, epoch=4)
    assert caught.value.error is BAD_EPOCH


def test_t41_v2_marker_must_be_above_the_data(log: Partition) -> None:
    log.append(batch(0, epoch=5, transactional=True))
    with pytest.raises(ProducerStateError, match="above 5") as caught:
        log.state.check_marker(PID, 5, 0, transaction_version=2)
    assert caught.value.error is BAD_EPOCH
    log.state.check_marker(PID, 5, 0, transaction_version=1)
    log.state.check_marker(PID, 6, 0, transaction_version=2)
    log.mark(COMMIT_MARKER, epoch=6)
    log.state.check_marker(PID, 6, 0, transaction_version=2)  # the same marker again


def test_t41_marker_of_an_older_coordinator_is_fenced(log: Partition) -> None:
    log.append(batch(0, transactional=True))
    log.mark(COMMIT_MARKER, coordinator_epoch=8)
    with pytest.raises(ProducerStateError, match="epoch 7, expected at least 8") as caught:
        log.mark(COMMIT_MARKER, coordinator_epoch=7)
    assert caught.value.error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log.mark(COMMIT_MARKER, coordinator_epoch=8)


def test_t41_no_coordinator_has_an_epoch_below_minus_1(log: Partition) -> None:
    with pytest.raises(ProducerStateError, match="epoch -2, expected at least -1") as caught:
        log.state.check_marker(PID, 0, -2)
    assert caught.value.error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log.state.check_marker(PID, 0, -1)


def test_t41_a_marker_with_a_new_epoch_changes_the_epoch_of_the_producer(log: Partition) -> None:
    log.append(batch(0, transactional=True))
    log.mark(COMMIT_MARKER, epoch=0)
    assert len(log.batches()) == 1  # sequences continue within an epoch
    log.append(batch(1, transactional=True))
    log.mark(ABORT_MARKER, epoch=1)
    assert log.batches() == []
    log.refuses(batch(2, epoch=0, transactional=True), BAD_EPOCH)
    log.refuses(batch(2, epoch=1, transactional=True), BAD_SEQUENCE)
    log.append(batch(0, epoch=1, transactional=True))


def test_t42_a_marker_without_a_transaction_returns_no_aborted_one(log: Partition) -> None:
    assert log.mark(ABORT_MARKER, epoch=3) is None
    assert log.state.first_unstable_offset is None
    assert log.state.map_end_offset == 1
    log.append(batch(0, pid=2, transactional=True))
    assert log.mark(ABORT_MARKER, epoch=3) is None
    assert log.state.first_unstable_offset == 1


def test_t42_only_commit_and_abort_end_transactions(log: Partition) -> None:
    with pytest.raises(ValueError, match="control type 2"):
        log.state.apply_marker(PID, 0, 0, 2, 0, NOW)


def test_t45_the_earliest_open_transaction_holds_the_last_stable_offset(log: Partition) -> None:
    state = log.state
    log.append(batch(0, 10, pid=9))
    for pid in (1, 2, 3):
        log.append(batch(0, 2, pid=pid, transactional=True))  # at offsets 10, 12, 14
    assert first_open(state) == state.first_unstable_offset == 10
    log.append(batch(2, 2, pid=1, transactional=True))
    assert log.mark(ABORT_MARKER, pid=2) == AbortedTxn(2, 12, 18, 10)
    assert log.mark(ABORT_MARKER, pid=1) == AbortedTxn(1, 10, 19, 14)
    assert first_open(state) == 14
    assert state.first_unstable_offset == 10
    state.high_watermark_moved(19)  # above the marker at 18, but not above the one at 19
    assert state.first_unstable_offset == 10
    state.high_watermark_moved(20)
    assert state.first_unstable_offset == 14
    assert log.mark(COMMIT_MARKER, pid=3) is None
    assert first_open(state) is None
    assert state.first_unstable_offset == 14
    state.high_watermark_moved(21)
    assert state.first_unstable_offset is None


def test_t45_open_transactions_are_restored_in_order(log: Partition) -> None:
    for pid in (1, 2, 3):
        log.append(batch(0, pid=pid, transactional=True))
    log.append(batch(1, pid=1, transactional=True))  # producer 1 now has the last batch
    log.reload()
    assert first_open(log.state) == 0
    log.mark(COMMIT_MARKER, pid=1)
    assert first_open(log.state) == 1


def test_t62_open_transaction_needs_no_verification(log: Partition) -> None:
    assert not log.state.has_open_transaction(PID, 0)
    log.append(batch(0, transactional=True))
    assert log.state.has_open_transaction(PID, 0)
    assert not log.state.has_open_transaction(PID, 1)
    log.mark(COMMIT_MARKER)
    assert not log.state.has_open_transaction(PID, 0)


# -- limits ---------------------------------------------------------------------------------------


def test_limits_must_be_positive() -> None:
    refused: list[dict[str, Any]] = [{"max_producer_ids": 0}, {"expiration_ms": 0}]
    for limits in refused:
        with pytest.raises(ValueError, match="positive"):
            ProducerStateManager(**limits)


def test_an_idle_producer_takes_less_than_a_kilobyte() -> None:
    producers = 5_000
    state = ProducerStateManager()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        offset = 0
        for pid in range(10**12, 10**12 + producers):
            for sequence in range(6):
                stamp = NOW + offset
                state.update(batch(sequence, pid=pid, timestamp=stamp), offset, offset, stamp)
                offset += 1
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(state) == producers
    assert (after - before) / producers < 1024


# -- against a model ------------------------------------------------------------------------------


class _ModelProducer:
    def __init__(self) -> None:
        self.epoch = -1
        self.coordinator_epoch = -1
        self.runs: list[tuple[list[int], list[int]]] = []  # the sequences and offsets of each batch
        self.open_since: int | None = None


class AgainstAModel(RuleBasedStateMachine):
    """The manager, compared with a naive model that has the sequence and offset of every record."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerStateManager()
        self.model: dict[int, _ModelProducer] = {}
        self.end = 0
        self.high_watermark = 0
        self.finished: list[tuple[int, int]] = []

    pids = st.integers(0, 2)
    counts = st.sampled_from([1, 1, 2, 3, 50])

    def _expected(self, header: BatchHeader) -> ErrorCode | tuple[int, int]:
        """The expected result of a client's batch: an error, or the offsets of the batch that it
        repeats."""
        known = self.model.get(header.producer_id)
        if known is None:
            return ErrorCode.NONE
        sequences = _sequences(header)
        if header.producer_epoch == known.epoch:
            for run, offsets in known.runs[-5:]:
                if (run[0], run[-1]) == (sequences[0], sequences[-1]):
                    return offsets[0], offsets[-1]
        if header.producer_epoch < known.epoch:
            return BAD_EPOCH
        same = header.producer_epoch == known.epoch and known.runs
        follows = (known.runs[-1][0][-1] + 1) % 2**31 if same else 0
        if sequences[0] != follows:
            return BAD_SEQUENCE
        if known.open_since is not None and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def _send(self, header: BatchHeader) -> None:
        expected = self._expected(header)
        if isinstance(expected, ErrorCode) and expected is not ErrorCode.NONE:
            with pytest.raises(ProducerStateError) as caught:
                self.state.check(header, CLIENT, NOW)
            assert caught.value.error is expected
            return
        verdict = self.state.check(header, CLIENT, NOW)
        if not isinstance(expected, ErrorCode):
            assert verdict == Duplicate(*expected, NOW)
            return
        assert isinstance(verdict, Accepted)
        self._append(header)

    def _append(self, header: BatchHeader) -> None:
        sequences = _sequences(header)
        offsets = list(range(self.end, self.end + len(sequences)))
        self.state.update(header, offsets[0], offsets[-1], NOW)
        self.end += len(sequences)
        known = self.model.setdefault(header.producer_id, _ModelProducer())
        if known.epoch != header.producer_epoch:
            known.runs = []
        known.epoch = header.producer_epoch
        known.runs.append((sequences, offsets))
        if header.is_transactional and known.open_since is None:
            known.open_since = offsets[0]

    def _next(self, pid: int) -> tuple[int, int]:
        known = self.model.get(pid)
        if known is None:
            return 0, 0
        follows = (known.runs[-1][0][-1] + 1) % 2**31 if known.runs else 0
        return known.epoch, follows

    @rule(pid=pids, count=counts, transactional=st.booleans())
    def send_next(self, pid: int, count: int, transactional: bool) -> None:
        epoch, sequence = self._next(pid)
        self._send(batch(sequence, count, pid=pid, epoch=epoch, transactional=transactional))

    @rule(pid=pids, count=counts)
    def start_near_the_wrap(self, pid: int, count: int) -> None:
        self._send(batch(MAX - 1, count, pid=pid))

    @rule(pid=pids, back=st.integers(1, 7), transactional=st.booleans())
    def send_again(self, pid: int, back: int, transactional: bool) -> None:
        known = self.model.get(pid)
        if known is None or len(known.runs) < back:
            return
        run, _ = known.runs[-back]
        self._send(batch(run[0], len(run), pid=pid, epoch=known.epoch, transactional=transactional))

    @rule(pid=pids, step=st.integers(-3, 3), count=counts, transactional=st.booleans())
    def send_something_near(self, pid: int, step: int, count: int, transactional: bool) -> None:
        epoch, sequence = self._next(pid)
        self._send(
            batch(
                (sequence + step) % 2**31, count, pid=pid, epoch=epoch, transactional=transactional
            )
        )

    @rule(pid=pids, step=st.integers(-1, 2), sequence=st.integers(0, 1))
    def send_with_another_epoch(self, pid: int, step: int, sequence: int) -> None:
        epoch, _ = self._next(pid)
        self._send(batch(sequence, 2, pid=pid, epoch=max(epoch + step, 0), transactional=True))

    @rule(
        pid=pids,
        step=st.integers(-1, 1),
        coordinator_step=st.integers(-1, 1),
        control_type=st.sampled_from([ABORT_MARKER, COMMIT_MARKER]),
    )
    def mark(self, pid: int, step: int, coordinator_step: int, control_type: int) -> None:
        known = self.model.get(pid)
        epoch = max((known.epoch if known else 0) + step, 0)
        coordinator_epoch = max((known.coordinator_epoch if known else 0) + coordinator_step, 0)
        if known and (epoch < known.epoch or coordinator_epoch < known.coordinator_epoch):
            with pytest.raises(ProducerStateError):
                self.state.check_marker(pid, epoch, coordinator_epoch)
            return
        self.state.check_marker(pid, epoch, coordinator_epoch)
        aborted = self.state.apply_marker(
            pid, epoch, coordinator_epoch, control_type, self.end, NOW
        )
        known = self.model.setdefault(pid, _ModelProducer())
        if known.epoch != epoch:
            known.runs = []
        known.epoch, known.coordinator_epoch = epoch, coordinator_epoch
        began, known.open_since = known.open_since, None
        if began is None or control_type == COMMIT_MARKER:
            assert aborted is None
        else:
            others = [p.open_since for p in self.model.values() if p.open_since is not None]
            lso = min(others, default=self.end + 1)
            assert aborted == AbortedTxn(pid, began, self.end, lso)
        if began is not None:
            self.finished.append((began, self.end))
        self.end += 1

    @rule(part=st.floats(0, 1))
    def move_the_high_watermark(self, part: float) -> None:
        self.high_watermark += int((self.end - self.high_watermark) * part)
        self.state.high_watermark_moved(self.high_watermark)

    @precondition(lambda self: self.model)
    @rule()
    def restart(self) -> None:
        self.state = restored(encode_snapshot(self.state.entries()), map_end_offset=self.end)
        self.high_watermark = self.end

    @invariant()
    def unstable_offsets_agree_with_the_model(self) -> None:
        opened = [p.open_since for p in self.model.values() if p.open_since is not None]
        held = [first for first, last in self.finished if last >= self.high_watermark]
        assert first_open(self.state) == min(opened, default=None)
        assert self.state.first_unstable_offset == min(opened + held, default=None)
        assert self.state.map_end_offset == self.end

    @invariant()
    def producers_agree_with_the_model(self) -> None:
        assert len(self.state) == len(self.model)
        for pid, known in self.model.items():
            entry = self.state.entry(pid)
            assert entry is not None
            assert (entry.epoch, entry.coordinator_epoch) == (known.epoch, known.coordinator_epoch)
            assert [(b.base_sequence, b.last_sequence) for b in entry.batches()] == [
                (run[0], run[-1]) for run, _ in known.runs[-5:]
            ]


def _sequences(header: BatchHeader) -> list[int]:
    return [(header.base_sequence + n) % 2**31 for n in range(header.record_count)]


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(
    max_examples=budget.examples(60), stateful_step_count=40, deadline=None
)
