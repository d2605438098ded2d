"""No cache is removed before what replaces it is on disk (L-55), for every kind of file: a disk
that fills up at any operation, compaction and retention when there is room again, and then a crash,
never change what a start finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import budget
import node_world
from filling_files import FillingFiles
from logs import NOW_MS, append, make_batch
from node_world import NodeWorld
from odradek.simulation.clock import StoppedTimer
from odradek_broker.metadata.topics import NewTopic, create_topics
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.startup import StartReport

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
        made, _ = create_topics(self.node.metadata, [NewTopic("t", 1, configs=configs)])
        self.node.metadata_log.commit(made)
        self.settle()
        self.sequences: dict[int, int] = {}

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
            append(self.log, batch)
            self.sequences[producer_id] = sequence + 1

    def work(self) -> None:
        """Write, with transactions of both ends, leader epochs, rolls, snapshots and flushes."""
        for number in range(24):
            self.write(WRITER, b"k%d" % (number % 2))
            if number % 4 == 0:
                self.write(TRANSACTIONAL, b"x", transactional=True)
            if number % 4 == 2:
                partition = self.node.partition("t", 0)
                assert partition is not None
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
        return {
            "producers": {
                entry.producer_id: (
                    entry.epoch,
                    tuple(entry.batches()),
                    entry.transaction_first_offset,
                )
                for entry in log.producers.entries()
            },
            "aborted": log.aborted_transactions(log.log_start_offset, log.log_end_offset),
            "records": values,
            # An epoch that is read from the batches begins at the first batch that is left.
            "epochs": [
                (epoch, min((each.offset for each in values if each.offset >= begins), default=-1))
                for epoch, begins in log._files.epochs.entries
            ],
            "ends": (log.log_start_offset, log.log_end_offset),
            "time": log.offset_for_timestamp(NOW_MS, log.log_end_offset),
            "largest": log.max_timestamp_offset_at_once(),
        }


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
