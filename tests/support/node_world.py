"""A node over files in memory; a test lets it crash, and lets its disk fail."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from logs import NOW_MS, append, make_batch
from odradek_broker.config.broker import parse_config
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.topics import RequestedTopic, TopicRef, create_topics, delete_topics
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.node import Node
from odradek_broker.platform.machine import RealRandomness
from odradek_broker.platform.seams import Randomness, Scheduler
from odradek_broker.slices import Background, here
from odradek_broker.storage.log_durability import LogDurability
from odradek_broker.storage.manager import LogManager
from odradek_broker.storage.startup import StartReport
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.clock import SimulatedClock, StoppedTimer
from odradek_testkit.simulation.disk import MemoryFiles


class SoonScheduler:
    """A scheduler that keeps callbacks without a delay until `run`; timers with a delay never
    fire."""

    def __init__(self) -> None:
        self._soon: deque[Callable[[], None]] = deque()

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> StoppedTimer:
        if delay_ms == 0:
            self._soon.append(callback)
        return StoppedTimer()

    def turn(self) -> bool:
        """Run one callback. Returns False if there is none."""
        if self._soon:
            self._soon.popleft()()
            return True
        return False

    @property
    def waits(self) -> bool:
        """True if a callback is due."""
        return bool(self._soon)

    def run(self) -> None:
        """Run callbacks until none is due."""
        while self.turn():
            pass


class NodeWorld:
    """A data directory in memory, and a node that uses it. Flushes happen only when `flush` is
    called.

    `settings`: the broker's settings, with underscores for dots.
    """

    #: The scheduler of the node's timers; by default `soon`.
    scheduler: Scheduler | None = None
    randomness: Randomness = RealRandomness()
    #: The clock that measures durations, in microseconds.
    now_us: Callable[[], int] = staticmethod(lambda: 0)
    #: The thread for large batches; by default there is none.
    beside: Background = staticmethod(here)

    def __init__(self, **settings: str) -> None:
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.files = MemoryFiles(now_ms=NOW_MS)
        self.clock = SimulatedClock(wall_start_ms=NOW_MS)
        self.fatal: list[str] = []
        self.start()

    def start(self) -> StartReport:
        self.asked: dict[LogDurability, None] = {}
        self.soon = SoonScheduler()
        config, _ = parse_config({"log.dirs": "data", **self.settings})
        self.logs = LogManager(
            config.log_dirs,
            self.files,
            self.clock,
            self.randomness,
            config.default_log_config(),
            metadata_dir=config.data_dir,
        )
        self.node = Node(
            config,
            clock=self.clock,
            randomness=self.randomness,
            logs=self.logs,
            scheduler=self.scheduler or self.soon,
            request_flush=lambda log: self.asked.setdefault(log),
            metrics=BrokerMetrics(self.now_us),
            on_fatal=self.fatal.append,
            beside=self.beside,
        )
        self.report = self.node.load()
        return self.report

    def crash(
        self, *, keep_page_cache: bool = True, rng: random.Random | None = None
    ) -> StartReport:
        """Crash the node and start it again. Without `keep_page_cache` the power fails: see
        `MemoryFiles.crash`."""
        self.files.heal()
        self.files.crash(rng, keep_page_cache=keep_page_cache)
        return self.start()

    def flush(self) -> None:
        asked, self.asked = self.asked, {}
        for log in asked:
            ticket = log.begin_flush()
            if ticket is not None:
                try:
                    ticket.sync()
                except OSError as problem:
                    log.finish_flush(ticket, problem)
                else:
                    log.finish_flush(ticket, None)

    def create(self, name: str, partitions: int = 1) -> Deferred[None]:
        records, results = create_topics(self.node.metadata, [RequestedTopic(name, partitions)])
        assert results[0].error is ErrorCode.NONE, results
        return self.node.metadata_log.commit(records)

    def delete(self, name: str) -> Deferred[None]:
        records, results = delete_topics(self.node.metadata, [TopicRef(name)])
        assert results[0].error is ErrorCode.NONE, results
        return self.node.metadata_log.commit(records)

    def produce(self, name: str, count: int, partition: int = 0) -> None:
        """Append a batch and make it durable."""
        found = self.node.partition(name, partition)
        assert found is not None
        append(found.log, make_batch(count))
        found.log.durability.flush()

    def end(self, name: str, partition: int = 0) -> int:
        found = self.node.partition(name, partition)
        assert found is not None
        return found.log.log_end_offset

    def maintain_later(self) -> list[str]:
        self.clock.now_ms += 120_000
        return self.node.maintain().problems
