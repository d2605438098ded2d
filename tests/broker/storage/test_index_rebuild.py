"""Indexes that do not match their segment are rebuilt once, outside the event loop, and never
because of damaged records (L-33)."""

from __future__ import annotations

import errno
import struct
import threading
from pathlib import Path

import pytest

from broker_in_loop import RunningBroker
from logs import (
    DIRECTORY,
    EVERYTHING,
    NOW_MS,
    Workers,
    append,
    headers,
    make_batch,
    make_log,
    read_all,
    reopen,
)
from node_world import NodeWorld
from odradek_broker.partition import Partition
from odradek_broker.storage.errors import IndexesBeingRebuilt, LogCorrupt
from odradek_broker.storage.index import OffsetIndex
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.segment_indexes import SegmentIndexes
from odradek_broker.storage.segment_scanner import BatchAt
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.layout import HEADER_BYTES
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles
from raw_client import RawClient, batch_of, produce_request
from waiting import until

FIRST = f"{DIRECTORY}/{0:020d}"


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(files: MemoryFiles) -> PartitionLog:
    """A log of several segments; each batch has three records, and the next batch is a second
    later."""
    log = make_log(files, segment_bytes=1500, index_interval_bytes=150)
    for number in range(60):
        append(log, make_batch(3, timestamp=NOW_MS - 100_000 + 1000 * number))
    assert len(log.segments) > 3
    return log


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The segments that were scanned for their indexes, one entry for each scan."""
    scanned: list[str] = []
    note = SegmentIndexes.note_scanned

    def noting(indexes: SegmentIndexes, batch: BatchAt, interval_bytes: int) -> None:
        if batch.position == 0:
            scanned.append(f"{DIRECTORY}/{batch.base_offset:020d}.log")
        note(indexes, batch, interval_bytes)

    monkeypatch.setattr(SegmentIndexes, "note_scanned", noting)
    return scanned


def damage(log: PartitionLog, files: MemoryFiles, position: int, replacement: bytes) -> None:
    """Overwrite bytes in the first segment."""
    path = f"{FIRST}.log"
    content = bytearray(files.content(path))
    content[position : position + len(replacement)] = replacement
    files.put(path, bytes(content))
    segment = log.segments[0]
    log.options.handles.forget(segment)
    segment.drop_handle()
    segment.unload_indexes()


def forget_indexes(segment: Segment) -> None:
    """Nothing of the segment's indexes is in memory, as after a start of the broker."""
    segment.unload_indexes()
    segment.indexes = SegmentIndexes(segment)


def ruin_indexes(log: PartitionLog, files: MemoryFiles) -> Segment:
    """Damage the indexes of the first segment, which is not the active segment."""
    segment = log.segments[0]
    forget_indexes(segment)
    for suffix in ("index", "timeindex"):
        files.put(f"{FIRST}.{suffix}", b"not an index")
    return segment


def at_time(log: PartitionLog, seconds: int) -> tuple[int, int] | None:
    return log.offset_for_timestamp(NOW_MS - 100_000 + 1000 * seconds, EVERYTHING)


def read_at(log: PartitionLog, offset: int) -> bytes:
    return log.read(offset, 100, upper_bound=EVERYTHING, minimum_one=True)


@pytest.mark.parametrize("ruined", [False, True])
def test_l33_a_segment_with_a_damaged_batch_is_scanned_once(
    log: PartitionLog, files: MemoryFiles, scans: list[str], ruined: bool
) -> None:
    """No reader gets past the invalid length of the damaged batch; earlier batches can be found."""
    first = headers(read_all(log))[0]
    damage(log, files, 2 * first.size_bytes + 8, b"\xff\xff\xff\xff")
    if ruined:
        ruin_indexes(log, files)
    behind = log.segments[1].base_offset
    for _ in range(4):
        found = at_time(log, 2)
        assert found is not None and found[0] == behind
        with pytest.raises(LogCorrupt):
            log.read(6, 100, upper_bound=EVERYTHING, minimum_one=True)
    assert at_time(log, 1) == (3, NOW_MS - 99_000)
    assert scans == [f"{FIRST}.log"]
    # There is no second scan after the index was unloaded from memory.
    log.segments[0].unload_indexes()
    assert at_time(log, 1) == (3, NOW_MS - 99_000)
    assert scans == [f"{FIRST}.log"]


@pytest.mark.parametrize("offset", [2**40, 2**63 - 2, 2])
@pytest.mark.parametrize("ruined", [False, True])
def test_l33_a_batch_with_an_offset_out_of_order_is_damaged(
    log: PartitionLog, files: MemoryFiles, offset: int, ruined: bool
) -> None:
    """Checksums do not cover the base offset. Readers and the rebuild of indexes get an error."""
    first, second, *_ = headers(read_all(log))
    damage(log, files, first.size_bytes, offset.to_bytes(8, "big"))
    if ruined:
        ruin_indexes(log, files)
    behind = log.segments[1].base_offset
    for _ in range(2):
        with pytest.raises(LogCorrupt):
            read_at(log, second.base_offset)
    assert read_at(log, 0)
    assert read_at(log, behind)
    assert not log.offline


def test_o18_the_load_of_a_coordinator_stops_at_an_offset_out_of_order(files: MemoryFiles) -> None:
    """The last batch has the same base offset as the first. Without an error, the load would
    continue after the first batch again and again, for ever."""
    log = make_log(files)
    for _ in range(3):
        append(log)
    last = headers(read_all(log))[2]
    damage(log, files, log.size_bytes - last.size_bytes, bytes(8))
    with pytest.raises(LogCorrupt, match="no batch at offset 1"):
        list(Partition(log, 0, lambda _: None).read_stored())


@pytest.mark.parametrize(
    "entry",
    [
        b"\0\0\0\5\x80\0\0\0",  # a position below 0
        b"\0\0\0\5\x7f\0\0\0",  # a position after the end of the segment
        b"\0\0\0\5\0\0\3\x50",  # the position of a batch with another offset
    ],
)
def test_l33_a_wrong_entry_inside_an_offset_index_is_detected(
    log: PartitionLog, files: MemoryFiles, scans: list[str], entry: bytes
) -> None:
    """The check at the load of an index covers only the first entry and the last entry."""
    segment = log.segments[0]
    expected = [read_at(log, offset) for offset in range(segment.next_offset)]
    segment.unload_indexes()
    path = segment.path_of("index")
    content = bytearray(files.content(path))
    assert len(content) > 3 * 8
    content[8:16] = entry
    files.put(path, content)
    assert [read_at(log, offset) for offset in range(segment.next_offset)] == expected
    assert scans == [segment.path]
    assert not log.offline


def test_l15_damaged_records_cause_no_index_scan(
    log: PartitionLog, files: MemoryFiles, scans: list[str]
) -> None:
    second = headers(read_all(log))[1]
    damage(log, files, second.size_bytes + 61, b"\xff" * 12)
    for _ in range(3):
        with pytest.raises(LogCorrupt):
            at_time(log, 1)
    assert at_time(log, 30) is not None
    assert scans == []


def test_l33_readers_of_a_closed_segment_do_not_wait_for_its_index_scan(
    log: PartitionLog, files: MemoryFiles, scans: list[str]
) -> None:
    workers = Workers(log)
    whole, expected = read_all(log), at_time(log, 2)
    ruin_indexes(log, files)
    for _ in range(3):
        with pytest.raises(IndexesBeingRebuilt) as caught:
            at_time(log, 2)
        assert caught.value.error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert (len(workers.jobs), scans) == (1, [])
    workers.run()
    assert at_time(log, 2) == expected
    assert read_all(log) == whole
    assert (len(workers.jobs), scans) == (0, [f"{FIRST}.log"])
    # The rebuilt indexes are on disk, so they can be loaded again without a scan.
    log.segments[0].unload_indexes()
    assert at_time(log, 2) == expected
    assert scans == [f"{FIRST}.log"]


def test_l33_the_load_of_a_coordinator_waits_for_the_indexes(
    log: PartitionLog, files: MemoryFiles
) -> None:
    """Neither the load of a coordinator nor a start that reads the metadata can be retried."""
    workers = Workers(log)
    ruin_indexes(log, files)
    partition = Partition(log, 0, lambda _: None)
    assert [offset for offset, _, _ in partition.read_all()] == list(range(180))
    assert workers.jobs == []
    ruin_indexes(log, files)
    with pytest.raises(IndexesBeingRebuilt):
        log.read(3, 100, upper_bound=EVERYTHING, minimum_one=True)


def test_l20_retention_continues_when_the_indexes_are_rebuilt() -> None:
    world = NodeWorld(log_segment_bytes="200", log_retention_ms="1000")
    world.create("t")
    world.flush()
    world.produce("t", 3)
    world.clock.now_ms += 3_600_000
    for _ in range(3):
        world.produce("t", 3)
    log = world.logs.get("t", 0)
    assert log is not None and len(log.segments) > 2
    workers = Workers(log)
    segment = log.segments[0]
    forget_indexes(segment)
    world.files.put(segment.path_of("timeindex"), b"not an index")
    assert world.logs.apply_retention(NOW_MS + 7_200_000).problems == []
    assert log.log_start_offset == 0
    workers.run()
    world.logs.continue_retention(NOW_MS + 7_200_000)
    assert log.log_start_offset > 0


def test_l33_a_failed_index_scan_is_repeated(log: PartitionLog, files: MemoryFiles) -> None:
    workers = Workers(log)
    expected = at_time(log, 2)
    ruin_indexes(log, files)
    with pytest.raises(IndexesBeingRebuilt):
        at_time(log, 2)
    files.fail(DiskFailure("read", code=errno.EIO, path_part=".log"))
    workers.run()
    with pytest.raises(IndexesBeingRebuilt):
        at_time(log, 2)
    workers.run()
    assert at_time(log, 2) == expected


def test_l33_the_index_scan_of_a_deleted_segment_is_dropped(
    log: PartitionLog, files: MemoryFiles
) -> None:
    workers = Workers(log)
    segment = ruin_indexes(log, files)
    with pytest.raises(IndexesBeingRebuilt):
        at_time(log, 2)
    log.trimming.delete_records(segment.next_offset)
    assert log.trimming.apply_retention(NOW_MS) == 1
    before = files.paths()
    workers.run()
    assert files.paths() == before
    assert log.log_start_offset == segment.next_offset


def test_l33_an_index_scan_ends_at_its_next_block_when_the_broker_stops(
    log: PartitionLog, files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan leaves no result, and reports no damage: the next start finds the same files."""
    monkeypatch.setattr("odradek_broker.storage.segment_scanner._WALK_BLOCK_BYTES", HEADER_BYTES)
    workers, handles = Workers(log), log.options.handles
    expected = at_time(log, 2)
    ruin_indexes(log, files)
    before = {path: files.content(path) for path in files.paths()}
    with pytest.raises(IndexesBeingRebuilt):
        at_time(log, 2)
    scanned: list[int] = []
    note = SegmentIndexes.note_scanned

    def halting(indexes: SegmentIndexes, batch: BatchAt, interval_bytes: int) -> None:
        scanned.append(batch.position)
        handles.halted = len(scanned) == 2
        note(indexes, batch, interval_bytes)

    with monkeypatch.context() as patched:
        patched.setattr(SegmentIndexes, "note_scanned", halting)
        workers.run()
    assert len(scanned) == 2
    assert {path: files.content(path) for path in files.paths()} == before
    handles.halted = False
    with pytest.raises(IndexesBeingRebuilt):
        at_time(log, 2)
    workers.run()
    assert at_time(log, 2) == expected and not log.offline


def ruin_real_indexes(segment: Segment) -> None:
    forget_indexes(segment)
    for suffix in ("index", "timeindex"):
        Path(segment.path_of(suffix)).write_bytes(b"not an index")


def by_time(timestamp: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
    )


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.LEADER_NOT_AVAILABLE), (7, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
async def test_l33_the_broker_scans_for_an_index_in_a_thread(
    client: RawClient,
    broker: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    code: ErrorCode,
) -> None:
    await client.create_topic("t", segment_bytes="1048576")
    for _ in range(12):
        await client.call(produce_request("t", batch_of(bytes(200_000), bytes(1))), 9)
    segment = broker.node.partition("t", 0).log.segments[0]
    assert segment.sealed
    threads = set()
    note = SegmentIndexes.note_scanned

    def noting(indexes: SegmentIndexes, batch: BatchAt, interval_bytes: int) -> None:
        threads.add(threading.current_thread())
        note(indexes, batch, interval_bytes)

    monkeypatch.setattr(SegmentIndexes, "note_scanned", noting)
    ruin_real_indexes(segment)
    first = await client.call(by_time(1_700_000_000_001), version)
    assert first.topics[0].partitions[0].error_code == code
    await until(lambda: segment.indexes.loaded)
    again = await client.call(by_time(1_700_000_000_001), version)
    assert (again.topics[0].partitions[0].error_code, again.topics[0].partitions[0].offset) == (
        0,
        1,
    )
    (thread,) = threads
    assert thread is not threading.main_thread()


async def test_n15_a_stop_ends_index_scans_before_it_closes_the_directory(
    client: RawClient, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting jobs are not begun; their callers are notified nevertheless."""
    await client.create_topic("t", segment_bytes="1048576")
    for _ in range(12):
        await client.call(produce_request("t", batch_of(bytes(200_000), bytes(1))), 9)
    segment, logs = broker.node.partition("t", 0).log.segments[0], broker.node.logs
    begun, halted = threading.Event(), threading.Event()
    scanned: list[int] = []
    note, halt, close = SegmentIndexes.note_scanned, logs.stop_background, logs.close

    def waiting(indexes: SegmentIndexes, batch: BatchAt, interval_bytes: int) -> None:
        scanned.append(batch.position)
        begun.set()
        assert halted.wait(60)
        note(indexes, batch, interval_bytes)

    def noting_halt() -> None:
        halt()
        halted.set()

    told: list[Exception | None] = []
    at_close: list[tuple[list[str], int, bool]] = []

    def noting_close(**how: bool) -> list[str]:
        running = [each.name for each in threading.enumerate() if "background" in each.name]
        at_close.append((running, len(told), segment.indexes._repairing))
        found: list[str] = close(**how)
        return found

    monkeypatch.setattr(SegmentIndexes, "note_scanned", waiting)
    monkeypatch.setattr(logs, "stop_background", noting_halt)
    monkeypatch.setattr(logs, "close", noting_close)
    ruin_real_indexes(segment)
    await client.call(by_time(1_700_000_000_001), 7)
    await until(begun.is_set)
    begun_behind: list[str] = []
    background = segment.handles.background
    assert background is not None
    background(lambda: begun_behind.append("never"), told.append)
    await broker.server.stop()
    assert (scanned, begun_behind) == ([0], [])
    assert [type(problem) for problem in told] == [InterruptedError]
    assert at_close == [([], 1, False)]
    background(lambda: begun_behind.append("never"), told.append)
    await until(lambda: len(told) == 2)
    assert not begun_behind and isinstance(told[1], InterruptedError)


def test_l15_a_search_by_time_reads_the_indexes_of_one_segment(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of a full segment has megabytes, so only a few entries of the other segments are
    read."""
    expected = [at_time(log, second) for second in range(60)]
    for segment in log.segments[:-1]:
        forget_indexes(segment)
    loaded: list[int] = []
    load = OffsetIndex.load

    def noting(index: OffsetIndex, log_bytes: int) -> None:
        loaded.append(index.base_offset)
        load(index, log_bytes)

    monkeypatch.setattr(OffsetIndex, "load", noting)
    target = log.segments[-2].base_offset
    assert at_time(log, target // 3) == expected[target // 3]
    assert loaded == [target]
    assert [at_time(log, second) for second in range(60)] == expected


@pytest.mark.parametrize(
    "entry", [b"\x7f" * 12, b"\0" * 12, NOW_MS.to_bytes(8, "big") + b"\0\0\0\1"]
)
def test_l33_a_wrong_last_entry_of_a_time_index_is_detected(
    log: PartitionLog, files: MemoryFiles, entry: bytes, scans: list[str]
) -> None:
    expected = [at_time(log, second) for second in range(60)]
    segment = log.segments[0]
    forget_indexes(segment)
    path = segment.path_of("timeindex")
    files.put(path, files.content(path)[:-12] + entry)
    assert [at_time(log, second) for second in range(60)] == expected
    assert len(scans) == 1


def _damaged_entries(content: bytes) -> list[tuple[int, bytes]]:
    """(number, damaged entry): each entry but the last, changed in each way that keeps the
    order."""
    entries = list(struct.iter_unpack(">qi", content))
    damaged = []
    for number, (timestamp, offset) in enumerate(entries[:-1]):
        least_time, least_offset = entries[number - 1] if number else (-1, -1)
        most_time, most_offset = entries[number + 1]
        for wrong in ((least_time + 1, offset), (most_time - 1, offset)):
            damaged.append((number, wrong))
        for wrong in ((timestamp, least_offset + 1), (timestamp, most_offset - 1)):
            damaged.append((number, wrong))
    return [
        (number, struct.pack(">qi", *wrong))
        for number, wrong in damaged
        if wrong != entries[number]
    ]


def test_l15_l33_a_wrong_time_index_entry_gives_no_wrong_answer(
    log: PartitionLog, files: MemoryFiles, scans: list[str]
) -> None:
    """Each entry is damaged in turn, and all times and bounds are searched for."""

    def answers() -> list[object]:
        """The results of all searches, each with the index read from disk."""
        found: list[object] = []
        for second in range(60):
            forget_indexes(segment)
            found.append(at_time(log, second))
        for bound in range(0, segment.next_offset, 3):
            segment.unload_indexes()
            found.append(log.max_timestamp_offset(bound))
        return found

    segment = log.segments[0]
    path = segment.path_of("timeindex")
    content = files.content(path)
    expected = answers()
    assert scans == []
    damaged = _damaged_entries(content)
    assert len(damaged) >= 8
    noticed = 0
    for number, entry in damaged:
        files.put(path, content[: number * 12] + entry + content[number * 12 + 12 :])
        assert answers() == expected, (number, entry)
        noticed += bool(scans)
        scans.clear()
        assert not log.offline
    assert noticed > len(damaged) // 2


def test_l33_index_positions_outside_of_the_segment_are_detected(
    log: PartitionLog, files: MemoryFiles
) -> None:
    expected = [at_time(log, second) for second in range(60)]
    segment = log.segments[0]
    forget_indexes(segment)
    path = segment.path_of("index")
    entries = len(files.content(path)) // 8
    files.put(path, (bytes(4) + b"\x80\0\0\0") * entries)
    assert [at_time(log, second) for second in range(60)] == expected
    assert not log.offline


@pytest.mark.parametrize("snapshots", ["kept", "removed", "damaged"])
@pytest.mark.parametrize("kept_entries", [1, 3])
def test_l33_a_time_index_that_lost_its_last_entries_is_rebuilt(
    log: PartitionLog, files: MemoryFiles, scans: list[str], kept_entries: int, snapshots: str
) -> None:
    """The remaining entries are right. Our snapshots name the largest timestamp, but the loss is
    also found without a snapshot."""
    whole = files.content(f"{FIRST}.timeindex")
    assert len(whole) > 12 * kept_entries
    newest = log.segments[0].indexes.largest_timestamp
    snapshot = f"{DIRECTORY}/{log.segments[1].base_offset:020d}.snapshot"
    log.close(clean=True)
    files.put(f"{FIRST}.timeindex", whole[: 12 * kept_entries])
    if snapshots == "removed":
        files.remove(snapshot)
    elif snapshots == "damaged":
        files.put(snapshot, files.content(snapshot)[:-6] + b"......")
    log = reopen(log, files, clean=True, segment_bytes=1500, index_interval_bytes=150)
    scans.clear()
    for _ in range(2):
        assert at_time(log, 5) == (15, NOW_MS - 95_000)
        assert log.segments[0].indexes.largest_timestamp == newest
    assert scans == [f"{FIRST}.log"]
    assert files.content(f"{FIRST}.timeindex")[-12:] == whole[-12:]


def test_l33_a_damaged_snapshot_causes_no_index_scan(
    log: PartitionLog, files: MemoryFiles, scans: list[str]
) -> None:
    """The snapshot has a wrong largest timestamp of the segment."""
    snapshot = f"{DIRECTORY}/{log.segments[1].base_offset:020d}.snapshot"
    log.close(clean=True)
    content = files.content(snapshot)
    files.put(snapshot, content[:-24] + bytes([content[-24] ^ 1]) + content[-23:])
    log = reopen(log, files, clean=True, segment_bytes=1500, index_interval_bytes=150)
    scans.clear()
    assert at_time(log, 5) == (15, NOW_MS - 95_000)
    assert scans == []


def test_l33_an_offset_index_that_lost_its_last_entries_is_rebuilt(
    files: MemoryFiles, scans: list[str]
) -> None:
    """Results are right without the lost entries, but a reader would scan megabytes while all
    requests wait."""
    log = make_log(files, segment_bytes=4_000_000)
    for number in range(70):
        append(log, make_batch(1, value=bytes(100_000), timestamp=NOW_MS + number))
    assert len(log.segments) == 2
    paths = [segment.path_of("index") for segment in log.segments]
    log.close(clean=True)
    whole = [files.content(path) for path in paths]
    for path, content in zip(paths, whole, strict=True):
        files.put(path, content[:16])
    log = reopen(log, files, clean=True, segment_bytes=4_000_000)
    scans.clear()
    assert [header.base_offset for header in headers(read_at(log, 39))] == [39]
    assert at_time(log, 100) == (0, NOW_MS)
    assert [files.content(path) for path in paths] == whole
    assert len(scans) == 1
