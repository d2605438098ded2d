"""Reading by offset and by time (F-03..F-09, R-14..R-16, L-15)."""

from __future__ import annotations

import errno
import random
from itertools import pairwise
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
from odradek_broker.storage.errors import (
    AppendRejected,
    LogCorrupt,
    OffsetOutOfRange,
    StorageError,
)
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import AppendOrigin
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.layout import LENGTH_AT
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(files: MemoryFiles) -> PartitionLog:
    """A log of thirty batches of 1 to 5 records in several segments; every second batch is in the
    index."""
    log = make_log(files, segment_bytes=1500, index_interval_bytes=150)
    for count in [1, 2, 3, 4, 5] * 6:
        append(log, make_batch(count))
    assert len(log.segments) > 2
    return log


def read(
    log: PartitionLog,
    offset: int,
    max_bytes: int = 10**6,
    upper_bound: int = EVERYTHING,
    minimum_one: bool = True,
) -> bytes:
    return log.read(offset, max_bytes, upper_bound=upper_bound, minimum_one=minimum_one)


def test_r16_every_offset_gives_the_batch_that_holds_it(log: PartitionLog) -> None:
    for _ in range(2):  # first without caches, then with the caches of the first round
        for offset in range(log.log_end_offset):
            first = headers(read(log, offset, 1))[0]
            assert first.base_offset <= offset <= first.last_offset


def test_reads_continue_in_the_next_segment(log: PartitionLog) -> None:
    found = headers(read_all(log))
    assert [header.base_offset for header in found][:4] == [0, 1, 3, 6]
    assert found[-1].next_offset == log.log_end_offset == 90
    for one, following in pairwise(found):
        assert one.next_offset == following.base_offset


@pytest.mark.parametrize("seed", range(5))
def test_f06_random_reads_return_parts_of_the_whole_log(log: PartitionLog, seed: int) -> None:
    rng = random.Random(seed)
    whole = read_all(log)
    batches = headers(whole)
    starts = [segment.base_offset for segment in log.segments]
    for _ in range(200):
        offset = rng.randrange(log.log_end_offset)
        upper_bound = rng.choice([EVERYTHING, rng.choice(batches).base_offset])
        max_bytes = rng.randrange(1500)
        minimum_one = rng.random() < 0.5
        segment_end = min([base for base in starts if base > offset], default=EVERYTHING)
        expected = 0
        for header in batches:
            if header.last_offset < offset or header.base_offset >= segment_end:
                continue
            if header.next_offset > upper_bound or offset >= upper_bound:
                break
            if expected + header.size_bytes > max_bytes and (expected or not minimum_one):
                break
            expected += header.size_bytes
        data = read(log, offset, max_bytes, upper_bound, minimum_one)
        assert len(data) == expected
        assert data in whole


def test_f06_first_batch_is_whole_even_if_too_big(log: PartitionLog) -> None:
    assert len(headers(read(log, 12, 1))) == 1
    assert read(log, 12, 1, minimum_one=False) == b""
    assert read(log, 12, 0, minimum_one=False) == b""


def test_f03_a_read_ends_below_the_upper_bound(log: PartitionLog) -> None:
    assert headers(read(log, 0, upper_bound=6))[-1].next_offset == 6
    assert read(log, 6, upper_bound=6) == b""
    assert read(log, 7, upper_bound=6) == b""


def test_f07_offsets_outside_the_log_are_out_of_range(log: PartitionLog) -> None:
    assert read(log, log.log_end_offset) == b""
    with pytest.raises(OffsetOutOfRange) as caught:
        read(log, log.log_end_offset + 1)
    assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(OffsetOutOfRange):
        read(log, -1)
    log.trimming.delete_records(10)
    with pytest.raises(OffsetOutOfRange):
        read(log, 9)
    assert headers(read(log, 10, 1))[0].base_offset == 10


def test_f04_readable_bytes_equal_the_bytes_of_a_read(log: PartitionLog) -> None:
    whole = read_all(log)
    batches = headers(whole)
    for at, header in enumerate(batches):
        behind = sum(other.size_bytes for other in batches[at:])
        assert log.readable_bytes(header.base_offset, EVERYTHING) == behind
        before = sum(other.size_bytes for other in batches[:at])
        assert log.readable_bytes(0, header.base_offset) == before
    assert log.readable_bytes(90, EVERYTHING) == 0
    assert log.readable_bytes(-1, EVERYTHING) == 0
    assert log.readable_bytes(91, EVERYTHING) == 0


def test_read_crosses_gaps_that_compaction_leaves(files: MemoryFiles) -> None:
    log = make_log(files, segment_bytes=200)
    for base in (0, 10, 20, 35, 50):
        append(log, make_batch(2, base_offset=base), origin=AppendOrigin.REPLAY)
    assert len(log.segments) > 1
    for offset, base in [(2, 10), (9, 10), (12, 20), (22, 35), (40, 50), (51, 50)]:
        assert headers(read(log, offset, 1))[0].base_offset == base


def test_a_damaged_index_is_rebuilt_by_a_read(log: PartitionLog, files: MemoryFiles) -> None:
    whole = read_all(log)
    log.close(clean=True)
    for path in files.paths():
        if path.endswith(".index"):
            entries = len(files.content(path)) // 8
            # Offsets ascend and positions are inside the file, but no position is that of a batch.
            files.put(
                path,
                b"".join(
                    i.to_bytes(4, "big") + (i * 7 + 3).to_bytes(4, "big") for i in range(entries)
                ),
            )
    log = reopen(log, files, clean=True, segment_bytes=1500)
    assert read_all(log) == whole


def test_a_damaged_batch_fails_only_its_own_read(log: PartitionLog, files: MemoryFiles) -> None:
    end = log.log_end_offset
    last = log.segments[-1].base_offset
    log.close(clean=True)
    path = f"{DIRECTORY}/{0:020d}.log"
    content = bytearray(files.content(path))
    content[8:12] = b"\xff" * 4
    files.put(path, bytes(content))
    log = reopen(log, files, clean=True)
    with pytest.raises(LogCorrupt) as caught:
        read(log, 0)
    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE
    assert not log.offline
    assert headers(read(log, last))[0].base_offset == last
    assert append(log).base_offset == end
    assert log.readable_bytes(0, EVERYTHING) > 10**6


def test_appends_continue_after_a_damaged_first_batch(files: MemoryFiles) -> None:
    """An append needs the age of the segment, which is that of its first batch. After a clean stop
    nobody has read this batch (L-06)."""
    log = make_log(files, index_interval_bytes=50)
    for _ in range(4):
        append(log)
    again = reopen(log, files, clean=True, index_interval_bytes=50)
    path = again.segments[0].path
    content = bytearray(files.content(path))
    content[LENGTH_AT : LENGTH_AT + 4] = b"\x7f\0\0\0"
    files.put(path, content)
    again.segments[0].drop_handle()
    assert append(again).base_offset == 4
    assert headers(again.read(4, 10, upper_bound=EVERYTHING, minimum_one=True))[0].base_offset == 4
    with pytest.raises(LogCorrupt):
        again.read(0, 10, upper_bound=EVERYTHING, minimum_one=True)


def test_l40_a_failed_read_is_reported_and_the_next_one_may_succeed(
    log: PartitionLog, files: MemoryFiles
) -> None:
    told: list[str] = []
    disk = log.options.disk
    disk.on_unreadable = lambda name, reason: told.append(name)
    before = read(log, 0)
    files.fail(DiskFailure("read", for_ever=True))
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            read(log, 0)
        assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.offline
    assert (told, list(disk.unreadable), disk.read_failures) == ([log.name], [log.name], 3)
    end = log.log_end_offset
    assert append(log).base_offset == end, "it can be written to"
    files.heal()
    assert read(log, 0).startswith(before)
    assert disk.unreadable == {}


def test_too_many_open_files_are_no_disk_failure(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, *, create: bool = False) -> Any:
        raise OSError(errno.EMFILE, "too many open files", path)

    log = make_log(files)
    append(log, make_batch(3))
    log.close(clean=True)
    with monkeypatch.context() as full:
        full.setattr(files, "open", refuse)
        for _ in range(2):
            with pytest.raises(StorageError) as caught:
                read(log, 0)
            assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(AppendRejected):
                append(log)
        assert not log.offline
    assert append(log).base_offset == 3
    log.durability.flush()
    for segment in log.segments:
        segment.drop_handle()
    with monkeypatch.context() as full:
        full.setattr(files, "open", refuse)
        with pytest.raises(StorageError):
            read(log, 0)
        assert log.durability.begin_flush() is None
        assert not log.offline
    assert read(log, 0)


@pytest.mark.parametrize("reopened", [False, True])
def test_d11_indexes_of_closed_segments_are_unloaded_beyond_a_limit(
    files: MemoryFiles, reopened: bool
) -> None:
    log = make_log(files, segment_bytes=1500, index_interval_bytes=100, index_bytes_max=200)
    for index in range(200):
        append(log, make_batch(1 + index % 5, timestamp=NOW_MS - 7 * index % 501))
    everything = records(read_all(log))
    if reopened:
        log = make_log(files, segment_bytes=1500, index_interval_bytes=100, index_bytes_max=200)
    handles = log.options.handles
    assert len(log.segments) > 10
    rng = random.Random(11)
    for _ in range(300):
        wanted = rng.choice(everything)
        found = headers(read(log, wanted.offset, 1))[0]
        assert found.base_offset <= wanted.offset <= found.last_offset
        first = next(r for r in everything if r.timestamp >= wanted.timestamp)
        at = log.offset_for_timestamp(wanted.timestamp, EVERYTHING)
        assert at == (first.offset, first.timestamp)
        in_memory = sum(segment.index_bytes for segment in log.segments[:-1])
        assert in_memory == handles.index_bytes <= 400
    # Retention reads every segment without loading the indexes again.
    before = [segment.index_bytes for segment in log.segments]
    assert log.max_timestamp_offset(EVERYTHING) is not None
    assert [segment.index_bytes for segment in log.segments] == before
    assert append(log).base_offset == everything[-1].offset + 1
    log.close(clean=True)
    assert handles.index_bytes == 0


# ---- aborted transactions


def test_f09_aborted_transactions_are_found_in_all_segments(files: MemoryFiles) -> None:
    log = make_log(files, segment_bytes=400)
    expected = []
    for producer in range(8):
        first = append(log, make_batch(2, producer_id=producer, transactional=True)).base_offset
        append(log, make_batch(1))
        commit = producer % 2 == 0
        marker = append_marker(log, commit, producer).base_offset
        if not commit:
            expected.append((producer, first, marker))
    assert len(log.segments) > 2
    for clean in (None, False, True):
        if clean is not None:
            log = reopen(log, files, clean=clean)
        for start in range(log.log_end_offset):
            for end in range(start, log.log_end_offset + 1):
                assert sorted(log.aborted_transactions(start, end)) == [
                    (producer, first)
                    for producer, first, marker in expected
                    if marker >= start and first < end
                ]


def test_l05_damaged_transaction_index_is_rebuilt(files: MemoryFiles) -> None:
    log = make_log(files)
    append(log, make_batch(2, producer_id=1, transactional=True))
    log.roll(NOW_MS)
    append_marker(log, commit=False, producer_id=1)
    log.roll(NOW_MS)
    append(log)
    log.close(clean=True)
    (path,) = [path for path in files.paths() if path.endswith(".txnindex")]
    good = files.content(path)
    files.put(path, good[:-1])
    log = reopen(log, files, clean=True)
    assert log.aborted_transactions(0, 2) == [(1, 0)]
    assert files.content(path) == good


# ---- by time


def timed_log(files: MemoryFiles) -> PartitionLog:
    log = make_log(files, segment_bytes=1500, index_interval_bytes=150)
    rng = random.Random(4)
    for _ in range(60):
        codec = rng.choice([Codec.NONE, Codec.LZ4])
        start = NOW_MS - rng.randrange(2000)
        append(log, make_batch(rng.randint(1, 4), timestamp=start, codec=codec))
    return log


@pytest.mark.parametrize("clean", [None, True, False])
def test_l15_a_lookup_by_time_equals_a_scan(files: MemoryFiles, clean: bool | None) -> None:
    log = timed_log(files)
    if clean is not None:
        log = reopen(log, files, clean=clean, index_interval_bytes=150)
    everything = records(read_all(log))
    times = [record.timestamp for record in everything]
    for wanted in [
        0,
        min(times),
        *range(NOW_MS - 2010, NOW_MS + 20, 7),
        max(times),
        max(times) + 1,
    ]:
        expected = next(
            ((r.offset, r.timestamp) for r in everything if r.timestamp >= wanted), None
        )
        assert log.offset_for_timestamp(wanted, EVERYTHING) == expected
        bound = 60
        bounded = expected if expected is not None and expected[0] < bound else None
        assert log.offset_for_timestamp(wanted, bound) == bounded


def test_l15_a_lookup_by_time_starts_at_the_log_start(files: MemoryFiles) -> None:
    log = timed_log(files)
    log.trimming.delete_records(5)
    found = log.offset_for_timestamp(0, EVERYTHING)
    assert found is not None
    assert found[0] == 5


def test_the_offset_of_the_largest_timestamp_is_found(files: MemoryFiles) -> None:
    log = make_log(files)
    assert log.max_timestamp_offset() is None
    log = timed_log(MemoryFiles())
    everything = records(read_all(log))
    largest = max(record.timestamp for record in everything)
    expected = next((r.offset, r.timestamp) for r in everything if r.timestamp == largest)
    assert log.max_timestamp_offset() == expected
    # The method ignores records at or above the given offset, here the base offset of a batch.
    for header in headers(read_all(log)):
        below = [r for r in everything if r.offset < header.base_offset]
        largest = max((record.timestamp for record in below), default=-1)
        found = next(((r.offset, r.timestamp) for r in below if r.timestamp == largest), None)
        assert log.max_timestamp_offset(header.base_offset) == found


def test_r03_a_lookup_by_time_uses_log_append_time(files: MemoryFiles) -> None:
    log = make_log(files, message_timestamp_type="LogAppendTime")
    append(log, make_batch(3, timestamp=1), now_ms=NOW_MS)
    append(log, make_batch(3, timestamp=2), now_ms=NOW_MS + 10)
    assert log.offset_for_timestamp(NOW_MS + 1, EVERYTHING) == (3, NOW_MS + 10)
    assert log.max_timestamp_offset() == (3, NOW_MS + 10)


def test_the_number_of_open_handles_is_limited(files: MemoryFiles) -> None:
    log = make_log(files, segment_bytes=100, open_files=4)
    for _ in range(40):
        append(log, make_batch(1))
    assert len(log.segments) == 40
    for _ in range(2):
        assert len(headers(read_all(log))) == 40
        assert files.open_handles <= 4
