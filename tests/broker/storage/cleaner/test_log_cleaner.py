"""The log cleaner of a node: the choice of logs, faults, and reports (L-25, L-28, L-29)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from compaction_history import batches_of
from logs import Workers, make_batch, make_marker, small_file
from node_world import NodeWorld
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.storage.cleaner.job import CleaningJob
from odradek_broker.storage.cleaner.log_cleaner import OWN_SEGMENT_BYTES
from odradek_broker.storage.cleaner.runner import CleaningDone, CleaningFailed
from odradek_broker.storage.cleaner.runner import CleaningFailure as Why
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import AppendOrigin
from odradek_testkit.simulation.disk import DiskFailure


class Timers:
    """A scheduler whose timers fire only in `run` and `pass_time`. `later`: the calls with a
    delay."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Any:
        (self.later if delay_ms else self.waiting).append(callback)

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()

    def pass_time(self) -> None:
        """Run all calls with a delay, and the calls that follow."""
        self.waiting += self.later
        self.later.clear()
        self.run()


class World(NodeWorld):
    def __init__(self, **settings: str) -> None:
        self.scheduler = self.timers = Timers()
        super().__init__(**{"log_cleaner_backoff_ms": "15000", **settings})
        self.problems: list[tuple[str, str]] = []

    def topic(self, name: str, **configs: str) -> PartitionLog:
        given = {key.replace("_", "."): value for key, value in configs.items()}
        given.setdefault("cleanup.policy", "compact")
        given.setdefault("segment.bytes", "1000")
        records, _ = create_topics(self.node.metadata, [RequestedTopic(name, 1, configs=given)])
        self.node.metadata_log.commit(records)
        self.flush()
        return self.log(name)

    def log(self, name: str) -> PartitionLog:
        log = self.logs.get(name, 0)
        assert log is not None
        return log

    def fill(self, log: PartitionLog, batches: int, keys: int = 3) -> None:
        for number in range(batches):
            self.write(log, make_batch(key=b"k%d" % (number % keys)))
        self.flush()

    def write(self, log: PartitionLog, batch: memoryview) -> None:
        now_ms = self.clock.wall_ms()
        log.append(batch, origin=AppendOrigin.COORDINATOR, now_ms=now_ms, leader_epoch=0)
        self.asked.setdefault(log.durability)

    def look(self) -> None:
        self.begin_look()
        assert not self.node.cleaner.busy

    def begin_look(self) -> None:
        """Let the cleaner look for dirty logs, and clean until a step waits for a timer."""
        cleaner = self.node.cleaner
        cleaner.on_problem = lambda name, problem: self.problems.append((name, problem))
        cleaner.tick()
        self.clock.advance(15_001)
        cleaner.tick()
        self.timers.later.clear()
        self.timers.run()


def values_of(log: PartitionLog) -> list[bytes]:
    return [value or b"" for batch in batches_of(log) for *_, value in batch.records]


def keys_of(log: PartitionLog) -> list[bytes]:
    return [key or b"" for batch in batches_of(log) for _, key, _ in batch.records]


def test_l25_a_dirty_log_is_cleaned_and_its_clean_offset_is_stored() -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    active = log.segments[-1].base_offset
    world.look()
    assert len(keys_of(log)) < 20 and log.segments[-1].base_offset == active
    assert sorted(set(keys_of(log))) == [b"k0", b"k1", b"k2"]
    assert world.logs.directories[0].cleaner_offsets == {("t", 0): active}
    content = small_file(world.files.content("data/cleaner-offset-checkpoint"))
    assert content == f"0\n1\nt 0 {active}\n"
    world.crash()
    assert world.logs.directories[0].cleaner_offsets == {("t", 0): active}
    assert world.node.cleaner.statistics.uncleanable == {}


def test_l25_a_log_without_the_policy_compact_is_not_cleaned() -> None:
    world = World()
    log = world.topic("t", cleanup_policy="delete")
    world.fill(log, 60)
    world.look()
    assert len(keys_of(log)) == 60


def test_l25_a_cleaner_that_is_switched_off_does_nothing() -> None:
    world = World(log_cleaner_enable="false")
    log = world.topic("t")
    world.fill(log, 60)
    world.look()
    assert len(keys_of(log)) == 60


def test_l25_every_dirty_log_is_cleaned_and_the_dirtiest_one_first() -> None:
    world = World()
    logs = [world.topic(f"t{number}") for number in range(15)]
    for log in logs:
        world.fill(log, 30)
    told: list[str] = []
    world.node.cleaner.on_cleaned = lambda cleaned: told.append(cleaned.name)
    world.look()
    assert len(told) == 15
    world.fill(logs[3], 30)
    world.fill(logs[5], 60)
    told.clear()
    world.look()
    assert told == ["t5-0", "t3-0"]


def test_l29_internal_topics_roll_smaller_segments_for_the_cleaner() -> None:
    world = World(offsets_topic_num_partitions="1")
    world.node.ensure_internal_topic(OFFSETS_TOPIC)
    world.flush()
    log = world.log(OFFSETS_TOPIC)
    assert log.config.segment_bytes == 104_857_600
    value = bytes(OWN_SEGMENT_BYTES // 4)
    for number in range(3):
        world.write(log, make_batch(key=b"k", value=value, timestamp=-1))
        assert number < 3 and len(log.segments) == 1
    world.flush()
    world.look()
    assert len(log.segments) == 1, "it is smaller than that"
    for _ in range(3):
        world.write(log, make_batch(key=b"k", value=value, timestamp=-1))
    world.flush()
    world.look()
    assert [segment.size_bytes < OWN_SEGMENT_BYTES for segment in log.segments] == [True, True]
    assert keys_of(log) == [b"k"]


def test_a_recreated_partition_has_no_clean_offset() -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    world.look()
    world.delete("t")
    world.flush()
    world.topic("t")
    assert world.logs.directories[0].cleaner_offsets == {}
    assert world.files.content("data/cleaner-offset-checkpoint") == b"0\n0\n"


@pytest.mark.parametrize("late", [False, True])
def test_l05_a_log_cleaned_after_the_loss_of_its_index_keeps_committed_records(late: bool) -> None:
    """The aborted record must not replace the older record of its key. `late`: indexes are rebuilt
    in the background."""
    world = World()
    log = world.topic("t")
    for producer_id, value, commit in ((1, b"kept", True), (2, b"aborted", False)):
        batch = make_batch(key=b"k", value=value, producer_id=producer_id, transactional=True)
        world.write(log, batch)
        world.write(log, make_marker(commit, producer_id))
    world.fill(log, 60)
    world.logs.close()
    for path in world.files.paths():
        if path.startswith("data/t-0/") and path.endswith((".txnindex", ".snapshot")):
            world.files.remove(path)
    world.start()
    log = world.log("t")
    workers = Workers(log) if late else None
    world.look()
    if workers is not None:
        assert b"kept" in values_of(log)
        assert len(keys_of(log)) > 60, "nothing is cleaned yet"
        while workers.jobs:
            workers.run()
        log.options.handles.background = None
        world.look()
    # The first attempt has taken a producer snapshot.
    log.durability.flush()
    world.look()
    assert len(keys_of(log)) < 20
    assert b"kept" in values_of(log)
    assert b"aborted" not in values_of(log)


def test_a_log_with_a_damaged_batch_is_not_cleaned_and_is_reported() -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    before = log.size_bytes
    content = world.files._names["data/t-0/00000000000000000000.log"].content
    content[80] ^= 1
    world.look()
    assert list(world.node.cleaner.statistics.uncleanable) == [("t", 0)]
    assert world.problems[0][0] == "t-0" and "not compacted any more" in world.problems[0][1]
    assert log.size_bytes == before
    world.look()
    assert len(world.problems) == 1
    assert world.node.cleaner.statistics.uncleanable_bytes == {"data": before}


def test_a_full_disk_ends_only_the_present_cleaning() -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    world.files.fail(DiskFailure("append", path_part="log.cleaned"))
    world.look()
    assert len(world.problems) == 1 and world.logs.directories[0].cleaner_offsets == {}
    assert sorted(set(keys_of(log))) == [b"k0", b"k1", b"k2"]
    assert not [path for path in world.files.paths() if path.endswith(".cleaned")]
    world.look()
    assert len(world.problems) == 1 and len(keys_of(log)) < 20


@pytest.mark.parametrize("nth", range(1, 5))
def test_l27_a_swap_that_finds_no_room_before_its_commit_is_given_up(nth: int) -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    before = keys_of(log)
    full = world.files.fail(DiskFailure("rename", nth, path_part=".cleaned", code=errno.ENOSPC))
    world.look()
    assert full.fired == 1
    assert not log.offline
    assert len(world.problems) == 1
    assert keys_of(log) == before
    assert not [path for path in world.files.paths() if path.endswith((".cleaned", ".swap"))]
    world.look()
    assert len(world.problems) == 1
    after = keys_of(log)
    assert len(after) < 20
    world.crash()
    assert keys_of(world.log("t")) == after


def dirty_world() -> tuple[World, PartitionLog]:
    """A node with a dirty log of several segments."""
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    return world, log


def behind_commits() -> list[int]:
    """Clean `dirty_world`, and number its renames from 1 on. Returns the numbers of the renames
    after the commit of a swap."""
    world, _ = dirty_world()
    rename, sources = world.files.rename, []

    def noting(source: str, target: str) -> None:
        if "data/t-0/" in source:
            sources.append(source)
        rename(source, target)

    world.files.rename = noting  # type: ignore[method-assign]
    world.look()
    return [nth for nth, source in enumerate(sources, 1) if not source.endswith(".cleaned")]


def no_room_at(nth: int) -> DiskFailure:
    return DiskFailure("rename", nth, path_part="data/t-0/", code=errno.ENOSPC)


def check_swap_goes_on(failure: DiskFailure) -> None:
    """Check that a committed swap is finished later if the disk is full once."""
    world, log = dirty_world()
    full = world.files.fail(failure)
    world.begin_look()
    assert full.fired == 1
    assert world.node.cleaner.busy
    assert not log.offline
    assert [name for name, _ in world.problems] == ["t-0"]
    assert sorted(set(keys_of(log))) == [b"k0", b"k1", b"k2"]
    world.fill(log, 3)
    world.timers.pass_time()
    assert not world.node.cleaner.busy
    assert not log.offline
    assert len(world.problems) == 1
    after = keys_of(log)
    assert len(after) < 23
    assert not [path for path in world.files.paths() if path.endswith((".cleaned", ".swap"))]
    world.crash()
    assert keys_of(world.log("t")) == after


def test_l27_a_committed_swap_that_finds_no_room_is_tried_again() -> None:
    numbers = behind_commits()
    assert len(numbers) > 8
    for nth in numbers:
        check_swap_goes_on(no_room_at(nth))


def test_l27_the_removal_of_a_source_list_is_repeated_after_a_full_disk() -> None:
    check_swap_goes_on(DiskFailure("remove", path_part=".sources.swap", code=errno.ENOSPC))


def test_l27_a_swap_that_waits_for_room_is_finished_by_the_next_start() -> None:
    world, log = dirty_world()
    before = keys_of(log)
    world.files.fail(no_room_at(behind_commits()[1]))
    world.begin_look()
    assert world.node.cleaner.busy and not log.offline
    assert keys_of(log) == before
    world.crash()
    assert len(keys_of(world.log("t"))) < len(before)
    assert not [path for path in world.files.paths() if path.endswith((".cleaned", ".swap"))]


def test_l27_a_swap_that_cannot_be_finished_or_undone_takes_the_log_offline() -> None:
    world, log = dirty_world()
    before = batches_of(log)
    world.files.fail(no_room_at(behind_commits()[1]))
    world.files.fail(DiskFailure("rename", path_part=".compacted.deleted", code=errno.ENOSPC))
    world.look()
    assert log.offline
    world.crash()
    recovered = world.log("t")
    recovered.load(0)
    assert recovered.log_end_offset == before[-1].last + 1
    assert sorted(set(keys_of(recovered))) == [b"k0", b"k1", b"k2"]


@pytest.mark.parametrize("nth", range(1, 4))
def test_l46_a_swap_that_was_given_up_and_cannot_be_removed_stays_uncommitted(nth: int) -> None:
    """A start takes a `.swap` file without a `.sources.cleaned` file for a committed swap of
    Kafka."""
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    before = keys_of(log)
    world.files.fail(DiskFailure("rename", path_part=".sources.cleaned", code=errno.ENOSPC))
    full = world.files.fail(DiskFailure("remove", nth, path_part=".swap", code=errno.ENOSPC))
    world.look()
    assert full.fired == 1
    assert [path for path in world.files.paths() if path.endswith(".swap")]
    world.crash()
    assert keys_of(world.log("t")) == before
    assert not [path for path in world.files.paths() if path.endswith((".cleaned", ".swap"))]


def test_d05_a_swap_whose_sync_failed_takes_the_partition_offline() -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    before = batches_of(log)
    # The first two syncs are those of the cleaner before the swap.
    world.files.fail(DiskFailure("sync_dir", nth=3, path_part="data/t-0"))
    world.look()
    assert log.offline and "durable" in log.offline_reason
    world.crash()
    recovered = world.log("t")
    recovered.load(0)
    assert recovered.log_end_offset == before[-1].last + 1
    assert sorted(set(keys_of(recovered))) == [b"k0", b"k1", b"k2"]


class DyingCleaner:
    """A cleaner process that dies at each job."""

    def __init__(self) -> None:
        self.jobs: list[CleaningJob] = []

    def begin(self, job: CleaningJob, done: CleaningDone) -> None:
        self.jobs.append(job)
        done(CleaningFailed(Why.DIED, "the cleaner's process ended with status -9"))

    def go_on(self, done: CleaningDone) -> None:
        raise AssertionError("it is dead")

    def give_up(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_log_that_kills_the_cleaner_three_times_is_not_cleaned_again() -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    runner = world.node.cleaner._runner = DyingCleaner()
    for _ in range(5):
        world.look()
    assert len(runner.jobs) == 3
    assert world.node.cleaner.statistics.deaths == 3
    assert list(world.node.cleaner.statistics.uncleanable) == [("t", 0)]


class SlowCleaner(DyingCleaner):
    """A cleaner that finishes a job only when a test calls `done`."""

    def begin(self, job: CleaningJob, done: CleaningDone) -> None:
        self.jobs.append(job)
        self.done = done


def test_the_cleaning_of_a_deleted_partition_is_given_up() -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    runner = world.node.cleaner._runner = SlowCleaner()
    world.node.cleaner.tick()
    world.clock.advance(15_001)
    world.node.cleaner.tick()
    world.timers.run()
    assert world.node.cleaner.busy and len(runner.jobs) == 1
    world.delete("t")
    world.flush()
    runner.done(CleaningFailed(Why.DISK, "no such file"))
    world.timers.run()
    assert not world.node.cleaner.busy and world.problems == []


def test_l32_a_log_is_cleaned_when_its_recovery_point_is_on_disk() -> None:
    """Without the recovery point, a start could not tell the gaps of a cleaning from those of a
    crash."""
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    runner = world.node.cleaner._runner = SlowCleaner()
    path = "data/recovery-point-offset-checkpoint"
    world.files.fail(DiskFailure("sync", path_part=path))
    world.look()
    assert runner.jobs == [] and len(world.problems) == 1
    world.node.cleaner.tick()
    world.clock.advance(15_001)
    world.node.cleaner.tick()
    world.timers.run()
    assert len(runner.jobs) == 1
    world.files.crash()
    assert f"t 0 {log.durability.durable_offset}\n" in small_file(world.files.content(path))
    assert runner.jobs[0].upper_bound <= log.durability.durable_offset


def test_l32_no_older_recovery_point_replaces_that_of_the_cleaner() -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 10)
    older = world.logs.directories[0].recovery_points_writer()
    assert older is not None
    older()
    world.fill(log, 60)
    write, use = world.logs.directories[0].recovery_points_for_cleaning()
    write()
    assert use()
    world.logs.directories[0].use_recovery_points()
    assert (
        world.logs.directories[0].recovery_point_on_disk(("t", 0)) == log.durability.durable_offset
    )
    content = small_file(world.files.content("data/recovery-point-offset-checkpoint"))
    assert f"t 0 {log.durability.durable_offset}\n" in content


def test_l32_a_recreated_partition_has_a_new_recovery_point() -> None:
    world = World()
    log = world.topic("t")
    world.fill(log, 60)
    world.look()
    assert world.logs.directories[0].recovery_point_on_disk(("t", 0)) > 0
    world.delete("t")
    world.flush()
    world.topic("t")
    assert world.logs.directories[0].recovery_point_on_disk(("t", 0)) == 0


@pytest.mark.parametrize("left_by", ["us", "another, before us", "another, after us"])
def test_l32_gaps_left_by_another_broker_are_accepted(left_by: str) -> None:
    """Apache Kafka writes no recovery point before a cleaning, and no checksums into the
    checkpoint."""
    world = World()
    log = world.topic("t")
    world.fill(log, 30)
    point = world.logs.directories[0].recovery_points_writer()
    assert point is not None
    point()
    world.logs.directories[0].use_recovery_points()
    world.fill(log, 30)
    end, middle = log.log_end_offset, log.segments[-3]
    world.files.put(middle.path, b"")
    if left_by != "us":
        path = "data/recovery-point-offset-checkpoint"
        world.files.put(path, small_file(world.files.content(path)).encode())
    if left_by == "another, before us":
        world.files.remove("data/.cleaner.lock")
    world.crash()
    assert world.log("t").log_end_offset == (middle.base_offset if left_by == "us" else end)


@pytest.mark.parametrize("cleaner", ["new", "old", "lost"])
def test_l32_an_old_copy_of_the_recovery_points_makes_no_gap_a_loss(cleaner: str) -> None:
    """The checkpoint of the cleaner may be an old copy too, and say nothing of the gap. Of a lost
    end a producer snapshot tells, and the cleaner removes those below the part that it cleans."""
    world = World()
    log = world.topic("t")
    world.fill(log, 30)
    world.look()
    old = world.files.copy()
    world.fill(log, 30)
    world.look()
    world.fill(log, 10)
    end, kept = log.log_end_offset, keys_of(log)
    path = "data/recovery-point-offset-checkpoint"
    world.files.put(path, bytes(old.content(path)))
    path = "data/cleaner-offset-checkpoint"
    if cleaner == "old":
        world.files.put(path, bytes(old.content(path)))
    elif cleaner == "lost":
        world.files.remove(path)
    world.crash()
    assert world.log("t").log_end_offset == end
    assert keys_of(world.log("t")) == kept


def test_l32_a_log_that_could_not_be_opened_may_have_gaps() -> None:
    """The checkpoint is lost, so the recovery point is 0 until a start has read the whole log."""
    world = World()
    log = world.topic("t")
    world.fill(log, 30)
    path = "data/recovery-point-offset-checkpoint"
    end, middle = log.log_end_offset, log.segments[-3]
    world.files.put(middle.path, b"")
    world.files.remove(path)
    unreadable = log.segments[-2].path
    world.files.crash(keep_page_cache=True)
    world.files.fail(DiskFailure("read", path_part=unreadable, for_ever=True))
    world.start()
    assert world.log("t").offline
    world.files.heal()
    world.crash()
    assert world.log("t").log_end_offset == end
