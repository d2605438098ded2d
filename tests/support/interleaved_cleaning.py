"""A node whose cleaner runs step by step while its log is written, with crashes of the machine.

The log belongs to a real node, with the node's cleaner, expiry of producers, checkpoints and
recovery. Background work is queued, so that appends, flushes and crashes happen between any two
steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from compaction_history import CompactedHistory, batches_of
from compaction_model import LogModel, Record
from logs import read_all
from node_world import NodeWorld
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.storage.log import PartitionLog
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.record import read_records
from odradek_protocol.stored.control_marker import decode_marker
from odradek_testkit.simulation.disk import Crashed

_BACKOFF_MS = 1_000


class Steps:
    """Timers and background work, run when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Any:
        if not delay_ms:
            self.waiting.append(callback)

    def in_background(
        self, work: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        def run() -> None:
            problem: Exception | None = None
            try:
                work()
            except Exception as error:  # noqa: BLE001  handed to `done`
                problem = error
            self.waiting.append(lambda: done(problem))

        self.waiting.append(run)


class _Node(NodeWorld):
    def __init__(self, **settings: str) -> None:
        self.scheduler = self.steps = Steps()
        super().__init__(**settings)

    def start(self) -> Any:
        self.steps.waiting.clear()
        report = super().start()
        cleaner = self.node.cleaner
        cleaner._background = self.steps.in_background
        cleaner._runner._background = self.steps.in_background  # type: ignore[attr-defined]
        return report


class InterleavedHistory(CompactedHistory):
    """A log that is cleaned step by step. `model` has every batch that the log ever accepted, and
    is never cleaned."""

    def __init__(self, seed: int, **configs: str) -> None:
        super().__init__(seed)
        self.world = _Node(
            log_cleaner_backoff_ms=str(_BACKOFF_MS), log_segment_delete_delay_ms="2000"
        )
        given = {
            "cleanup.policy": "compact",
            "segment.bytes": str(self.random.choice((300, 700, 2_000))),
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "500",
            **configs,
        }
        records, _ = create_topics(
            self.world.node.metadata, [RequestedTopic("t", 1, configs=given)]
        )
        self.world.node.metadata_log.commit(records)
        self.world.flush()
        self._keep_recovery_points()
        self.files = self.world.files
        self.log = self._own_log()
        # The flush makes the name of the first segment durable.
        self.log.durability.flush()
        self.model = LogModel()
        self.cleanings = self.crashes = 0
        self._watch()

    def _keep_recovery_points(self) -> None:
        """Write the recovery points as the cleaner does.

        As long as recovery points have never been written, recovery assumes that every gap in a log
        was left by a compaction, perhaps by Apache Kafka.
        """
        directory = self.world.logs.directories[0]
        write, use = directory.recovery_points_for_cleaning()
        write()
        assert use()
        directory.sync_names()

    def _own_log(self) -> PartitionLog:
        log = self.world.logs.get("t", 0)
        assert log is not None
        return log

    def _watch(self) -> None:
        def cleaned(_: object) -> None:
            self.cleanings += 1

        self.world.node.cleaner.on_cleaned = cleaned

    # ---- events

    def run(self, steps: int, crash_within: int) -> None:
        """Run random events until the machine, or only the process, crashes and restarts.

        `steps`: the highest number of events. The crash happens at one of the next `crash_within`
        disk operations.
        """
        self.files.crash_at = self.files.operations + self.random.randrange(crash_within)
        try:
            for _ in range(steps):
                self._event()
            raise Crashed("between two operations")
        except Crashed:
            self.files.crash_at = None
            self._restart()

    def _event(self) -> None:
        draw = self.random.random()
        if draw < 0.2:
            self.step()
        elif draw < 0.27:
            self.log.durability.flush()
        elif draw < 0.33:
            self._maintain()
        elif self.world.steps.waiting:
            self.world.steps.waiting.pop(0)()

    def _maintain(self) -> None:
        self.world.clock.advance(_BACKOFF_MS + 1)
        self.now_ms = self.world.clock.wall_ms()
        self.world.node.maintain()

    def settle(self) -> None:
        """Clean everything that may be cleaned, without crashes."""
        self.log.durability.flush()
        for _ in range(3):
            self._maintain()
            while self.world.steps.waiting:
                self.world.steps.waiting.pop(0)()
        self.check_all()

    def _restart(self) -> None:
        durable = self.log.durability.durable_offset
        self.crashes += 1
        process_only = self.random.random() < 0.3
        # A power failure loses, keeps or tears unsynced data; if only the process dies, all of it
        # is kept.
        chance = random.Random(self.random.random()) if self.random.random() < 0.7 else None
        self.world.crash(keep_page_cache=process_only, rng=chance)
        self.log = self._own_log()
        self._watch()
        end = self.log.log_end_offset
        written = self.model.batches[-1].last + 1 if self.model.batches else 0
        assert end >= (written if process_only else durable)
        self._forget_what_is_lost(end)
        self.check_all()

    def _forget_what_is_lost(self, end: int) -> None:
        """Remove the batches after the end of the log from the model. Keep the batch that was
        written during the crash, if the log has it."""
        kept = [batch for batch in self.model.batches if batch.last < end]
        known = kept[-1].last + 1 if kept else 0
        kept += [batch for batch in batches_of(self.log) if batch.base >= known]
        self.model = LogModel()
        self._sequences.clear()
        for batch in kept:
            self.model.append(batch)
            if batch.sequence >= 0:
                self._sequences[batch.producer_id] = batch.sequence + len(batch.records)
        self._open = {each.producer_id for each in self.model.transactions if each.marker is None}

    # ---- checks

    def check_all(self) -> None:
        """Compare the log with the model: its records, the records of open transactions, and the
        records that a read_committed consumer gets."""
        log = self.log
        open_firsts = [each.first for each in self.model.transactions if each.marker is None]
        assert log.log_start_offset == 0
        assert log.last_stable_offset == min([*open_firsts, log.high_watermark])
        taken = {record[0]: record for batch in self.model.batches for record in batch.records}
        found = [record for batch in batches_of(log) for record in batch.records]
        offsets = [record[0] for record in found]
        assert offsets == sorted(set(offsets))
        assert all(taken[record[0]] == record for record in found), "no record is another one"
        there = set(offsets)
        for batch in self.model.batches:
            transaction = self.model._transaction_of(batch) if batch.transactional else None
            if not batch.control and transaction is not None and transaction.marker is None:
                assert {record[0] for record in batch.records} <= there, "it may yet be committed"
        self._check_committed(there)

    def _check_committed(self, there: set[int]) -> None:
        committed = self._committed()
        newest: dict[bytes, Record] = {}
        for record in committed:
            assert record[1] is not None
            newest[record[1]] = record
        for offset, _, value in newest.values():
            assert offset in there or value is None, "the newest of a key stays"
        allowed = {record[0] for record in committed}
        seen = committed_reader(self.log)
        assert set(seen) <= allowed, "no reader gets what was aborted, or may be"
        stable = self.log.last_stable_offset
        wanted = {o for o in allowed & there if o < stable}
        assert set(seen) == wanted, "and every reader gets what was committed"

    def _committed(self) -> list[Record]:
        found: list[Record] = []
        for batch in self.model.batches:
            transaction = self.model._transaction_of(batch) if batch.transactional else None
            if not batch.control and (transaction is None or transaction.committed):
                found += batch.records
        return found


def committed_reader(log: PartitionLog) -> list[int]:
    """The offsets of the records that a read_committed consumer would return, found by the
    consumer's own rules."""
    stable = log.last_stable_offset
    aborted = sorted(log.aborted_transactions(0, stable), key=lambda entry: entry[1])
    dead: set[int] = set()
    seen: list[int] = []
    data = read_all(log, upper_bound=stable)
    for position, header in iter_batches(data):
        while aborted and aborted[0][1] <= header.last_offset:
            dead.add(aborted.pop(0)[0])
        records = read_records(data, position, header)
        if header.is_control:
            marker = decode_marker(records[0].key, records[0].value) if records else None
            if marker is not None and not marker.is_commit:
                dead.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dead):
            seen += [record.offset for record in records]
    return seen
