"""A node over files in memory, which crashes and whose disk fails when the test says so."""

from __future__ import annotations

import random
from typing import Any

from tests.sim.files import MemoryFiles

from logs import NOW_MS, append, make_batch
from odradek_broker.config import parse_config
from odradek_broker.later import Later
from odradek_broker.metrics import BrokerMetrics
from odradek_broker.node import Node
from odradek_broker.real import RealRandomness
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.manager import LogManager, StartReport
from odradek_broker.topic_admin import NewTopic, TopicRef, create_topics, delete_topics
from odradek_protocol.errors import ErrorCode


class _Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return NOW_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class _Timer:
    def cancel(self) -> None:
        pass


class _Scheduler:
    def call_later(self, delay_ms: float, callback: Any) -> _Timer:
        return _Timer()


class NodeWorld:
    """One data directory and the node on it. Flushes happen when `flush` is called.

    `settings` are the broker's, with underscores.
    """

    def __init__(self, **settings: str) -> None:
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.files = MemoryFiles(now_ms=NOW_MS)
        self.clock = _Clock()
        self.fatal: list[str] = []
        self.start()

    def start(self) -> StartReport:
        self.asked: dict[PartitionLog, None] = {}
        config, _ = parse_config({"log.dirs": "data", **self._settings})
        self.logs = LogManager(
            "data", self.files, self.clock, RealRandomness(), config.default_log_config()
        )
        self.node = Node(
            config,
            clock=self.clock,
            randomness=RealRandomness(),
            logs=self.logs,
            scheduler=_Scheduler(),
            request_flush=lambda log: self.asked.setdefault(log),
            metrics=BrokerMetrics(lambda: 0),
            on_fatal=self.fatal.append,
        )
        self.report = self.node.load()
        return self.report

    def crash(
        self, *, keep_page_cache: bool = True, rng: random.Random | None = None
    ) -> StartReport:
        """Down and up again; without `keep_page_cache` it was the power, see `MemoryFiles.crash`."""
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

    def create(self, name: str, partitions: int = 1) -> Later[None]:
        records, results = create_topics(self.node.metadata, [NewTopic(name, partitions)])
        assert results[0].error is ErrorCode.NONE, results
        return self.node.commit_metadata(records)

    def delete(self, name: str) -> Later[None]:
        records, results = delete_topics(self.node.metadata, [TopicRef(name)])
        assert results[0].error is ErrorCode.NONE, results
        return self.node.commit_metadata(records)

    def produce(self, name: str, count: int, partition: int = 0) -> None:
        """Append and make durable."""
        found = self.node.partition(name, partition)
        assert found is not None
        append(found.log, make_batch(count))
        found.log.flush()

    def end(self, name: str, partition: int = 0) -> int:
        found = self.node.partition(name, partition)
        assert found is not None
        return found.log.log_end_offset

    def keep_house_later(self) -> list[str]:
        self.clock.now_ms += 120_000
        return self.node.keep_house().problems
