"""A data directory: its lock, its content, clean and unclean stops (L-01, L-30..L-38)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from handler_calls import finished
from logs import NOW_MS, append, headers, make_batch, read_all, small_file
from odradek_broker.platform.machine import RealClock, RealFiles, RealRandomness
from odradek_broker.platform.seams import Files
from odradek_broker.storage.checkpoints import (
    CorruptCheckpoint,
    OffsetLines,
    decode_offsets,
    encode_offsets,
)
from odradek_broker.storage.errors import (
    AppendRejected,
    DataDirectoryError,
    DataDirectoryInUse,
    StorageError,
)
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.manager import LogManager, MaintenanceReport
from odradek_broker.storage.startup import StartReport, one_by_one
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import uuid_text
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles

ID_A, ID_B = bytes(range(16)), bytes(range(1, 17))


class _Clock(RealClock):
    def wall_ms(self) -> int:
        return NOW_MS


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles(now_ms=NOW_MS)


def make_manager(files: Files, directory: str = "data", **more: Any) -> LogManager:
    config = more.pop("config", LogConfig())
    return LogManager([directory], files, _Clock(), RealRandomness(), config, **more)


def start(files: Files, **more: Any) -> tuple[LogManager, StartReport]:
    manager = make_manager(files, **more)
    return manager, manager.open_all(lambda topic: more.get("config", LogConfig()))


def crash(files: MemoryFiles, *, keep_page_cache: bool = True) -> None:
    files.crash(keep_page_cache=keep_page_cache)


@pytest.fixture
def two_topics(files: MemoryFiles) -> LogManager:
    manager, report = start(files)
    assert (report.clean, report.logs) == (False, 0)
    for topic, partition, topic_id in [("a", 0, ID_A), ("a", 1, ID_A), ("b-c", 0, ID_B)]:
        log = manager.create(topic, partition, topic_id)
        append(log, make_batch(partition + 3))
        log.durability.flush()
    return manager


# ---- the directory


def test_two_brokers_cannot_share_a_directory(files: MemoryFiles) -> None:
    first = make_manager(files)
    with pytest.raises(DataDirectoryInUse) as caught:
        make_manager(files)
    assert "data" in str(caught.value)
    first.close()
    make_manager(files).close()


def test_two_brokers_cannot_share_a_real_directory(tmp_path: Path) -> None:
    first = make_manager(RealFiles(), str(tmp_path / "data"))
    with pytest.raises(DataDirectoryInUse):
        make_manager(RealFiles(), str(tmp_path / "data"))
    first.close()
    make_manager(RealFiles(), str(tmp_path / "data")).close()


def test_an_unusable_directory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(DataDirectoryError) as caught:
        make_manager(RealFiles(), str(tmp_path / "data"))
    assert str(tmp_path / "data") in str(caught.value)


def test_the_identity_of_a_directory_is_kept(files: MemoryFiles) -> None:
    manager = make_manager(files, node_id=7)
    cluster_id = manager.cluster_id
    assert len(cluster_id) == 22
    directory_id = uuid_text(manager.directories[0].directory_id)
    identity = files.content("data/meta.properties")
    assert identity.decode() == (
        f"version=1\ncluster.id={cluster_id}\nnode.id=7\ndirectory.id={directory_id}\n"
        "odradek.coordinator.hash=absolute\n"
    )
    manager.close()
    manager = make_manager(files, node_id=7)
    assert files.content("data/meta.properties") == identity
    assert (manager.cluster_id, manager.node_id) == (cluster_id, 7)
    manager.close()
    for wrong in ({"node_id": 8}, {"node_id": 7, "cluster_id": "another"}):
        with pytest.raises(DataDirectoryError):
            make_manager(files, **wrong)
    # a refusal releases the lock
    make_manager(files, node_id=7).close()


_OTHER_HASH = b"version=1\ncluster.id=x\nodradek.coordinator.hash=other\n"


@pytest.mark.parametrize(
    "text", [b"", b"version=1\n", b"version=9\ncluster.id=x\n", b"\xff\xfe", _OTHER_HASH]
)
def test_a_damaged_identity_is_refused(files: MemoryFiles, text: bytes) -> None:
    files.put("data/meta.properties", text)
    with pytest.raises(DataDirectoryError):
        make_manager(files)


# ---- clean and unclean


def test_l30_a_start_after_a_clean_stop_opens_no_log(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    assert two_topics.close() == []
    assert files.exists("data/.kafka_cleanshutdown")
    points = files.content("data/recovery-point-offset-checkpoint")
    assert small_file(points) == "0\n3\na 0 3\na 1 4\nb-c 0 3\n"
    manager, report = start(files)
    assert (report.clean, report.logs, report.recovered, report.problems) == (True, 3, [], [])
    assert not files.exists("data/.kafka_cleanshutdown")
    logs = {log.name: log for log in manager}
    assert sorted(logs) == ["a-0", "a-1", "b-c-0"]
    for name, end in [("a-0", 3), ("a-1", 4), ("b-c-0", 3)]:
        log = logs[name]
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, end, end)
        assert not log.loaded
    assert logs["b-c-0"].topic_id == ID_B
    assert append(logs["a-1"]).base_offset == 4
    assert logs["a-1"].loaded
    assert not logs["a-0"].loaded


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{2:020d}.index", None),
        (f"{2:020d}.timeindex", None),
        (f"{4:020d}.snapshot", None),
        (f"{4:020d}.snapshot", b""),
        (f"{4:020d}.snapshot", b"\0\1" + b"\xff" * 40),
        ("leader-epoch-checkpoint", None),
        ("leader-epoch-checkpoint", b"7\n"),
    ],
)
def test_l30_a_log_that_needs_a_scan_is_opened_during_the_start(
    files: MemoryFiles, name: str, content: bytes | None
) -> None:
    """A scan at the first use of the log would block all requests."""
    manager, _ = start(files)
    for partition in range(2):
        log = manager.create("a", partition, ID_A)
        append(log, make_batch(2, producer_id=1), leader_epoch=3)
        log.roll(NOW_MS)
        append(log, make_batch(2, producer_id=1, sequence=2), leader_epoch=3)
    assert manager.close() == []
    if content is None:
        files.remove(f"data/a-1/{name}")
    else:
        files.put(f"data/a-1/{name}", content)
    manager, report = start(files)
    whole, opened = manager.get("a", 0), manager.get("a", 1)
    assert whole is not None and opened is not None
    assert (whole.loaded, opened.loaded) == (False, True)
    assert [(r.topic, r.partition) for r in report.recovered] == [("a", 1)]
    (problem,) = report.problems
    assert "a-1" in problem and name in problem
    for log in (whole, opened):
        assert append(log, make_batch(2, producer_id=1, sequence=2), leader_epoch=3).duplicate
        assert append(log, make_batch(1, producer_id=1, sequence=4)).base_offset == 4
        assert log.leader_epochs.entries == [(3, 0)]
    assert manager.close() == []
    _, report = start(files)
    assert (report.recovered, report.problems) == ([], [])


def test_l30_an_empty_log_needs_no_epochs(files: MemoryFiles) -> None:
    manager, _ = start(files)
    manager.create("a", 0, ID_A)
    log = manager.create("a", 1, ID_A)
    append(log)
    log.durability.flush()
    log.trimming.delete_records(1)
    assert log.trimming.apply_retention(NOW_MS) == 1
    assert manager.close() == []
    _, report = start(files)
    assert (report.clean, report.recovered, report.problems) == (True, [], [])


def test_l30_a_start_after_a_crash_recovers_all_logs(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    crash(files, keep_page_cache=False)
    manager, report = start(files)
    assert not report.clean
    assert {(r.topic, r.partition, r.log_end_offset) for r in report.recovered} == {
        ("a", 0, 3),
        ("a", 1, 4),
        ("b-c", 0, 3),
    }
    log = manager.get("a", 1)
    assert log is not None
    assert headers(read_all(log))[-1].next_offset == 4


def test_l30_a_crash_after_an_earlier_clean_stop_recovers_the_logs(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    two_topics.close()
    manager, _ = start(files)
    log = manager.get("a", 0)
    assert log is not None
    append(log)
    log.durability.flush()
    crash(files)
    manager, report = start(files)
    assert not report.clean
    log = manager.get("a", 0)
    assert log is not None
    assert log.log_end_offset == 4
    # Only changed logs are scanned.
    assert [r.partition for r in report.recovered if r.scanned_bytes] == [0]


def test_failed_close_leaves_no_clean_mark(files: MemoryFiles, two_topics: LogManager) -> None:
    log = two_topics.get("a", 0)
    assert log is not None
    append(log)
    files.fail(DiskFailure("sync", path_part="a-0"))
    problems = two_topics.close()
    assert "a-0" in problems[0]
    assert not files.exists("data/.kafka_cleanshutdown")
    assert two_topics.close() == []
    crash(files)
    _, report = start(files)
    assert (report.clean, len(report.recovered)) == (False, 3)


def test_l30_recovery_points_shorten_a_recovery(files: MemoryFiles, two_topics: LogManager) -> None:
    log = two_topics.get("a", 0)
    assert log is not None
    log.roll(NOW_MS)
    append(log)
    log.durability.flush()
    writer = two_topics.directories[0].recovery_points_writer()
    assert writer is not None
    writer()
    two_topics.directories[0].use_recovery_points()
    assert two_topics.directories[0].recovery_points_writer() is None
    last_segment_bytes = log.segments[-1].size_bytes
    crash(files)
    _, report = start(files)
    scanned = {r.topic + str(r.partition): r.scanned_bytes for r in report.recovered}
    assert scanned["a0"] == last_segment_bytes


def _keep_points(manager: LogManager) -> None:
    """Write the recovery points, as the broker does every minute."""
    write = manager.directories[0].recovery_points_writer()
    if write is not None:
        write()
        manager.directories[0].use_recovery_points()
    manager.continue_snapshots()


def test_d5_recovered_logs_are_synced_together_before_the_start_ends(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    for log in two_topics:
        append(log)
    crash(files)
    rounds = []

    def in_parallel(works: Sequence[Callable[[], None]]) -> list[OSError | None]:
        rounds.append(len(works))
        # in another order
        return list(reversed(one_by_one(list(reversed(works)))))

    manager, report = start(files, in_parallel=in_parallel)
    assert (report.problems, len(rounds), rounds[0] >= 6) == ([], 1, True)
    crash(files, keep_page_cache=False)
    again, report = start(files)
    assert [log.log_end_offset for log in again] == [log.log_end_offset for log in manager]
    assert report.problems == []


def test_d5_only_a_log_whose_recovery_cannot_be_synced_is_offline(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    for log in two_topics:
        append(log)
    crash(files)
    files.fail(DiskFailure("sync", path_part="a-1/"))
    manager, report = start(files)
    offline = manager.get("a", 1)
    assert offline is not None and offline.offline
    assert [problem for problem in report.problems if "a-1" in problem] == report.problems
    assert len(report.problems) == 1
    assert [log.name for log in manager if not log.offline] == ["a-0", "b-c-0"]
    files.heal()
    manager.open_again(NOW_MS)
    assert offline.offline  # pages that the kernel has dropped stay lost


def test_l30_records_before_the_recovery_point_are_not_read(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    busy, idle = two_topics.get("a", 0), two_topics.get("a", 1)
    assert busy is not None and idle is not None
    for _ in range(50):
        append(busy, make_batch(value=bytes(100_000)))
    append(idle, make_batch(value=bytes(100_000)))
    busy.durability.flush()
    idle.durability.flush()
    _keep_points(two_topics)
    append(busy)
    busy.durability.flush()
    _keep_points(two_topics)
    size_bytes = busy.size_bytes
    append(busy)
    crash(files)
    _, report = start(files)
    scanned = {r.topic + str(r.partition): r.scanned_bytes for r in report.recovered}
    assert 0 < scanned["a0"] < 2_000 < size_bytes
    assert scanned["a1"] == 0


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ],
)
@pytest.mark.parametrize("text", [b"", b"\xff", b"1\n0\n", b"0\n5\na 0 3\n", b"0\n1\na zero 3\n"])
def test_l35_damaged_checkpoints_are_computed_again(
    files: MemoryFiles, two_topics: LogManager, name: str, text: bytes
) -> None:
    two_topics.close()
    files.put(f"data/{name}", text)
    manager, report = start(files)
    assert name in report.problems[0]
    assert {log.name: log.log_end_offset for log in manager} == {"a-0": 3, "a-1": 4, "b-c-0": 3}


def test_a_damaged_log_does_not_stop_the_others(files: MemoryFiles, two_topics: LogManager) -> None:
    crash(files)
    files.fail(DiskFailure("truncate", path_part="a-1"))
    files.put("data/a-1/00000000000000000000.log", b"torn")
    manager, report = start(files)
    assert "a-1" in report.problems[0]
    bad, good = manager.get("a", 1), manager.get("a", 0)
    assert bad is not None
    assert good is not None
    assert bad.offline
    with pytest.raises(AppendRejected) as caught:
        append(bad)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    append(good)


def test_first_topic_is_opened_before_the_others(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    crash(files)
    manager = make_manager(files)
    asked: list[str] = []

    def configs(topic: str) -> LogConfig:
        asked.append(topic)
        if topic != "b-c":
            assert manager.get("b-c", 0) is not None
        return LogConfig()

    manager.open_all(configs, first_topic="b-c")
    assert asked == ["b-c", "a", "a"]


def test_directories_with_foreign_names_are_left_alone(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    two_topics.close()
    for name in ("lost+found/x", "-0/x", "a-/x", "a-x/x", "a-\u0664/x"):
        files.put(f"data/{name}", b"")
    _, report = start(files)
    assert report.logs == 3


# ---- creating and deleting


def test_a_creation_is_idempotent_for_the_same_topic_id_only(two_topics: LogManager) -> None:
    log = two_topics.get("a", 0)
    assert two_topics.create("a", 0, ID_A) is log
    with pytest.raises(DataDirectoryError, match=r"topic id .* move it out of the way"):
        two_topics.create("a", 0, ID_B)


def test_lost_topic_id_is_written_again(files: MemoryFiles, two_topics: LogManager) -> None:
    two_topics.close()
    files.put("data/a-0/partition.metadata", b"")
    manager, report = start(files)
    assert "a-0" in report.problems[0]
    log = manager.create("a", 0, ID_A)
    assert log.topic_id == ID_A
    assert log.log_end_offset == 3
    assert b"AAECAwQFBgcICQoLDA0ODw" in files.content("data/a-0/partition.metadata")


def test_failed_create_can_be_tried_again(files: MemoryFiles) -> None:
    manager, _ = start(files)
    files.fail(DiskFailure("open", path_part=".log"))
    with pytest.raises(StorageError):
        manager.create("x", 0, ID_A)
    assert manager.get("x", 0) is None
    append(manager.create("x", 0, ID_A))


def test_l38_a_deleted_partition_is_renamed_and_removed_after_a_delay(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    log = two_topics.get("a", 0)
    assert log is not None
    two_topics.delete("a", 0)
    two_topics.delete("a", 0)
    assert two_topics.get("a", 0) is None
    with pytest.raises(AppendRejected):
        append(log)
    doomed = [name for name in files.list("data") if name.endswith("-delete")]
    assert len(doomed) == 1
    assert doomed[0].startswith("a-0.")
    # A topic of the same name can be created immediately.
    assert append(two_topics.create("a", 0, ID_B)).base_offset == 0
    assert two_topics.remove_deleted_files(NOW_MS + 59_999) == []
    assert [name for name in files.list("data") if name.endswith("-delete")] == doomed
    assert two_topics.remove_deleted_files(NOW_MS + 60_000) == []
    assert not [name for name in files.list("data") if name.endswith("-delete")]


def test_l38_deletion_is_finished_at_the_next_start(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    two_topics.delete("a", 0)
    two_topics.close()
    manager, _ = start(files)
    assert {log.name for log in manager} == {"a-1", "b-c-0"}
    assert not [name for name in files.list("data") if name.endswith("-delete")]


@pytest.mark.parametrize("keep_page_cache", [False, True])
@pytest.mark.parametrize("restart_between", [False, True])
def test_l10_l30_a_recreated_partition_does_not_inherit_checkpoints(
    files: MemoryFiles, keep_page_cache: bool, restart_between: bool
) -> None:
    """The checkpoint files have no topic ids: after a crash the new log must not begin after its
    acknowledged records."""
    manager, _ = start(files)
    log = manager.create("a", 0, ID_A)
    append(log, make_batch(10))
    log.durability.flush()
    assert manager.delete_records([(log, 8)]) == [8]
    write_old_points = manager.directories[0].recovery_points_writer()
    assert write_old_points is not None
    write_old_points()
    manager.directories[0].use_recovery_points()
    append(log, make_batch(10))
    log.durability.flush()
    write_late = manager.directories[0].recovery_points_writer()
    assert write_late is not None
    manager.delete("a", 0)
    if restart_between:
        crash(files)
        manager, _ = start(files)
    log = manager.create("a", 0, ID_B)
    if not restart_between:
        write_late()  # the worker had begun before the deletion
        manager.directories[0].use_recovery_points()
    append(log, make_batch(3))
    log.durability.flush()
    crash(files, keep_page_cache=keep_page_cache)
    manager, report = start(files)
    assert [recovered.problem for recovered in report.recovered] == [""]
    found = manager.get("a", 0)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (0, 3)
    assert "a 0 20" not in files.content("data/recovery-point-offset-checkpoint").decode()


def test_l30_a_start_that_cannot_sync_a_log_keeps_its_recovery_point(
    files: MemoryFiles,
) -> None:
    """With a higher recovery point, no later start would read the unsynced end of the log."""
    manager, _ = start(files)
    log = manager.create("a", 0, ID_A)
    append(log, make_batch(10))
    log.roll(NOW_MS)
    append(log, make_batch(3))
    crash(files)
    files.fail(DiskFailure("sync", path_part=".log"))
    manager, _ = start(files)
    found = manager.get("a", 0)
    assert found is not None and found.offline
    write_points = manager.directories[0].recovery_points_writer()
    if write_points is not None:
        write_points()
        manager.directories[0].use_recovery_points()
    assert manager.directories[0].recovery_point_on_disk(("a", 0)) == 0


def test_a_creation_fails_if_old_checkpoints_cannot_be_removed(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    log = two_topics.get("a", 0)
    assert log is not None
    assert two_topics.delete_records([(log, 1)]) == [1]
    two_topics.delete("a", 0)
    files.fail(DiskFailure("sync", path_part="log-start"))
    with pytest.raises(StorageError):
        two_topics.create("a", 0, ID_B)
    files.heal()
    assert append(two_topics.create("a", 0, ID_B)).base_offset == 0


def test_a_partition_may_be_deleted_during_a_flush(two_topics: LogManager) -> None:
    log = two_topics.get("a", 0)
    assert log is not None
    append(log)
    ticket = log.durability.begin_flush()
    assert ticket is not None
    two_topics.delete("a", 0)
    try:
        ticket.sync()
    except OSError as problem:
        log.durability.finish_flush(ticket, problem)
    else:
        log.durability.finish_flush(ticket, None)
    assert log.offline


# ---- maintenance


def test_l10_deleted_records_stay_deleted_after_a_crash(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    log = two_topics.get("a", 1)
    assert log is not None
    assert two_topics.delete_records([(log, 2)]) == [2]
    crash(files, keep_page_cache=False)
    manager, _ = start(files)
    log = manager.get("a", 1)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)


@pytest.mark.parametrize("deleted", [False, True])
def test_l35_a_start_reports_a_log_start_known_only_from_the_first_epoch(
    files: MemoryFiles, deleted: bool
) -> None:
    """After retention alone the log start is that of a segment, and nothing is reported. `deleted`:
    records were deleted, too, and the checkpoint of the log start is lost."""
    config = LogConfig(retention_bytes=1, segment_bytes=100)
    manager, _ = start(files, config=config)
    log = manager.create("a", 0, ID_A)
    for _ in range(3):
        append(log, make_batch(2))
        log.durability.flush()
    assert manager.apply_retention(NOW_MS).problems == []
    begin = log.log_start_offset
    assert 0 < begin < log.log_end_offset - 1
    if deleted:
        begin += 1
        assert manager.delete_records([(log, begin)]) == [begin]
        files.remove("data/log-start-offset-checkpoint")
    assert not files.exists("data/log-start-offset-checkpoint")
    crash(files)
    manager, report = start(files, config=config)
    found = manager.get("a", 0)
    assert found is not None and found.log_start_offset == begin
    assert [
        f"data/a-0 is taken to begin at offset {begin}" in each for each in report.problems
    ] == ([True] * deleted)


def test_l34_a_log_cut_below_its_log_start_is_served_at_once(
    files: MemoryFiles,
) -> None:
    """With page-cache durability the log start can reach the disk before the records. The start
    must not sync files that it has removed."""
    manager, _ = start(files, config=LogConfig(durability="page-cache"))
    log = manager.create("a", 0, ID_A)
    append(log, make_batch(3))
    log.durability.flush()
    append(log, make_batch(3))
    assert manager.delete_records([(log, 5)]) == [5]
    crash(files, keep_page_cache=False)
    manager, _ = start(files)
    found = manager.get("a", 0)
    assert found is not None
    assert (found.offline_reason, found.log_start_offset, found.log_end_offset) == ("", 5, 5)
    assert append(found).base_offset == 5


def test_l10_a_start_fails_if_the_log_start_checkpoint_is_unreadable(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    """Without the checkpoint, deleted records would reappear. The failed start must not hide from
    the next start that the last stop was clean."""
    log = two_topics.get("a", 1)
    assert log is not None
    log.trimming.delete_records(2)
    two_topics.close()
    files.fail(DiskFailure("read", path_part="log-start-offset-checkpoint"))
    with pytest.raises(DataDirectoryError, match="log-start-offset-checkpoint cannot be read"):
        start(files)
    crash(files)  # ends the process of the failed start
    manager, report = start(files)
    log = manager.get("a", 1)
    assert log is not None
    assert (log.log_start_offset, report.clean) == (2, True)


def test_l20_retention_covers_all_logs_and_reports_problems(
    files: MemoryFiles, two_topics: LogManager
) -> None:
    for log in two_topics:
        log.config = LogConfig(retention_ms=1000)
    report = two_topics.apply_retention(NOW_MS + 5000)
    assert report == MaintenanceReport({"a-0": 1, "a-1": 1, "b-c-0": 1}, [])
    files.fail(DiskFailure("rename"))
    first = two_topics.get("a", 0)
    assert first is not None
    append(first)
    first.durability.flush()
    report = two_topics.apply_retention(NOW_MS + 5000)
    assert list(report.deleted_segments) == []
    assert "a-0" in report.problems[0]


def test_retention_handles_a_few_logs_at_a_time(files: MemoryFiles, two_topics: LogManager) -> None:
    two_topics.close()
    manager, _ = start(files, config=LogConfig(retention_ms=1000))
    manager.begin_retention()
    assert len(manager.continue_retention(NOW_MS + 5000, 2).deleted_segments) == 2
    assert [log.loaded for log in manager] == [True, True, False]
    manager.delete("b-c", 0)
    assert manager.continue_retention(NOW_MS + 5000, 2) == MaintenanceReport()


def test_p24_expired_producers_are_removed(two_topics: LogManager) -> None:
    log = two_topics.get("a", 0)
    assert log is not None
    append(log, make_batch(1, producer_id=4))
    assert finished(two_topics.remove_expired_producers(NOW_MS + 1)) == 0
    assert finished(two_topics.remove_expired_producers(NOW_MS + 86_400_001)) == 1


def test_many_partitions_need_few_open_handles(files: MemoryFiles) -> None:
    manager, _ = start(files, max_open_files=20)
    for partition in range(200):
        log = manager.create("many", partition, ID_A)
        append(log)
        log.durability.flush()
    assert files.open_handles <= 20
    manager.close()
    assert files.open_handles == 0
    manager, report = start(files, max_open_files=20)
    assert (report.logs, files.open_handles) == (200, 0)
    for log in manager:
        assert len(headers(read_all(log))) == 1
    assert files.open_handles <= 20


# ---- text formats


def test_offset_checkpoints_survive_encoding() -> None:
    offsets = {("a", 0): 5, ("b-c.d_e", 12): 2**40}
    assert decode_offsets(encode_offsets(offsets).decode()) == offsets
    assert decode_offsets("0\n0\n") == {}


def test_kept_lines_of_a_checkpoint_are_those_of_the_present_offsets() -> None:
    offsets = {("a", 0): 5, ("b", 1): 7}
    assert encode_offsets({}) == b"0\n0\n"
    lines = OffsetLines()
    for change in ({}, offsets, offsets | {("a", 0): 6, ("a", 3): 7}, {("b", 1): 7}, {}):
        assert lines.encode(change) == encode_offsets(change)


def test_l35_checkpoint_entries_without_a_checksum_are_read_and_marked() -> None:
    offsets = {("own", 0): 5, ("kafkas", 0): 7}
    text = encode_offsets(offsets, unchecked=[("kafkas", 0)]).decode()
    checked: set[tuple[str, int]] = set()
    assert decode_offsets(text, checked) == offsets
    assert checked == {("own", 0)}


def test_l35_a_checkpoint_entry_with_a_wrong_checksum_is_refused() -> None:
    line = encode_offsets({("a", 0): 5}).decode().splitlines()[2]
    blank = {" ": "\t", "\t": " "}
    for damaged in (line[:-1], f"{line} ", f"{line[:-1]}{blank[line[-1]]}", line.replace("5", "6")):
        with pytest.raises(CorruptCheckpoint, match="does not have its checksum"):
            decode_offsets(f"0\n1\n{damaged}\n")


@pytest.mark.parametrize(
    "text", ["", "0", "x\n0\n", "0\nx\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 1 2\n"]
)
def test_l35_an_invalid_checkpoint_text_is_refused(text: str) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(text)


# --- D11: producers of all partitions together ---


def test_d11_p24_the_oldest_producers_of_all_partitions_are_removed(
    files: MemoryFiles,
) -> None:
    manager, _ = start(files)
    logs = [manager.create("t", index, ID_A) for index in (0, 1)]
    for number in range(10):
        batch = make_batch(timestamp=NOW_MS + number, producer_id=number, transactional=number == 0)
        append(logs[number % 2], batch)
    assert finished(manager.forget_producers_beyond(10)) == 0
    assert finished(manager.forget_producers_beyond(6)) == 4
    left = [[entry.producer_id for entry in log.producers.entries()] for log in logs]
    assert left == [[0, 6, 8], [5, 7, 9]], "0 has a transaction open"
    assert finished(manager.forget_producers_beyond(0)) == 5
    assert [len(log.producers) for log in logs] == [1, 0]


def test_d11_p24_the_oldest_producers_are_chosen_by_order_and_timestamp(files: MemoryFiles) -> None:
    """Within a partition, the producer that wrote first is removed first, even if a later
    producer's batch has an older timestamp."""
    manager, _ = start(files)
    logs = [manager.create("t", index, ID_A) for index in (0, 1)]
    for producer_id, late_ms in ((1, 100), (2, -(10**9)), (3, 110)):
        append(logs[0], make_batch(timestamp=NOW_MS + late_ms, producer_id=producer_id))
    for producer_id, late_ms in ((4, 90), (5, 105), (6, -5)):
        append(logs[1], make_batch(timestamp=NOW_MS + late_ms, producer_id=producer_id))

    def left() -> list[int]:
        return sorted(entry.producer_id for log in logs for entry in log.producers.entries())

    gone: list[int] = []
    for most in range(5, -1, -1):
        before = set(left())
        assert finished(manager.forget_producers_beyond(most)) == 1
        gone += before - set(left())
    assert gone == [4, 1, 2, 5, 6, 3]


def test_d11_producers_are_not_counted_while_the_limit_cannot_be_reached(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _ = start(files)
    logs = [manager.create("t", index, ID_A) for index in (0, 1)]
    looks = 0
    really = LogManager.__iter__

    def looked(self: LogManager) -> Any:
        nonlocal looks
        looks += 1
        return really(self)

    monkeypatch.setattr(LogManager, "__iter__", looked)
    for number in range(3):
        append(logs[0], make_batch(timestamp=NOW_MS, producer_id=number))
        append(logs[1], make_batch(timestamp=NOW_MS, producer_id=number, base_sequence=0))
    assert finished(manager.forget_producers_beyond(6)) == 0
    assert looks == 0, "no more than 6 were ever made"
    append(logs[0], make_batch(timestamp=NOW_MS + 1, producer_id=7))
    assert [finished(manager.forget_producers_beyond(6)) for _ in range(3)] == [1, 0, 0]
    assert looks == 1
    logs[0].remove_expired_producers(NOW_MS + 10**9)
    append(logs[0], make_batch(timestamp=NOW_MS + 2, producer_id=8))
    assert finished(manager.forget_producers_beyond(6)) == 0
    assert (looks, sum(len(log.producers) for log in logs)) == (2, 4), "it counts again"


def test_d11_producers_that_a_start_finds_are_counted(files: MemoryFiles) -> None:
    manager, _ = start(files)
    log = manager.create("t", 0, ID_A)
    for number in range(5):
        append(log, make_batch(timestamp=NOW_MS + number, producer_id=number))
    manager.close()
    again, _ = start(files)
    (log,) = again
    assert finished(again.forget_producers_beyond(2)) == 0, "its files are not open yet"
    assert len(log.producers) == 5
    assert finished(again.forget_producers_beyond(2)) == 3
