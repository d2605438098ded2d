"""Partition logs with a commit journal (L-50): a directory on a disk in memory, with the broker's
group commit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from logs import NOW_MS, append, make_batch, read_all
from odradek_broker.platform.machine import RealRandomness
from odradek_broker.platform.seams import BLOCK_BYTES
from odradek_broker.storage.group_commit import GroupCommit
from odradek_broker.storage.journal_format import JOURNAL
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.storage.manager import LogManager
from odradek_broker.storage.startup import KnownTopics, StartReport
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.record import read_records
from odradek_testkit.simulation.disk import Crashed, MemoryFiles

PATH = f"data/{JOURNAL}"
#: The smallest size of a journal in bytes: sixteen parts of four blocks each.
SMALL = 16 * 4 * BLOCK_BYTES


class Steps:
    """The part of an event loop that a group commit without threads needs."""

    def __init__(self) -> None:
        self.down = False
        self.calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.calls.append((call, arguments))

    def go_down(self) -> None:
        self.down = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise context["exception"]

    def run(self) -> None:
        while self.calls:
            call, arguments = self.calls.pop(0)
            call(*arguments)
            if self.down:
                # A group commit takes any exception of a sync as a failed sync.
                raise Crashed("in a sync")


class World:
    """A directory, its logs and their group commit. After a crash, call `start` again."""

    def __init__(self, files: MemoryFiles, bytes_max: int = SMALL, **config: Any) -> None:
        self.files = files
        self.bytes_max = bytes_max
        self.config = LogConfig(durability="fsync", index_interval_bytes=100, **config)
        #: Topic -> its own settings.
        self.configs: dict[str, LogConfig] = {}
        #: The topics that the metadata have at a start.
        self.topics: KnownTopics | None = None

    def start(self) -> StartReport:
        self.steps = Steps()
        self.files.on_crash = self.steps.go_down
        loop: Any = self.steps
        self.commit = GroupCommit(loop, workers=0)
        clock: Any = type("Clock", (), {"wall_ms": lambda _: NOW_MS, "monotonic_ms": lambda _: 0})()
        self.logs = LogManager(
            ["data"],
            self.files,
            clock,
            RealRandomness(),
            self.config,
            journal_bytes_max=self.bytes_max,
        )
        report = self.logs.open_all(
            lambda topic: self.configs.get(topic, self.config), topics=self.topics
        )
        for log in self.logs:
            log.on_flush_wanted = self.commit.request
        self.logs.begin_journals(self.commit.request)
        return report

    @property
    def directory(self) -> LogDirectory:
        return self.logs.directories[0]

    def create(self, topic: str, topic_id: bytes, partition: int = 0) -> PartitionLog:
        log = self.logs.create(topic, partition, topic_id, self.configs.get(topic))
        log.on_flush_wanted = self.commit.request
        # The first batch creates the files; the flush after it syncs the files and their names.
        append(log, make_batch(1, value=b"first"))
        self.flush(log)
        self.directory.journal.prepare()
        return log

    def flush(self, *logs: PartitionLog) -> None:
        for log in logs:
            self.commit.request(log.durability)
        self.steps.run()

    def checkpoint(self) -> None:
        """Write checkpoints; the broker does this once a minute."""
        write = self.directory.recovery_points_writer()
        if write is not None:
            write()
            self.directory.use_recovery_points()
        self.steps.run()
        self.directory.continue_snapshots()

    def stop(self) -> list[str]:
        self.logs.stop_journals()
        self.flush(*self.logs)
        return self.logs.close()

    def restart(self, *, power_lost: bool = True, rng: random.Random | None = None) -> StartReport:
        self.files.crash(rng, keep_page_cache=not power_lost)
        return self.start()


def values(log: PartitionLog) -> dict[int, bytes | None]:
    """The values by offset, except for the first record."""
    data = read_all(log)
    return {
        record.offset: record.value
        for position, header in iter_batches(data)
        if not header.is_control
        for record in read_records(data, position, header)
        if record.value != b"first"
    }
