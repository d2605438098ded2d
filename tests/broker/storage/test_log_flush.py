"""Durability (D5): the effects of a flush and of a failed flush."""

from __future__ import annotations

import errno

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
    small_file,
)
from odradek_broker.storage.errors import AppendRejected, PartitionOffline
from odradek_broker.storage.handles import LOOKS_MAX, HandleCache
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_durability import LogDurability
from odradek_broker.storage.segment import Segment
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(files: MemoryFiles) -> PartitionLog:
    return make_log(files, durability="fsync")


def test_d5_l37_records_are_readable_when_they_are_durable(log: PartitionLog) -> None:
    moved: list[int] = []
    log.on_moved = lambda log: moved.append(log.high_watermark)
    append(log, make_batch(3))
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (3, 0, 0)
    assert log.read(0, 1000, upper_bound=log.high_watermark, minimum_one=True) == b""
    ticket = log.durability.begin_flush()
    assert ticket is not None
    append(log, make_batch(2))
    ticket.sync()
    assert moved == []
    log.durability.finish_flush(ticket, None)
    assert (log.log_end_offset, log.high_watermark, log.durability.durable_offset) == (5, 3, 3)
    assert moved == [3]
    assert headers(read_all(log, upper_bound=3))[-1].next_offset == 3


def test_d5_a_log_without_new_records_has_nothing_to_flush(log: PartitionLog) -> None:
    log.durability.flush()
    assert log.durability.begin_flush() is None
    append(log)
    log.durability.flush()
    assert log.durability.begin_flush() is None


def test_d5_flush_covers_rolled_segments_and_names(log: PartitionLog, files: MemoryFiles) -> None:
    append(log, make_batch(2))
    log.roll(NOW_MS)
    append(log, make_batch(2))
    log.roll(NOW_MS)
    append(log, make_batch(2))
    log.durability.flush()
    assert log.high_watermark == 6
    log.close(clean=False)
    files.crash()
    assert headers(read_all(make_log(files)))[-1].next_offset == 6


def test_d5_a_power_cut_loses_records_that_were_not_flushed(
    log: PartitionLog, files: MemoryFiles
) -> None:
    append(log, make_batch(2))
    log.durability.flush()
    append(log, make_batch(2))
    files.crash()
    assert make_log(files).log_end_offset == 2


def test_d5_flushes_may_end_in_any_order(log: PartitionLog) -> None:
    append(log)
    first = log.durability.begin_flush()
    append(log)
    second = log.durability.begin_flush()
    assert first is not None
    assert second is not None
    second.sync()
    log.durability.finish_flush(second, None)
    assert log.high_watermark == 2
    first.sync()
    log.durability.finish_flush(first, None)
    assert log.high_watermark == 2


def test_d5_failed_fsync_is_never_retried(log: PartitionLog, files: MemoryFiles) -> None:
    told: list[PartitionLog] = []
    log.on_offline = told.append
    append(log)
    files.fail(DiskFailure("sync", path_part=".log"))
    ticket = log.durability.begin_flush()
    assert ticket is not None
    with pytest.raises(OSError) as caught:
        ticket.sync()
    log.durability.finish_flush(ticket, caught.value)
    assert told == [log]
    assert log.high_watermark == 0
    assert log.durability.begin_flush() is None
    with pytest.raises(AppendRejected):
        append(log)
    with pytest.raises(PartitionOffline):
        log.durability.flush()


def test_d5_a_failed_directory_sync_takes_the_partition_offline(
    log: PartitionLog, files: MemoryFiles
) -> None:
    append(log)
    files.fail(DiskFailure("sync_dir"))
    with pytest.raises(PartitionOffline):
        log.durability.flush()
    assert log.high_watermark == 0


def test_a_flush_succeeds_though_retention_deletes_its_segment(
    log: PartitionLog, files: MemoryFiles
) -> None:
    append(log)
    log.roll(NOW_MS)
    append(log)
    log.durability.flush()
    append(log)
    ticket = log.durability.begin_flush()
    assert ticket is not None
    log.trimming.delete_records(2)
    assert log.trimming.apply_retention(NOW_MS) == 1
    ticket.sync()
    log.durability.finish_flush(ticket, None)
    assert log.high_watermark == 3


def test_handle_that_a_flush_holds_is_not_closed(files: MemoryFiles) -> None:
    log = make_log(files, durability="fsync", open_files=1, segment_bytes=100)
    append(log)
    ticket = log.durability.begin_flush()
    assert ticket is not None
    for _ in range(5):
        append(log)
    ticket.sync()
    log.durability.finish_flush(ticket, None)
    log.durability.flush()
    assert log.high_watermark == 6


def test_segments_with_unsynced_bytes_leave_files_for_their_flushes(files: MemoryFiles) -> None:
    files.make_dirs("t-0")
    handles = HandleCache(files, 2, scarce=lambda: files.open_handles >= 10)
    made = []
    for base in range(20):
        segment = Segment(handles, "t-0", base, created_ms=0)
        segment.pin_dirty = True
        try:
            segment.create()
        except OSError as problem:
            assert problem.errno == errno.EMFILE
            continue
        segment.size_bytes = 1
        made.append(segment)
    assert len(made) == files.open_handles == 10
    made[0].synced_bytes = 1
    assert made[-1].file is not None
    Segment(handles, "t-0", 99, created_ms=0).create()
    assert files.open_handles == 10


def test_opening_a_segment_checks_few_of_many_pinned_handles(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    pinned = vars(Segment)["pinned"].fget

    def counted(segment: Segment) -> bool:
        nonlocal looks
        looks += 1
        return bool(pinned(segment))

    monkeypatch.setattr(Segment, "pinned", property(counted))
    log = make_log(files, durability="fsync", open_files=4, segment_bytes=100)
    for _ in range(500):
        append(log)
    assert len(log.segments) == files.open_handles == 500
    assert looks <= 500 * LOOKS_MAX
    log.durability.flush()
    for _ in range(20):
        append(log)
    assert files.open_handles <= 4 + 20


def test_t45_undurable_marker_holds_the_last_stable_offset(log: PartitionLog) -> None:
    append(log, make_batch(3, producer_id=5, transactional=True))
    append(log, make_batch(2))
    log.durability.flush()
    assert (log.high_watermark, log.last_stable_offset) == (5, 0)
    append_marker(log, commit=False, producer_id=5)
    assert (log.high_watermark, log.last_stable_offset) == (5, 0)
    log.durability.flush()
    assert (log.high_watermark, log.last_stable_offset) == (6, 6)


def test_l37_page_cache_durability_requests_a_flush_at_a_roll(files: MemoryFiles) -> None:
    log = make_log(files)
    wanted: list[LogDurability] = []
    log.on_flush_wanted = wanted.append
    append(log)
    assert (log.high_watermark, log.durability.durable_offset) == (1, 0)
    log.roll(NOW_MS)
    assert wanted == [log.durability]
    log.durability.flush()
    assert (log.high_watermark, log.durability.durable_offset) == (1, 1)


def test_new_partition_survives_a_power_cut_once_it_was_flushed(files: MemoryFiles) -> None:
    log = make_log(files, durability="fsync")
    append(log)
    log.durability.flush()
    files.crash()
    assert files.exists(f"{DIRECTORY}/partition.metadata")
    metadata = small_file(files.content(f"{DIRECTORY}/partition.metadata"))
    assert "topic_id: AAECAwQFBgcICQoLDA0ODw\n" in metadata
    assert read_all(make_log(files), upper_bound=EVERYTHING)
