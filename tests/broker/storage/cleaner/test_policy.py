"""The logs that are cleaned and when (L-25), merged segments (L-26), the cost of a cleaning (L-28,
L-29)."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from compaction import compact, job_for
from logs import EVERYTHING, NOW_MS, append, append_marker, make_batch, make_log, read_all, records
from odradek_broker.storage.cleaner import offset_map
from odradek_broker.storage.cleaner.offset_map import (
    DICT_ENTRY_BYTES,
    ENTRY_BYTES,
    OffsetMap,
    PackedOffsets,
)
from odradek_broker.storage.cleaner.policy import log_to_clean
from odradek_broker.storage.cleaner.segments import group_by_size, source_segments
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import AppendOrigin
from odradek_protocol.compression import Codec
from odradek_protocol.records.builder import BatchBuilder
from odradek_testkit.simulation.disk import MemoryFiles

COMPACT = frozenset({"compact"})
HOUR_MS = 3_600_000


def filled(files: MemoryFiles, segments: int = 4, **config: Any) -> PartitionLog:
    """A log with `segments` closed segments of two batches each, and one batch in the active
    segment."""
    config.setdefault("cleanup_policy", COMPACT)
    log = make_log(files, **config)
    for number in range(segments):
        for _ in range(2):
            time_ms = NOW_MS + number * HOUR_MS
            append(log, make_batch(key=b"k%d" % number, timestamp=time_ms), now_ms=time_ms)
        log.roll(NOW_MS)
    append(log)
    return log


def test_l25_the_dirty_ratio_counts_whole_closed_segments() -> None:
    log = filled(MemoryFiles())
    size = log.segments[0].size_bytes
    found = log_to_clean(log, None, NOW_MS)
    assert (found.first_dirty_offset, found.upper_bound) == (0, 8)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (0, 4 * size, 1.0)
    half = log_to_clean(log, 4, NOW_MS)
    assert (half.clean_bytes, half.cleanable_bytes) == (2 * size, 2 * size)
    assert not half.due, "more than the ratio, not as much"
    assert log_to_clean(log, 2, NOW_MS).due
    # The last cleaning ended inside a segment, because its map was full: the whole segment is both
    # in the clean part and in the dirty part.
    inside = log_to_clean(log, 3, NOW_MS)
    assert (inside.clean_bytes, inside.cleanable_bytes) == (2 * size, 3 * size)


def test_l25_a_log_without_new_records_is_not_due() -> None:
    log = filled(MemoryFiles(), min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1)
    assert log_to_clean(log, None, NOW_MS).due
    assert not log_to_clean(log, 8, NOW_MS + 9 * HOUR_MS).due


@pytest.mark.parametrize("cleaned_to", [-1, 10_000])
def test_l25_a_checkpoint_outside_of_the_log_is_ignored(cleaned_to: int) -> None:
    log = filled(MemoryFiles())
    assert log_to_clean(log, cleaned_to, NOW_MS).first_dirty_offset == 0


def test_l25_segments_younger_than_the_minimum_lag_are_not_cleaned() -> None:
    log = filled(MemoryFiles(), min_compaction_lag_ms=2 * HOUR_MS)
    assert log_to_clean(log, None, NOW_MS + 3 * HOUR_MS).upper_bound == 4
    assert log_to_clean(log, None, NOW_MS + 9 * HOUR_MS).upper_bound == 8


def test_l25_a_log_beyond_the_maximum_lag_is_due_at_any_dirty_ratio() -> None:
    log = filled(MemoryFiles(), max_compaction_lag_ms=5 * HOUR_MS, min_cleanable_dirty_ratio=1.0)
    early = log_to_clean(log, 2, NOW_MS + 6 * HOUR_MS)
    assert (early.delay_ms, early.due) == (0, False)
    late = log_to_clean(log, 2, NOW_MS + 8 * HOUR_MS)
    assert (late.delay_ms, late.due) == (2 * HOUR_MS, True)


def test_l25_records_after_the_start_of_an_open_transaction_are_not_cleaned() -> None:
    files = MemoryFiles()
    log = make_log(files, cleanup_policy=COMPACT)
    append(log)
    log.roll(NOW_MS)
    append(log, make_batch(producer_id=7, transactional=True))
    log.roll(NOW_MS)
    append(log)
    log.roll(NOW_MS)
    assert log_to_clean(log, None, NOW_MS).upper_bound == 1
    append_marker(log, True, 7)
    assert log_to_clean(log, None, NOW_MS).upper_bound == 3


def test_l25_a_log_with_both_policies_is_compacted_and_deleted() -> None:
    files = MemoryFiles()
    log = filled(files, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10 * HOUR_MS)
    compact(log, files, NOW_MS)
    assert [record.offset for record in records(read_all(log))] == [1, 3, 5, 7, 8]
    assert log.log_start_offset == 0
    assert log.trimming.apply_retention(NOW_MS + 12 * HOUR_MS) == 0, (
        "the segment is as new as its newest"
    )
    assert log.trimming.apply_retention(NOW_MS + 14 * HOUR_MS) == 2
    assert log.log_start_offset == 9


def test_l26_neighbouring_segments_are_merged_up_to_the_segment_size() -> None:
    files = MemoryFiles()
    log = filled(files)
    found = log_to_clean(log, None, NOW_MS)
    size = log.segments[0].size_bytes

    def groups(**changes: int) -> list[list[int]]:
        job = job_for(found, NOW_MS, **changes)
        segments = source_segments(job, HandleCache(files))
        return [
            [segment.base_offset for segment in group]
            for group in group_by_size(job, files, segments)
        ]

    assert groups() == [[0, 2, 4, 6]]
    assert groups(segment_bytes=2 * size) == [[0, 2], [4, 6]]
    assert groups(segment_bytes=2 * size - 1) == [[0], [2], [4], [6]]
    # The time index of each segment has one entry of twelve bytes.
    assert groups(segment_index_bytes=36) == [[0, 2, 4], [6]]
    assert groups(upper_bound=2**31 + 5) == [[0, 2, 4], [6]]


def test_l26_a_segment_without_records_stays_and_keeps_its_age() -> None:
    files = MemoryFiles()
    log = make_log(files, cleanup_policy=COMPACT, segment_bytes=90)
    for _ in range(4):
        files.now_ms += 1_000
        append(log)
    compact(log, files, NOW_MS)
    left = [(segment.base_offset, segment.size_bytes > 0) for segment in log.segments]
    # Each record has its own segment. The first two segments are empty now, and keep their base
    # offsets.
    assert left == [(0, False), (1, False), (2, True), (3, True)]
    assert [files.modified_ms(segment.path) for segment in log.segments[:2]] == [1_000, 2_000]
    assert log.read(0, 1, upper_bound=EVERYTHING, minimum_one=True)[:8] == (2).to_bytes(8, "big")


@pytest.mark.parametrize("keys_in_dict", [True, False])
def test_l28_the_offset_map_takes_batches_up_to_its_memory(
    keys_in_dict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if keys_in_dict:
        monkeypatch.setattr(offset_map, "DICT_ENTRY_BYTES", 1)
    offsets = OffsetMap(10 * ENTRY_BYTES, 0.5)
    assert offsets.capacity == 5
    offsets.put_all([b"a", b"b", b"a"], [1, 2, 4])
    assert (len(offsets), offsets.full) == (2, False)
    long_keys = [bytes(40) + bytes([n]) for n in range(9)]
    offsets.put_all(long_keys, range(10, 19))
    assert offsets.full and offsets.used == 1.0
    assert list(offsets.get_all([b"b", *long_keys, b"a", b"c"])) == [2, *range(10, 19), 4, -1]
    assert OffsetMap(0, 0.9).capacity == 1


def test_l28_packing_the_offset_map_changes_no_offset() -> None:
    """The keys have all lengths, including that of a digest. The map is packed while keys are
    added."""
    chance = random.Random(5)
    keys = [chance.randbytes(chance.randrange(40)) for _ in range(2_000)] + [chance.randbytes(16)]
    offsets = OffsetMap(500 * DICT_ENTRY_BYTES, 1.0)
    expected: dict[bytes, int] = {}
    for offset in range(0, 6_000, 10):
        some = chance.choices(keys[: 200 + offset], k=10)
        offsets.put_all(some, range(offset, offset + 10))
        expected.update(zip(some, range(offset, offset + 10), strict=True))
        assert len(offsets) == len(expected)
    assert len(expected) > 1_000
    assert list(offsets.get_all(keys)) == [expected.get(key, -1) for key in keys]


def test_l28_a_digest_is_not_found_across_two_entries() -> None:
    packed = PackedOffsets(1)
    first, second = bytes(range(16)), bytes(range(100, 116))
    packed.put_all([first, second], [0x0102030405060708, 2])
    across = first[8:] + (0x0102030405060708).to_bytes(8, "big")
    inside = (0x0102030405060708).to_bytes(8, "big") + second[:8]
    assert list(packed.get_all([across, inside, first, second])) == [-1, -1, 0x0102030405060708, 2]
    packed.put_all([inside], [3])
    assert list(packed.get_all([across, inside, first, second])) == [-1, 3, 0x0102030405060708, 2]
    assert len(packed) == 3


@pytest.mark.parametrize(
    ("keys", "cleanings", "peak_bytes_max"),
    [(50, 1, 12_000_000), (100_000, 4, 25_000_000)],
    ids=["few keys", "more keys than fit"],
)
def test_l28_the_memory_of_a_cleaning_does_not_grow_with_the_records_of_a_batch(
    keys: int, cleanings: int, peak_bytes_max: int
) -> None:
    """As objects, 100,000 records take 27 MB, and 116 MB while all of them are rewritten. Only the
    last records of the keys stay."""
    files = MemoryFiles()
    log = make_log(files, cleanup_policy=COMPACT)
    builder = BatchBuilder(Codec.ZSTD)
    for number in range(100_000):
        value = None if number == 90_000 else b"%d" % number
        builder.append(NOW_MS + number, b"%d" % (number % keys), value)
    expected = {number % keys: number for number in range(100_000)}
    append(log, memoryview(builder.build()), origin=AppendOrigin.COORDINATOR)
    log.roll(NOW_MS)
    append(log, make_batch(key=b"1"))
    log.roll(NOW_MS)
    append(log)
    del builder
    cleaned_to = done = 0
    while cleaned_to < 100_001:
        tracemalloc.start()
        cleaned_to = compact(log, files, NOW_MS, cleaned_to, dedupe_buffer_bytes=25_000 * 34)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < peak_bytes_max
        done += 1
    assert done == cleanings
    del expected[1]
    offsets = [record.offset for record in records(read_all(log))]
    assert offsets == [*sorted(expected.values()), 100_000, 100_001]


def test_l29_a_segment_is_rolled_before_the_maximum_compaction_lag() -> None:
    files = MemoryFiles()
    log = make_log(files, cleanup_policy=COMPACT, max_compaction_lag_ms=HOUR_MS)
    append(log, make_batch(timestamp=NOW_MS))
    append(log, make_batch(timestamp=NOW_MS + HOUR_MS))
    assert len(log.segments) == 1
    append(log, make_batch(timestamp=NOW_MS + HOUR_MS + 1), now_ms=NOW_MS + HOUR_MS)
    assert len(log.segments) == 2
