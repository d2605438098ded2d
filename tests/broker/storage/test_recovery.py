"""Recovery at a start (L-30..L-35, P-25..P-28)."""

from __future__ import annotations

import random
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
    small_file,
)
from odradek_broker.storage.errors import AppendRejected, StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_options import LogStart
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.disk import Crashed, DiskFailure, MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def log_path(base_offset: int, suffix: str = "log") -> str:
    return f"{DIRECTORY}/{base_offset:020d}.{suffix}"


def damage(files: MemoryFiles, path: str, content: bytes | bytearray) -> None:
    assert files.exists(path)
    files.put(path, content)


def after_crash(files: MemoryFiles, **how: object) -> PartitionLog:
    """Open the log as after an unclean stop."""
    return make_log(files, start=LogStart(**how))  # type: ignore[arg-type]


# ---- torn and damaged ends


def test_l31_a_tail_torn_at_any_byte_is_truncated(files: MemoryFiles) -> None:
    log = make_log(files)
    sizes = [0]
    for count in (1, 2, 3):
        append(log, make_batch(count, value=b""))
        sizes.append(log.size_bytes)
    log.close(clean=False)
    whole = files.content(log_path(0))
    ends = [0, 1, 3, 6]
    for length in range(len(whole) + 1):
        damage(files, log_path(0), whole[:length])
        recovered = after_crash(files)
        good = max(at for at, size in enumerate(sizes) if size <= length)
        assert recovered.log_end_offset == recovered.high_watermark == ends[good]
        assert files.content(log_path(0)) == whole[: sizes[good]]
        assert recovered.report.truncated_bytes == length - sizes[good]
        assert bool(recovered.report.problem) == (length not in sizes)
        assert append(recovered).base_offset == ends[good]
        recovered.close(clean=False)


def test_l31_a_flipped_bit_truncates_the_log_at_its_batch(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(2, value=b""))
    size = log.size_bytes
    append(log, make_batch(2, value=b""))
    append(log, make_batch(2, value=b""))
    log.close(clean=False)
    whole = files.content(log_path(0))
    second_end = size * 2
    # The checksum does not cover base offset and leader epoch.
    for at in [*range(size + 8, size + 12), *range(size + 16, second_end)]:
        for bit in (0, 7):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            damage(files, log_path(0), flipped)
            recovered = after_crash(files)
            # L-32: the third batch is removed with the damaged batch before it.
            assert recovered.log_end_offset == 2, at
            assert files.content(log_path(0)) == whole[:size]
            recovered.close(clean=False)


def test_l32_a_log_is_truncated_where_offsets_go_back(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(4))
    append(log, make_batch(4))
    log.close(clean=False)
    content = bytearray(files.content(log_path(0)))
    second = len(content) // 2
    content[second : second + 8] = (2).to_bytes(8, "big")
    damage(files, log_path(0), content)
    assert after_crash(files).log_end_offset == 4


def test_l31_segments_after_a_damaged_batch_are_removed(files: MemoryFiles) -> None:
    log = make_log(files)
    for _ in range(3):
        append(log, make_batch(2))
        append(log, make_batch(2))
        log.roll(NOW_MS)
    log.close(clean=False)
    middle = files.content(log_path(4))
    damage(files, log_path(4), middle[:-1])
    recovered = after_crash(files)
    assert recovered.log_end_offset == 6
    assert recovered.report.removed_segments == [f"{8:020d}", f"{12:020d}"]
    assert [segment.base_offset for segment in recovered.segments] == [0, 4]
    left = {path for path in files.paths() if f"{8:020d}" in path or f"{12:020d}" in path}
    assert left == set()


@pytest.mark.parametrize("compacted", [False, True])
def test_l32_a_log_is_truncated_at_a_gap_unless_it_is_compacted(
    files: MemoryFiles, compacted: bool
) -> None:
    log = make_log(files)
    for _ in range(3):
        append(log, make_batch(2))
        log.roll(NOW_MS)
    log.close(clean=False)
    damage(files, log_path(2), b"")
    policy = frozenset({"compact" if compacted else "delete"})
    recovered = make_log(files, cleanup_policy=policy)
    assert recovered.log_end_offset == (6 if compacted else 2)
    assert bool(recovered.report.problem) != compacted


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (LogStart(), 6),
        (LogStart(gaps_known=True), 2),
        (LogStart(recovery_point=3, gaps_known=True), 2),
        (LogStart(recovery_point=4, gaps_known=True), 6),
    ],
)
def test_l32_a_gap_that_compaction_cannot_have_left_is_truncated(
    files: MemoryFiles, start: LogStart, end: int
) -> None:
    """A closed segment has lost its unsynced end, and the next segment survived."""
    log = make_log(files)
    for _ in range(3):
        append(log, make_batch(2))
        log.roll(NOW_MS)
    log.close(clean=False)
    damage(files, log_path(2), b"")
    recovered = make_log(files, start=start, cleanup_policy=frozenset({"compact"}))
    assert recovered.log_end_offset == end


def test_l31_f09_aborted_transactions_found_by_a_scan_survive_a_crash(files: MemoryFiles) -> None:
    """The scan writes the transaction index. This index must be on disk before the recovery point
    passes its segment."""
    log = make_log(files, durability="fsync")
    append(log, make_batch(producer_id=7, transactional=True))
    append_marker(log, False, 7)
    log.roll(NOW_MS)
    append(log)
    for base in (0, 2):
        files.open(log_path(base)).sync()
    for directory in (DIRECTORY, "data"):
        files.sync_dir(directory)
    files.crash()
    recovered = make_log(files, durability="fsync")
    assert recovered.aborted_transactions(0, 3) == [(7, 0)]
    assert recovered.durability.recovery_point == 3
    files.crash()
    again = make_log(files, start=LogStart(recovery_point=3), durability="fsync")
    assert again.aborted_transactions(0, 3) == [(7, 0)]


def test_l34_a_log_that_ends_below_its_log_start_is_emptied(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(5))
    append(log, make_batch(5))
    log.close(clean=False)
    damage(files, log_path(0), files.content(log_path(0))[:-1])
    recovered = after_crash(files, log_start_offset=7)
    assert recovered.log_start_offset == recovered.log_end_offset == 7
    assert append(recovered).base_offset == 7


# ---- trusted files


def test_l30_a_log_is_not_scanned_after_a_clean_stop(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(50))
    log = reopen(log, files, clean=True)
    assert (log.report.scanned_bytes, log.log_end_offset) == (0, 50)
    assert log.high_watermark == log.durability.durable_offset == 50


def test_l30_scan_starts_at_the_recovery_point(files: MemoryFiles) -> None:
    log = make_log(files)
    for _ in range(4):
        append(log, make_batch(2))
        log.roll(NOW_MS)
    sizes = [segment.size_bytes for segment in log.segments]
    log.close(clean=False)
    assert after_crash(files, recovery_point=5).report.scanned_bytes == sum(sizes[2:])


def test_l30_a_log_unchanged_since_the_last_stop_is_not_scanned(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(50))
    log.close(clean=True)
    recovered = after_crash(files, recovery_point=50)
    assert (recovered.report.scanned_bytes, recovered.log_end_offset) == (0, 50)
    append(recovered)
    recovered.close(clean=False)
    assert after_crash(files, recovery_point=50).report.scanned_bytes > 0


@pytest.mark.parametrize("torn", ["cut", "zeros"])
def test_l30_a_torn_batch_after_the_end_at_the_last_stop_is_cut_off(
    files: MemoryFiles, torn: str
) -> None:
    log = make_log(files)
    append(log, make_batch(2))
    log = reopen(log, files, clean=True)
    sound = log.size_bytes
    append(log, make_batch(1))
    log.close(clean=False)
    whole = files.content(log_path(0))
    tail = whole[sound:-1] if torn == "cut" else bytes(len(whole) - sound)
    damage(files, log_path(0), whole[:sound] + tail)
    log = after_crash(files, recovery_point=2)
    assert log.log_end_offset == 2
    assert log.size_bytes == sound
    append(log, make_batch(1))
    assert [record.offset for record in records(read_all(log))] == [0, 1, 2]


def test_l30_a_log_that_does_not_match_its_clean_stop_is_scanned(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(5))
    append(log, make_batch(5))
    log.close(clean=True)
    damage(files, log_path(0), files.content(log_path(0))[:-3])
    recovered = after_crash(files, clean=True, log_end_offset=10, recovery_point=10)
    assert recovered.log_end_offset == 5
    assert recovered.report.problem


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("how", ["missing", "empty", "half", "odd", "too long", "noise"])
@pytest.mark.parametrize("clean", [True, False])
def test_l33_missing_and_damaged_indexes_are_rebuilt(
    files: MemoryFiles, suffix: str, how: str, clean: bool
) -> None:
    settings: dict[str, Any] = {"segment_bytes": 70_000, "index_interval_bytes": 500}
    log = make_log(files, **settings)
    for at in range(400):
        append(log, make_batch(2, value=bytes(150), timestamp=NOW_MS - 1000 + at))
    assert len(log.segments) > 2
    log.close(clean=clean)
    good = {path: files.content(path) for path in files.paths() if path.endswith("index")}
    rng = random.Random(1)
    for path in [path for path in good if path.endswith(f".{suffix}")]:
        content = good[path]
        if how == "missing":
            files.remove(path)
        elif how == "empty":
            files.put(path, b"")
        elif how == "half":
            files.put(path, content[: len(content) // 24 * 12 // 8 * 8])
        elif how == "odd":
            files.put(path, content[:-1])
        elif how == "too long":
            files.put(path, content + b"\x7f" * 12 * 8000)
        else:
            files.put(path, rng.randbytes(len(content)))
    start = LogStart(0, 800, 800 if clean else 0, clean)
    log = make_log(files, start=start, **settings)
    assert log.log_end_offset == 800
    for offset in range(0, 800, 7):
        first = headers(log.read(offset, 1, upper_bound=EVERYTHING, minimum_one=True))[0]
        assert first.base_offset <= offset <= first.last_offset
    for at in range(0, 400, 31):
        # The timestamp of a batch's second record is that of the next batch's first record.
        expected = (0 if at == 0 else at * 2 - 1, NOW_MS - 1000 + at)
        assert log.offset_for_timestamp(NOW_MS - 1000 + at, EVERYTHING) == expected


def test_l35_damaged_epoch_checkpoint_is_computed_again(files: MemoryFiles) -> None:
    log = make_log(files)
    for epoch in (0, 0, 3, 5):
        append(log, leader_epoch=epoch)
    log.close(clean=True)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    assert small_file(files.content(path)) == "0\n3\n0 0\n3 2\n5 3\n"
    for content in (b"", b"\xff", b"7\n", b"0\n9\n0 0\n", b"0\n1\nx y\n"):
        files.put(path, content)
        log = make_log(files, start=LogStart(0, 4, 4, True))
        assert log.leader_epochs.entries == [(0, 0), (3, 2), (5, 3)]
        log.close(clean=True)


# ---- producers


@pytest.mark.parametrize("clean", [True, False])
def test_l35_f13_an_old_copy_of_the_leader_epochs_shows_no_truncation(
    files: MemoryFiles, *, clean: bool
) -> None:
    log = make_log(files)
    ends = {}
    copies = [b"0\n2\n5 0\n9 4\n"]
    for epoch in range(4):
        append(log, make_batch(2), leader_epoch=epoch)
        append(log, make_batch(2), leader_epoch=epoch)
        log.roll(NOW_MS)
        ends[epoch] = log.log_end_offset
        copies.append(bytes(files.content(f"{DIRECTORY}/leader-epoch-checkpoint")))
    end = log.log_end_offset
    log.close(clean=clean)
    start = LogStart(0, end, end, clean)
    for copy in copies:
        disk = files.copy()
        disk.put(f"{DIRECTORY}/leader-epoch-checkpoint", copy)
        epochs = make_log(disk, start=start).leader_epochs
        assert epochs.latest == 3
        for epoch, known in ends.items():
            found, found_end = epochs.end_offset(epoch, end)
            assert 0 <= found <= epoch and found_end >= known, copy


def producer_facts(log: PartitionLog) -> list[tuple[object, ...]]:
    return sorted(
        (
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for entry in log.producers.entries()
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("clean", [True, False])
def test_p28_producer_states_survive_a_restart(files: MemoryFiles, seed: int, clean: bool) -> None:
    rng = random.Random(seed)
    log = make_log(files, segment_bytes=1200)
    sequences = dict.fromkeys(range(5), 0)
    open_transactions: set[int] = set()
    for _ in range(80):
        producer = rng.randrange(5)
        transactional = producer >= 2
        if producer in open_transactions and rng.random() < 0.4:
            append_marker(log, rng.random() < 0.5, producer, coordinator_epoch=1)
            open_transactions.discard(producer)
            continue
        count = rng.randint(1, 3)
        batch = make_batch(
            count,
            producer_id=producer,
            sequence=sequences[producer],
            transactional=transactional,
        )
        append(log, batch)
        sequences[producer] += count
        if transactional:
            open_transactions.add(producer)
        if rng.random() < 0.05:
            log.roll(NOW_MS)
    facts, stable = producer_facts(log), log.last_stable_offset
    aborted = sorted(log.aborted_transactions(0, EVERYTHING))
    log = reopen(log, files, clean=clean, segment_bytes=1200)
    assert producer_facts(log) == facts
    assert log.last_stable_offset == stable
    assert sorted(log.aborted_transactions(0, EVERYTHING)) == aborted
    # The producers continue with their next sequences.
    for producer, sequence in sequences.items():
        append(log, make_batch(producer_id=producer, sequence=sequence, transactional=producer > 1))


def test_p28_producers_are_recovered_without_a_corrupt_snapshot(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(3, producer_id=1))
    log.roll(NOW_MS)
    append(log, make_batch(3, producer_id=1, sequence=3))
    log.close(clean=True)
    for offset in (3, 6):
        content = bytearray(files.content(log_path(offset, "snapshot")))
        content[-1] ^= 1
        files.put(log_path(offset, "snapshot"), content)
    log = make_log(files, start=LogStart(0, 6, 6, True))
    assert append(log, make_batch(3, producer_id=1, sequence=3)).duplicate
    assert append(log, make_batch(1, producer_id=1, sequence=6)).base_offset == 6
    assert not files.exists(log_path(3, "snapshot"))


def test_p27_stray_snapshots_are_removed(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(3, producer_id=1))
    log.close(clean=True)
    files.put(log_path(2, "snapshot"), files.content(log_path(3, "snapshot")))
    log = after_crash(files)
    assert not files.exists(log_path(2, "snapshot"))
    append(log)
    log.close(clean=True)
    # The one that is on disk stays until the newer one is.
    snapshots = [path for path in files.paths() if "snapshot" in path]
    assert snapshots == [log_path(3, "snapshot"), log_path(4, "snapshot")]


def test_p25_a_forgotten_producer_may_continue(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(3, producer_id=1))
    log.roll(NOW_MS)
    append(log)
    log.trimming.delete_records(3)
    log.trimming.apply_retention(NOW_MS)
    assert append(log, make_batch(1, producer_id=1, sequence=3)).base_offset == 4
    log.trimming.delete_records(5)
    assert log.trimming.apply_retention(NOW_MS) == 1
    log.close(clean=False)
    for path in [path for path in files.paths() if "snapshot" in path]:
        files.remove(path)
    log = after_crash(files, log_start_offset=5)
    assert append(log, make_batch(1, producer_id=1, sequence=9)).base_offset == 5


# ---- crashes at any moment


def run_workload(log: PartitionLog, acknowledged: list[tuple[int, bytes]]) -> None:
    """Append, flush, roll and delete; record the last record of each flush."""
    for at in range(30):
        value = at.to_bytes(4, "big")
        result = append(log, make_batch(2, value=value, producer_id=1, sequence=at * 2))
        if at % 3 == 0:
            log.durability.flush()
            acknowledged.append((result.last_offset, value))
        if at % 7 == 0:
            append(log, make_batch(1, producer_id=at + 10, transactional=True))
            append_marker(log, commit=False, producer_id=at + 10)
        if at == 20:
            log.trimming.delete_records(min(9, log.high_watermark))
            log.trimming.apply_retention(NOW_MS)


def test_d5_a_crash_at_every_operation_keeps_acknowledged_records() -> None:
    settings: dict[str, Any] = {
        "segment_bytes": 500,
        "durability": "fsync",
        "index_interval_bytes": 100,
    }
    probe = MemoryFiles()
    run_workload(make_log(probe, **settings), [])
    total = probe.operations
    assert total > 100
    for crash_at in range(total):
        rng = random.Random(crash_at)
        files = MemoryFiles()
        acknowledged: list[tuple[int, bytes]] = []
        files.crash_at = crash_at
        log = None
        try:
            log = make_log(files, **settings)
            run_workload(log, acknowledged)
        except Crashed:
            pass
        durable = 0 if log is None else log.durability.durable_offset
        start = LogStart(log_start_offset=0 if log is None else log.log_start_offset)
        files.crash(rng, keep_page_cache=rng.random() < 0.3)
        recovered = make_log(files, start=start, **settings)
        assert recovered.log_end_offset >= durable
        found = {record.offset: record.value for record in records(read_all(recovered))}
        for offset, value in acknowledged:
            if offset >= recovered.log_start_offset:
                assert found[offset] == value, crash_at
        offsets = [record.offset for record in records(read_all(recovered))]
        assert offsets == sorted(set(offsets))
        # The recovered log accepts records, and a clean stop is trusted.
        append(recovered)
        again = reopen(recovered, files, clean=True, **settings)
        assert again.report.scanned_bytes == 0
        assert read_all(again) == read_all(recovered_copy(files, again, settings))


def recovered_copy(files: MemoryFiles, log: PartitionLog, settings: dict[str, Any]) -> PartitionLog:
    """The log as a start after a kill finds it: all records are scanned, because the other files
    are not trusted."""
    log.durability.flush()
    return make_log(files, start=LogStart(log_start_offset=log.log_start_offset), **settings)


def test_l40_a_log_that_could_not_be_opened_is_opened_again(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log)
    log.close(clean=True)
    files.fail(DiskFailure("read", for_ever=True))
    log = PartitionLog(
        "t", 0, bytes(16), DIRECTORY, log.config, log.options, LogStart(0, 1, 1, True)
    )
    with pytest.raises(AppendRejected) as caught:
        append(log)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline
    assert not log.open_again(NOW_MS)
    assert log.offline
    files.heal()
    assert log.open_again(NOW_MS)
    assert append(log).base_offset == 1


def test_d5_a_failed_fsync_at_the_start_keeps_the_partition_offline(files: MemoryFiles) -> None:
    """The records could be read, but could be lost in the next power cut."""
    log = make_log(files, durability="fsync")
    append(log)
    log.close(clean=False)
    log = PartitionLog("t", 0, bytes(16), DIRECTORY, log.config, log.options, LogStart())
    files.fail(DiskFailure("sync"))
    with pytest.raises(StorageError):
        log.load(NOW_MS)
    assert not log.open_again(NOW_MS)
    assert log.offline


def test_leftover_files_of_deletions_are_removed(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log)
    log.close(clean=True)
    files.put(log_path(7) + ".deleted", b"old")
    files.put(log_path(9, "index"), b"")
    log = make_log(files)
    assert not [path for path in files.paths() if "deleted" in path or f"{9:020d}" in path]
    assert log.log_end_offset == 1
