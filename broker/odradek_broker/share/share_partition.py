"""A share partition: the delivery state of one share group in one partition (rules H-150 to H-167).

    acknowledged          in flight                            not yet delivered
    or archived   |  acq.  ack.  avail.  arch.  acq.  |
    --------------+-----------------------------------+----------------------------
             start offset                        end offset

All records before the start offset are finished. The offsets from the start offset to the end
offset are in batches (`in_flight.py`), except for gaps: offsets without a record in the log, and,
after a restart, records that were in flight and have no stored state. Records without a stored
state are inside the gap window, and are delivered again.

The class keeps the state in memory; time, settings and records are arguments of each call. The
caller stores changes of the state: a `StateChange` before it is visible, an expired lock
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby

from odradek_broker.share.in_flight import (
    FINISHED,
    NOBODY,
    ArchiveReason,
    Batch,
    GivenUpBecause,
    InFlight,
    InFlightRun,
    RecordState,
    Removed,
    ShareLimits,
    StateChange,
    add_stored,
)
from odradek_broker.share_state import StateBatch
from odradek_protocol.errors import CodedError, ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple

_E, _S = ErrorCode, RecordState
_Wanted = Callable[[InFlightRun], bool]


class AcknowledgeType(IntEnum):
    """The type of an acknowledgement, with its number in requests. A gap is an offset without a
    record.
    """

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_TYPES = frozenset(AcknowledgeType)


class ShareAcknowledgementBatch(NamedTuple):
    """The acknowledgement of neighbouring offsets: one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def parts(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """(first, last, type) of each run of offsets with one type, between two offsets."""
        if len(self.types) == 1:
            yield first, last, self.types[0]
            return
        start = first
        wanted = self.types[first - self.first_offset : last - self.first_offset + 1]
        for kind, same in groupby(wanted):
            end = start + sum(1 for _ in same)
            yield start, end - 1, kind
            start = end


class AcknowledgementRefused(CodedError):
    """The reason why acknowledgements are refused: an error code and a text for the client."""


class InvalidState(ValueError):
    """A stored state that no share partition can have."""


class GapWindow:
    """The range of offsets in which gaps may be records that were delivered before a restart. The
    range goes from `start`, which advances as these records are acquired, to `end` (H-164)."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class SharePartition:
    """The state of one share partition. `completed`: the number of finished records in flight, for
    the group's lag. `next_deadline_ms`: no lock and no pause ends before this time; None if no lock
    or pause can end."""

    __slots__ = (
        "_look_for_available",
        "_removed",
        "completed",
        "end_offset",
        "gaps",
        "in_flight",
        "next_deadline_ms",
        "start_offset",
        "state_epoch",
    )

    def __init__(self, start_offset: int, state_epoch: int = 0) -> None:
        self.start_offset = start_offset
        #: The last offset in flight; without batches, the next offset to be fetched.
        self.end_offset = start_offset
        self.state_epoch = state_epoch
        self.in_flight = InFlight()
        self.gaps: GapWindow | None = None
        self.completed = 0
        self.next_deadline_ms: int | None = None
        #: True if there may be records before the end offset that can be acquired.
        self._look_for_available = False
        #: The next result of `take_removed`; it has no more records than are in flight.
        self._removed: list[Removed] = []

    @classmethod
    def restored(
        cls, start_offset: int, state_epoch: int, stored: Sequence[StateBatch]
    ) -> Generator[None, None, SharePartition]:
        """The share partition of a stored state (H-151, H-164), which may have thousands of
        batches: a step for each. Raises InvalidState."""
        partition = cls(start_offset, state_epoch)
        expected, gap = start_offset, -1
        for first, last, state, count in stored:
            if first < expected or last < first:
                raise InvalidState(
                    f"the stored batch of offsets {first} to {last} does not fit after offset"
                    f" {expected - 1}"
                )
            if state not in (_S.AVAILABLE, _S.ACKNOWLEDGED, _S.ARCHIVED):
                raise InvalidState(f"the offsets {first} to {last} are stored with state {state}")
            if gap < 0 and first > expected:
                gap = expected
            expected = last + 1
            run = InFlightRun(first, last, RecordState(state), count)
            partition.in_flight.add(Batch(run))
            partition._recount(run, finished_before=False)
            yield
        if stored:
            partition.end_offset = expected - 1
            partition._look_for_available = True
            if gap >= 0:
                partition.gaps = GapWindow(gap, partition.end_offset)
            partition.settle()
        return partition

    # --- Fetching ---

    @property
    def records_in_flight(self) -> int:
        """The number of offsets from the start offset to the end offset."""
        return self.end_offset - self.start_offset + 1 if self.in_flight else 0

    @property
    def anything_acquired(self) -> bool:
        """True if a member has acquired records."""
        return any(run.state is _S.ACQUIRED for batch in self.in_flight for run in batch.runs)

    @property
    def anything_delayed(self) -> bool:
        """True if there are records that wait for the end of a pause (H-200)."""
        return any(run.due_ms is not None for batch in self.in_flight for run in batch.runs)

    def count_by_state(self) -> dict[RecordState, int]:
        counts = dict.fromkeys(RecordState, 0)
        for batch in self.in_flight:
            for run in batch.runs:
                counts[run.state] += self._offsets_in_flight(run)
        return counts

    def run_at(self, offset: int) -> InFlightRun | None:
        """The run with an offset; None if the offset is not in flight."""
        batch = self.in_flight.floor(offset)
        return batch.run_at(offset) if batch is not None and offset <= batch.last else None

    def may_acquire(self, settings: ShareLimits) -> bool:
        """True if records may be fetched. Records that are available again may always be fetched,
        new records only below the limit of locks (H-154)."""
        if self.next_fetch_offset() != self.end_offset + 1:
            return True
        return self.records_in_flight < settings.max_record_locks

    def next_fetch_offset(self) -> int:
        """The first offset with a record that may be acquired."""
        in_flight = self.in_flight
        if not in_flight or self.start_offset > in_flight.last:
            self._look_for_available = False
            return self.end_offset
        if self._look_for_available:
            found = self._first_available()
            if found is not None:
                return found
            self._look_for_available = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        gaps = self.open_gaps()
        gap = -1 if gaps is None else gaps.start
        for batch in self.in_flight:
            if gap >= 0:
                if batch.first > gap:
                    return gap
                gap = max(gap, batch.last + 1)
            for run in batch.runs:
                if run.acquirable:
                    return run.first
        return None

    def open_gaps(self) -> GapWindow | None:
        """The gap window; None once records after it were acquired."""
        gaps = self.gaps
        return gaps if gaps is not None and gaps.end == self.end_offset else None

    def pass_gaps(self, offset: int) -> None:
        """Called when all records before an offset were acquired or do not exist."""
        gaps = self.open_gaps()
        if gaps is None or offset > gaps.end:
            self.gaps = None
        else:
            gaps.start = max(gaps.start, offset)

    def look_for_available(self) -> None:
        """Make the next fetch look for available records before the end offset."""
        self._look_for_available = True

    def acquire_lock(
        self, run: InFlightRun, member_id: str, now_ms: int, settings: ShareLimits
    ) -> None:
        """Give available records to a member: it holds their lock, for a limited time."""
        deadline_ms = now_ms + settings.record_lock_duration_ms
        run.acquire(member_id, deadline_ms)
        self.note_deadline(deadline_ms)

    def note_deadline(self, deadline_ms: int) -> None:
        """Note the end of a lock, or of the pause before a redelivery."""
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms

    # --- Acknowledgements (H-158 to H-161) ---

    def acknowledge(
        self,
        member_id: str,
        acknowledgements: Iterable[ShareAcknowledgementBatch],
        now_ms: int,
        settings: ShareLimits,
        change: StateChange | None = None,
    ) -> StateChange:
        """Carry out all acknowledgements of a member; or none, and raise Refused. `change`: that of
        the member's acknowledgements before these ones, which is undone too.

        The change has to be written and then finished with `finish`.
        """
        if change is None:
            change = StateChange(member_id, settings)
        try:
            for each in acknowledgements:
                self._acknowledge(each, change, now_ms, settings)
        except AcknowledgementRefused:
            self.finish(change, durable=False, now_ms=now_ms)
            raise
        return change

    def _acknowledge(
        self,
        asked: ShareAcknowledgementBatch,
        change: StateChange,
        now_ms: int,
        settings: ShareLimits,
    ) -> None:
        if not _TYPES.issuperset(asked.types):
            raise AcknowledgementRefused(
                _E.INVALID_REQUEST, f"Invalid acknowledge type: {list(asked.types)}"
            )
        if asked.last_offset < self.start_offset:
            # All records are before the start offset, most likely because retention has deleted
            # them.
            return
        for batch in self._acknowledged_batches(asked):
            if batch.last < max(self.start_offset, asked.first_offset):
                continue
            try:
                self._acknowledge_in(batch, asked, change, now_ms, settings)
            except AcknowledgementRefused:
                batch.join(asked.first_offset, asked.last_offset)
                raise

    def _acknowledged_batches(self, asked: ShareAcknowledgementBatch) -> list[Batch]:
        """The batches with the acknowledged offsets. Raises Refused if the offsets are not in
        flight."""
        first, last = asked.first_offset, asked.last_offset
        floor = self.in_flight.floor(first)
        if floor is None and first < self.start_offset <= last:
            floor = self.in_flight.floor(self.start_offset)
        if floor is None:
            raise AcknowledgementRefused(
                _E.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        batches = self.in_flight.beginning_within(floor.first, last)
        for side, offset in (("first", first), ("last", last)):
            if batches[-1].last < offset:
                raise AcknowledgementRefused(
                    _E.INVALID_REQUEST,
                    f"Batch record not found. The {side} offset in request is past acquired"
                    " records.",
                )
        return batches

    def _acknowledge_in(
        self,
        batch: Batch,
        asked: ShareAcknowledgementBatch,
        change: StateChange,
        now_ms: int,
        settings: ShareLimits,
    ) -> None:
        if not batch.by_offset:
            _check_owner_of_batch(batch.runs[0], change.member_id)
            if (
                len(asked.types) == 1
                and batch.within(asked.first_offset, asked.last_offset)
                and not batch.begins_before(self.start_offset)
            ):
                self._apply(batch, batch.runs[0], asked.types[0], change, now_ms, settings)
                return
            batch.by_offset = True
        first = max(batch.first, asked.first_offset, self.start_offset)
        last = min(batch.last, asked.last_offset)
        for start, end, kind in asked.parts(first, last):
            for run in batch.runs_within(start, end):
                _check_owner_of_offset(run, change.member_id)
                self._apply(batch, run, kind, change, now_ms, settings)

    def _apply(
        self,
        batch: Batch,
        run: InFlightRun,
        kind: int,
        change: StateChange,
        now_ms: int,
        settings: ShareLimits,
    ) -> None:
        """Carry out one acknowledgement for the offsets of a run."""
        if kind == AcknowledgeType.RENEW:
            if not settings.renew:
                raise _invalid("Renewing acquisition locks is not enabled for the group.")
            run.deadline_ms = now_ms + settings.record_lock_duration_ms
            self.note_deadline(run.deadline_ms)
            return
        reason = None
        if kind == AcknowledgeType.RELEASE:
            self._return(run, now_ms, settings)
            reason = GivenUpBecause.TOO_OFTEN
        else:
            run.step(_S.ACKNOWLEDGED if kind == AcknowledgeType.ACCEPT else _S.ARCHIVED)
            run.member_id = NOBODY
            if kind == AcknowledgeType.REJECT:
                reason = GivenUpBecause.REJECTED
        self._recount(run, finished_before=False)
        change.add(batch, run, reason)

    def release(self, member_id: str, now_ms: int, settings: ShareLimits) -> StateChange:
        """Release all records that a member has acquired, because its session has ended (H-162)."""
        change = StateChange(member_id, settings)
        for batch in self.in_flight:
            for run in self._acquired_runs(batch, lambda run: run.member_id == member_id):
                self._give_back(run, now_ms, settings)
                change.add(batch, run, self._reason_to_give_up(run))
        return change

    def finish(self, change: StateChange, *, durable: bool, now_ms: int) -> bool:
        """End a change that was written, or undo it (H-159); True if the start offset moved."""
        for run in change.runs():
            before = run.state in FINISHED
            run.finish_change(durable=durable, now_ms=now_ms)
            if run.deadline_ms is not None:
                # The lock is still valid, and `apply_lock_expiry` may have skipped it during the
                # change.
                self.note_deadline(run.deadline_ms)
            self._recount(run, finished_before=before)
            if run.state is _S.AVAILABLE:
                self._look_for_available = True
                self._note_pause(run)
        change.join()
        return durable and self.settle()

    # --- Locks and pauses (H-160, H-200) ---

    def apply_lock_expiry(
        self, now_ms: int, settings: ShareLimits, given_up: StateChange | None = None
    ) -> list[StateBatch]:
        """Release the records whose lock has expired, and end the pauses that are over; returns the
        batches to store. Records that need dead letters are added to the change `given_up`, which
        the caller writes and finishes like the change of an acknowledgement."""
        stored: list[StateBatch] = []
        if self.next_deadline_ms is None or now_ms < self.next_deadline_ms:
            return stored
        self.next_deadline_ms = None
        for batch in self.in_flight:
            found = False
            for run in self._acquired_runs(batch, lambda run: _is_over(run, now_ms)):
                self._give_back(run, now_ms, settings)
                reason = self._reason_to_give_up(run)
                if given_up is not None and reason is not None and run.state is _S.ARCHIVED:
                    given_up.add(batch, run, reason)
                    continue
                run.deadline_ms = None
                add_stored(stored, run)
                found = True
            for run in batch.runs:
                if run.due_ms is not None and run.due_ms <= now_ms and run.change is None:
                    run.due_ms = None
                    found = True
                if run.state is _S.ACQUIRED and run.deadline_ms is not None:
                    self.note_deadline(run.deadline_ms)
                self._note_pause(run)
            if found:
                batch.join(batch.first, batch.last)
                self._look_for_available = True
        return stored

    def end_locks(self, now_ms: int) -> list[tuple[int, int]]:
        """End the locks of all acquired records immediately; `apply_lock_expiry` then releases the
        records. Returns the first and the last offset of each range of neighbouring records."""
        ended: list[tuple[int, int]] = []
        for batch in self.in_flight:
            for run in self._acquired_runs(batch, lambda _: True):
                run.deadline_ms = now_ms
                self.note_deadline(now_ms)
                if ended and ended[-1][1] + 1 == run.first:
                    ended[-1] = (ended[-1][0], run.last)
                else:
                    ended.append((run.first, run.last))
        return ended

    def _acquired_runs(self, batch: Batch, wanted: _Wanted) -> list[InFlightRun]:
        """The acquired runs that a filter selects in a batch. A run is split at the start offset,
        because records before it do not become available again."""
        runs = [run for run in batch.runs if run.state is _S.ACQUIRED and wanted(run)]
        if not runs or not batch.begins_before(self.start_offset):
            return runs
        batch.by_offset = True
        batch.runs_within(batch.first, self.start_offset - 1)
        return [run for run in batch.runs if run.state is _S.ACQUIRED and wanted(run)]

    def _give_back(self, run: InFlightRun, now_ms: int, settings: ShareLimits) -> None:
        if run.last < self.start_offset:
            run.step(_S.ARCHIVED)
            run.member_id = NOBODY
        else:
            self._return(run, now_ms, settings)
        self._recount(run, finished_before=False)

    def _reason_to_give_up(self, run: InFlightRun) -> GivenUpBecause | None:
        """The reason for dead letters if the records are archived; None if the start offset is
        past all of them, so that they get no dead letters."""
        return GivenUpBecause.TOO_OFTEN if run.last >= self.start_offset else None

    def _return(self, run: InFlightRun, now_ms: int, settings: ShareLimits) -> None:
        run.give_back(now_ms, settings)
        self._note_pause(run)

    def _note_pause(self, run: InFlightRun) -> None:
        if run.due_ms is not None and run.change is None:
            self.note_deadline(run.due_ms)

    # --- Records that do not exist (H-165 to H-167) ---

    def move_log_start(self, log_start_offset: int) -> None:
        """Called when the log start has moved: records before it are neither delivered nor
        acknowledged."""
        if log_start_offset <= self.start_offset:
            return
        removed = sum(
            self._offsets_in_flight(run, log_start_offset - 1)
            for batch in self.in_flight.overlapping(self.start_offset, log_start_offset - 1)
            for run in batch.runs
            if run.state in FINISHED
        )
        self.archive(
            _S.AVAILABLE,
            self.start_offset,
            log_start_offset - 1,
            ArchiveReason.LOG_START,
            counted=False,
        )
        self.start_offset = log_start_offset
        self.completed -= removed
        if not self.in_flight:
            self.end_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        if self.gaps is not None:
            self.pass_gaps(log_start_offset)
        self.settle()

    def archive(
        self,
        state: RecordState,
        first: int,
        last: int,
        reason: ArchiveReason,
        *,
        counted: bool = True,
    ) -> bool:
        """Archive permanently all records that are in `state`, from one offset to another; True if
        there are any."""
        found = False
        for batch in self.in_flight.overlapping(first, last):
            if not batch.by_offset and batch.runs[0].state is not state:
                continue
            if not batch.within(first, last):
                batch.by_offset = True
            for run in batch.runs_within(max(first, batch.first), min(last, batch.last)):
                if run.state is state:
                    run.archive_for_good()
                    self._removed.append(Removed(run.first, run.last, reason))
                    if counted:
                        self._recount(run, finished_before=False)
                    found = True
            batch.join(first, last)
        if found:
            self._look_for_available = True
        return found

    def take_removed(self) -> list[Removed]:
        """The records that were archived permanently since the last call."""
        removed, self._removed = self._removed, []
        return removed

    # --- The start offset (H-163) ---

    def settle(self) -> bool:
        """Move the start offset past the finished records; True if it moved."""
        end, finished = self._finished_prefix()
        if end < 0:
            return False
        in_flight = self.in_flight
        if end == in_flight.last:
            self.start_offset = self.end_offset = max(self.start_offset, end + 1)
            in_flight.clear()
            self.completed = 0
            return True
        following = next(number for number, each in enumerate(in_flight) if each.last > end)
        start = in_flight.batches[following].first
        gaps = self.open_gaps()
        if gaps is not None:
            start = min(start, gaps.start)
        start = max(end + 1, start)
        before = self.start_offset
        self.start_offset = max(before, start)
        self.completed -= finished
        in_flight.drop_first(following)
        if gaps is not None:
            self.pass_gaps(self.start_offset)
        return self.start_offset != before

    def _finished_prefix(self) -> tuple[int, int]:
        """(last offset, number) of the finished records before the first unfinished record and the
        first gap of the gap window; (-1, 0) if no finished record is before them."""
        end, finished = -1, 0
        gaps = self.open_gaps()
        gap = -1 if gaps is None else gaps.start
        for batch in self.in_flight:
            if gap >= 0:
                if batch.first > gap:
                    break
                gap = max(gap, batch.last + 1)
            for run in batch.runs:
                if not run.finished:
                    return end, finished
                end = run.last
                finished += self._offsets_in_flight(run)
        return end, finished

    def _recount(self, run: InFlightRun, *, finished_before: bool) -> None:
        """Correct the number of finished records after a step."""
        finished = run.state in FINISHED
        if finished != finished_before:
            offsets = self._offsets_in_flight(run)
            self.completed += offsets if finished else -offsets

    def _offsets_in_flight(self, run: InFlightRun, up_to: int | None = None) -> int:
        last = run.last if up_to is None else min(run.last, up_to)
        return max(0, last - max(run.first, self.start_offset) + 1)


def _is_over(run: InFlightRun, now_ms: int) -> bool:
    return run.deadline_ms is not None and run.deadline_ms <= now_ms


def _invalid(message: str) -> AcknowledgementRefused:
    return AcknowledgementRefused(_E.INVALID_RECORD_STATE, message)


def _check_owner_of_batch(run: InFlightRun, member_id: str) -> None:
    """Raise `AcknowledgementRefused` unless the member has acquired all records of a batch that is
    acknowledged as a whole.
    """
    if run.member_id == NOBODY:
        raise _invalid("The batch cannot be acknowledged. The batch is not in the acquired state.")
    if run.member_id != member_id:
        raise _invalid("Member is not the owner of batch record")


def _check_owner_of_offset(run: InFlightRun, member_id: str) -> None:
    """Raise `AcknowledgementRefused` unless the member has acquired the records of a run."""
    if run.state is not _S.ACQUIRED:
        raise _invalid("The offset cannot be acknowledged. The offset is not acquired.")
    if run.member_id != member_id:
        raise _invalid("Member is not the owner of offset")
