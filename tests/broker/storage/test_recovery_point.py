"""A start after a crash reads only records after the recovery point, and its result is that of a
full scan (L-30)."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

import pytest

import budget
from logs import (
    DIRECTORY,
    EVERYTHING,
    NOW_MS,
    append,
    append_marker,
    make_batch,
    make_log,
    read_all,
)
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_options import LogStart
from odradek_broker.storage.producers.snapshot import SNAPSHOT, decode_snapshot
from odradek_broker.storage.segment_state import (
    SEGMENT_STATE,
    SegmentState,
    decode_segment_state,
    encode_segment_state,
)
from odradek_protocol.checksums import crc32c
from odradek_testkit.simulation.disk import Crashed, DiskFailure, MemoryFiles

SETTINGS: dict[str, Any] = {"durability": "fsync", "index_interval_bytes": 100}
LARGE = bytes(1_000_000)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def path_of(offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{offset:020d}.{suffix}"


def after_kill(files: MemoryFiles, point: int) -> PartitionLog:
    files.crash(keep_page_cache=True)
    return make_log(files, start=LogStart(recovery_point=point), **SETTINGS)


def fill(log: PartitionLog, first: int, count: int) -> None:
    """Append batches of one producer, and an aborted transaction after every fifth batch."""
    for at in range(first, first + count):
        batch = make_batch(
            2,
            value=b"x" * 50,
            timestamp=NOW_MS + at * 7 % 5,
            producer_id=1,
            sequence=at * 2,
        )
        append(log, batch)
        if at % 5 == 0:
            append(log, make_batch(1, producer_id=at + 10, transactional=True))
            append_marker(log, commit=False, producer_id=at + 10)


def known(log: PartitionLog) -> dict[str, Any]:
    """Everything that clients and retention can read from a log."""
    end = log.log_end_offset
    return {
        "end": end,
        "content": read_all(log),
        "aborted": log.aborted_transactions(log.log_start_offset, end),
        "times": [log.offset_for_timestamp(NOW_MS + ms, EVERYTHING) for ms in range(-1, 8)],
        "latest": log.max_timestamp_offset(),
        "largest": [segment.indexes.largest_timestamp for segment in log.segments],
        "epochs": log.leader_epochs.entries,
        "producers": {
            entry.producer_id: (
                entry.epoch,
                entry.packed_batches,
                entry.transaction_first_offset,
                entry.coordinator_epoch,
            )
            for entry in log.producers.entries()
        },
    }


def written(files: MemoryFiles, batches: int = 40) -> tuple[PartitionLog, int]:
    """A log with a snapshot in the middle of a segment, and the offset of the snapshot."""
    log = make_log(files, **SETTINGS)
    fill(log, 0, batches)
    log.durability.flush()
    log.durability.take_snapshot(0)
    point = log.durability.recovery_point
    fill(log, batches, 6)
    return log, point


def test_l30_only_records_after_the_recovery_point_are_read(files: MemoryFiles) -> None:
    log, point = written(files)
    begin = log.segments[0].indexes.position_of(point)
    expected, size = known(log), log.size_bytes
    recovered = after_kill(files, point)
    assert recovered.report.scanned_bytes == size - begin
    assert known(recovered) == expected
    # The files that the first start wrote are sufficient for a second start.
    append(recovered)
    expected = known(recovered)
    again = after_kill(files, point)
    assert again.report.scanned_bytes == again.size_bytes - begin
    assert known(again) == expected


def test_l30_a_log_that_ended_at_the_recovery_point_is_not_read(files: MemoryFiles) -> None:
    log, point = written(files)
    log.durability.flush()
    log.durability.take_snapshot(point)
    expected, point = known(log), log.durability.recovery_point
    recovered = after_kill(files, point)
    assert recovered.report.scanned_bytes == 0
    assert known(recovered) == expected


def test_l30_only_records_since_the_last_clean_stop_are_read_after_a_kill(
    files: MemoryFiles,
) -> None:
    log, _ = written(files)
    log.close(clean=True)
    end = log.log_end_offset
    log = make_log(files, start=LogStart(0, end, end, clean=True), **SETTINGS)
    before = log.size_bytes
    append(log)
    expected = known(log)
    recovered = after_kill(files, end)
    assert recovered.report.scanned_bytes == recovered.size_bytes - before
    assert known(recovered) == expected


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex", "snapshot"])
@pytest.mark.parametrize("how", ["missing", "empty", "cut", "zeros", "zeros inside", "flipped"])
def test_l30_the_whole_segment_is_read_if_an_index_or_snapshot_is_damaged(
    files: MemoryFiles, suffix: str, how: str
) -> None:
    log, point = written(files)
    expected, size = known(log), log.size_bytes
    files.crash(keep_page_cache=True)
    path = path_of(point if suffix == "snapshot" else 0, suffix)
    content = bytearray(files.content(path))
    if how == "missing":
        files.remove(path)
    elif how == "empty":
        content.clear()
    elif how == "cut":
        del content[len(content) * 2 // 3 :]
    elif how == "zeros":
        content[len(content) * 2 // 3 :] = bytes(len(content) - len(content) * 2 // 3)
    elif how == "zeros inside":
        content[len(content) // 3 : len(content) // 2] = bytes(
            len(content) // 2 - len(content) // 3
        )
    else:
        content[len(content) // 2] ^= 0x80
    if how != "missing":
        files.put(path, content)
    recovered = make_log(files, start=LogStart(recovery_point=point), **SETTINGS)
    assert recovered.report.scanned_bytes == size
    assert known(recovered) == expected


def test_l30_an_older_snapshot_is_used_if_the_newest_one_is_damaged(files: MemoryFiles) -> None:
    log, older = written(files)
    log.durability.flush()
    begin = log.segments[0].indexes.position_of(older)
    log.durability.take_snapshot(older)
    point, size, expected = log.durability.recovery_point, log.size_bytes, known(log)
    files.crash(keep_page_cache=True)
    newest = bytearray(files.content(path_of(point, "snapshot")))
    newest[-1] ^= 1
    files.put(path_of(point, "snapshot"), newest)
    recovered = make_log(files, start=LogStart(recovery_point=point), **SETTINGS)
    assert recovered.report.scanned_bytes == size - begin
    assert known(recovered) == expected


def test_l30_a_snapshot_above_the_recovery_point_is_not_used(files: MemoryFiles) -> None:
    """The data between the recovery point and the snapshot may not have been flushed."""
    log, point = written(files)
    begin = log.segments[0].indexes.position_of(point)
    log.durability.take_snapshot(point)
    size = log.size_bytes
    recovered = after_kill(files, point)
    assert recovered.report.scanned_bytes == size - begin


def test_l30_damage_after_the_snapshot_is_found(files: MemoryFiles) -> None:
    log, point = written(files)
    begin = log.segments[0].indexes.position_of(point)
    files.crash(keep_page_cache=True)
    content = bytearray(files.content(path_of(0, "log")))
    content[begin + 70] ^= 1
    files.put(path_of(0, "log"), content)
    recovered = make_log(files, start=LogStart(recovery_point=point), **SETTINGS)
    assert recovered.log_end_offset == point
    assert recovered.size_bytes == begin
    assert "damaged" in recovered.report.problem


def test_l30_snapshots_of_truncated_records_are_removed(files: MemoryFiles) -> None:
    """If a snapshot remained, a later start would trust it for other records that are appended at
    the same offsets."""
    log, point = written(files)
    cut_at = log.segments[0].indexes.position_of(point // 2)
    files.crash(keep_page_cache=True)
    files.put(path_of(0, "log"), files.content(path_of(0, "log"))[:cut_at])
    recovered = make_log(files, start=LogStart(recovery_point=point), **SETTINGS)
    assert recovered.log_end_offset < point
    files.crash()
    assert not files.exists(path_of(point, "snapshot"))


def test_l30_outdated_snapshots_are_removed(files: MemoryFiles) -> None:
    log, first = written(files)
    points = [first]
    for at in range(4):
        fill(log, 46 + at * 10, 10)
        log.durability.flush()
        log.durability.take_snapshot(points[-1])
        points.append(log.durability.recovery_point)
    found = [point for point in points if files.exists(path_of(point, "snapshot"))]
    assert found == points[-2:]


def test_l30_a_snapshot_is_wanted_if_much_would_be_scanned(files: MemoryFiles) -> None:
    log = make_log(files, **SETTINGS)
    append(log, make_batch(value=LARGE))
    log.durability.flush()
    assert not log.durability.wants_snapshot()  # the segment may still be growing
    assert log.durability.wants_snapshot()
    log.durability.take_snapshot(0)
    assert not log.durability.wants_snapshot()
    append(log)
    log.durability.flush()
    assert not log.durability.wants_snapshot()
    assert not log.durability.wants_snapshot()
    for _ in range(5):
        append(log, make_batch(value=LARGE))
    assert log.durability.wants_snapshot()


def test_l30_a_snapshot_that_cannot_be_written_does_not_harm_recovery(files: MemoryFiles) -> None:
    log, point = written(files)
    log.durability.flush()
    files.fail(DiskFailure("append", path_part="snapshot"))
    log.durability.take_snapshot(point)
    expected = known(log)
    recovered = after_kill(files, log.durability.recovery_point)
    assert known(recovered) == expected


def run(log: PartitionLog, points: list[int], acknowledged: list[int]) -> None:
    """Append, flush, roll, abort, snapshot. `points`: gets the recovery points."""
    for at in range(24):
        fill(log, at, 1)
        if at % 3 == 0:
            log.durability.flush()
            acknowledged.append(log.durability.durable_offset)
        if at % 4 == 2:
            points.append(log.durability.recovery_point)
            log.durability.take_snapshot(points[-2])
        if at == 13:
            log.roll(NOW_MS)
        if at == 9:
            append(log, leader_epoch=1)


@pytest.mark.parametrize("power_cut", budget.of_which([False, True], [True]))
def test_l30_d5_recovery_after_any_crash_equals_a_full_scan(power_cut: bool) -> None:
    """A start from the recovery point finds the same log as a start that scans everything, whatever
    part of the unsynced data is lost."""
    probe = MemoryFiles()
    run(make_log(probe, **SETTINGS), [0], [])
    shorter = 0
    for crash_at in range(probe.operations):
        rng = random.Random(crash_at)
        files = MemoryFiles()
        files.crash_at = crash_at
        points, acknowledged = [0], [0]
        with suppress(Crashed):
            run(make_log(files, **SETTINGS), points, acknowledged)
        files.crash(rng if crash_at % 3 else None, keep_page_cache=not power_cut)
        copy = files.copy()
        # Every second run crashes again during recovery.
        if crash_at % 2:
            files.crash_at = files.operations + rng.randrange(8)
            with suppress(Crashed):
                make_log(files, start=LogStart(recovery_point=points[-1]), **SETTINGS)
            files.crash(rng, keep_page_cache=not power_cut)
        recovered = make_log(files, start=LogStart(recovery_point=points[-1]), **SETTINGS)
        whole = make_log(copy, start=LogStart(), **SETTINGS)
        assert recovered.log_end_offset >= acknowledged[-1], crash_at
        found, expected = known(recovered), known(whole)
        if crash_at % 2:
            # The first recovery has synced what it read, so the comparison is with a scan of the
            # same files.
            expected = known(make_log(files.copy(), start=LogStart(), **SETTINGS))
        assert found == expected, crash_at
        shorter += recovered.report.scanned_bytes < whole.report.scanned_bytes
    assert shorter > probe.operations // 4


# --- the format


def test_p26_a_snapshot_ends_with_the_state_of_its_segment(files: MemoryFiles) -> None:
    log, point = written(files)
    content = files.content(path_of(point, "snapshot"))
    parsed = SNAPSHOT.parse(content)
    state = decode_segment_state(content)
    assert state is not None
    assert parsed.segment_state.size_bytes == state.size_bytes
    assert state.size_bytes == log.segments[0].indexes.position_of(point)
    assert state.base_offset == 0
    assert state.aborted_entries == 8
    assert state.aborted_crc == crc32c(files.content(path_of(0, "txnindex"))[: 8 * 34])
    # The part before the segment state is unchanged: Kafka and older versions read only the
    # producers.
    assert decode_snapshot(content, map_end_offset=point)


def test_p26_a_segment_state_is_encoded_as_declared() -> None:
    state = SegmentState(1, 2, 3, 4, 5, 6, 7, 8)
    encoded = encode_segment_state(state)
    parsed = SEGMENT_STATE.parse(encoded)
    assert tuple(parsed[name] for name in SegmentState._fields) == state
    assert decode_segment_state(b"whatever comes before" + encoded) == state
    assert decode_segment_state(encoded[1:]) is None
    assert decode_segment_state(b"X" + encoded[1:]) is None
    assert decode_segment_state(struct.pack(">4sH", b"ODRS", 2) + encoded[6:]) is None
