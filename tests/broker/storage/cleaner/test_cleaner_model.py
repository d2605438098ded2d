"""The cleaner, compared with a model of Kafka's rules: random histories, and a crash at every disk
operation (L-23 to L-28)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import budget
from compaction import compact, job_for
from compaction_history import CompactedHistory, batches_of
from compaction_model import ModelBatch, Record
from logs import NOW_MS, append, append_marker, make_batch, make_log, read_all
from odradek_broker.storage.cleaner.cleaner import clean
from odradek_broker.storage.cleaner.job import GroupCleaned, LastRecord
from odradek_broker.storage.cleaner.policy import log_to_clean
from odradek_broker.storage.log_options import LogStart
from odradek_testkit.simulation.disk import Crashed, MemoryFiles


@pytest.mark.parametrize("seed", budget.of_which(range(60), range(8)))
def test_l23_l24_random_histories_are_cleaned_as_the_model_says(seed: int) -> None:
    history = CompactedHistory(seed)
    for _ in range(6):
        for _ in range(history.random.randint(5, 30)):
            history.step()
        history.clean()
        history.now_ms += history.random.choice((0, 100, 600))
        if history.random.random() < 0.3:
            history.reopen()
            history.check()


@pytest.mark.budgeted
@pytest.mark.parametrize("seed", budget.of_which(range(6), [0]))
def test_l27_a_crash_at_any_operation_loses_nothing(seed: int) -> None:
    history = CompactedHistory(seed, segment_bytes=400)
    for _ in range(12):
        history.step()
    history.clean()
    history.now_ms += 600
    for _ in range(8):
        history.step()
    history.end_transactions()
    history.flush()
    before = batches_of(history.log)
    log = history.log
    ends = (log.log_start_offset, log.log_end_offset)
    clean_disk = history.files.copy()
    history.clean_model()
    cleaned_to = compact(log, history.files, history.now_ms, history.cleaned_to)
    history.check()
    after = batches_of(log)
    operations = _operations(clean_disk, history)
    assert operations > 10 and cleaned_to > 0
    for at in range(0, operations, 3 if budget.is_short() else 1):
        # Of unsynced data a power cut keeps nothing (0) or a part (1, 2); a kill keeps all (3).
        how = (at + seed) % 4
        disk = clean_disk.copy()
        _crash(disk, history, at, random.Random(at) if how else None, process_only=how == 3)
        recovered = make_log(disk, start=LogStart(), **history.config)
        assert (recovered.log_start_offset, recovered.log_end_offset) == ends
        _check_between(batches_of(recovered), before, after)
        assert not [path for path in disk.paths() if path.endswith((".swap", ".cleaned"))]
        compact(recovered, disk, history.now_ms, history.cleaned_to)
        # Markers are not compared: the cleaning after the recovery can remove further markers.
        assert _visible(batches_of(recovered)) == _visible(after)


def _visible(batches: list[ModelBatch]) -> list[Record]:
    return [record for batch in batches if not batch.control for record in batch.records]


def _operations(clean_disk: MemoryFiles, history: CompactedHistory) -> int:
    disk = clean_disk.copy()
    log = make_log(disk, start=_as_left(history), **history.config)
    before = disk.operations
    compact(log, disk, history.now_ms, history.cleaned_to)
    return disk.operations - before


def _as_left(history: CompactedHistory) -> LogStart:
    return LogStart(history.log.log_start_offset, 0, history.log.durability.durable_offset)


def _crash(
    disk: MemoryFiles,
    history: CompactedHistory,
    at: int,
    chance: random.Random | None,
    *,
    process_only: bool,
) -> None:
    log = make_log(disk, start=_as_left(history), **history.config)
    log.durability.flush()
    disk.crash_at = disk.operations + at
    with pytest.raises(Crashed):
        compact(log, disk, history.now_ms, history.cleaned_to)
        raise Crashed("it was over before")
    disk.crash(chance, keep_page_cache=process_only)


def _check_between(
    found: list[ModelBatch], before: list[ModelBatch], after: list[ModelBatch]
) -> None:
    """Check that the first groups of segments are cleaned, and the others unchanged."""
    for swapped in range(len(found) + 1):
        rest = len(found) - swapped
        if found[:swapped] == after[:swapped] and (
            not rest or found[swapped:] == before[len(before) - rest :]
        ):
            return
    raise AssertionError("neither what was there, nor what was made of it")


@pytest.mark.parametrize("seed", budget.of_which(range(10), range(3)))
def test_l28_a_small_offset_map_has_the_same_result_after_several_cleanings(seed: int) -> None:
    history = CompactedHistory(seed, segment_bytes=500)
    for _ in range(60):
        history.step()
    history.flush()
    whole = CompactedHistory(seed, segment_bytes=500)
    for _ in range(60):
        whole.step()
    whole.clean()
    to = log_to_clean(history.log, None, history.now_ms).upper_bound
    rounds, cleaned_to = 0, None
    while cleaned_to != to:
        cleaned_to = compact(
            history.log, history.files, history.now_ms, cleaned_to, dedupe_buffer_bytes=1
        )
        rounds += 1
    assert rounds > 3
    visible = [
        record for batch in batches_of(history.log) if not batch.control for record in batch.records
    ]
    assert visible == [
        record for batch in whole.model.batches if not batch.control for record in batch.records
    ]


def test_l23_a_read_at_a_removed_offset_returns_the_next_batch() -> None:
    history = CompactedHistory(3)
    for _ in range(50):
        history.step()
    history.clean()
    kept = batches_of(history.log)
    log = history.log
    for offset in range(log.log_start_offset, log.log_end_offset):
        following = next(batch for batch in kept if batch.last >= offset)
        data = log.read(offset, 1, upper_bound=log.log_end_offset, minimum_one=True)
        assert int.from_bytes(data[:8], "big") == following.base


def test_a_cleaning_job_survives_encoding_as_lines() -> None:
    history = CompactedHistory(1)
    for _ in range(30):
        history.step()
    history.flush()
    job = job_for(log_to_clean(history.log, None, history.now_ms), history.now_ms)
    assert job.last_records
    assert type(job).from_lines(job.to_lines()) == job
    for producers in (0, 999, 1_000, 1_001, 2_500):
        many = replace(job, last_records={n: LastRecord(n - 1, 3) for n in range(producers)})
        lines = list(many.to_lines())
        assert max(map(len, lines)) < 50_000 and not any("\n" in line for line in lines)
        rest = iter([*lines, "go on"])
        assert type(job).from_lines(rest) == many
        assert list(rest) == ["go on"]
    assert read_all(history.log)


def test_l24_no_snapshot_has_a_transaction_whose_marker_was_removed() -> None:
    """A transaction is open at the start of segment A, and compaction has removed its marker from a
    later segment. If the newer snapshots are lost, the snapshot at the start of A must not reopen
    the transaction."""
    files = MemoryFiles()
    config: dict[str, Any] = {
        "cleanup_policy": frozenset({"compact"}),
        "delete_retention_ms": 1,
        "segment_bytes": 200,
    }
    log = make_log(files, **config)
    append(log, make_batch(producer_id=7, transactional=True))
    # This record is kept, so that the segment is not merged with the next segment.
    append(log, make_batch(key=b"other", value=bytes(50)))
    log.roll(NOW_MS)
    append_marker(log, False, 7)
    log.roll(NOW_MS)
    append(log, make_batch(producer_id=7, epoch=1, value=bytes(50)))
    log.roll(NOW_MS)
    append(log, make_batch())
    for number in range(4):
        compact(log, files, NOW_MS + 10 * number, 0)
    assert not any(batch.control for batch in batches_of(log))
    log.durability.flush()
    for path in files.paths():
        if path.endswith(f"{log.segments[-1].base_offset:020d}.snapshot"):
            files.remove(path)
    log.close(clean=False)
    reopened = make_log(files, start=LogStart(recovery_point=log.log_end_offset), **config)
    assert reopened.last_stable_offset == reopened.log_end_offset


def test_l15_a_lookup_by_time_finds_records_that_compaction_left() -> None:
    files = MemoryFiles()
    log = make_log(files, cleanup_policy=frozenset({"compact"}))
    for number, key in enumerate((b"a", b"b", b"a", b"c")):
        append(log, make_batch(key=key, timestamp=NOW_MS + 10 * number))
    log.roll(NOW_MS)
    append(log, make_batch(key=b"d", timestamp=NOW_MS + 40))
    compact(log, files, NOW_MS)
    found = [log.offset_for_timestamp(NOW_MS + at, log.high_watermark) for at in (0, 11, 31, 41)]
    assert found == [(1, NOW_MS + 10), (2, NOW_MS + 20), (4, NOW_MS + 40), None]
    assert log.max_timestamp_offset() == (4, NOW_MS + 40)


def test_f09_aborted_transactions_of_removed_batches_are_not_returned() -> None:
    """Readers need an entry of the transaction index as long as a batch of the transaction is
    left."""
    files = MemoryFiles()
    config: dict[str, Any] = {"cleanup_policy": frozenset({"compact"}), "delete_retention_ms": 1}
    log = make_log(files, **config)
    append(log, make_batch(key=b"k", value=b"committed"))
    append(log, make_batch(key=b"k", value=b"aborted", producer_id=7, transactional=True))
    append_marker(log, False, 7)
    log.roll(NOW_MS)
    append(log)
    assert log.aborted_transactions(0, log.log_end_offset) == [(7, 1)]
    compact(log, files, NOW_MS)
    # The aborted batch is the last batch of an active producer, so the batch is kept without its
    # record. Its marker is kept, too.
    assert [(each.base, len(each.records)) for each in batches_of(log)] == [
        (0, 1),
        (1, 0),
        (2, 1),
        (3, 1),
    ]
    assert log.aborted_transactions(0, log.log_end_offset) == [(7, 1)]
    append(log, make_batch(key=b"k2", producer_id=7, sequence=1))
    for number in range(1, 4):
        compact(log, files, NOW_MS + 10 * number, 0)
    assert [each.base for each in batches_of(log)] == [0, 2, 3, 4]
    assert log.aborted_transactions(0, log.log_end_offset) == []


@pytest.mark.parametrize("steps", range(4))
def test_l27_a_clean_stop_finishes_a_swap(steps: int) -> None:
    history = CompactedHistory(2, segment_bytes=300)
    for _ in range(30):
        history.step()
    history.end_transactions()
    history.flush()
    log, now_ms = history.log, history.now_ms
    found = log_to_clean(log, None, now_ms)
    group = next(
        step
        for step in clean(job_for(found, now_ms), history.files)
        if isinstance(step, GroupCleaned)
    )
    assert log.trimming.begin_swap(group)
    rest: list[Callable[[], object]] = [
        lambda: log.trimming.swap_in(group.size_bytes, now_ms),
        lambda: log.trimming.retire_sources(100),
        lambda: log.trimming.end_swap(now_ms),
    ]
    for step in rest[:steps]:
        step()
    log.close(clean=True)
    assert not [path for path in history.files.paths() if path.endswith(".swap")]
    start = LogStart(
        log.log_start_offset, log.log_end_offset, log.durability.durable_offset, clean=True
    )
    again = make_log(history.files, start=start, **history.config)
    assert again.report.scanned_bytes == 0 and again.report.problem == ""
    assert again.log_end_offset == log.log_end_offset
    found_again = batches_of(again)
    again.close(clean=True)
    history.files.crash()
    assert batches_of(make_log(history.files, start=LogStart(), **history.config)) == found_again
