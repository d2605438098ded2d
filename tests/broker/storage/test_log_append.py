"""Appends: refusals, changes to batches, effects of failures (P-07, the rules R, L-06 to L-08)."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from logs import (
    DIRECTORY,
    EVERYTHING,
    NOW_MS,
    append,
    append_marker,
    headers,
    make_batch,
    make_log,
    read_all,
    records,
    reopen,
)
from odradek_broker.storage.errors import AppendRejected, PartitionOffline, TakesLong
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.validation import DecompressionBudget
from odradek_protocol.compression import Codec, compress
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import read_header, update_crc, verify_crc
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles

LOG_FILE = f"{DIRECTORY}/{0:020d}.log"


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(files: MemoryFiles) -> PartitionLog:
    return make_log(files)


def refused(log: PartitionLog, batch: memoryview, **how: Any) -> AppendRejected:
    """Check that an append is refused and changes nothing; returns the error."""
    before = (log.log_end_offset, log.high_watermark, log.size_bytes)
    with pytest.raises(AppendRejected) as caught:
        append(log, batch, **how)
    assert (log.log_end_offset, log.high_watermark, log.size_bytes) == before
    return caught.value


def with_field(batch: memoryview, position: int, content: bytes) -> memoryview:
    """The batch with changed bytes and a matching checksum."""
    batch[position : position + len(content)] = content
    update_crc(batch, 0)
    return batch


# ---- offsets and bytes


def test_r01_r02_batch_gets_log_end_and_epoch_and_keeps_its_checksum(log: PartitionLog) -> None:
    append(log, make_batch(3))
    batch = make_batch(5)
    crc = read_header(batch).crc
    result = append(log, batch, leader_epoch=7)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (3, 7, -1)
    assert log.log_end_offset == log.high_watermark == 8
    stored = headers(read_all(log))[1]
    assert (stored.base_offset, stored.leader_epoch, stored.crc) == (3, 7, crc)
    assert bytes(batch) == read_all(log)[-len(batch) :]


def test_r02_log_end_follows_the_offset_delta_not_the_count(log: PartitionLog) -> None:
    gap = with_field(make_batch(1), 23, (9).to_bytes(4, "big"))
    result = append(log, gap, origin=AppendOrigin.REPLAY)
    assert (result.last_offset, log.log_end_offset) == (9, 10)


def test_replayed_batches_keep_offsets_and_may_leave_gaps(log: PartitionLog) -> None:
    append(log, make_batch(2, base_offset=40, leader_epoch=3), origin=AppendOrigin.REPLAY)
    assert log.log_end_offset == 42
    assert headers(read_all(log))[0].leader_epoch == 3
    assert refused(log, make_batch(1, base_offset=41), origin=AppendOrigin.REPLAY)


# ---- P-07


def test_p07_broken_checksum_is_corrupt_message(log: PartitionLog) -> None:
    batch = make_batch(2)
    batch[-1] ^= 1
    assert refused(log, batch).error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("keep", [0, 1, 12, 60, 61, 70])
def test_p06_a_cut_batch_is_an_invalid_record(log: PartitionLog, keep: int) -> None:
    assert refused(log, make_batch(3)[:keep]).error is ErrorCode.INVALID_RECORD


def test_p07_two_batches_are_refused(log: PartitionLog) -> None:
    two = memoryview(bytearray(bytes(make_batch()) * 2))
    rejection = refused(log, two)
    assert rejection.error is ErrorCode.INVALID_RECORD
    assert "exactly one batch" in rejection.message


@pytest.mark.parametrize(
    ("magic", "error"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (127, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_p06_batches_with_another_magic_are_refused(
    log: PartitionLog, magic: int, error: ErrorCode
) -> None:
    assert refused(log, with_field(make_batch(), 16, bytes([magic]))).error is error


def test_p06_the_beginning_of_a_second_batch_is_ignored(log: PartitionLog) -> None:
    """After a batch, bytes with which another batch can begin are ignored, as in Kafka. Other bytes
    after a batch are damage."""
    sound = bytes(make_batch(2))
    append(log, memoryview(bytearray(sound + sound[:70])))
    append(log, memoryview(bytearray(sound + b"\0")))
    assert log.log_end_offset == 4
    assert read_all(log)[21:][: len(sound) - 21] == sound[21:]
    assert [header.size_bytes for header in headers(read_all(log))] == [len(sound)] * 2
    damaged = memoryview(bytearray(sound + bytes(20)))
    assert refused(log, damaged).error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("position", "content"),
    [
        (0, (5).to_bytes(8, "big")),  # base offset
        (57, (0).to_bytes(4, "big")),  # record count
        (57, (2).to_bytes(4, "big")),
        (57, (2**32 - 1).to_bytes(4, "big")),
        (23, (2**32 - 1).to_bytes(4, "big")),  # last offset delta
        (21, (0x20).to_bytes(2, "big")),  # control
    ],
)
def test_p07_impossible_fields_are_invalid(
    log: PartitionLog, position: int, content: bytes
) -> None:
    assert refused(log, with_field(make_batch(), position, content)).error is (
        ErrorCode.INVALID_RECORD
    )


def test_p07_a_codec_that_does_not_exist_is_refused(log: PartitionLog) -> None:
    batch = with_field(make_batch(), 21, (5).to_bytes(2, "big"))
    assert refused(log, batch).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_p07_producer_with_negative_sequence_is_invalid(log: PartitionLog) -> None:
    assert refused(log, make_batch(producer_id=1, sequence=-1)).error is ErrorCode.INVALID_RECORD


def test_r17_the_size_limit_applies_to_the_whole_batch(files: MemoryFiles) -> None:
    size = len(make_batch(10))
    log = make_log(files, max_message_bytes=size)
    append(log, make_batch(10))
    assert refused(log, make_batch(11)).error is ErrorCode.MESSAGE_TOO_LARGE


def test_r18_a_batch_larger_than_a_segment_is_refused(files: MemoryFiles) -> None:
    log = make_log(files, segment_bytes=200)
    assert refused(log, make_batch(40)).error is ErrorCode.RECORD_LIST_TOO_LARGE


# ---- timestamps


def test_r03_log_append_time_is_stamped_and_checksummed(files: MemoryFiles) -> None:
    log = make_log(files, message_timestamp_type="LogAppendTime")
    result = append(log, make_batch(3, timestamp=5), now_ms=NOW_MS)
    assert result.log_append_time_ms == NOW_MS
    data = read_all(log)
    header = headers(data)[0]
    verify_crc(data, 0, header)
    assert header.is_log_append_time
    assert [record.timestamp for record in records(data)] == [NOW_MS] * 3


def test_r05_a_timestamp_too_far_ahead_is_refused(log: PartitionLog) -> None:
    hour = 3600 * 1000
    append(log, make_batch(timestamp=NOW_MS + hour))
    late = refused(log, make_batch(timestamp=NOW_MS + hour + 1))
    assert late.error is ErrorCode.INVALID_TIMESTAMP


def test_r05_a_timestamp_that_is_too_old_is_refused(files: MemoryFiles) -> None:
    log = make_log(files, message_timestamp_before_max_ms=1000)
    append(log, make_batch(timestamp=NOW_MS - 1000))
    old = refused(log, make_batch(timestamp=NOW_MS - 1001))
    assert old.error is ErrorCode.INVALID_TIMESTAMP
    append(log, make_batch(timestamp=-1))


def test_r05_producer_may_not_set_log_append_time(files: MemoryFiles) -> None:
    log = make_log(files, message_timestamp_type="LogAppendTime")
    batch = make_batch(log_append_time_ms=NOW_MS)
    assert refused(log, batch).error is ErrorCode.INVALID_TIMESTAMP


def test_r05_create_time_topic_clears_the_bit(log: PartitionLog) -> None:
    append(log, make_batch(log_append_time_ms=NOW_MS))
    data = read_all(log)
    header = headers(data)[0]
    assert not header.is_log_append_time
    verify_crc(data, 0, header)


# ---- records opened


def test_d6_header_validation_does_not_open_records(files: MemoryFiles) -> None:
    log = make_log(files, record_validation="header")
    nonsense = with_field(make_batch(1, value=b"x" * 20), 61, b"\xff" * 8)
    append(log, nonsense)


@pytest.mark.parametrize("codec", list(Codec))
def test_r08_nonsense_records_are_refused_by_default(log: PartitionLog, codec: Codec) -> None:
    append(log, make_batch(5, codec=codec))
    nonsense = with_field(make_batch(5, value=b"x" * 20, codec=codec), 61, b"\xff" * 8)
    assert refused(log, nonsense).error is (
        ErrorCode.INVALID_RECORD if codec is Codec.NONE else ErrorCode.UNKNOWN_SERVER_ERROR
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claimed", [2, 4, 2**31 - 1])
def test_r08_a_wrong_record_count_is_refused(log: PartitionLog, codec: Codec, claimed: int) -> None:
    batch = with_field(make_batch(3, codec=codec), 57, claimed.to_bytes(4, "big"))
    batch = with_field(batch, 23, (claimed - 1).to_bytes(4, "big"))
    assert refused(log, batch).error is ErrorCode.INVALID_RECORD


def test_r12_records_that_decompress_beyond_the_limit_are_too_large(log: PartitionLog) -> None:
    """200 KB of zstd data decompress to 200 MB."""
    batch = _zstd_batch(compress(Codec.ZSTD, bytes(1 << 20)) * 130)
    budget = DecompressionBudget()
    with pytest.raises(TakesLong):
        _append_within(budget, log, batch)
    assert budget.left_bytes == DecompressionBudget().left_bytes
    budget.begin_thread()
    with pytest.raises(AppendRejected) as rejection:
        _append_within(budget, log, batch)
    assert rejection.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert "134217728 bytes" in rejection.value.message
    assert log.log_end_offset == 0


def test_r12_the_batches_of_a_request_share_the_decompression_limit(log: PartitionLog) -> None:
    batch = bytes(make_batch(1, codec=Codec.GZIP))
    budget = DecompressionBudget()
    whole = budget.left_bytes
    _append_within(budget, log, batch)
    inflated = whole - budget.left_bytes
    assert inflated > 0
    budget.left_bytes = inflated - 1
    for _ in range(2):
        with pytest.raises(AppendRejected) as refusal:
            _append_within(budget, log, batch)
        assert refusal.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert budget.left_bytes == 0
    assert log.log_end_offset == 1


def test_r12_zstd_batches_count_as_what_they_inflate_to(log: PartitionLog) -> None:
    """The frames of level 22 declare a window of 128 MiB, and a request has several batches."""
    body = bytes(make_batch(1))[61:]
    raw_block = ((len(body) << 3) | 1).to_bytes(3, "little") + body
    frame = bytes.fromhex("28b52ffd 00") + bytes([17 << 3]) + raw_block
    batch = _zstd_batch(frame)
    budget = DecompressionBudget()
    whole = budget.left_bytes
    for _ in range(3):
        _append_within(budget, log, batch)
    assert whole - budget.left_bytes == 3 * len(body)
    budget.left_bytes = 10
    with pytest.raises(AppendRejected, match=f"{whole} bytes together.* left 10") as refusal:
        _append_within(budget, log, batch)
    assert refusal.value.error is ErrorCode.MESSAGE_TOO_LARGE


def _zstd_batch(frame: bytes) -> bytearray:
    """A batch of one record with this frame."""
    batch = bytearray(bytes(make_batch(1))[:61] + frame)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = Codec.ZSTD.to_bytes(2, "big")
    update_crc(batch, 0)
    return batch


def _append_within(
    budget: DecompressionBudget, log: PartitionLog, batch: bytes | bytearray
) -> None:
    log.append(
        memoryview(bytearray(batch)),
        origin=AppendOrigin.CLIENT,
        now_ms=NOW_MS,
        leader_epoch=0,
        budget=budget,
    )


def test_r12_recompressed_batches_count_for_the_decompression_limit(files: MemoryFiles) -> None:
    log = make_log(files, compression_type="gzip")
    batch = bytes(make_batch(3))
    budget = DecompressionBudget(500)
    errors = []
    for _ in range(2):
        try:
            _append_within(budget, log, batch)
        except AppendRejected as rejected:
            errors.append(rejected.error)
    assert errors == [ErrorCode.MESSAGE_TOO_LARGE]
    assert log.log_end_offset == 3


def test_r12_refused_batches_count_for_the_decompression_limit(log: PartitionLog) -> None:
    """If refused batches did not count, many small batches could cause decompression without a
    limit."""
    batch = _zstd_batch(compress(Codec.ZSTD, bytes(1 << 20)))
    damaged = bytearray(make_batch(1, codec=Codec.ZSTD))
    damaged[-1] ^= 0xFF
    update_crc(damaged, 0)
    budget = DecompressionBudget()
    for refused_batch in (batch, damaged):
        before = budget.left_bytes
        with pytest.raises(AppendRejected):
            _append_within(budget, log, refused_batch)
        assert before - budget.left_bytes >= 1 << 20
    assert budget.left_bytes > 0, "a sound batch behind them is still taken"


def test_r04_a_wrong_maximum_timestamp_is_corrected(files: MemoryFiles) -> None:
    log = make_log(files)
    lying = with_field(make_batch(3), 35, (NOW_MS + 1000).to_bytes(8, "big"))
    append(log, lying)
    data = read_all(log)
    assert headers(data)[0].max_timestamp == NOW_MS + 2
    verify_crc(data, 0, headers(data)[0])


def test_r06_a_batch_with_a_late_record_is_refused_and_the_record_named(files: MemoryFiles) -> None:
    log = make_log(files, message_timestamp_after_max_ms=1)
    late = refused(log, make_batch(3, timestamp=NOW_MS))
    assert late.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in late.record_errors] == [2]


def test_r07_compacted_topic_needs_keys(files: MemoryFiles) -> None:
    log = make_log(files, cleanup_policy=frozenset({"compact"}))
    append(log, make_batch(2))
    keyless = refused(log, make_batch(2, key=None))
    assert keyless.error is ErrorCode.INVALID_RECORD
    assert [index for index, _ in keyless.record_errors] == [0, 1]


@pytest.mark.parametrize("to", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_r08_the_codec_of_the_topic_replaces_that_of_the_producer(
    files: MemoryFiles, to: str, codec: Codec
) -> None:
    log = make_log(files, compression_type=to)
    append(log, make_batch(4))
    append(log, make_batch(3, codec=codec, value=b"v" * 100, producer_id=9))
    data = read_all(log)
    stored = headers(data)
    assert stored[1].codec.name.lower() == ("none" if to == "uncompressed" else to)
    assert (stored[1].base_offset, stored[1].producer_id) == (4, 9)
    assert [record.value for record in records(data)[4:]] == [b"v" * 100] * 3


# ---- producers


def test_p09_p10_duplicate_answers_original_offset_and_changes_nothing(log: PartitionLog) -> None:
    first = append(log, make_batch(3, producer_id=5, sequence=0))
    append(log, make_batch(2))
    size = log.size_bytes
    again = append(log, make_batch(3, producer_id=5, sequence=0))
    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert again.log_append_time_ms == NOW_MS + 2
    assert (log.size_bytes, log.log_end_offset) == (size, 5)


def test_p13_a_gap_in_sequences_is_refused(log: PartitionLog) -> None:
    append(log, make_batch(3, producer_id=5, sequence=0))
    gap = refused(log, make_batch(1, producer_id=5, sequence=4))
    assert gap.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_p18_a_failed_write_leaves_the_producer_state_unchanged(
    log: PartitionLog, files: MemoryFiles
) -> None:
    append(log, make_batch(3, producer_id=5, sequence=0))
    files.fail(DiskFailure("append", path_part=".log", code=errno.ENOSPC, torn_bytes=20))
    refused(log, make_batch(1, producer_id=5, sequence=3))
    # The producer's retry is neither a duplicate nor out of order.
    assert append(log, make_batch(1, producer_id=5, sequence=3)).base_offset == 3


def test_p17_batches_of_coordinators_have_no_sequence_check(log: PartitionLog) -> None:
    append(log, make_batch(1, producer_id=5, sequence=0, epoch=1))
    coordinator = AppendOrigin.COORDINATOR
    append(log, make_batch(1, producer_id=5, sequence=9, epoch=1), origin=coordinator)
    fenced = refused(log, make_batch(1, producer_id=5, sequence=0), origin=coordinator)
    assert fenced.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_t45_marker_moves_the_last_stable_offset(log: PartitionLog) -> None:
    moves: list[tuple[int, int]] = []
    append(log, make_batch(2))
    log.on_moved = lambda log: moves.append((log.high_watermark, log.last_stable_offset))
    append(log, make_batch(3, producer_id=5, transactional=True))
    append(log, make_batch(4))
    append_marker(log, commit=True, producer_id=5)
    assert moves == [(5, 2), (9, 2), (10, 10)]


def test_l07_waiters_are_called_when_the_append_is_complete(
    log: PartitionLog, files: MemoryFiles
) -> None:
    append(log, make_batch(3, producer_id=5, transactional=True))
    found: list[object] = []

    def woken(log: PartitionLog) -> None:
        entry = log.producers.entry(5)
        assert entry is not None
        found.extend((len(files.content(LOG_FILE)) == log.size_bytes, log.log_end_offset))
        found.extend((log.last_stable_offset, entry.transaction_first_offset))
        found.append(log.aborted_transactions(0, 4))

    log.on_moved = woken
    append_marker(log, commit=False, producer_id=5)
    assert found == [True, 4, 4, None, [(5, 0)]]


def test_t41_fenced_marker_writes_nothing(log: PartitionLog) -> None:
    append(log, make_batch(1, producer_id=5, epoch=3, transactional=True))
    with pytest.raises(AppendRejected) as caught:
        append_marker(log, commit=True, producer_id=5, epoch=2)
    assert caught.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (log.log_end_offset, log.last_stable_offset) == (1, 0)


# ---- L-08


@pytest.mark.parametrize("torn_bytes", [0, 1, 61, 80])
def test_l08_a_failed_write_is_truncated(
    log: PartitionLog, files: MemoryFiles, torn_bytes: int
) -> None:
    append(log, make_batch(2))
    before = files.content(LOG_FILE)
    failure = DiskFailure("append", path_part=".log", code=errno.ENOSPC, torn_bytes=torn_bytes)
    files.fail(failure)
    rejection = refused(log, make_batch(2))
    assert rejection.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert failure.fired == 1
    assert files.content(LOG_FILE) == before
    assert not log.offline
    assert append(log, make_batch(2)).base_offset == 2
    assert [header.base_offset for header in headers(read_all(log))] == [0, 2]


def test_l08_failed_truncation_takes_the_partition_offline(
    log: PartitionLog, files: MemoryFiles
) -> None:
    told: list[PartitionLog] = []
    log.on_offline = told.append
    append(log)
    files.fail(DiskFailure("append", path_part=".log", torn_bytes=9))
    files.fail(DiskFailure("truncate"))
    with pytest.raises(AppendRejected) as caught:
        append(log)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline
    assert told == [log]
    with pytest.raises(AppendRejected) as caught:
        append(log)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(PartitionOffline):
        log.read(0, 100, upper_bound=EVERYTHING, minimum_one=True)
    assert told == [log]


@pytest.mark.parametrize("end", ["room", "roll", "clean stop", "crash"])
@pytest.mark.parametrize(("code", "torn_bytes"), [(errno.ENOSPC, 9), (errno.EROFS, 0)])
def test_l08_a_truncation_that_finds_no_room_is_repeated(
    files: MemoryFiles, code: int, torn_bytes: int, end: str
) -> None:
    """A truncation can need room in a copy-on-write file system, and is impossible while the disk
    is read-only."""
    log = make_log(files)
    append(log)
    whole = files.content(LOG_FILE)
    files.fail(
        DiskFailure("append", code=code, path_part=".log", torn_bytes=torn_bytes, for_ever=True)
    )
    files.fail(DiskFailure("truncate", code=code, for_ever=True))
    for _ in range(3):
        assert refused(log, make_batch(1)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.offline
    assert len(headers(read_all(log))) == 1
    if torn_bytes:
        with pytest.raises(OSError, match="truncat"):
            log.roll(NOW_MS)
        assert len(files.content(LOG_FILE)) == len(whole) + torn_bytes
    files.heal()
    if end == "roll":
        log.roll(NOW_MS)
        assert files.content(LOG_FILE) == whole
    elif end != "room":
        log = reopen(log, files, clean=end == "clean stop")
        assert files.content(LOG_FILE) == whole
    append(log)
    assert [header.base_offset for header in headers(read_all(log))] == [0, 1]


def test_l08_a_stop_with_a_torn_write_is_not_clean(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log)
    files.fail(DiskFailure("append", code=errno.ENOSPC, path_part=".log", torn_bytes=9))
    files.fail(DiskFailure("truncate", code=errno.ENOSPC, for_ever=True))
    refused(log, make_batch(1))
    with pytest.raises(OSError, match="truncat"):
        log.close(clean=True)


def test_l08_failed_roll_keeps_the_old_segment(files: MemoryFiles) -> None:
    log = make_log(files, segment_bytes=200)
    append(log)
    files.fail(DiskFailure("open", path_part=".log", code=errno.EMFILE))
    big = make_batch(1, value=b"x" * 100)
    assert refused(log, big).error is ErrorCode.KAFKA_STORAGE_ERROR
    append(log, make_batch(1, value=b"x" * 100))
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert len(headers(read_all(log))) == 2


def test_failed_index_write_is_no_failed_append(files: MemoryFiles) -> None:
    log = make_log(files, segment_bytes=1000, index_interval_bytes=0)
    files.fail(DiskFailure("append", path_part="index", for_ever=True))
    for _ in range(50):
        append(log)
    assert len(log.segments) > 3
    assert len(headers(read_all(log))) == 50


# ---- L-06


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_l06_a_segment_is_rolled_by_size(files: MemoryFiles) -> None:
    size = len(make_batch(4))
    log = make_log(files, segment_bytes=size * 2)
    for _ in range(5):
        append(log, make_batch(4))
    assert bases(log) == [0, 8, 16]


def test_l06_a_segment_is_rolled_by_record_time(files: MemoryFiles) -> None:
    log = make_log(files, segment_ms=1000)
    append(log, make_batch(timestamp=NOW_MS))
    append(log, make_batch(timestamp=NOW_MS + 1000))
    assert bases(log) == [0]
    append(log, make_batch(timestamp=NOW_MS + 1001))
    assert bases(log) == [0, 2]


def test_l06_a_segment_without_timestamps_is_rolled_by_the_wall_clock(files: MemoryFiles) -> None:
    log = make_log(files, segment_ms=1000)
    append(log, make_batch(timestamp=-1), now_ms=NOW_MS)
    append(log, make_batch(timestamp=-1), now_ms=NOW_MS + 1000)
    assert bases(log) == [0]
    append(log, make_batch(timestamp=-1), now_ms=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_l06_the_age_of_a_segment_survives_a_restart(files: MemoryFiles) -> None:
    log = make_log(files, segment_ms=1000)
    append(log, make_batch(timestamp=NOW_MS))
    log = reopen(log, files, clean=True, segment_ms=1000)
    append(log, make_batch(timestamp=NOW_MS + 1001))
    assert bases(log) == [0, 1]


def test_l06_a_segment_is_rolled_when_an_index_is_full(files: MemoryFiles) -> None:
    log = make_log(files, index_interval_bytes=0, segment_index_bytes=24)
    for _ in range(10):
        append(log)
    assert len(bases(log)) > 2
    for segment in log.segments[:-1]:
        assert len(files.content(segment.path_of("timeindex"))) <= 24


def test_l06_a_segment_is_rolled_when_a_relative_offset_does_not_fit(log: PartitionLog) -> None:
    append(log)
    append(log, make_batch(1, base_offset=2**31 - 1), origin=AppendOrigin.REPLAY)
    append(log, make_batch(1, base_offset=2**31), origin=AppendOrigin.REPLAY)
    assert bases(log) == [0, 2**31]


def test_l06_jitter_shortens_the_age_of_segments(files: MemoryFiles) -> None:
    log = make_log(files, segment_ms=10_000, segment_jitter_ms=10_000)
    timestamp = NOW_MS
    for _ in range(40):
        append(log, make_batch(timestamp=timestamp), now_ms=timestamp)
        timestamp += 1000
    ages = [b - a for a, b in zip(bases(log), bases(log)[1:], strict=False)]
    assert all(1 <= age <= 11 for age in ages)
    assert min(ages[1:]) < 11


def test_p27_a_roll_writes_a_producer_snapshot(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(3, producer_id=5))
    log.roll(NOW_MS)
    assert files.exists(f"{DIRECTORY}/{3:020d}.snapshot")


def test_rolling_an_empty_log_does_nothing(log: PartitionLog) -> None:
    log.roll(NOW_MS)
    assert bases(log) == [0]
