"""The removal of records by retention and by DeleteRecords (L-10..L-12, L-20..L-22)."""

from __future__ import annotations

import pytest

from logs import (
    DIRECTORY,
    EVERYTHING,
    NOW_MS,
    append,
    append_marker,
    make_batch,
    make_log,
    read_all,
    records,
    reopen,
    small_file,
)
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.errors import DeleteRecordsRejected, OffsetOutOfRange
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_options import LogStart
from odradek_broker.storage.retention import SegmentFacts, segments_to_delete
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles(now_ms=NOW_MS)


def segmented(files: MemoryFiles, **config: object) -> PartitionLog:
    """A log of five segments of two records, each a day newer than the one before; the last is
    active."""
    log = make_log(files, **config)  # type: ignore[arg-type]
    for day in range(5):
        if day:
            log.roll(NOW_MS)
        append(log, make_batch(2, timestamp=NOW_MS + day * DAY_MS), now_ms=NOW_MS + day * DAY_MS)
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def _facts(
    base: int, end: int, size_bytes: int, newest_ms: int, *, active: bool = False
) -> SegmentFacts:
    return SegmentFacts(base, end, size_bytes, active, lambda: newest_ms)


def decide(
    config: LogConfig, *, log_start: int = 0, high_watermark: int = 100, now_ms: int = 100
) -> int:
    """The number of deleted segments. The log has four segments of ten offsets and a hundred bytes
    each; the newest timestamps of the segments are 10, 20, 30 and 40 ms."""
    facts = [_facts(at * 10, at * 10 + 10, 100, at * 10 + 10, active=at == 3) for at in range(4)]
    return segments_to_delete(
        facts,
        total_bytes=400,
        config=config,
        now_ms=now_ms,
        log_start_offset=log_start,
        high_watermark=high_watermark,
    )


@pytest.mark.parametrize(
    ("limit", "gone"), [(-1, 0), (400, 0), (301, 0), (300, 1), (299, 1), (100, 3), (99, 3), (0, 4)]
)
def test_l20_retention_by_size_keeps_at_least_the_limit(limit: int, gone: int) -> None:
    assert decide(LogConfig(retention_ms=-1, retention_bytes=limit)) == gone


@pytest.mark.parametrize(("limit", "gone"), [(-1, 0), (90, 0), (89, 1), (70, 2), (60, 3), (59, 4)])
def test_l20_retention_by_time_deletes_older_segments(limit: int, gone: int) -> None:
    assert decide(LogConfig(retention_ms=limit)) == gone


def test_l20_segments_below_the_log_start_are_deleted_with_any_policy() -> None:
    compacted = LogConfig(retention_ms=0, cleanup_policy=frozenset({"compact"}))
    assert decide(compacted, log_start=25) == 2
    assert decide(compacted, log_start=9) == 0


def test_l20_no_segment_above_the_high_watermark_is_deleted() -> None:
    assert decide(LogConfig(retention_ms=0), high_watermark=25) == 2


def test_l20_retention_stops_at_the_first_segment_to_keep() -> None:
    times = [10, 90, 10]
    facts = [_facts(at, at + 1, 1, times[at]) for at in range(3)]
    count = segments_to_delete(
        facts,
        total_bytes=3,
        config=LogConfig(retention_ms=50),
        now_ms=100,
        log_start_offset=0,
        high_watermark=9,
    )
    assert count == 1


def test_l20_retention_by_time_moves_the_log_start(files: MemoryFiles) -> None:
    log = segmented(files, retention_ms=2 * DAY_MS)
    now_ms = NOW_MS + 4 * DAY_MS
    assert log.trimming.apply_retention(now_ms) == 2
    assert (bases(log), log.log_start_offset) == ([4, 6, 8], 4)
    assert [record.offset for record in records(read_all(log))] == list(range(4, 10))
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 100, upper_bound=EVERYTHING, minimum_one=True)


def test_l20_retention_by_time_deletes_the_active_segment_too(files: MemoryFiles) -> None:
    log = segmented(files, retention_ms=DAY_MS)
    assert log.trimming.apply_retention(NOW_MS + 99 * DAY_MS) == 5
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([10], 10, 10)
    assert log.trimming.apply_retention(NOW_MS + 999 * DAY_MS) == 0
    assert append(log, make_batch(1)).base_offset == 10
    log = reopen(log, files, clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (10, 11)


def test_l20_segments_that_are_not_durable_are_kept(files: MemoryFiles) -> None:
    log = segmented(files, retention_ms=0, durability="fsync")
    assert log.trimming.apply_retention(NOW_MS + 99 * DAY_MS) == 0
    log.durability.flush()
    assert log.trimming.apply_retention(NOW_MS + 99 * DAY_MS) == 5


def test_l21_future_timestamps_keep_a_segment(files: MemoryFiles) -> None:
    log = make_log(files, retention_ms=DAY_MS, message_timestamp_after_max_ms=10 * DAY_MS)
    append(log, make_batch(1, timestamp=NOW_MS + 5 * DAY_MS))
    log.roll(NOW_MS)
    append(log)
    assert log.trimming.apply_retention(NOW_MS + 5 * DAY_MS) == 0
    assert log.trimming.apply_retention(NOW_MS + 7 * DAY_MS) == 2


def test_l21_the_file_time_counts_for_a_segment_without_timestamps(files: MemoryFiles) -> None:
    log = make_log(files, retention_ms=DAY_MS)
    append(log, make_batch(1, timestamp=-1))
    log.roll(NOW_MS)
    append(log, make_batch(1, timestamp=-1))
    assert log.trimming.apply_retention(NOW_MS + DAY_MS) == 0
    assert log.trimming.apply_retention(NOW_MS + DAY_MS + 1) == 2


@pytest.mark.parametrize("clean", [True, False])
def test_l21_largest_timestamp_survives_a_restart(files: MemoryFiles, clean: bool) -> None:
    log = reopen(segmented(files), files, clean=clean, retention_ms=DAY_MS)
    assert log.trimming.apply_retention(NOW_MS + 3 * DAY_MS) == 2


def test_l01_files_are_renamed_and_removed_later(files: MemoryFiles) -> None:
    deleted = DeletedFiles(HandleCache(files))
    log = segmented(files, retention_ms=0, file_delete_delay_ms=1000, deleted=deleted)
    log.trimming.apply_retention(NOW_MS + 2 * DAY_MS)
    renamed = [path for path in files.paths() if path.endswith(".deleted")]
    assert f"{DIRECTORY}/{0:020d}.log.retention.deleted" in renamed
    # L-22: the snapshot at the start of a deleted segment is deleted with it.
    assert f"{DIRECTORY}/{2:020d}.snapshot.retention.deleted" in renamed
    now_ms = NOW_MS + 2 * DAY_MS
    assert deleted.remove_due(now_ms + 999) == 0
    assert [path for path in files.paths() if path.endswith(".deleted")] == renamed
    deleted.remove_due(now_ms + 1000)
    assert not [path for path in files.paths() if path.endswith(".deleted")]


def test_l20_a_start_finishes_a_partly_renamed_deletion(files: MemoryFiles) -> None:
    """On disk the second segment is renamed and the first is not: the first segment, before the
    gap, must not be taken for the end of a damaged log."""
    log = segmented(files)
    before = bases(log)
    log.durability.flush()
    log.config = LogConfig(retention_ms=0)
    first = [path for path in files.paths() if path.startswith(f"{DIRECTORY}/{before[0]:020d}.")]
    kept = {path: files.content(path) for path in first}
    assert log.trimming.apply_retention(NOW_MS + 2 * DAY_MS) >= 2
    for path, content in kept.items():
        files.remove(f"{path}.deleted")
        files.put(path, content)
    again = reopen(log, files, clean=False)
    assert bases(again) == bases(log)
    assert again.log_end_offset == log.log_end_offset
    assert again.log_start_offset == again.segments[0].base_offset > before[0]
    assert not [path for path in files.paths() if path in first or path.endswith(".deleted")]


def test_l22_producer_states_survive_retention(files: MemoryFiles) -> None:
    log = make_log(files, retention_ms=0)
    append(log, make_batch(2, producer_id=1))
    log.roll(NOW_MS)
    append(log)
    log.trimming.apply_retention(NOW_MS + DAY_MS)
    assert append(log, make_batch(2, producer_id=1)).duplicate


def test_p27_segments_stay_until_their_producer_snapshot_is_durable(
    files: MemoryFiles,
) -> None:
    log = make_log(files, durability="fsync")
    append(log, make_batch(2, producer_id=1))
    log.durability.flush()
    log.roll(NOW_MS)
    append(log, make_batch(1, producer_id=2))
    log.trimming.delete_records(2)
    assert log.trimming.apply_retention(NOW_MS) == 0
    log.durability.flush()
    assert log.trimming.apply_retention(NOW_MS) == 1
    files.crash()
    log = make_log(files, start=LogStart(2, 3, 0, clean=False), durability="fsync")
    assert log.log_start_offset == 2
    assert append(log, make_batch(2, producer_id=1)).duplicate


@pytest.mark.parametrize("log_start", [2, 3])
def test_p28_producers_of_deleted_segments_are_known_after_a_crash(
    files: MemoryFiles, log_start: int
) -> None:
    """The producers are known only from the snapshot at the start of the first remaining
    segment."""
    log = make_log(files)
    append(log, make_batch(2, producer_id=1))
    log.roll(NOW_MS)
    append(log, make_batch(2, producer_id=2))
    log.durability.flush()
    log.trimming.delete_records(log_start)
    assert log.trimming.apply_retention(NOW_MS) == 1
    log = reopen(log, files, clean=False)
    assert (bases(log), log.log_start_offset) == ([2], log_start)
    for producer_id in (1, 2):
        assert append(log, make_batch(2, producer_id=producer_id)).duplicate


def test_a_failed_rename_during_retention_leaves_a_working_log(files: MemoryFiles) -> None:
    log = segmented(files, retention_ms=0)
    files.fail(DiskFailure("rename", nth=4))
    with pytest.raises(OSError):
        log.trimming.apply_retention(NOW_MS + 99 * DAY_MS)
    assert log.trimming.apply_retention(NOW_MS + 99 * DAY_MS) > 0
    assert append(log, make_batch(1, timestamp=NOW_MS)).base_offset == 10
    assert [record.offset for record in records(read_all(log))][-1] == 10


# ---- DeleteRecords


def test_l11_delete_records_moves_the_log_start(files: MemoryFiles) -> None:
    log = segmented(files)
    assert log.trimming.delete_records(5) == 5
    assert log.trimming.delete_records(3) == 5
    # Only whole segments are removed, and only by retention.
    assert bases(log) == [0, 2, 4, 6, 8]
    assert log.trimming.apply_retention(NOW_MS) == 2
    assert (bases(log), log.log_start_offset) == ([4, 6, 8], 5)
    assert log.trimming.delete_records(-1) == 10
    assert log.read(10, 100, upper_bound=EVERYTHING, minimum_one=True) == b""


@pytest.mark.parametrize("offset", [11, -2, -100])
def test_l11_delete_records_refuses_offsets_outside_of_the_log(
    files: MemoryFiles, offset: int
) -> None:
    log = segmented(files)
    with pytest.raises(DeleteRecordsRejected) as caught:
        log.trimming.delete_records(offset)
    assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 0


def test_l11_delete_records_refuses_offsets_above_the_high_watermark(files: MemoryFiles) -> None:
    log = make_log(files, durability="fsync")
    append(log, make_batch(3))
    with pytest.raises(DeleteRecordsRejected):
        log.trimming.delete_records(1)
    assert log.trimming.delete_records(-1) == 0


def test_l11_delete_records_refuses_compacted_topics(files: MemoryFiles) -> None:
    log = make_log(files, cleanup_policy=frozenset({"compact"}))
    append(log)
    with pytest.raises(DeleteRecordsRejected) as caught:
        log.trimming.delete_records(1)
    assert caught.value.error is ErrorCode.POLICY_VIOLATION


def test_l12_delete_records_may_end_inside_an_open_transaction(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(5, producer_id=1, transactional=True))
    append(log, make_batch(5))
    assert log.last_stable_offset == 0
    log.trimming.delete_records(3)
    assert log.last_stable_offset == 3
    append_marker(log, commit=True, producer_id=1)
    assert log.last_stable_offset == 11


def test_leader_epochs_follow_the_log_start(files: MemoryFiles) -> None:
    log = make_log(files)
    for epoch in (0, 2, 5):
        append(log, make_batch(10), leader_epoch=epoch)
    assert log.leader_epochs.end_offset(1, log.log_end_offset) == (0, 10)
    log.trimming.delete_records(15)
    assert log.leader_epochs.entries == [(2, 15), (5, 20)]
    assert log.leader_epochs.end_offset(1, log.log_end_offset) == (-1, -1)
    assert log.leader_epochs.end_offset(3, log.log_end_offset) == (2, 20)
    assert log.leader_epochs.end_offset(9, log.log_end_offset) == (5, 30)
    epochs = files.content(f"{DIRECTORY}/leader-epoch-checkpoint")
    assert small_file(epochs) == "0\n2\n2 15\n5 20\n"
