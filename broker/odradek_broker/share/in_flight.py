"""The in-flight records of a share partition, which were delivered and are not finished yet, with
their states (rules H-150, H-151).

Records are kept in the batches in which they were first acquired. A batch is a list of runs; a run
has one state for neighbouring offsets. A batch whose records were always acquired and acknowledged
together has one run, however many records it has. So memory grows with the differences between
records, not with their number.

A step that has to be durable before it is visible is a `StateChange`. The runs get the new state
immediately, but their records cannot be acquired or acknowledged before the change is finished. A
change that could not be written is undone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import Enum, IntEnum
from itertools import islice

from odradek_broker.share_state import StateBatch
from odradek_protocol.lazy_tuple import NamedTuple

#: The member id of records that no member has acquired.
NOBODY = ""
#: The pause before the next attempt to write a dead letter.
DEAD_LETTER_RETRY_MS = 1_000


class RecordState(IntEnum):
    """The state of a record, with its number in the stored state. Kafka 4.4 has a state 3,
    Archiving, for records that are being written to a dead letter topic. Odradek archives such
    records by a `StateChange` that is not finished."""

    AVAILABLE = 0
    """The record may be acquired, for the first time or again."""

    ACQUIRED = 1
    """A member has the record, until its lock expires. Never stored."""

    ACKNOWLEDGED = 2
    """The record was accepted."""

    ARCHIVED = 4
    """The record was rejected, delivered too often, or does not exist (any more)."""


_S = RecordState

#: The states that may follow each state (H-150).
NEXT: dict[RecordState, frozenset[RecordState]] = {
    _S.AVAILABLE: frozenset({_S.ACQUIRED, _S.ARCHIVED}),
    _S.ACQUIRED: frozenset({_S.AVAILABLE, _S.ACKNOWLEDGED, _S.ARCHIVED}),
    _S.ACKNOWLEDGED: frozenset(),
    _S.ARCHIVED: frozenset(),
}

#: The states in which a record is finished.
FINISHED = frozenset(state for state, following in NEXT.items() if not following)


class ArchiveReason(Enum):
    """The reasons why records in flight are archived without an acknowledgement."""

    COMPACTED = "compacted"
    ABORTED = "aborted"
    LOG_START = "log_start"


class Removed(NamedTuple):
    """Neighbouring records that were archived permanently, and the reason."""

    first_offset: int
    last_offset: int
    reason: ArchiveReason


class IllegalStep(RuntimeError):
    """A step that is not in `NEXT`: a bug of this program, not an error of a client."""


class ShareLimits(NamedTuple):
    """The settings of a group for its share partitions.

    `redelivery_delay_ms`: the pause after the first delivery, 0 for none; it doubles with each
    further delivery, up to `redelivery_delay_max_ms`. `dead_letter_topic`: the topic for records
    that are given up, "" for none; `copy_record`: dead letters have the contents of their records.
    """

    record_lock_duration_ms: int
    delivery_count_limit: int
    max_record_locks: int
    renew: bool
    committed: bool = False
    redelivery_delay_ms: int = 0
    redelivery_delay_max_ms: int = 0
    dead_letter_topic: str = ""
    copy_record: bool = False

    def redelivery_pause_ms(self, delivery_count: int) -> int:
        """The pause after this number of deliveries (H-200)."""
        pause_ms = self.redelivery_delay_ms << max(0, delivery_count - 1)
        return min(pause_ms, max(self.redelivery_delay_ms, self.redelivery_delay_max_ms))


class GivenUpBecause(Enum):
    """The reason why an existing record is archived, in the words of Kafka's dead letters."""

    REJECTED = "Offset rejected by client."
    TOO_OFTEN = "Offset delivery count exceeded the threshold."


class GivenUp(NamedTuple):
    """Neighbouring offsets that a change archives, and that become dead letters (H-202)."""

    first_offset: int
    last_offset: int
    delivery_count: int
    reason: GivenUpBecause


class StateChange:
    """A change of the states of one member's records, which takes effect when it is durable
    (H-159).

    `settings`: the settings at the beginning of the change, which apply to records whose lock
    expires during it. `given_up`: the records that need dead letters; empty without a dead letter
    topic.
    """

    __slots__ = ("given_up", "member_id", "ranges", "settings", "stored")

    def __init__(self, member_id: str, settings: ShareLimits) -> None:
        self.member_id = member_id
        self.settings = settings
        self.stored: list[StateBatch] = []
        self.given_up: list[GivenUp] = []
        self.ranges: list[tuple[Batch, int, int]] = []

    def add(self, batch: Batch, run: InFlightRun, reason: GivenUpBecause | None = None) -> None:
        """Note a run that has taken its new state. `reason`: the reason for the dead letters
        of an archived run."""
        run.change = self
        if reason and run.state is _S.ARCHIVED and self.settings.dead_letter_topic:
            self.given_up.append(GivenUp(run.first, run.last, run.count, reason))
        ranges = self.ranges
        if ranges and ranges[-1][0] is batch and ranges[-1][2] + 1 == run.first:
            ranges[-1] = (batch, ranges[-1][1], run.last)
        else:
            ranges.append((batch, run.first, run.last))
        add_stored(self.stored, run)

    def runs(self) -> Iterator[InFlightRun]:
        """The present runs of this change, since a run may have been split after it was added."""
        for batch, first, last in self.ranges:
            for run in batch.runs_from(first):
                if run.first > last:
                    break
                if run.change is self:
                    yield run

    def join(self) -> None:
        """Join neighbouring runs that have become equal at the end of the change."""
        for batch, first, last in self.ranges:
            batch.join(first, last)


class InFlightRun:
    """Neighbouring offsets of a batch with one state.

    `deadline_ms`: the end of the lock, None for records that are not acquired. `due_ms`: the end of
    the pause before available records are delivered again, None if there is no pause. `change`: the
    change that is not durable yet. `final`: archived because the record no longer exists, which a
    failed change does not undo (H-166).
    """

    __slots__ = (
        "change",
        "count",
        "deadline_ms",
        "due_ms",
        "final",
        "first",
        "last",
        "member_id",
        "state",
    )

    def __init__(self, first: int, last: int, state: RecordState, count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member_id = NOBODY
        self.deadline_ms: int | None = None
        self.due_ms: int | None = None
        self.change: StateChange | None = None
        self.final = False

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last} {self.state.name} {self.count})"

    @property
    def acquirable(self) -> bool:
        """True if the records may be acquired."""
        return self.state is _S.AVAILABLE and self.change is None and self.due_ms is None

    @property
    def finished(self) -> bool:
        """True if the records are durably finished."""
        return self.state in FINISHED and self.change is None

    def step(self, state: RecordState) -> None:
        """Enter the next state. Raises IllegalStep if the step is not in `NEXT`."""
        if state not in NEXT[self.state]:
            raise IllegalStep(f"offsets {self.first}-{self.last}: {self.state!r} -> {state!r}")
        self.state = state

    def acquire(self, member_id: str, deadline_ms: int) -> None:
        """Give the records to a member; this counts as a delivery."""
        self.step(_S.ACQUIRED)
        self.count += 1
        self.member_id = member_id
        self.deadline_ms = deadline_ms

    def is_given_up(self, settings: ShareLimits) -> bool:
        """True if the records become dead letters when they are released."""
        return bool(settings.dead_letter_topic) and self.count >= settings.delivery_count_limit

    def give_back(self, now_ms: int, settings: ShareLimits) -> None:
        """Make the records available, perhaps after a pause, or archive them if they were delivered
        often enough (H-157, H-200)."""
        too_often = self.count >= settings.delivery_count_limit
        self.step(_S.ARCHIVED if too_often else _S.AVAILABLE)
        self.member_id = NOBODY
        if not too_often and settings.redelivery_delay_ms:
            self.due_ms = now_ms + settings.redelivery_pause_ms(self.count)

    def archive_for_good(self) -> None:
        """Archive records that no longer exist, or that belong to aborted transactions."""
        self.step(_S.ARCHIVED)
        self.final = True
        self.member_id = NOBODY
        self.deadline_ms = self.due_ms = None

    def finish_change(self, *, durable: bool, now_ms: int) -> None:
        """Keep the steps of the change, or undo them because they could not be written (H-159)."""
        change = self.change
        if change is None:
            raise IllegalStep(f"offsets {self.first}-{self.last} have no change to finish")
        self.change = None
        expired = self.deadline_ms is not None and self.deadline_ms <= now_ms
        if durable or self.final:
            self.deadline_ms = None
            return
        self.state = _S.ACQUIRED
        self.member_id = change.member_id
        self.due_ms = None
        if expired and self.is_given_up(change.settings):
            # The dead letter could not be written; `expire` tries again.
            self.member_id = NOBODY
            self.deadline_ms = now_ms + DEAD_LETTER_RETRY_MS
        elif expired:
            # The lock expired while the change was being written. `apply_lock_expiry` skips the
            # records of a change that is being written.
            self.give_back(now_ms, change.settings)
            self.deadline_ms = None

    def split_at(self, offset: int) -> InFlightRun:
        """Cut the run in two; returns the second run, which begins with `offset`."""
        rest = InFlightRun(offset, self.last, self.state, self.count)
        rest.member_id, rest.deadline_ms = self.member_id, self.deadline_ms
        rest.due_ms = self.due_ms
        rest.change, rest.final = self.change, self.final
        self.last = offset - 1
        return rest

    def continues(self, other: InFlightRun) -> bool:
        """True if this run and `other`, the run before it, differ only in their offsets."""
        return (
            self.state is other.state
            and self.count == other.count
            and self.change is None
            and other.change is None
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.due_ms == other.due_ms
            and self.final == other.final
        )


def add_stored(stored: list[StateBatch], run: InFlightRun) -> None:
    """Add the state of a run to the batches to store, as part of the last batch if it fits."""
    if stored:
        last = stored[-1]
        if (
            last.last_offset + 1 == run.first
            and last.delivery_state == run.state
            and last.delivery_count == run.count
        ):
            stored[-1] = last._replace(last_offset=run.last)
            return
    stored.append(StateBatch(run.first, run.last, int(run.state), run.count))


class Batch:
    """Offsets that were acquired together, in runs without gaps.

    `by_offset`: a part of the batch was once acquired or acknowledged on its own. From then on the
    records of the batch are acquired and acknowledged one by one, with other limits and error
    messages than whole batches, as in Kafka.
    """

    __slots__ = ("by_offset", "first", "last", "runs")

    def __init__(self, run: InFlightRun) -> None:
        self.first = run.first
        self.last = run.last
        self.runs = [run]
        self.by_offset = False

    def __repr__(self) -> str:
        return f"Batch({self.runs})"

    def __len__(self) -> int:
        return self.last - self.first + 1

    def within(self, first: int, last: int) -> bool:
        """True if the batch has no offset outside of the range."""
        return self.first >= first and self.last <= last

    def begins_before(self, offset: int) -> bool:
        """True if the offset is in the batch but is not the batch's first offset."""
        return self.first < offset <= self.last

    def runs_within(self, first: int, last: int) -> list[InFlightRun]:
        """The runs of these offsets; runs that extend beyond them are split."""
        self._cut_at(first)
        self._cut_at(last + 1)
        runs = self.runs
        start = bisect_left(runs, first, key=_first)
        end = bisect_right(runs, last, lo=start, key=_first)
        return runs[start:end]

    def run_at(self, offset: int) -> InFlightRun:
        return self.runs[self._index(offset)]

    def runs_from(self, offset: int) -> Iterator[InFlightRun]:
        """The run of an offset, and all runs after it."""
        return islice(self.runs, self._index(offset), None)

    def join(self, first: int, last: int) -> None:
        """Join neighbouring runs that are equal, from the run before `first` to the run after
        `last`."""
        start = max(0, self._index(first) - 1)
        end = self._index(last) + 2
        joined: list[InFlightRun] = []
        for run in self.runs[start:end]:
            if joined and run.continues(joined[-1]):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs[start:end] = joined

    def _index(self, offset: int) -> int:
        return max(0, bisect_right(self.runs, offset, key=_first) - 1)

    def _cut_at(self, offset: int) -> None:
        if self.first < offset <= self.last:
            at = self._index(offset)
            run = self.runs[at]
            if run.first != offset:
                self.runs.insert(at + 1, run.split_at(offset))


def _first(of: InFlightRun | Batch) -> int:
    return of.first


class InFlight:
    """The batches of a share partition in the order of their offsets; there may be gaps between
    them."""

    __slots__ = ("added", "added_records", "batches")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        #: The number of batches that were ever added, and of their records.
        self.added = self.added_records = 0

    def __bool__(self) -> bool:
        return bool(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)

    @property
    def last(self) -> int:
        """The last offset in flight, which must exist."""
        return self.batches[-1].last

    def add(self, batch: Batch) -> None:
        """Add a batch, which must overlap no other batch."""
        self.added += 1
        self.added_records += len(batch)
        batches = self.batches
        if not batches or batches[-1].last < batch.first:
            batches.append(batch)
            return
        at = bisect_left(batches, batch.first, key=_first)
        overlaps = (at and batches[at - 1].last >= batch.first) or (
            at < len(batches) and batches[at].first <= batch.last
        )
        if overlaps:
            raise IllegalStep(f"{batch} overlaps another batch")
        batches.insert(at, batch)

    def floor(self, offset: int) -> Batch | None:
        """The last batch that begins at or before an offset."""
        at = bisect_right(self.batches, offset, key=_first)
        return self.batches[at - 1] if at else None

    def beginning_within(self, first: int, last: int) -> list[Batch]:
        """The batches that begin between two offsets."""
        start = bisect_left(self.batches, first, key=_first)
        end = bisect_right(self.batches, last, lo=start, key=_first)
        return self.batches[start:end]

    def overlapping(self, first: int, last: int) -> list[Batch]:
        """The batches that have one of these offsets."""
        floor = self.floor(first)
        if floor is not None and floor.last >= first:
            first = floor.first
        return self.beginning_within(first, last)

    def drop_first(self, number: int) -> None:
        """Drop this many batches from the beginning."""
        del self.batches[:number]

    def clear(self) -> None:
        self.batches.clear()
