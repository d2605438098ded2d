"""Directories that Apache Kafka left when it was killed during a compaction (L-46)."""

from __future__ import annotations

import random

import pytest

import budget
from killed_kafka import SETTINGS, CleanedByKafka, logs_of, path_of
from logs import DIRECTORY, NOW_MS, append, headers, make_batch, make_log, read_all
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_options import LogStart
from odradek_testkit.simulation.disk import Crashed, MemoryFiles


def opened(files: MemoryFiles, *, clean_end: int | None = None) -> PartitionLog:
    if clean_end is None:
        return make_log(files, start=LogStart(cleaned=True), **SETTINGS)
    return make_log(files, start=LogStart(0, clean_end, clean_end, True, True), **SETTINGS)


def leftovers(files: MemoryFiles) -> list[str]:
    return [path for path in files.paths() if path.endswith((".swap", ".cleaned", ".deleted"))]


@pytest.mark.parametrize("first_source", [0, 1])
@pytest.mark.parametrize("clean", [False, True])
def test_l46_a_kill_before_each_step_leaves_all_or_nothing(first_source: int, clean: bool) -> None:
    """Like a kill, a clean stop of Kafka leaves `.deleted` files."""
    log = CleanedByKafka.make(first_source=first_source)
    end = opened(log.files.copy()).log_end_offset
    kills = list(log.kills())
    assert {kill.committed for kill in kills} == {False, True}
    for kill in kills:
        expected = log.expected_after if kill.committed else log.expected_before
        found = opened(kill.files, clean_end=end if clean else None)
        assert logs_of(kill.files) == expected, kill.what
        assert found.log_end_offset == end, kill.what
        assert leftovers(kill.files) == [], kill.what
        assert read_all(found) == b"".join(expected[name] for name in sorted(expected)), kill.what
        # The indexes must match the segment, whether it is old or new.
        for segment in found.segments:
            assert not segment.indexes.damage
            for header in headers(read_all(found)):
                assert found.read(header.base_offset, 1, upper_bound=end, minimum_one=True)
        assert append(found).base_offset == end


def test_l46_old_segments_do_not_prevent_the_end_of_a_committed_swap() -> None:
    """A power cut may restore any of the old segments."""
    log = CleanedByKafka.make(first_source=1)
    rng = random.Random(1)
    swap = path_of(log.sources[0], "log.swap")
    committed = [kill for kill in log.kills() if kill.committed and kill.files.exists(swap)]
    assert len(committed) > len(log.sources)
    for kill in committed:
        for path in kill.files.paths():
            if path.endswith(".deleted") and rng.random() < 0.5:
                kill.files.rename(path, path.removesuffix(".deleted"))
        opened(kill.files)
        assert logs_of(kill.files) == log.expected_after, kill.what


@pytest.mark.full
@pytest.mark.budgeted
def test_l46_a_crash_while_a_swap_is_finished_changes_nothing() -> None:
    log = CleanedByKafka.make()
    for kill in log.kills():
        expected = log.expected_after if kill.committed else log.expected_before
        at = 0
        while True:
            files = kill.files.copy()
            files.crash_at = files.operations + at
            try:
                opened(files)
            except Crashed:
                files.crash(random.Random(at))
                opened(files)
                assert logs_of(files) == expected, (kill.what, at)
                at += 4 if budget.is_short() else 1
            else:
                break
        assert at


def test_l46_a_damaged_swap_does_not_replace_sources_that_are_there() -> None:
    log = CleanedByKafka.make()
    kill = next(kill for kill in log.kills() if kill.committed)
    path = path_of(log.sources[0], "log.swap")
    kill.files.put(path, kill.files.content(path)[:-7])
    opened(kill.files)
    assert logs_of(kill.files) == log.expected_before
    assert leftovers(kill.files) == []


def test_l46_a_damaged_swap_is_used_if_its_sources_are_gone() -> None:
    log = CleanedByKafka.make()
    *_, kill = (kill for kill in log.kills() if kill.files.exists(path_of(0, "log.swap")))
    path = path_of(log.sources[0], "log.swap")
    kill.files.put(path, kill.files.content(path)[:-7])
    found = opened(kill.files)
    assert "damaged" in found.report.problem
    first = logs_of(kill.files)[f"{0:020d}.log"]
    assert first
    assert log.cleaned.startswith(first)


def test_l46_an_index_swap_without_a_log_swap_replaces_the_index() -> None:
    log = CleanedByKafka.make()
    index = log.files.content(path_of(0, "index.cleaned"))
    *_, last = (kill for kill in log.kills() if kill.files.exists(path_of(0, "timeindex.swap")))
    assert not last.files.exists(path_of(0, "log.swap"))
    opened(last.files, clean_end=None)
    assert last.files.content(path_of(0, "index")) == index


def test_l46_files_deleted_by_compaction_do_not_move_the_log_start() -> None:
    log = CleanedByKafka.make(first_source=1)
    *_, kill = log.kills()
    assert kill.files.exists(path_of(log.sources[-1], "log.deleted"))
    assert opened(kill.files).log_start_offset == 0
    assert logs_of(kill.files) == log.expected_after


def test_l46_l20_files_deleted_by_retention_move_the_log_start() -> None:
    """In a log without compaction, only retention leaves files with the suffix `.deleted`."""
    files = MemoryFiles()
    log = make_log(files)
    for _ in range(4):
        append(log, make_batch(2))
        log.roll(NOW_MS)
    log.close(clean=False)
    files.rename(f"{DIRECTORY}/{2:020d}.log", f"{DIRECTORY}/{2:020d}.log.deleted")
    assert make_log(files).log_start_offset == 4


def test_l46_several_swaps_of_a_split_are_finished_together() -> None:
    """A split leaves several `.swap` files: together they replace all segments from the start of
    the first file to the end of the last."""
    log = CleanedByKafka.make(first_source=1)
    kill = next(kill for kill in log.kills() if kill.committed)
    *_, last = headers(log.cleaned)
    assert log.sources[0] < last.base_offset
    at = len(log.cleaned) - last.size_bytes
    kill.files.put(path_of(log.sources[0], "log.swap"), log.cleaned[:at])
    kill.files.put(path_of(last.base_offset, "log.swap"), log.cleaned[at:])
    opened(kill.files)
    expected = log.expected_after
    expected[f"{log.sources[0]:020d}.log"] = log.cleaned[:at]
    expected[f"{last.base_offset:020d}.log"] = log.cleaned[at:]
    assert logs_of(kill.files) == expected
