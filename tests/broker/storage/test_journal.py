"""The commit journal (L-50 to L-52), with a real group commit and a disk in memory."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import budget
from journaled_logs import PATH, SMALL, World, values
from logs import NOW_MS, append, append_marker, make_batch, read_all
from odradek_broker.platform.machine import RealFiles
from odradek_broker.platform.seams import BLOCK_BYTES
from odradek_broker.storage.errors import AppendRejected, DataDirectoryError
from odradek_broker.storage.journal_format import (
    ALIGN_BYTES,
    JOURNAL,
    JournalHeader,
    decode_header,
    decode_part,
    encode_header,
)
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_log_tools.dump import RowWindow, dump_file
from odradek_log_tools.file_names import FileKind, FileName, parse_file
from odradek_log_tools.segment_file import Damaged
from odradek_log_tools.verify.data_directory import DataDirectoryCheck
from odradek_log_tools.verify.findings import Finding, Findings
from odradek_protocol.primitives import uuid_text
from odradek_protocol.records.batch import iter_batches
from odradek_testkit.simulation.disk import Crashed, DiskFailure, MemoryFiles

IDS = [bytes([number]) * 16 for number in range(1, 30)]


@pytest.fixture
def world() -> World:
    made = World(MemoryFiles())
    made.start()
    return made


def blocks(files: MemoryFiles) -> list[int]:
    """The block numbers in the journal: in each part, those before the part's first gap."""
    content = memoryview(files.content(PATH))
    header = decode_header(bytes(content[:ALIGN_BYTES]))
    numbers = []
    for start in range(ALIGN_BYTES, len(content), header.part_bytes):
        part = content[start : start + header.part_bytes]
        numbers += [block.number for block, _ in decode_part(part, header.incarnation)]
    return numbers


def syncs_of(world: World, act: Callable[[], None]) -> list[str]:
    """The files that are synced, or written in place, during `act`."""
    found: list[str] = []
    trip = world.files.trip

    def counting(kind: str, path: str) -> DiskFailure | None:
        if kind in ("sync", "write_at"):
            found.append(path)
        return trip(kind, path)

    world.files.trip = counting  # type: ignore[method-assign]
    try:
        act()
    finally:
        world.files.trip = trip  # type: ignore[method-assign]
    return found


def test_l50_small_appends_of_all_partitions_share_a_journal_write(world: World) -> None:
    logs = [world.create("t", IDS[0], partition) for partition in range(5)]

    def act() -> None:
        for log in logs:
            append(log)
        world.flush(*logs)

    assert syncs_of(world, act) == [PATH]
    assert [log.high_watermark for log in logs] == [2] * 5
    assert [log.durability.durable_offset for log in logs] == [2] * 5
    assert [log.durability.synced_offset for log in logs] == [1] * 5
    assert [log.durability.recovery_point for log in logs] == [1] * 5


def test_l52_bytes_lost_in_a_power_cut_are_restored_from_the_journal(world: World) -> None:
    log = world.create("t", IDS[0])
    for count in range(3):
        append(log, make_batch(2, value=bytes([count]), producer_id=7, sequence=count * 2))
        world.flush(log)
    append(log, make_batch(1, value=b"never acknowledged"))
    report = world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert values(found) == {1: b"\0", 2: b"\0", 3: b"\1", 4: b"\1", 5: b"\2", 6: b"\2"}
    assert (found.high_watermark, found.log_end_offset, found.durability.durable_offset) == (
        7,
        7,
        7,
    )
    assert report.recovered[0].restored_bytes > 0
    # The log knows its producers, and accepts further batches.
    duplicate = append(found, make_batch(2, value=b"\2", producer_id=7, sequence=4))
    assert duplicate.duplicate
    assert append(found).base_offset == 7


def test_l52_repeated_starts_restore_the_records_only_once(world: World) -> None:
    log = world.create("t", IDS[0])
    append(log, make_batch(3))
    world.flush(log)
    for _ in range(3):
        world.restart()
        log = world.logs.get("t", 0)  # type: ignore[assignment]
        assert sorted(values(log)) == [1, 2, 3]


@pytest.mark.full
def test_l52_a_segment_torn_at_any_byte_is_completed(world: World) -> None:
    log = world.create("t", IDS[0])
    for count in range(4):
        append(log, make_batch(1, value=bytes([count]) * 100))
    world.flush(log)
    path = log.segments[-1].path
    whole = world.files.content(path)
    for kept in range(log.segments[-1].synced_bytes, len(whole) + 1):
        disk = world.files.copy()
        disk.put(path, whole[:kept] + bytes(len(whole) - kept) * (kept % 2))
        other = World(disk)
        other.start()
        found = other.logs.get("t", 0)
        assert found is not None
        assert read_all(found) == whole
        other.logs.close(clean=False)


@pytest.mark.parametrize("cleaned_here", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("topic", ["t", "__consumer_offsets"])
@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete"])
def test_l52_the_lost_end_of_a_rolled_segment_is_restored(
    policy: str, topic: str, *, checkpointed: bool, cleaned_here: bool
) -> None:
    """The power fails between the roll and the next flush: the name of the new segment is on disk,
    but the end of the old segment is only in the journal."""
    world = World(MemoryFiles(), segment_bytes=2_000, cleanup_policy=frozenset(policy.split(",")))
    world.start()
    log = world.create(topic, IDS[0])
    if checkpointed:
        world.checkpoint()
    if cleaned_here:
        world.files.open("data/.cleaner.lock", create=True).close()
        world.files.sync_dir("data")
    count = 0
    while len(log.segments) == 1:
        count += 1
        append(log, make_batch(1, value=b"%d" % count + bytes(200)))
        if len(log.segments) == 1:
            world.flush(log)
    assert log.high_watermark == count
    world.files.sync_dir(log.directory)
    report = world.restart()
    found = world.logs.get(topic, 0)
    assert found is not None
    assert sorted(values(found)) == list(range(1, count))
    assert report.recovered[0].restored_bytes > 0
    assert report.recovered[0].gaps == []


def test_l52_records_removed_by_compaction_are_not_restored() -> None:
    """The journal still has the end of a segment that compaction has shortened. The start reads
    that segment, because there is damage below the recovery point."""
    policy = frozenset({"compact"})
    world = World(MemoryFiles(), segment_bytes=2_000, cleanup_policy=policy)
    world.start()
    log = world.create("t", IDS[0])
    ends = {}
    while len(log.segments) < 3:
        append(log, make_batch(1, value=bytes(200)))
        world.flush(log)
        ends[log.log_end_offset] = log.segments[-1].size_bytes
    world.checkpoint()
    first, second, _ = log.segments
    world.files.open("data/.cleaner.lock", create=True).close()
    world.files.sync_dir("data")
    shortened = world.files.content(first.path)[: ends[second.base_offset - 3]]
    damaged = bytearray(world.files.content(second.path))
    damaged[16] ^= 0x40  # The magic byte.
    world.files.crash()
    world.files.put(first.path, shortened)
    world.files.put(second.path, bytes(damaged))
    for name in world.files.list("data/t-0"):
        if name.endswith(".snapshot"):
            world.files.remove(f"data/t-0/{name}")
    report = world.start()
    assert report.recovered[0].scanned_bytes >= len(shortened)
    assert world.files.content(first.path) == shortened


@pytest.mark.parametrize("checkpoint_lost", [False, True])
def test_l32_a_gap_in_a_log_that_was_never_compacted_is_truncated(checkpoint_lost: bool) -> None:
    """A cleaning writes the recovery point before it leaves gaps. This gap is above the recovery
    point, so it is damage. If the checkpoint is lost, the gap is accepted and reported."""
    world = World(MemoryFiles(), segment_bytes=2_000, cleanup_policy=frozenset({"compact"}))
    world.start()
    log = world.create("t", IDS[0])
    while len(log.segments) == 1:
        append(log, make_batch(1, value=bytes(200)))
    world.flush(log)
    end = log.segments[1].base_offset
    path = log.segments[0].path
    content = world.files.content(path)
    world.files.crash()
    *_, (last, _) = iter_batches(content)
    world.files.put(path, content[:last])
    if checkpoint_lost:
        world.files.remove("data/recovery-point-offset-checkpoint")
    report = world.start()
    assert report.recovered[0].gaps == ([(end - 1, end)] if checkpoint_lost else [])
    assert report.recovered[0].log_end_offset == (end + 1 if checkpoint_lost else end - 1)


def test_l50_large_appends_bypass_the_journal(world: World) -> None:
    log = world.create("t", IDS[0])
    limit = world.directory.journal.entry_bytes_max

    def act() -> None:
        append(log, make_batch(1, value=bytes(limit)))
        world.flush(log)

    assert syncs_of(world, act) == [log.segments[-1].path]
    assert log.durability.synced_offset == log.high_watermark == 2


def test_i10_the_journal_syncs_the_files_first_at_a_gap_of_offsets(world: World) -> None:
    """The journal restores only contiguous batches."""
    log = world.create("t", IDS[0])
    path = f"{log.directory}/{0:020d}.log"
    mirror = AppendOrigin.MIRROR
    append(log, make_batch(1, base_offset=1), origin=mirror)
    assert path not in syncs_of(world, lambda: world.flush(log)), "plain appends take the journal"
    append(log, make_batch(1, base_offset=9), origin=mirror)
    assert path in syncs_of(world, lambda: world.flush(log))
    append(log, make_batch(1, base_offset=10), origin=mirror)
    assert path not in syncs_of(world, lambda: world.flush(log))
    append(log, make_batch(1, base_offset=20), origin=mirror)
    append(log, make_batch(1, base_offset=21), origin=mirror)
    world.flush(log)
    assert log.high_watermark == 22
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None and found.log_end_offset == 22
    assert sorted(values(found)) == [1, 9, 10, 20, 21]


def test_l50_the_journal_is_created_when_it_is_first_needed() -> None:
    files = MemoryFiles()
    world = World(files)
    world.start()
    log = world.logs.create("t", 0, IDS[0])
    append(log)
    world.flush(log)
    assert not files.exists(PATH)
    append(log)
    world.flush(log)
    append(log)
    world.flush(log)
    assert files.exists(PATH)
    assert (log.durability.synced_offset, log.durability.durable_offset) == (1, 3)


def test_l50_page_cache_durability_never_uses_the_journal() -> None:
    world = World(MemoryFiles())
    world.config = LogConfig(durability="page-cache")
    world.start()
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    assert blocks(world.files) == []


def test_l52_a_start_with_page_cache_keeps_records_acknowledged_with_fsync(world: World) -> None:
    """A journal that is no longer used is removed, but only after the log files are synced."""
    log = world.create("t", IDS[0])
    for _ in range(5):
        append(log)
        world.flush(log)
    acknowledged = log.high_watermark
    assert acknowledged > log.durability.synced_offset
    world.config = LogConfig(durability="page-cache")
    world.restart(power_lost=False)
    world.logs.stop_journals()
    world.files.remove(PATH)
    world.files.sync_dir("data")
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert found.log_end_offset == acknowledged


def test_l50_the_topic_id_is_durable_before_the_journal_is_used(world: World) -> None:
    """The process that wrote the topic id was killed before its first flush."""
    world.logs.create("t", 0, IDS[0])
    world.restart(power_lost=False)
    log = world.logs.get("t", 0)
    assert log is not None
    for _ in range(3):
        append(log)
        world.flush(log)
        world.directory.journal.prepare()
    assert log.high_watermark == 3 > log.durability.synced_offset
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert (found.topic_id, found.log_end_offset) == (IDS[0], 3)


def test_l50_the_topic_id_is_durable_with_the_records_of_a_scan(world: World) -> None:
    """Without the id, the records would be taken for those of a later topic with the same name."""
    append(world.logs.create("t", 0, IDS[0]))
    world.restart(power_lost=False)
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert (found.topic_id, found.log_end_offset) == (IDS[0], 1)


def test_l50_a_partition_without_a_topic_id_never_uses_the_journal(world: World) -> None:
    log = world.create("t", bytes(16))
    append(log)
    world.flush(log)
    assert log.durability.synced_offset == 2
    assert blocks(world.files) == []


def test_l51_journal_parts_are_reused_once_their_files_are_synced(world: World) -> None:
    logs = [world.create("t", IDS[0], partition) for partition in range(3)]
    for count in range(300):
        append(logs[count % 3], make_batch(1, value=bytes(1000)))
        world.flush(logs[count % 3])
    assert len(world.files.content(PATH)) <= ALIGN_BYTES + SMALL
    assert max(blocks(world.files)) > 290
    assert any(log.durability.synced_offset for log in logs)
    world.restart()
    for partition in range(3):
        log = world.logs.get("t", partition)
        assert log is not None
        assert len(values(log)) == 100


def test_l50_a_failed_journal_write_takes_the_whole_directory_offline(world: World) -> None:
    logs = [world.create("t", IDS[0], partition) for partition in range(3)]
    append(logs[0])
    world.flush(logs[0])
    append(logs[1])
    world.files.fail(DiskFailure("write_at"))
    world.flush(logs[1])
    assert [log.offline for log in logs] == [True] * 3
    assert [log.high_watermark for log in logs] == [2, 1, 1]
    with pytest.raises(AppendRejected):
        append(logs[2])
    assert world.stop()
    assert world.files.exists(PATH)
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert len(values(found)) == 1


def test_l50_files_are_synced_after_a_journal_write_without_room(world: World) -> None:
    logs = [world.create("t", IDS[0], partition) for partition in range(3)]
    journal = world.directory.journal
    append(logs[0], make_batch(1, value=b"before"))
    world.flush(logs[0])
    world.files.fail(DiskFailure("write_at", code=errno.ENOSPC, torn_bytes=512))
    for log in logs:
        append(log, make_batch(1, value=b"no room"))
    world.flush(*logs)
    assert [log.offline for log in logs] == [False] * 3
    assert [log.durability.synced_offset for log in logs] == [3, 2, 2]
    assert [log.high_watermark for log in logs] == [3, 2, 2]
    assert world.directory.disk.problem
    assert not journal.usable
    append(logs[0])
    assert PATH not in syncs_of(world, lambda: world.flush(logs[0]))
    world.checkpoint()
    world.flush(logs[0])
    for log in logs:
        append(log, make_batch(1, value=b"anew"))
    world.flush(*logs)
    append(logs[1], make_batch(1, value=b"in the journal"))
    assert syncs_of(world, lambda: world.flush(logs[1])) == [PATH]
    world.restart()
    found = world.logs.get("t", 1)
    assert found is not None
    assert list(values(found).values()) == [b"no room", b"anew", b"in the journal"]


def test_l50_a_journal_without_room_is_removed_and_created_again(world: World) -> None:
    log = world.create("t", IDS[0])
    world.files.fail(DiskFailure("write_at", code=errno.ENOSPC))
    append(log, make_batch(1, value=b"no room"))
    world.flush(log)
    world.files.fail(DiskFailure("append", code=errno.ENOSPC, path_part=PATH, for_ever=True))
    world.checkpoint()
    assert not world.directory.journal.prepare()
    assert not world.files.exists(PATH)
    world.files.heal()
    world.checkpoint()
    world.directory.journal.prepare()
    append(log, make_batch(1, value=b"in the journal"))
    assert syncs_of(world, lambda: world.flush(log)) == [PATH]
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert list(values(found).values()) == [b"no room", b"in the journal"]


def test_l50_journal_blocks_after_a_failed_one_make_no_record_durable() -> None:
    world = World(MemoryFiles(), 64 * 1024 * 1024)
    world.start()
    logs = [world.create("t", IDS[0], partition) for partition in range(16)]
    for log in logs:
        append(log, make_batch(1, value=b"v" * 60_000))
        world.commit.request(log.durability)
    begin, arguments = world.steps.calls.pop(0)
    begin(*arguments)
    assert world.directory.journal.unwritten == 2
    world.files.fail(DiskFailure("write_at", code=errno.ENOSPC))
    world.steps.run()
    assert [log.durability.synced_offset for log in logs] == [2] * 16
    assert [log.high_watermark for log in logs] == [2] * 16
    world.restart()
    assert {log.log_end_offset for log in world.logs} == {2}


def test_l50_a_failed_journal_write_during_a_stop_takes_all_logs_offline() -> None:
    world = World(MemoryFiles(), 64 * 1024 * 1024)
    world.start()
    logs = [world.create("t", IDS[0], partition) for partition in range(16)]
    for log in logs:
        append(log, make_batch(1, value=b"v" * 60_000))
        world.commit.request(log.durability)
    begin, arguments = world.steps.calls.pop(0)
    begin(*arguments)
    assert world.directory.journal.unwritten == 2
    world.logs.stop_journals()
    world.files.fail(DiskFailure("write_at"))
    world.steps.run()
    assert [log.offline for log in logs] == [True] * 16
    assert [log.high_watermark for log in logs] == [1] * 16


def test_l51_a_file_that_cannot_be_synced_keeps_its_journal_part(world: World) -> None:
    log, other = world.create("t", IDS[0]), world.create("t", IDS[0], 1)
    append(log, make_batch(1, value=b"kept"))
    world.flush(log)
    world.files.fail(DiskFailure("sync", path_part="t-0/", for_ever=True))
    for _ in range(200):
        append(other, make_batch(1, value=bytes(1000)))
        world.flush(other)
    assert log.offline
    assert other.high_watermark == 201
    world.restart()
    found, other_found = world.logs.get("t", 0), world.logs.get("t", 1)
    assert found is not None
    assert other_found is not None
    assert values(found) == {1: b"kept"}
    assert len(values(other_found)) == 200


def test_l52_a_clean_stop_removes_the_journal(world: World) -> None:
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    assert world.stop() == []
    assert not world.files.exists(PATH)
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert sorted(values(found)) == [1]


def test_l52_a_journal_older_than_a_clean_stop_is_not_applied(world: World) -> None:
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    stale = world.files.content(PATH)
    path = log.segments[-1].path
    assert world.stop() == []
    world.files.put(PATH, stale)
    world.files.put(path, world.files.content(path)[: log.segments[-1].size_bytes // 2])
    world.start()
    found = world.logs.get("t", 0)
    assert found is not None
    assert values(found) == {}


def test_l52_the_journal_is_not_applied_to_a_new_topic_of_the_same_name(world: World) -> None:
    log = world.create("t", IDS[0])
    append(log, make_batch(1, value=b"old"))
    world.flush(log)
    world.logs.delete("t", 0)
    log = world.create("t", IDS[1])
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert values(found) == {}


def test_l51_a_deletion_undone_by_a_crash_loses_no_record(world: World) -> None:
    """The log is retired, but its files keep their names until the deletion is durable."""
    log, other = world.create("t", IDS[0]), world.create("t", IDS[0], 1)
    append(log, make_batch(1, value=b"kept"))
    world.flush(log)
    world.logs.retire("t", 0)
    for _ in range(300):
        append(other, make_batch(1, value=bytes(1000)))
        world.flush(other)
    assert max(blocks(world.files)) > 290
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert values(found) == {1: b"kept"}


def test_l52_a_journal_of_a_later_version_is_refused(world: World) -> None:
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    content = bytearray(world.files.content(PATH))
    content[4:6] = (2).to_bytes(2, "big")
    world.files.crash()
    world.files.put(PATH, content)
    with pytest.raises(
        DataDirectoryError, match="version 2, and this broker knows versions up to 1"
    ):
        world.start()


@pytest.mark.parametrize("kept", [0, 1, 10, 46, 4095])
def test_l52_a_damaged_journal_is_set_aside_and_reported(world: World, kept: int) -> None:
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    content = world.files.content(PATH)[:kept]
    world.files.crash(keep_page_cache=True)
    world.files.put(PATH, content if kept != 46 else content[:30] + b"\xff" + content[31:])
    report = world.start()
    if kept < 46:
        assert any(PATH in problem for problem in report.problems)
        assert world.files.exists(PATH + ".damaged")
    found = world.logs.get("t", 0)
    assert found is not None
    assert sorted(values(found)) == [1]


def test_the_used_bytes_of_the_journal_stay_within_its_limit(world: World) -> None:
    log, journal = world.create("t", IDS[0]), world.directory.journal
    assert journal.used_bytes == 0 < journal.bytes_max
    append(log)
    world.flush(log)
    assert journal.used_bytes > 0
    for _ in range(100):
        append(log)
        world.flush(log)
        assert 0 < journal.used_bytes <= journal.bytes_max
    world.bytes_max = 0
    world.restart()
    assert world.directory.journal.used_bytes == world.directory.journal.bytes_max == 0


def test_l50_files_are_synced_if_the_journal_cannot_be_created() -> None:
    files = MemoryFiles()
    files.fail(DiskFailure("append", path_part=JOURNAL, code=errno.ENOSPC, for_ever=True))
    world = World(files)
    world.start()
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    assert (log.durability.synced_offset, log.high_watermark) == (2, 2)
    assert not world.directory.journal.usable
    assert not any(JOURNAL in path and files.content(path) for path in files.paths())


def test_l52_records_behind_lost_synced_bytes_do_not_come_back_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log has lost bytes that only its file had, and grows again to where the journal's records
    began, before there is a new journal."""
    log = world.create("t", IDS[0])
    path, size_bytes = log.segments[-1].path, log.segments[-1].size_bytes
    append(log, make_batch(1, value=b"o" * 70_000))
    world.flush(log)
    append(log, make_batch(1, value=b"journal"))
    world.flush(log)
    world.files.crash()
    world.files.put(path, world.files.content(path)[:size_bytes])
    world.start()
    monkeypatch.setattr(world.directory.journal, "_grow", lambda: None)
    found = world.logs.get("t", 0)
    assert found is not None
    append(found, make_batch(1, value=b"n" * 70_000))
    world.flush(found)
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert values(found) == {1: b"n" * 70_000}


def test_l52_a_journal_that_is_switched_off_is_applied_and_removed(world: World) -> None:
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    world.bytes_max = 0
    world.restart()
    found = world.logs.get("t", 0)
    assert found is not None
    assert sorted(values(found)) == [1]
    assert not world.files.exists(PATH)
    append(found)
    world.flush(found)
    assert found.durability.synced_offset == 3


def test_l52_the_journal_is_kept_for_a_log_that_cannot_be_opened(world: World) -> None:
    log, other = world.create("t", IDS[0]), world.create("t", IDS[0], 1)
    for each in (log, other):
        append(each)
        world.flush(each)
    world.files.crash()
    world.files.fail(DiskFailure("append", path_part="t-0/0", for_ever=True))
    world.start()
    broken, other_found = world.logs.get("t", 0), world.logs.get("t", 1)
    assert broken is not None
    assert other_found is not None
    assert broken.offline
    append(other_found)
    world.flush(other_found)
    assert other_found.durability.synced_offset == 3
    world.files.heal()
    assert broken.open_again(NOW_MS)
    assert sorted(values(broken)) == [1]
    world.restart()
    assert sorted(values(world.logs.get("t", 0))) == [1]  # type: ignore[arg-type]
    assert sorted(values(world.logs.get("t", 1))) == [1, 2]  # type: ignore[arg-type]


def test_l52_the_journal_is_kept_for_a_log_that_meets_too_many_open_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = world.create("t", IDS[0]), world.create("t", IDS[0], 1)
    for each in (log, other):
        append(each)
        world.flush(each)
    world.files.crash()
    # The log counts as online, and is opened only at its next use.
    opens = world.files.open

    def out_of_files(path: str, *, create: bool = False) -> Any:
        if path.endswith(".log") and "t-0/" in path:
            raise OSError(errno.EMFILE, path)
        return opens(path, create=create)

    with monkeypatch.context() as patch:
        patch.setattr(world.files, "open", out_of_files)
        world.start()
    waiting, found = world.logs.get("t", 0), world.logs.get("t", 1)
    assert waiting is not None
    assert found is not None
    assert not waiting.loaded
    assert not waiting.offline
    for _ in range(2):
        append(found)
        world.flush(found)
    waiting.load(NOW_MS)
    assert sorted(values(waiting)) == [1]
    world.restart()
    assert sorted(values(world.logs.get("t", 0))) == [1]  # type: ignore[arg-type]
    assert sorted(values(world.logs.get("t", 1))) == [1, 2, 3]  # type: ignore[arg-type]


def test_l50_a_removed_journal_is_detected_at_the_next_checkpoint(world: World) -> None:
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    world.files.remove(PATH)
    world.checkpoint()
    assert log.durability.synced_offset == 2
    append(log)
    world.flush(log)
    assert (log.durability.synced_offset, log.high_watermark) == (3, 3)


def test_l50_a_replaced_journal_is_not_written_to(world: World) -> None:
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    copy = bytes(world.files.content(PATH))
    world.files.remove(PATH)
    world.checkpoint()
    file = world.files.open(PATH, create=True)
    file.append([copy])
    file.sync()
    file.close()
    for end in range(3, 8):
        append(log)
        world.checkpoint()
        world.flush(log)
        assert (log.durability.synced_offset, log.high_watermark) == (end, end)
    world.restart()
    (found,) = world.logs
    assert found.log_end_offset == 7


def test_l50_a_segment_truncated_from_outside_fails_the_journal_write(world: World) -> None:
    """The write would leave a gap in the journal, and nothing after the gap would be restored."""
    logs = [world.create("t", IDS[0], partition) for partition in range(3)]
    told: list[str] = []
    world.directory.journal.on_failed = told.append
    for log in logs:
        append(log)
        world.commit.request(log.durability)
    file = world.files.open("data/t-1/00000000000000000000.log")
    file.truncate(70)
    world.steps.run()
    assert "has lost what was just written" in told[0]
    assert [log.high_watermark for log in logs] == [1, 1, 1]


def test_l52_missing_partitions_do_not_stop_the_restoration(world: World) -> None:
    logs = [world.create("t", IDS[0], partition) for partition in range(3)]
    for log in logs:
        append(log, make_batch(1, value=b"kept"))
    world.flush(*logs)
    world.files.crash()
    world.files.remove_tree("data/t-0")
    world.files.remove(logs[1].segments[-1].path)
    world.start()
    assert world.logs.get("t", 0) is None
    found = [world.logs.get("t", partition) for partition in (1, 2)]
    assert [values(log) for log in found if log is not None] == [{}, {1: b"kept"}]


def test_l52_journal_blocks_of_an_older_round_are_not_applied(world: World) -> None:
    """In a reused part of the journal, old blocks follow the newest block. These old blocks must
    not be read."""
    log, other = world.create("t", IDS[0]), world.create("t", IDS[0], 1)
    for _ in range(200):
        append(log, make_batch(1, value=bytes(1000)))
        world.flush(log, other)
    numbers = blocks(world.files)
    assert len(numbers) == len(set(numbers))
    assert sorted(numbers) == list(range(min(numbers), max(numbers) + 1))


def test_l52_log_verify_and_log_dump_read_the_journal(world: World) -> None:
    log = world.create("t", IDS[0])
    append(log)
    world.flush(log)
    world.files.crash()
    selection = RowWindow()
    rows = list(dump_file(world.files, PATH, FileName(FileKind.JOURNAL, None, ""), "", selection))
    assert [row["kind"] for row in rows] == ["journal", "journal-entry"]
    assert rows[1]["topic_id"] == uuid_text(IDS[0])
    assert parse_file(JOURNAL) == FileName(FileKind.JOURNAL, None, "")
    findings = _verified(world.files)
    assert ("note", "has the last records of 1 partitions") in findings
    content = bytearray(world.files.content(PATH))
    content[5] = 9
    world.files.put(PATH, content)
    assert any(
        severity == "damaged" and "version 9" in what for severity, what in _verified(world.files)
    )
    content[5] = 1
    content[10] ^= 1
    world.files.put(PATH, content)
    assert any(
        severity == "damaged" and "checksum" in what for severity, what in _verified(world.files)
    )
    with pytest.raises(Damaged, match="checksum"):
        list(dump_file(world.files, PATH, FileName(FileKind.JOURNAL, None, ""), "", selection))


def _verified(files: MemoryFiles) -> set[tuple[str, str]]:
    """The findings of `log verify` about the journal: severity and problem."""
    found: list[Finding] = []
    check = DataDirectoryCheck(
        files,
        "data",
        Findings(found.append),
        live=False,
        progress=lambda _: None,
        wait=lambda: None,
    )
    check.read()
    check.check_partitions(None)
    check.check_checkpoints()
    return {(each.severity.name.lower(), each.problem) for each in found if each.path == PATH}


# ---- crashes at any moment


class Acknowledged:
    """The records that were acknowledged as durable, and the values that must never reappear."""

    def __init__(self) -> None:
        self.records: dict[tuple[bytes, int], dict[int, bytes]] = {}
        self.starts: dict[tuple[bytes, int], int] = {}
        self.gone: set[bytes] = set()

    def check(self, world: World) -> None:
        for log in world.logs:
            assert not log.offline, log.offline_reason
            assert log.topic_id not in self.gone or log.log_end_offset == 0 or log.topic != "t"
            key = log.topic_id, log.partition
            found = values(log)
            for offset, value in self.records.get(key, {}).items():
                if offset >= log.log_start_offset:
                    assert found.get(offset) == value, (log.name, offset)
            assert sorted(found) == list(found)


def run_workload(world: World, told: Acknowledged) -> None:
    """Run all operations of a log, among small appends that share the journal."""
    logs = [world.create("t", IDS[0], partition) for partition in range(3)]
    sequences = [0, 0, 0]
    for step in range(70):
        log = logs[step % 3]
        value = b"%d of %d" % (step, log.partition) + bytes(700 * (step % 5 == 0))
        if step % 23 == 11:
            value += bytes(5000)
        result = append(
            log,
            make_batch(1, value=value, producer_id=1, sequence=sequences[step % 3]),
        )
        sequences[step % 3] += 1
        append(logs[(step + 1) % 3], make_batch(1, value=b"beside"))
        if step % 3:
            world.flush(*logs)
            if log.high_watermark > result.last_offset:
                key = log.topic_id, log.partition
                told.records.setdefault(key, {})[result.last_offset] = value
        if step % 13 == 5:
            append(log, make_batch(1, producer_id=step + 10, transactional=True))
            append_marker(log, commit=False, producer_id=step + 10)
        if step == 30:
            world.logs.delete_records([(log, min(9, log.high_watermark))])
            log.trimming.apply_retention(NOW_MS)
        if step in (20, 45, 60):
            world.checkpoint()
        if step == 50:
            told.records.pop((logs[1].topic_id, 1), None)
            world.logs.delete("t", 1)
            logs[1] = world.create("t", IDS[5], 1)
            sequences[1] = 0


@pytest.mark.parametrize(
    "policy", budget.of_which(["delete", "compact,delete"], ["compact,delete"])
)
@pytest.mark.parametrize("part", budget.of_which(range(4), [0]))
@pytest.mark.parametrize("full", [False, True])
def test_l50_l51_l52_a_crash_at_every_operation_keeps_acknowledged_records(
    part: int, policy: str, full: bool
) -> None:
    """The power fails at each operation of a run in turn, and again during the next starts. `full`:
    some writes of the journal find no room."""
    settings: dict[str, Any] = {
        "segment_bytes": 6000,
        "cleanup_policy": frozenset(policy.split(",")),
    }
    probe = World(MemoryFiles(), **settings)
    probe.start()
    run_workload(probe, Acknowledged())
    total = probe.files.operations
    assert total > 300
    for crash_at in range(part, total, 4):
        rng = random.Random(crash_at)
        files = MemoryFiles()
        world = World(files, **settings)
        told = Acknowledged()
        files.crash_at = crash_at
        for _ in range(3 * full):
            files.fail(
                DiskFailure(
                    "write_at",
                    rng.randint(1, 40),
                    code=errno.ENOSPC,
                    torn_bytes=rng.choice((0, 512, 4096)),
                )
            )
        try:
            world.start()
            run_workload(world, told)
        except Crashed:
            pass
        files.crash(rng, keep_page_cache=rng.random() < 0.2)
        before = files.operations
        for _ in range(rng.randint(0, 2)):
            # The power fails again, during this start.
            files.crash_at = before + rng.randint(0, 60)
            with contextlib.suppress(Crashed):
                world.start()
            files.crash(rng)
            before = files.operations
        world.start()
        told.check(world)
        for log in world.logs:
            append(log)
        world.flush(*world.logs)
        assert all(log.high_watermark == log.log_end_offset for log in world.logs)
        assert world.stop() == []
        world.start()
        told.check(world)


# ---- the real file


def test_a_block_file_writes_in_place(tmp_path: Path) -> None:
    files = RealFiles(str(tmp_path))
    with (tmp_path / "blocks").open("wb") as made:
        made.write(bytes(8 * BLOCK_BYTES))
    file = files.open_blocks("blocks")
    file.write_at(BLOCK_BYTES, [b"one", memoryview(b"two")])
    large = bytes(range(256)) * 16 * 3 + b"end"
    file.write_at(4 * BLOCK_BYTES, [large])
    file.write_at(2 * BLOCK_BYTES, [b"x"])
    file.close()
    content = (tmp_path / "blocks").read_bytes()
    assert len(content) == 8 * BLOCK_BYTES
    assert content[:BLOCK_BYTES] == bytes(BLOCK_BYTES)
    assert content[BLOCK_BYTES : 2 * BLOCK_BYTES] == b"onetwo".ljust(BLOCK_BYTES, b"\0")
    assert content[2 * BLOCK_BYTES : 3 * BLOCK_BYTES] == b"x".ljust(BLOCK_BYTES, b"\0")
    assert content[4 * BLOCK_BYTES :] == large.ljust(4 * BLOCK_BYTES, b"\0")


def test_a_journal_header_survives_encoding() -> None:
    header = JournalHeader(bytes(range(16)), 8 * ALIGN_BYTES)
    assert decode_header(encode_header(header)) == header
