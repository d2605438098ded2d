"""Random fetches, acknowledgements, failed writes, expired locks, retention, compaction and
restarts of a share partition, against a model that has one object for each offset.

The model knows nothing of batches, gaps or limits of an answer. It takes the acquired records from
the share partition, and knows the member, the delivery count and the state of each. Invariants:

- No member acquires a record that is acquired or finished, or whose change is being written.
- The delivery count is exact, and at most one above the highest limit of the run.
- No member gets a record before its pause is over; any member can get it afterwards.
- Acknowledgements of acquired records are never refused; a refused one changes nothing.
- The number of finished records, and the end of the next lock, equal those of the model.
- When all members accept the remaining records, each record of the log is acknowledged or archived,
  and the start offset is the end of the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import budget
from handler_calls import finished
from odradek_broker.share.acquisition import AcquisitionLimits, LogBatch, acquire
from odradek_broker.share.in_flight import FINISHED, RecordState, ShareLimits, StateChange
from odradek_broker.share.share_partition import (
    AcknowledgementRefused,
    ShareAcknowledgementBatch,
    SharePartition,
)
from odradek_broker.share_state import StateBatch

S = RecordState
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK_MS = 100
PAUSE_MS_MAX = 300
MEMBERS = st.sampled_from(["a", "b", "c"])


@dataclass
class Record:
    """The record at an offset. `pending`: its state after a change that is not durable yet. `gone`:
    the log does not have the record any more. `due_ms`: the end of its redelivery pause."""

    state: RecordState = S.AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: int = 0
    pending: RecordState | None = None
    gone: bool = False
    due_ms: int = 0

    def give_back(self, limit: int, now_ms: int, settings: ShareLimits) -> None:
        too_often = self.count >= limit or self.gone
        self.state = S.ARCHIVED if too_often else S.AVAILABLE
        self.member = ""
        self.due_ms = now_ms + settings.redelivery_pause_ms(self.count)


@dataclass
class Write:
    """A change that is being written, and the offsets of its records in the model."""

    change: StateChange
    start_offset: int
    member: str
    limit: int
    records: list[int]


class SharePartitionMachine(RuleBasedStateMachine):
    """One share partition with three members."""

    @initialize(
        limit=st.sampled_from([2, 2, 3, 5]),
        locks=st.sampled_from([8, 30]),
        sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
        pause_ms=st.sampled_from([0, 0, 30, 250]),
    )
    def start(self, limit: int, locks: int, sizes: list[int], pause_ms: int) -> None:
        self.settings = ShareLimits(
            LOCK_MS,
            limit,
            locks,
            renew=True,
            redelivery_delay_ms=pause_ms,
            redelivery_delay_max_ms=PAUSE_MS_MAX,
        )
        self.limit_max = limit
        self.now_ms = 0
        self.log: list[LogBatch] = []
        self.aborted: set[int] = set()
        self.end = 0
        self.log_start = 0
        self.records: dict[int, Record] = {}
        self.stored: dict[int, tuple[int, int]] = {}
        self.stored_start = 0
        self.writes: list[Write] = []
        self.partition = SharePartition(0)
        for size in sizes:
            self._append(size)
        self._fetch("a", AcquisitionLimits(500, 500), 100)

    # --- The log ---

    @rule(
        event=st.sampled_from(["append", "append", "hole", "compact", "retention", "limit"]),
        at=st.integers(1, 12),
    )
    def change_log_or_settings(self, event: str, at: int) -> None:
        if event in ("append", "hole"):
            self._append(at, hole=2 if event == "hole" else 0, aborted=at % 3 == 0)
        elif event == "compact" and len(self.log) > 1:
            # Compaction may remove any batch except the last.
            del self.log[at % (len(self.log) - 1)]
        elif event == "retention":
            # The share partition learns of the new log start at its next fetch.
            self.log_start = min(self.log_start + at, self.end)
            self.log = [batch for batch in self.log if batch.last_offset >= self.log_start]
        elif event == "limit":
            limit = 2 + at % 4
            self.settings = self.settings._replace(delivery_count_limit=limit)
            self.limit_max = max(self.limit_max, limit)

    def _append(self, size: int, *, hole: int = 0, aborted: bool = False) -> None:
        first = self.end + hole
        self.end = first + size
        self.log.append(LogBatch(first, self.end - 1))
        if aborted:
            self.aborted.add(first)

    # --- The members ---

    @rule(
        member=MEMBERS,
        max_records=st.sampled_from([1, 3, 50]),
        batch_size=st.sampled_from([1, 4, 50]),
        strict=st.booleans(),
        batches_max=st.integers(1, 4),
    )
    def fetch(
        self, member: str, max_records: int, batch_size: int, strict: bool, batches_max: int
    ) -> None:
        if self.partition.may_acquire(self.settings):
            self._fetch(member, AcquisitionLimits(max_records, batch_size, strict), batches_max)

    def _fetch(self, member: str, limits: AcquisitionLimits, batches_max: int) -> bool:
        """Fetch once, like a broker. Returns True if records were acquired, or if an offset of the
        share partition moved."""
        offset = self.partition.next_fetch_offset()
        before = (self.partition.start_offset, offset)
        if offset < self.log_start:
            self._log_start_moved()
            return True
        read = [batch for batch in self.log if batch.last_offset >= offset][:batches_max]
        aborted = [batch for batch in read if batch.base_offset in self.aborted]
        acquired = acquire(
            self.partition, member, limits, offset, read, aborted, self.now_ms, self.settings
        )
        if limits.record_limit:
            assert sum(last - first + 1 for first, last, _ in acquired) <= limits.max_records
        for first, last, count in acquired:
            for number in range(first, last + 1):
                self._acquired(number, member, count, aborted)
        self._archive_unread(offset, read)
        for batch in aborted:
            for number in range(batch.base_offset, batch.last_offset + 1):
                self._archive_aborted(number)
        return bool(acquired) or before != (
            self.partition.start_offset,
            self.partition.next_fetch_offset(),
        )

    def _acquired(self, number: int, member: str, count: int, aborted: list[LogBatch]) -> None:
        record = self.records.setdefault(number, Record())
        assert number >= self.partition.start_offset
        assert record.state is S.AVAILABLE, f"{number} is {record}"
        assert record.pending is None
        assert record.due_ms <= self.now_ms, "its pause is not over"
        assert not any(each.base_offset <= number <= each.last_offset for each in aborted)
        record.state, record.member = S.ACQUIRED, member
        record.count += 1
        assert record.count == count
        assert record.count <= self.limit_max + 1
        record.deadline_ms = self.now_ms + LOCK_MS

    def _archive_unread(self, offset: int, read: list[LogBatch]) -> None:
        """Archive available records before the first batch that was read, because the log does not
        have these records any more."""
        if not read:
            return
        for number in range(offset, read[0].base_offset):
            record = self.records.get(number)
            if record is not None and record.state is S.AVAILABLE and self._known(number):
                record.state, record.gone = S.ARCHIVED, True

    def _archive_aborted(self, number: int) -> None:
        """Archive an aborted record in the model if the share partition has archived it."""
        state = self._state_of(number)
        record = self.records.get(number)
        if state is S.ARCHIVED and record is None:
            self.records[number] = Record(S.ARCHIVED, gone=True)
        elif state is S.ARCHIVED and record is not None and record.state is S.AVAILABLE:
            record.state, record.gone = S.ARCHIVED, True
        elif number < self.partition.start_offset:
            self.records.setdefault(number, Record(S.ARCHIVED, gone=True))

    def _log_start_moved(self) -> None:
        start = self.partition.start_offset
        self.partition.move_log_start(self.log_start)
        for number, record in self.records.items():
            if start <= number < self.log_start:
                record.gone = True
                if record.state is S.AVAILABLE:
                    record.state = S.ARCHIVED

    def _has(self, member: str) -> list[int]:
        """The offsets that a member is allowed to acknowledge."""
        return sorted(
            number
            for number, record in self.records.items()
            if record.state is S.ACQUIRED and record.member == member and not record.gone
        )

    @rule(
        member=MEMBERS,
        at=st.integers(0, 100),
        length=st.sampled_from([1, 3, 50]),
        types=st.sampled_from(
            [[RELEASE], [RELEASE], [ACCEPT], [REJECT], [RENEW], [GAP, ACCEPT, RELEASE, RENEW]]
        ),
        durable=st.sampled_from([True, False, None, None, None]),
    )
    def acknowledge(
        self, member: str, at: int, length: int, types: list[int], durable: bool | None
    ) -> None:
        """Acknowledge neighbouring records of the member. `durable`: the result of the write, or
        None if the write finishes later."""
        mine = self._has(member)
        if not mine:
            return
        first = mine[at % len(mine)]
        last = first
        while last - first + 1 < length and last + 1 in mine:
            last += 1
        wanted = [types[number % len(types)] for number in range(last - first + 1)]
        if len(set(wanted)) == 1:
            wanted = wanted[:1]
        asked = ShareAcknowledgementBatch(first, last, wanted)
        change = self.partition.acknowledge(member, [asked], self.now_ms, self.settings)
        changed = []
        for number in range(first, last + 1):
            record = self.records[number]
            kind = wanted[0] if len(wanted) == 1 else wanted[number - first]
            if kind == RENEW:
                record.deadline_ms = self.now_ms + LOCK_MS
                continue
            changed.append(number)
            if kind == RELEASE:
                record.give_back(self.settings.delivery_count_limit, self.now_ms, self.settings)
            else:
                record.state = S.ACKNOWLEDGED if kind == ACCEPT else S.ARCHIVED
                record.member = ""
            record.pending = record.state
        self._write(change, member, changed, durable)

    @rule(member=MEMBERS, at=st.integers(0, 60), length=st.integers(1, 15))
    def acknowledge_others(self, member: str, at: int, length: int) -> None:
        """Acknowledge records, not all of which the member has acquired: nothing changes."""
        wanted = range(at, at + length)
        mine = set(self._has(member))
        if all(number in mine or number < self.partition.start_offset for number in wanted):
            return
        in_flight = [number for number in wanted if self._known(number)]
        if all(number in mine for number in in_flight) and in_flight[-1:] == [at + length - 1]:
            return
        asked = ShareAcknowledgementBatch(at, at + length - 1, [ACCEPT])
        try:
            change = self.partition.acknowledge(member, [asked], self.now_ms, self.settings)
        except AcknowledgementRefused:
            return
        assert change.stored == []

    @rule(member=MEMBERS, durable=st.sampled_from([True, False, None]))
    def close_session(self, member: str, durable: bool | None) -> None:
        limit = self.settings.delivery_count_limit
        change = self.partition.release(member, self.now_ms, self.settings)
        changed = []
        for number, record in self.records.items():
            if record.state is S.ACQUIRED and record.member == member:
                record.give_back(limit, self.now_ms, self.settings)
                record.pending = record.state
                changed.append(number)
        self._write(change, member, changed, durable)

    def _write(
        self, change: StateChange, member: str, records: list[int], durable: bool | None
    ) -> None:
        write = Write(
            change,
            self.partition.start_offset,
            member,
            self.settings.delivery_count_limit,
            records,
        )
        self.writes.append(write)
        if durable is not None:
            # Writes finish in the order in which they began.
            while self.writes:
                self.finish_write(durable=durable or self.writes[0] is not write)

    @precondition(lambda self: self.writes)
    @rule(durable=st.sampled_from([True, True, False]))
    def finish_write(self, durable: bool) -> None:
        write = self.writes.pop(0)
        if durable:
            self._store(write.start_offset, write.change.stored)
        self.partition.finish(write.change, durable=durable, now_ms=self.now_ms)
        for number in write.records:
            record = self.records[number]
            record.pending = None
            if durable or (record.gone and record.state is S.ARCHIVED and self._is_final(number)):
                continue
            record.state, record.member = S.ACQUIRED, write.member
            if record.deadline_ms <= self.now_ms:
                record.give_back(write.limit, self.now_ms, self.settings)
                if record.gone and record.count < write.limit:
                    record.state = S.AVAILABLE

    def _is_final(self, number: int) -> bool:
        return self._state_of(number) in (S.ARCHIVED, None)

    # --- Time ---

    @rule(ms=st.integers(1, LOCK_MS))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        limit = self.settings.delivery_count_limit
        start = self.partition.start_offset
        stored = self.partition.apply_lock_expiry(self.now_ms, self.settings)
        for number, record in self.records.items():
            if record.state is S.ACQUIRED and record.deadline_ms <= self.now_ms:
                record.gone = record.gone or number < start
                record.give_back(limit, self.now_ms, self.settings)
        self._store(start, stored)
        self.partition.settle()

    @rule()
    def restart(self) -> None:
        """Kill the broker: state that is not stored is lost."""
        self.writes.clear()
        start = self.stored_start
        stored: list[StateBatch] = []
        for number, (state, count) in sorted(self.stored.items()):
            if number < start:
                continue
            if stored and stored[-1][1:] == (number - 1, state, count):
                stored[-1] = stored[-1]._replace(last_offset=number)
            else:
                stored.append(StateBatch(number, number, state, count))
        self.partition = finished(SharePartition.restored(start, 0, stored))
        for number, record in list(self.records.items()):
            if number < start:
                record.state = record.state if record.state in FINISHED else S.ARCHIVED
            elif number in self.stored:
                state, count = self.stored[number]
                self.records[number] = Record(RecordState(state), count)
            else:
                del self.records[number]

    def _store(self, start_offset: int, batches: list[StateBatch]) -> None:
        self.stored_start = max(self.stored_start, start_offset)
        for first, last, state, count in batches:
            for number in range(first, last + 1):
                self.stored[number] = (state, count)

    # --- What must hold ---

    def _state_of(self, number: int) -> RecordState | None:
        """The state of an offset in the share partition; None if the offset is not in flight."""
        for batch in self.partition.in_flight:
            if batch.first <= number <= batch.last:
                return batch.run_at(number).state
        return None

    def _known(self, number: int) -> bool:
        return self._state_of(number) is not None

    @invariant()
    def runs_are_without_gaps_and_agree_with_the_model(self) -> None:
        if not hasattr(self, "partition"):
            return
        partition = self.partition
        behind = -1
        finished = 0
        for batch in partition.in_flight:
            assert batch.first > behind
            behind = batch.first - 1
            for run in batch.runs:
                assert run.first == behind + 1 <= run.last
                behind = run.last
                for number in range(run.first, run.last + 1):
                    finished += run.state in FINISHED and number >= partition.start_offset
                    record = self.records.get(number)
                    assert record is not None or run.state in (S.AVAILABLE, S.ARCHIVED)
                    if record is None or number < partition.start_offset:
                        continue
                    assert (run.state, run.member_id) == (record.state, record.member), number
                    if run.state is S.ACQUIRED:
                        assert run.count == record.count
                        assert run.deadline_ms == record.deadline_ms
            assert behind == batch.last
        assert finished == partition.completed
        if partition.in_flight:
            assert behind <= partition.end_offset

    def teardown(self) -> None:
        """At the end all members accept the remaining records."""
        if not hasattr(self, "partition"):
            return
        while self.writes:
            self.finish_write(durable=True)
        for _ in range(1_000):
            moved = False
            if self.partition.may_acquire(self.settings):
                moved = self._fetch("a", AcquisitionLimits(500, 500), 100)
            for member in "abc":
                for number in self._has(member):
                    self.acknowledge(member, self._has(member).index(number), 1, [ACCEPT], True)
                    moved = True
            if not moved:
                left = self.records.values()
                if not any(each.state is S.ACQUIRED or each.due_ms > self.now_ms for each in left):
                    break
                self.pass_time(LOCK_MS)
        in_log = {
            number
            for batch in self.log
            for number in range(batch.base_offset, batch.last_offset + 1)
        }
        end = self.partition.next_fetch_offset()
        assert end >= (self.log[-1].last_offset + 1 if self.log else 0)
        assert self.partition.start_offset == end
        for number in in_log:
            if number >= self.log_start:
                assert self.records[number].state in FINISHED
                assert self.records[number].count <= self.limit_max + 1


SharePartitionMachine.TestCase.settings = settings(
    max_examples=budget.examples(200), stateful_step_count=30, deadline=None
)
test_h150_h159_h160_random_histories_of_a_share_partition = SharePartitionMachine.TestCase
