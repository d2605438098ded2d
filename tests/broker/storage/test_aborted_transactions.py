"""A transaction index that does not match its segment is rebuilt once, outside the event loop.
Readers get an error until the rebuild ends, and after a failed rebuild (L-05, L-33, F-09)."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_in_loop import RunningBroker
from logs import (
    DIRECTORY,
    NOW_MS,
    Workers,
    append,
    append_marker,
    headers,
    make_batch,
    make_log,
    make_marker,
    reopen,
)
from odradek_broker.storage import aborted_transactions
from odradek_broker.storage.errors import (
    AppendRejected,
    IndexesBeingRebuilt,
    LogCorrupt,
    StorageError,
)
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_options import LogStart
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.segment_scanner import read_batches
from odradek_broker.storage.segment_state import SEGMENT_STATE, decode_segment_state
from odradek_protocol.checksums import crc32c
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles
from raw_client import RawClient, batch_of, produce_request
from waiting import until

#: The base offsets of the segments of `log`, and its aborted transactions: (producer id, first
#: offset).
BASES = [0, 3, 6, 8]
ABORTED = [(1, 0), (2, 3)]


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(files: MemoryFiles) -> PartitionLog:
    """A log of four segments. Producer 1 writes into the first, and is aborted in the second;
    producer 2 writes into the second, and is aborted in the third."""
    log = make_log(files)
    append(log, make_batch(3, producer_id=1, transactional=True))
    log.roll(NOW_MS)
    append(log, make_batch(2, producer_id=2, transactional=True))
    append_marker(log, commit=False, producer_id=1)
    log.roll(NOW_MS)
    append_marker(log, commit=False, producer_id=2)
    append(log)
    log.roll(NOW_MS)
    append(log, make_batch(2))
    assert [segment.base_offset for segment in log.segments] == BASES
    return log


def index_path(base_offset: int) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.txnindex"


def ruin(log: PartitionLog, files: MemoryFiles, base_offset: int = 3) -> bytes:
    """Damage the transaction index of a segment. Returns its old content."""
    path = index_path(base_offset)
    good = files.content(path) if files.exists(path) else b""
    files.put(path, good[:-1] or b"x")
    log._producers.aborted_transactions.close()
    return good


def damage(log: PartitionLog, files: MemoryFiles, segment_number: int, position: int) -> None:
    """Overwrite the length of a batch, so that no reader gets past it."""
    segment = log.segments[segment_number]
    content = bytearray(files.content(segment.path))
    content[position + 8 : position + 12] = b"\xff" * 4
    files.put(segment.path, bytes(content))
    log.options.handles.forget(segment)
    segment.drop_handle()


def aborted(log: PartitionLog, start: int = 0, end: int = 10) -> list[tuple[int, int]]:
    return sorted(log.aborted_transactions(start, end))


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The segments whose batches a rebuild has read."""
    scanned: list[str] = []

    def noting(segment: Any, position: int) -> Any:
        scanned.append(segment.path)
        return read_batches(segment, position)

    for module in ("recovery", "producers.producer_files"):
        monkeypatch.setattr(f"odradek_broker.storage.{module}.read_batches", noting)
    return scanned


def test_l33_readers_do_not_wait_for_the_rebuild_of_a_transaction_index(
    log: PartitionLog, files: MemoryFiles, scans: list[str]
) -> None:
    workers = Workers(log)
    good = ruin(log, files)
    for _ in range(3):
        with pytest.raises(IndexesBeingRebuilt) as caught:
            aborted(log)
        assert caught.value.error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert (len(workers.jobs), scans) == (1, [])
    # A reader that does not need the damaged index gets an answer.
    assert aborted(log, 6) == [(2, 3)]
    workers.run()
    assert aborted(log) == ABORTED
    assert (len(workers.jobs), scans) == (0, [f"{DIRECTORY}/{3:020d}.log"])
    assert files.content(index_path(3)) == good
    log = reopen(log, files, clean=True)
    assert aborted(log) == ABORTED


def test_l33_the_rebuild_of_a_transaction_index_ends_when_the_broker_stops(
    log: PartitionLog, files: MemoryFiles
) -> None:
    """The rebuild reads no further batch, and the next start finds the same files."""
    workers = Workers(log)
    ruin(log, files)
    before = {path: files.content(path) for path in files.paths()}
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    log.options.handles.halted = True
    workers.run()
    assert {path: files.content(path) for path in files.paths()} == before
    assert not log.offline


def test_l05_a_new_index_without_entries_is_an_empty_file(
    log: PartitionLog, files: MemoryFiles
) -> None:
    """Without a file the next start would not know that no transaction was aborted."""
    workers = Workers(log)
    ruin(log, files, 0)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    workers.run()
    assert aborted(log) == ABORTED
    assert [path for path in files.paths() if "txnindex" in path] == [
        index_path(0),
        index_path(3),
        index_path(6),
    ]
    assert files.content(index_path(0)) == b""


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("segment_number", [0, 1])
def test_f09_damage_never_makes_aborted_records_look_committed(
    log: PartitionLog, files: MemoryFiles, scans: list[str], segment_number: int, beside: bool
) -> None:
    """The damage is before the marker in its segment, or in the earlier segment with the first
    batch of the transaction."""
    workers = Workers(log) if beside else None
    ruin(log, files)
    for path in [path for path in files.paths() if path.endswith("snapshot")]:
        files.remove(path)
    damage(log, files, segment_number, 0)
    if workers:
        with pytest.raises(IndexesBeingRebuilt):
            aborted(log)
        workers.run()
    for _ in range(3):
        with pytest.raises(LogCorrupt):
            aborted(log)
    once = len(scans)
    # The rebuild has read each segment at most once, up to the damage.
    assert once == 2 - segment_number
    assert aborted(log, 6) == [(2, 3)]
    # A restart finds the same damage.
    log = reopen(log, files, clean=True)
    for _ in range(3):
        with pytest.raises(LogCorrupt):
            aborted(log)
    assert len(scans) <= 2 * once + 1


def test_l15_a_marker_with_a_wrong_checksum_is_not_used(
    log: PartitionLog, files: MemoryFiles
) -> None:
    """A flipped bit turns an ABORT into a COMMIT; the checksum detects it."""
    ruin(log, files)
    segment = log.segments[1]
    content = bytearray(files.content(segment.path))
    *_, (position, header, batch) = read_batches(segment, 0)
    assert header.is_control
    abort, commit = (bytes(make_marker(kind, 1)) for kind in (False, True))
    (different,) = [at for at in range(21, len(abort)) if abort[at] != commit[at]]
    assert batch[different] == abort[different]
    content[position + different] = commit[different]
    files.put(segment.path, bytes(content))
    log.options.handles.forget(segment)
    segment.drop_handle()
    with pytest.raises(LogCorrupt):
        aborted(log)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("rolled", [False, True])
def test_p18_transactions_may_be_aborted_during_an_index_rebuild(
    files: MemoryFiles, known: bool, rolled: bool
) -> None:
    log = make_log(files)
    workers = Workers(log)
    append(log, make_batch(2, producer_id=1, transactional=True))
    append_marker(log, commit=False, producer_id=1)
    ruin(log, files, 0)
    if known:
        with pytest.raises(IndexesBeingRebuilt):
            aborted(log)
    append(log, make_batch(1, producer_id=2, transactional=True))
    append_marker(log, commit=False, producer_id=2)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    append(log, make_batch(1, producer_id=3, transactional=True))
    end = workers.work()
    append_marker(log, commit=False, producer_id=3)
    if rolled:
        log.roll(NOW_MS)
    end()
    expected = [(1, 0), (2, 3), (3, 5)]
    assert aborted(log) == expected
    append(log, make_batch(1, producer_id=4, transactional=True))
    append_marker(log, commit=False, producer_id=4)
    assert aborted(log) == [*expected, (4, 7)]
    log = reopen(log, files, clean=True)
    assert aborted(log) == [*expected, (4, 7)]
    assert workers.jobs == []


def test_too_many_aborts_during_an_index_rebuild_cause_another_rebuild(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborted_transactions, "_LATE_MAX", 3)
    log = make_log(files)
    workers = Workers(log)
    ruin(log, files, 0)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    for producer in range(5):
        append(log, make_batch(1, producer_id=producer, transactional=True))
        append_marker(log, commit=False, producer_id=producer)
    workers.run()
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    workers.run()
    assert aborted(log) == [(producer, 2 * producer) for producer in range(5)]
    assert [path for path in files.paths() if path.endswith("tmp")] == []


def test_a_crash_during_an_index_rebuild_leaves_the_damage_detectable(
    log: PartitionLog, files: MemoryFiles
) -> None:
    workers = Workers(log)
    ruin(log, files)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    workers.work()
    log = reopen(log, files, clean=True)
    assert aborted(log) == ABORTED
    assert [path for path in files.paths() if path.endswith("tmp")] == []


def test_l08_a_read_error_during_an_index_rebuild_is_reported(
    log: PartitionLog, files: MemoryFiles
) -> None:
    workers = Workers(log)
    ruin(log, files)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    files.fail(DiskFailure("read", code=errno.EIO, path_part=".log"))
    workers.run()
    with pytest.raises(StorageError) as caught:
        aborted(log)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    workers.run()
    assert aborted(log) == ABORTED


def test_too_many_open_files_fail_an_index_rebuild_only_once(
    log: PartitionLog, files: MemoryFiles
) -> None:
    workers = Workers(log)
    ruin(log, files)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    files.fail(DiskFailure("read", code=errno.EMFILE, path_part=".log"))
    workers.run()
    with pytest.raises(StorageError) as caught:
        aborted(log)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.offline
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    workers.run()
    assert aborted(log) == ABORTED


@pytest.mark.parametrize("end", ["room", "clean stop", "crash"])
@pytest.mark.parametrize(
    ("kind", "code", "had_entries"),
    [
        ("append", errno.ENOSPC, True),
        ("append", errno.ENOSPC, False),
        ("append", errno.EMFILE, True),
        ("open", errno.ENOSPC, False),
    ],
)
def test_l08_an_abort_on_a_full_disk_is_indexed_once_there_is_room(
    files: MemoryFiles, kind: str, code: int, had_entries: bool, end: str
) -> None:
    log = make_log(files, durability="fsync")
    for producer_id in (1, 2):
        append(log, make_batch(3, producer_id=producer_id, transactional=True))
    expected = [(2, 3)]
    if had_entries:
        append_marker(log, commit=False, producer_id=1)
        expected = [(1, 0), (2, 3)]
    log.durability.flush()
    files.fail(DiskFailure(kind, code=code, path_part="txnindex", for_ever=True))
    append_marker(log, commit=False, producer_id=2)
    log.durability.flush()
    assert not log.offline
    assert log.last_stable_offset == (8 if had_entries else 0)
    if code == errno.ENOSPC:
        for _ in range(3):
            with pytest.raises(IndexesBeingRebuilt):
                aborted(log)
    files.heal()
    if end != "room":
        log = restarted(files, log, clean=end == "clean stop")
    assert aborted(log) == expected
    if not had_entries:
        append_marker(log, commit=False, producer_id=1)
    assert aborted(log) == [(1, 0), (2, 3)]


def test_d5_a_power_cut_does_not_restore_an_index_without_the_last_abort(
    files: MemoryFiles,
) -> None:
    """The recovery point of the start is after the marker, so the start reads no earlier batch."""
    log = make_log(files, durability="fsync")
    for producer_id in (1, 2):
        append(log, make_batch(3, producer_id=producer_id, transactional=True))
    append_marker(log, commit=False, producer_id=1)
    log.durability.flush()
    files.sync_dir(DIRECTORY)
    files.fail(DiskFailure("append", code=errno.ENOSPC, path_part="txnindex"))
    append_marker(log, commit=False, producer_id=2)
    log.durability.flush()
    assert log.last_stable_offset == 8
    point = LogStart(recovery_point=log.log_end_offset)
    files.crash()
    log = make_log(files, start=point, durability="fsync")
    assert aborted(log) == [(1, 0), (2, 3)]


def test_l08_an_index_that_cannot_be_written_or_removed_takes_the_log_offline(
    files: MemoryFiles,
) -> None:
    log = make_log(files)
    append(log, make_batch(3, producer_id=1, transactional=True))
    append(log, make_batch(3, producer_id=2, transactional=True))
    append_marker(log, commit=False, producer_id=1)
    files.fail(DiskFailure("append", path_part="txnindex"))
    files.fail(DiskFailure("remove", path_part="txnindex"))
    with pytest.raises(AppendRejected):
        append_marker(log, commit=False, producer_id=2)
    assert log.offline


def test_l20_the_index_rebuild_of_a_deleted_segment_is_dropped(
    log: PartitionLog, files: MemoryFiles
) -> None:
    workers = Workers(log)
    ruin(log, files)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    end = workers.work()
    log.trimming.delete_records(6)
    assert log.trimming.apply_retention(NOW_MS) == 2
    before = files.paths()
    end()
    assert [path for path in before if not path.endswith("tmp")] == files.paths()
    assert aborted(log, 6) == [(2, 3)]


def test_l20_an_index_rebuild_starts_again_after_retention(
    log: PartitionLog, files: MemoryFiles
) -> None:
    """Retention removes the first segment. The producer snapshot at the end of this segment has the
    open transactions."""
    workers = Workers(log)
    ruin(log, files)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    log.trimming.delete_records(3)
    assert log.trimming.apply_retention(NOW_MS) == 1
    files.fail(DiskFailure("read", code=errno.ENOENT, path_part=".log"))
    workers.run()
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log, 3)
    workers.run()
    assert aborted(log, 3) == [(1, 0), (2, 3)]


def test_l27_an_index_rebuild_starts_again_after_compaction(
    log: PartitionLog, files: MemoryFiles
) -> None:
    """Without snapshots, the worker also reads earlier segments. A cleaning replaces one of them
    before the worker reads it."""
    workers = Workers(log)
    ruin(log, files)
    for path in files.paths():
        if path.endswith(".snapshot"):
            files.remove(path)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    first = log.segments[0]
    whole = files.content(first.path)
    files.put(first.path, whole[:1])
    cleaned = Segment(log.options.handles, log.directory, 0, created_ms=NOW_MS)
    log._segments.replace([first], cleaned)
    workers.run()
    cleaned.size_bytes = cleaned.synced_bytes = len(whole)
    files.put(first.path, whole)
    with pytest.raises(IndexesBeingRebuilt):
        aborted(log)
    workers.run()
    assert aborted(log) == ABORTED


# ---- missing or changed files


def restarted(files: MemoryFiles, log: PartitionLog, *, clean: bool) -> PartitionLog:
    """The log after a clean stop, or after a crash with the recovery point at the log end."""
    if clean:
        return reopen(log, files, clean=True)
    log.durability.flush()
    point = LogStart(recovery_point=log.log_end_offset)
    log.close(clean=False)
    return make_log(files, start=point)


def lose(files: MemoryFiles, *suffixes: str) -> None:
    for path in files.paths():
        if path.rpartition(".")[2] in suffixes:
            files.remove(path)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "suffixes",
    [
        ("txnindex",),
        ("txnindex", "index", "timeindex"),
        ("txnindex", "snapshot"),
        ("txnindex", "index", "timeindex", "snapshot"),
    ],
)
def test_l05_aborted_transactions_are_known_without_index_and_snapshot_files(
    log: PartitionLog, files: MemoryFiles, suffixes: tuple[str, ...], *, clean: bool
) -> None:
    end = log.log_end_offset
    for _ in range(2):
        log.close(clean=clean)
        lose(files, *suffixes)
        log = make_log(files, start=LogStart(0, end, end, clean))
        assert aborted(log) == ABORTED
        assert aborted(log, 0, 3) == [(1, 0)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda good: b"",
        lambda good: bytes(len(good)),
        lambda good: good[:34],
        lambda good: good[:-1],
        *(
            lambda good, at=at: good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
            for at in range(34)
        ),
    ],
)
def test_l05_a_changed_transaction_index_is_detected(
    files: MemoryFiles, change: Callable[[bytes], bytes], *, clean: bool
) -> None:
    log = make_log(files)
    for producer_id in (1, 2, 3):
        append(log, make_batch(1, producer_id=producer_id, transactional=True))
        append_marker(log, commit=False, producer_id=producer_id)
    log.roll(NOW_MS)
    append(log)
    log = restarted(files, log, clean=clean)
    files.put(index_path(0), change(files.content(index_path(0))))
    assert aborted(log) == [(1, 0), (2, 2), (3, 4)]


@pytest.mark.parametrize("change", [lambda good: b"", lambda good: good[:34]])
def test_l05_an_old_index_of_a_segment_closed_after_a_kill_is_detected(
    files: MemoryFiles, change: Callable[[bytes], bytes]
) -> None:
    """The scan after the kill has the leader epochs from the batches; the snapshot of the next roll
    must still have the state of the segment."""
    log = make_log(files)
    for producer_id in (1, 2):
        append(log, make_batch(1, producer_id=producer_id, transactional=True))
        append_marker(log, commit=False, producer_id=producer_id)
    log = reopen(log, files, clean=False)
    log.roll(NOW_MS)
    append(log)
    log = restarted(files, log, clean=False)
    files.put(index_path(0), change(files.content(index_path(0))))
    assert aborted(log) == [(1, 0), (2, 2)]


def test_l05_an_old_index_is_detected_without_the_snapshot_of_a_clean_stop(
    files: MemoryFiles,
) -> None:
    log = make_log(files)
    for producer_id in (1, 2):
        append(log, make_batch(1, producer_id=producer_id, transactional=True))
        append_marker(log, commit=False, producer_id=producer_id)
    end = log.log_end_offset
    log.close(clean=True)
    lose(files, "snapshot")
    files.put(index_path(0), files.content(index_path(0))[:34])
    log = make_log(files, start=LogStart(0, end, end, True))
    assert aborted(log) == [(1, 0), (2, 2)]


def test_l05_segments_without_transactions_are_not_read_for_a_missing_index(
    files: MemoryFiles, scans: list[str]
) -> None:
    """Most logs have no transactions; their snapshots show that no index is missing."""
    log = make_log(files)
    for _ in range(3):
        append(log)
        log.roll(NOW_MS)
    append(log)
    log = reopen(log, files, clean=True)
    scans.clear()
    assert aborted(log) == []
    assert scans == []
    assert not any(path.endswith("txnindex") for path in files.paths())


def test_l05_a_directory_written_by_kafka_is_scanned_once(
    files: MemoryFiles, scans: list[str]
) -> None:
    """Kafka's snapshots do not show that a segment without an index has no aborted transactions,
    but they have the open transactions."""
    log = make_log(files)
    for _ in range(3):
        append(log, make_batch(producer_id=1, transactional=True))
        append_marker(log, commit=True, producer_id=1)
        log.roll(NOW_MS)
    append(log)
    log.close(clean=True)
    for path in files.paths():
        if path.endswith(".snapshot"):
            content = files.content(path)
            if decode_segment_state(content) is not None:
                kept = content[6 : -SEGMENT_STATE.sizeof()]
                files.put(path, content[:2] + crc32c(kept).to_bytes(4, "big") + kept)
    log = make_log(files, start=LogStart(0, log.log_end_offset, 0, True))
    scans.clear()
    for _ in range(2):
        assert aborted(log, 0, 2) == []
        assert scans == [log.segments[0].path]
    log = reopen(log, files, clean=True)
    scans.clear()
    assert aborted(log, 0, 2) == []
    assert scans == []


# ---- over the wire


def fetch(offset: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=2**25,
        isolation_level=1,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )


def ruin_real_index(path: Path) -> None:
    path.write_bytes(b"not an index")


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
async def test_f09_the_broker_rebuilds_a_transaction_index_in_a_thread(
    client: RawClient,
    broker: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    code: ErrorCode,
) -> None:
    """The error code is retriable. It depends on the version, because old clients do not know
    OFFSET_NOT_AVAILABLE."""
    await client.create_topic("t")
    await client.call(produce_request("t", batch_of(b"a")), 9)
    log = broker.node.partition("t", 0).log
    threads = []

    def noting(segment: Any, position: int) -> Any:
        threads.append(threading.current_thread())
        return read_batches(segment, position)

    monkeypatch.setattr("odradek_broker.storage.recovery.read_batches", noting)
    path = Path(log.segments[0].path_of("txnindex"))
    ruin_real_index(path)
    log._producers.aborted_transactions.close()
    first = (await client.call(fetch(0), version)).responses[0].partitions[0]
    assert (first.error_code, first.records) == (code, b"")
    await until(lambda: path.read_bytes() == b"")
    again = (await client.call(fetch(0), version)).responses[0].partitions[0]
    assert (again.error_code, again.aborted_transactions) == (0, [])
    assert headers(bytes(again.records))[0].record_count == 1
    (thread,) = threads
    assert thread is not threading.main_thread()
