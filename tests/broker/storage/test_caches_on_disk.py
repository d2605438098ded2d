"""No cache is removed before what replaces it is on disk (L-55), for every kind of file: a disk
that fills up at any operation, compaction and retention when there is room again, and then a crash,
never change what a start finds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

import budget
import node_world
from filling_files import FillingFiles
from logs import NOW_MS, append, make_batch
from node_world import NodeWorld
from odradek_broker.explain import group_lags_file
from odradek_broker.metadata.cluster import METADATA_TOPIC
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.partition import StoredRecord
from odradek_broker.storage.checkpoints import LEADER_EPOCHS
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.startup import StartReport
from odradek_testkit.simulation.clock import StoppedTimer
from odradek_testkit.simulation.disk import MemoryFiles

WRITER, TRANSACTIONAL = 1, 2
POLICIES = ("compact", "delete", "compact,delete")


class Timers:
    """A scheduler whose timers, whatever their delays, fire at the next `run`."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> StoppedTimer:
        self._waiting.append(callback)
        return StoppedTimer()

    def run(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()


class CachesWorld(NodeWorld):
    """A node with one log, whose segments are small, and which is compacted or trimmed."""

    files: FillingFiles
    scheduler: Timers

    def start(self) -> StartReport:
        self.scheduler = Timers()
        return super().start()

    def __init__(self, policy: str, durability: str = "fsync") -> None:
        super().__init__(
            log_cleaner_backoff_ms="1",
            log_segment_delete_delay_ms="1",
            log_durability=durability,
            log_retention_check_interval_ms="1",
        )
        configs = {
            "cleanup.policy": policy,
            "segment.bytes": "600",
            "index.interval.bytes": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "retention.bytes": "900",
            "delete.retention.ms": "0",
        }
        made, _ = create_topics(self.node.metadata, [RequestedTopic("t", 1, configs=configs)])
        self.node.metadata_log.commit(made)
        self.settle()
        self.sequences: dict[int, int] = {}
        self.leader_epoch = 0
        #: True if new leader epochs begin, of which a scan after compaction finds fewer (L-55).
        self.has_epochs = False

    @property
    def log(self) -> PartitionLog:
        log = self.logs.get("t", 0)
        assert log is not None
        return log

    def settle(self) -> None:
        """Let flushes, the cleaner and its background do what is due."""
        for _ in range(4):
            self.flush()
            self.scheduler.run()

    def write(self, producer_id: int, key: bytes, **how: Any) -> None:
        """Append a batch of an idempotent producer; a refused one is given up."""
        sequence = self.sequences.get(producer_id, 0)
        batch = make_batch(
            1, key=key, value=bytes(60), producer_id=producer_id, sequence=sequence, **how
        )
        with suppress(StorageError):
            append(self.log, batch, leader_epoch=self.leader_epoch)
            self.sequences[producer_id] = sequence + 1

    def work(self) -> None:
        """Write, with transactions of both ends, leader epochs, rolls, snapshots and flushes."""
        for number in range(24):
            self.leader_epoch += self.has_epochs and number % 7 == 6
            self.write(WRITER, b"k%d" % (number % 2))
            if number % 4 == 0:
                self.write(TRANSACTIONAL, b"x", transactional=True)
            if number % 4 == 2:
                partition = self.node.partition("t", 0)
                assert partition is not None
                partition.leader_epoch = self.leader_epoch
                with suppress(StorageError):
                    partition.append_marker(
                        TRANSACTIONAL,
                        0,
                        0,
                        commit=number % 8 == 2,
                        transaction_version=1,
                        now_ms=NOW_MS,
                    )
            if number % 5 == 4:
                self.clean()

    def clean(self) -> None:
        """Let a pass of compaction and retention run, with the checkpoints of a minute."""
        for _ in range(3):
            self.settle()
            while self.node.cleaner.busy and not self.files.full:
                self.settle()
            for directory in self.logs.directories:
                with suppress(OSError):
                    write = directory.recovery_points_writer()
                    if write is not None:
                        write()
                        directory.use_recovery_points()
            self.maintain_later()
        while self.node.cleaner.busy and not self.files.full:
            self.settle()
        self.settle()

    def found(self) -> dict[str, Any]:
        """What readers and producers get from the log."""
        log = self.log
        log.ensure_loaded()
        partition = self.node.partition("t", 0)
        assert partition is not None
        values = list(partition.read_stored())
        with log.options.handles.without_background():
            largest = log.max_timestamp_offset()
        return {
            "producers": {
                entry.producer_id: (
                    entry.epoch,
                    tuple(entry.batches()),
                    entry.transaction_first_offset,
                )
                for entry in log.producers.entries()
            },
            "records": values,
            "committed": list(_committed(values, log)),
            # An epoch that is read from the batches begins at the first batch that is left.
            "epochs": [
                (epoch, min((each.offset for each in values if each.offset >= begins), default=-1))
                for epoch, begins in log._files.epochs.entries
            ],
            "ends": (log.log_start_offset, log.log_end_offset),
            "time": log.offset_for_timestamp(NOW_MS, log.log_end_offset),
            "largest": largest,
        }


def _committed(records: list[StoredRecord], log: PartitionLog) -> Iterator[int]:
    """The offsets that a consumer with read_committed returns. Which aborted transactions there are
    does not matter where compaction has removed their records."""
    aborted = log.aborted_transactions(log.log_start_offset, log.last_stable_offset)
    begins = {first: producer_id for producer_id, first in aborted}
    skipped: set[int] = set()
    for record in records:
        for first in [first for first in begins if first <= record.offset]:
            skipped.add(begins.pop(first))
        if record.is_control:
            skipped.discard(record.producer_id)
        elif record.producer_id not in skipped:
            yield record.offset


@pytest.fixture(autouse=True)
def filling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_world, "MemoryFiles", FillingFiles)


def windows(policy: str, lasts: int) -> Iterator[range]:
    """The operations of a run at which the disk is full."""
    probe = CachesWorld(policy)
    begin = probe.files.operations
    probe.work()
    step = 7 if budget.is_short() else 2
    yield from (range(at, at + lasts) for at in range(begin, probe.files.operations, step))


@pytest.mark.parametrize("lasts", budget.of_which([1, 3, 30], [3]))
@pytest.mark.parametrize("policy", budget.of_which(POLICIES, ["compact"]))
def test_l55_p27_a_full_disk_compaction_and_a_crash_lose_nothing_of_any_cache(
    policy: str, lasts: int
) -> None:
    for full in windows(policy, lasts):
        world = CachesWorld(policy)
        world.files.full = full
        world.work()
        world.files.full = range(0)
        if world.log.offline:
            # A swap that failed halfway is finished by a start.
            assert "swapping a cleaned segment in" in world.log.offline_reason, full
            world.crash()
        world.write(WRITER, b"last")
        world.clean()
        world.clean()
        before = world.found()
        for stop in ("kill", "clean", "power", "clean, power"):
            if "clean" in stop:
                world.node.close()
                world.logs.close()
            if stop == "clean":
                world.start()
            else:
                world.crash(keep_page_cache=stop == "kill")
            assert world.found() == before, (full, stop)


def _is_cache(path: str) -> bool:
    name = path.rpartition("/")[2]
    others = name.startswith(".") or name.endswith((".log", ".deleted")) or "journal" in name
    return not (others or METADATA_TOPIC in path or name == "meta.properties")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("policy", budget.of_which(POLICIES, ["compact"]))
def test_l55_a_cache_that_is_lost_or_an_old_copy_changes_nothing(policy: str, clean: bool) -> None:
    """Each cache alone, and pairs of old copies."""
    world = CachesWorld(policy)
    world.has_epochs = True
    disks: list[MemoryFiles] = []
    for stops in (True, False, True, False, clean):
        world.work()
        if stops:
            world.node.close()
            world.node.verdicts.group_lags.add("group", NOW_MS, len(disks))
            world.node.group_lags_file.save()
            world.logs.close()
        disks.append(world.files.copy())
        if stops:
            world.start()
        else:
            world.crash()
    *old_disks, newest = disks

    def found(changes: dict[str, bytes | None]) -> dict[str, Any]:
        world.files = cast(FillingFiles, newest.copy())
        for path, content in changes.items():
            if content is None:
                world.files.remove(path)
            else:
                world.files.put(path, content)
        world.start()
        answers = world.found()
        partition = world.node.partition("t", 0)
        assert partition is not None
        partition.leader_epoch = world.leader_epoch + 1
        ends = answers["epochs"] = list(map(partition.end_of_epoch, range(1, world.leader_epoch)))
        # Old copies may lack epochs, but no client is told of a truncation (F-13).
        if changes and all(
            0 <= found <= epoch and end >= known_end
            for epoch, ((found, end), (_, known_end)) in enumerate(
                zip(ends, expected["epochs"], strict=True), 1
            )
        ):
            answers["epochs"] = expected["epochs"]
        return answers

    expected = found({})
    assert expected["producers"].keys() == {WRITER, TRANSACTIONAL}
    assert any(path.endswith(group_lags_file.NAME) for path in newest.paths())
    old: list[tuple[str, bytes]] = []
    for path in sorted(set().union(*(each.paths() for each in disks))):
        if not _is_cache(path):
            continue
        copies = {bytes(each.content(path)) for each in old_disks if path in each.paths()}
        is_there = path in newest.paths()
        for content in ((None, b"") if is_there else ()) + (*sorted(copies),):
            assert found({path: content}) == expected, (path, content)
        old += [(path, each) for each in copies]
    chooser = random.Random(policy)
    for _ in range(budget.examples(300)):
        pair = dict(chooser.sample(sorted(old), 2))
        assert found(dict(pair)) == expected, pair


def test_l55_f13_leader_epochs_from_compacted_batches_show_no_truncation() -> None:
    """A consumer asks for the end of the epoch of the last record that it has read. An end below
    its position would be a truncation, after which the consumer resets its position."""
    world = CachesWorld("compact")
    partition = world.node.partition("t", 0)
    assert partition is not None
    read: list[tuple[int, int]] = []
    for number in range(24):
        epoch = partition.leader_epoch = 1 + number // 5
        append(world.log, make_batch(1, key=b"k", value=bytes(100)), leader_epoch=epoch)
        read.append((epoch, world.log.log_end_offset))
    world.clean()
    assert world.log.leader_epochs.entries[0] == (1, 0)
    for lost in ((), (LEADER_EPOCHS,)):
        for name in lost:
            world.files.remove(f"{world.log.directory}/{name}")
        world.crash()
        partition = world.node.partition("t", 0)
        assert partition is not None
        partition.leader_epoch = 9
        partition.log.ensure_loaded()
        assert next(partition.read_stored()).offset > read[15][1]
        for epoch, position in read:
            known, end = partition.end_of_epoch(epoch)
            assert 0 <= known <= epoch and end >= position, (lost, epoch, position)
        assert partition.log.log_start_offset == 0
