"""The acquisition of fetched records by a member (rules H-152 to H-157, H-165, H-167).

A fetch reads whole batches of the log. Their records may be new or in flight already; records in
flight are available again, or acquired by another member. An `Acquisition` goes through all these
records in the order of their offsets, and acquires the available records for the member, up to the
limits. `SharePartition.acquire_lock` gives them their locks, which `share/manager.py` lets expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek_broker.share.in_flight import (
    ArchiveReason,
    Batch,
    InFlightRun,
    RecordState,
    ShareLimits,
)
from odradek_broker.share.share_partition import SharePartition
from odradek_protocol.lazy_tuple import NamedTuple

_S = RecordState
#: Records delivered fewer times than this are never throttled.
_THROTTLED_FROM_MIN = 2


class LogBatch(NamedTuple):
    """A batch of the log that a fetch has read."""

    base_offset: int
    last_offset: int
    size_bytes: int = 0


class Acquired(NamedTuple):
    """Neighbouring offsets that a member acquired, and the number of their deliveries."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcquisitionLimits(NamedTuple):
    """The limits of a request. `record_limit`: true if `max_records` must not be exceeded; if
    false, it may be exceeded up to the end of a batch. `batch_size`: the number of records in the
    batches into which newly acquired records are divided."""

    max_records: int
    batch_size: int
    record_limit: bool = False


def count_of(acquired: Iterable[Acquired]) -> int:
    """The number of records."""
    return sum(last - first + 1 for first, last, _ in acquired)


def acquire(
    partition: SharePartition,
    member_id: str,
    limits: AcquisitionLimits,
    fetch_offset: int,
    batches: Sequence[LogBatch],
    aborted: Sequence[LogBatch],
    now_ms: int,
    settings: ShareLimits,
) -> list[Acquired]:
    """Acquire for a member the available records of `batches`, which were read from `fetch_offset`
    on.

    Records of the aborted transactions in `aborted` are archived instead (H-167).
    """
    if limits.max_records <= 0 or not batches or batches[-1].last_offset < partition.start_offset:
        return []
    last, room = _room(
        partition, limits.max_records, fetch_offset, batches[-1].last_offset, settings
    )
    if room <= 0:
        return []
    acquisition = Acquisition(partition, member_id, limits, room, batches, last, now_ms, settings)
    acquired = acquisition.run(fetch_offset)
    if acquired and aborted:
        for batch in aborted:
            partition.archive(
                _S.ACQUIRED, batch.base_offset, batch.last_offset, ArchiveReason.ABORTED
            )
        acquired = without(acquired, aborted)
    partition.settle()
    return acquired


def _room(
    partition: SharePartition,
    max_records: int,
    fetch_offset: int,
    last_offset: int,
    settings: ShareLimits,
) -> tuple[int, int]:
    """(last offset, number of records) up to which records may be acquired (H-154). When the limit
    of locks is reached, only records that are in flight already may be acquired."""
    room = min(max_records, settings.max_record_locks - partition.records_in_flight)
    if room <= 0 and fetch_offset <= partition.end_offset:
        room = min(max_records, partition.end_offset - fetch_offset + 1)
        last_offset = min(last_offset, partition.end_offset)
    return last_offset, room


class Acquisition:
    """A pass over fetched batches. `room`: the number of records that may still be acquired."""

    __slots__ = (
        "_acquired",
        "_batches",
        "_last",
        "_limits",
        "_member_id",
        "_now_ms",
        "_partition",
        "_room",
        "_settings",
    )

    def __init__(
        self,
        partition: SharePartition,
        member_id: str,
        limits: AcquisitionLimits,
        room: int,
        batches: Sequence[LogBatch],
        last: int,
        now_ms: int,
        settings: ShareLimits,
    ) -> None:
        self._partition = partition
        self._member_id = member_id
        self._limits = limits
        self._room = room
        self._batches = batches
        self._last = last
        self._now_ms = now_ms
        self._settings = settings
        self._acquired: list[Acquired] = []

    def run(self, fetch_offset: int) -> list[Acquired]:
        partition = self._partition
        read_from = base = self._batches[0].base_offset
        if fetch_offset < base:
            # Compaction has removed the records from `fetch_offset` to the first batch (H-165).
            partition.archive(_S.AVAILABLE, fetch_offset, base - 1, ArchiveReason.COMPACTED)
            if partition.open_gaps() is not None:
                partition.pass_gaps(base)
        floor = partition.in_flight.floor(base)
        if floor is None:
            base = max(base, partition.start_offset)
        elif floor.last >= base:
            base = floor.first
        if base > self._last:
            return self._acquired
        known = partition.in_flight.beginning_within(min(read_from, base), self._last)
        if not known:
            self._acquire_new(base, self._last)
            return self._acquired
        if self._acquire_known(known, base) and known[-1].last < self._last and self._room > 0:
            self._acquire_new(known[-1].last + 1, self._last)
        if self._acquired:
            partition.pass_gaps(self._acquired[-1].last_offset + 1)
        elif partition.open_gaps() is not None:
            # None of the records that were read is available, so the gaps before them have no
            # available record either.
            partition.pass_gaps(self._last + 1)
        return self._acquired

    # --- Records in flight ---

    def _acquire_known(self, known: list[Batch], base: int) -> bool:
        """Acquire records of batches in flight, and records of the gap window before each batch;
        False if nothing else may be acquired now."""
        expected = base
        for batch in known:
            if self._room <= 0:
                return False
            if self._partition.open_gaps() is not None:
                if expected < batch.first:
                    self._acquire_new(expected, batch.first - 1)
                expected = batch.last + 1
                if self._room <= 0:
                    return False
            if not self._acquire_in(batch):
                return False
        return True

    def _acquire_in(self, batch: Batch) -> bool:
        """Acquire the available records of a batch; False if the request gets no further records,
        because records of this batch were delivered often (H-156)."""
        first, last = self._batches[0].base_offset, self._last
        throttled = self._is_throttled(batch)
        if throttled and self._acquired:
            return False
        exceeds = self._limits.record_limit and len(batch) > self._room
        if batch.within(first, last) and not (batch.by_offset or exceeds or throttled):
            if batch.runs[0].acquirable:
                self._take(batch.runs[0])
            return True
        if not batch.by_offset:
            if not batch.runs[0].acquirable:
                return True
            batch.by_offset = True
        before = len(self._acquired)
        self._acquire_by_offset(batch, first, last)
        batch.join(first, last)
        return not (throttled and len(self._acquired) > before)

    def _is_throttled(self, batch: Batch) -> bool:
        """True if some of the available records were delivered so often that only few records may
        be acquired together with them."""
        limit = _throttled_from(self._settings.delivery_count_limit)
        first, last = self._batches[0].base_offset, self._last
        return any(
            run.acquirable
            and run.count >= limit
            and (not batch.by_offset or (run.first <= last and run.last >= first))
            for run in batch.runs
        )

    def _acquire_by_offset(self, batch: Batch, first: int, last: int) -> None:
        """Acquire the available records of a batch one by one. The more often a record was
        delivered, the fewer other records are delivered with it. At its last delivery a record is
        delivered alone (H-156)."""
        limit = self._settings.delivery_count_limit
        throttled_from = _throttled_from(limit)
        taken, throttled_max = 0, -1
        acquired: list[Acquired] = []
        offset = max(first, batch.first)
        last = min(last, batch.last)
        while offset <= last:
            run = batch.run_at(offset)
            if not run.acquirable:
                offset = run.last + 1
                continue
            last_delivery = limit > _THROTTLED_FROM_MIN and run.count == limit - 1
            if last_delivery and taken:
                break
            if run.count >= throttled_from and throttled_max < 0:
                throttled_max = max(1, len(batch) >> (run.count - throttled_from + 1))
            most = 1 if last_delivery else min(run.last, last) - offset + 1
            if self._limits.record_limit:
                most = min(most, self._room - taken)
            if throttled_max > taken:
                most = min(most, throttled_max - taken)
            (cut,) = batch.runs_within(offset, offset + most - 1)
            self._partition.acquire_lock(cut, self._member_id, self._now_ms, self._settings)
            _add(acquired, Acquired(cut.first, cut.last, cut.count))
            taken += most
            offset += most
            if last_delivery or taken == throttled_max:
                break
            if self._limits.record_limit and taken == self._room:
                break
        self._acquired += acquired
        self._room -= taken

    def _take(self, run: InFlightRun) -> None:
        self._partition.acquire_lock(run, self._member_id, self._now_ms, self._settings)
        self._acquired.append(Acquired(run.first, run.last, run.count))
        self._room -= run.last - run.first + 1

    # --- New records ---

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire records for the first time: whole batches of the log, until there is no room
        (H-152, H-153)."""
        partition = self._partition
        first = max(first, partition.start_offset)
        if not partition.in_flight:
            first = max(first, partition.end_offset)
        if first > last:
            return
        if self._room < last - first + 1:
            last_known = last
            last = self._end_of_batch(first + self._room - 1)
            if partition.open_gaps() is not None:
                # The next batch in flight may begin in the middle of a batch of the log.
                last = min(last, last_known)
        for start, end in self._cut(first, last):
            run = InFlightRun(start, end, _S.AVAILABLE, 0)
            batch = Batch(run)
            partition.in_flight.add(batch)
            if self._limits.record_limit and end - start + 1 > self._room:
                batch.by_offset = True
                (run,) = batch.runs_within(start, start + self._room - 1)
                partition.look_for_available()
            self._take(run)
        if partition.in_flight.batches[0].first == first:
            partition.start_offset = first
        partition.end_offset = max(partition.end_offset, last)
        if partition.gaps is not None:
            partition.pass_gaps(self._acquired[-1].last_offset + 1)

    def _end_of_batch(self, offset: int) -> int:
        """The last offset of the batch of the log that contains an offset; the offset itself if no
        batch contains it."""
        for batch in self._batches:
            if batch.base_offset <= offset <= batch.last_offset:
                return batch.last_offset
        return offset

    def _cut(self, first: int, last: int) -> list[tuple[int, int]]:
        """The in-flight batches into which newly acquired offsets are divided. When an in-flight
        batch has reached the size that the client requests, it ends with the present batch of the
        log (H-155)."""
        if self._limits.record_limit or last - first + 1 <= self._limits.batch_size:
            return [(first, last)]
        cut = []
        for batch in self._batches:
            if batch.base_offset > last:
                break
            if batch.base_offset - first >= max(1, self._limits.batch_size):
                cut.append((first, batch.base_offset - 1))
                first = batch.base_offset
        return [*cut, (first, last)]


def _throttled_from(delivery_count_limit: int) -> int:
    """The number of deliveries from which on records are delivered in ever smaller parts."""
    return max(_THROTTLED_FROM_MIN, (delivery_count_limit + 1) // 2)


def _add(acquired: list[Acquired], more: Acquired) -> None:
    """Add neighbouring offsets, as part of the last range if the numbers of deliveries are
    equal.
    """
    if acquired:
        first, last, count = acquired[-1]
        if last + 1 == more.first_offset and count == more.delivery_count:
            acquired[-1] = Acquired(first, more.last_offset, count)
            return
    acquired.append(more)


def without(acquired: Iterable[Acquired], batches: Sequence[LogBatch]) -> list[Acquired]:
    """The acquired offsets that are in none of the batches."""
    left = []
    for first, last, count in acquired:
        for batch in batches:
            if batch.last_offset < first or batch.base_offset > last:
                continue
            if first < batch.base_offset:
                left.append(Acquired(first, batch.base_offset - 1, count))
            first = batch.last_offset + 1
        if first <= last:
            left.append(Acquired(first, last, count))
    return left
