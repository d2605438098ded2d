"""A log under random operations, compared with a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import budget
from logs import (
    EVERYTHING,
    NOW_MS,
    append,
    headers,
    make_batch,
    make_log,
    read_all,
    records,
    reopen,
)
from odradek_broker.storage.log_options import LogStart
from odradek_protocol.compression import Codec
from odradek_testkit.simulation.disk import MemoryFiles

SETTINGS: dict[str, Any] = {
    "segment_bytes": 900,
    "index_interval_bytes": 120,
    "durability": "fsync",
    "retention_bytes": 1800,
}


@dataclass
class Entry:
    offset: int
    value: bytes
    timestamp: int


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles(now_ms=NOW_MS)
        self.log = make_log(self.files, open_files=3, **SETTINGS)
        self.model: list[Entry] = []
        self.end = self.durable = self.start = 0
        self.counter = 0

    def open(self) -> None:
        # The data directory is synced at each start (L-30).
        self.files.sync_dir("data")
        self.log = make_log(self.files, start=LogStart(log_start_offset=self.start), **SETTINGS)

    @rule(
        count=st.integers(1, 4),
        late_ms=st.integers(0, 50),
        codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
    )
    def append(self, count: int, late_ms: int, codec: Codec) -> None:
        self.counter += 1
        value = b"%d" % self.counter
        timestamp = NOW_MS - late_ms
        result = append(self.log, make_batch(count, value=value, timestamp=timestamp, codec=codec))
        assert (result.base_offset, result.last_offset) == (self.end, self.end + count - 1)
        self.model += [Entry(self.end + at, value, timestamp + at) for at in range(count)]
        self.end += count

    @rule()
    def flush(self) -> None:
        self.log.durability.flush()
        self.durable = self.end

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        target = int(self.durable * part)
        self.start = max(self.start, target)
        assert self.log.trimming.delete_records(target) == self.start

    @rule()
    def retain(self) -> None:
        self.log.trimming.apply_retention(NOW_MS)
        assert self.log.log_start_offset >= self.start
        assert self.log.log_start_offset <= self.durable
        if self.log.log_start_offset > self.start:
            assert self.log.size_bytes >= SETTINGS["retention_bytes"]
        self.start = self.log.log_start_offset

    @rule()
    def stop_and_start(self) -> None:
        self.log = reopen(self.log, self.files, clean=True, **SETTINGS)
        assert self.log.report.scanned_bytes == 0
        self.durable = self.end

    @rule()
    def kill(self) -> None:
        """Kill the process; the page cache keeps its writes."""
        self.files.crash(keep_page_cache=True)
        self.open()
        self.durable = self.end

    @rule(data=st.data())
    def cut_power(self, data: st.DataObject) -> None:
        self.files.crash(data.draw(st.randoms(use_true_random=False)))
        self.open()
        assert self.durable <= self.log.log_end_offset <= self.end
        if self.durable <= self.start:
            # A power cut may keep an unsynced segment and lose the one before it.
            self.start = max(self.start, self.log.log_start_offset)
        self.end = self.durable = self.log.log_end_offset
        del self.model[self.end :]

    @invariant()
    def offsets_are_in_order(self) -> None:
        log = self.log
        assert log.log_start_offset == self.start
        assert log.log_end_offset == self.end
        assert log.high_watermark == log.last_stable_offset == self.durable

    @invariant()
    def everything_is_there(self) -> None:
        found = [record for record in records(read_all(self.log)) if record.offset >= self.start]
        expected = self.model[self.start :]
        assert [(r.offset, r.value, r.timestamp) for r in found] == [
            (entry.offset, entry.value, entry.timestamp) for entry in expected
        ]

    @rule(part=st.floats(0, 1), max_bytes=st.integers(0, 600))
    def read(self, part: float, max_bytes: int) -> None:
        offset = self.start + int((self.durable - self.start) * part)
        data = self.log.read(offset, max_bytes, upper_bound=self.durable, minimum_one=True)
        assert bool(data) == (offset < self.durable)
        if data:
            found = headers(data)
            assert found[0].base_offset <= offset <= found[0].last_offset
            assert found[-1].next_offset <= self.durable
            assert len(data) <= max_bytes or len(found) == 1
            assert self.log.readable_bytes(offset, self.durable) >= len(data)

    @rule(late_ms=st.integers(-5, 55))
    def look_up_time(self, late_ms: int) -> None:
        wanted = NOW_MS - late_ms
        expected = next(
            ((e.offset, e.timestamp) for e in self.model[self.start :] if e.timestamp >= wanted),
            None,
        )
        assert self.log.offset_for_timestamp(wanted, EVERYTHING) == expected


LogMachine.TestCase.settings = settings(
    max_examples=budget.examples(40), stateful_step_count=40, deadline=None
)
TestLog = LogMachine.TestCase
