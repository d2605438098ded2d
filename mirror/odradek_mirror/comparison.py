"""The comparison of a partition with its copy, record by record, without I/O.

Batches of each side are added in order when the comparison waits for that side. A batch with the
same bytes on both sides is skipped; all others are decoded, and their records are matched by the
offset that each record of the source must have at the target.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields
from enum import IntEnum
from typing import Protocol

from odradek_mirror.offset_map import MappedRun
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchHeader
from odradek_protocol.records.layout import HEADER_BYTES
from odradek_protocol.records.record import Headers, read_columns


class Side(IntEnum):
    """The two logs of a comparison."""

    SOURCE = 0
    TARGET = 1


class ComparedBatch(NamedTuple):
    """A batch as it is stored. `octets`: all its bytes, including the header."""

    header: BatchHeader
    octets: memoryview


class ComparedRecord(NamedTuple):
    """A record. `append_time`: True if its timestamp is the broker's."""

    offset: int
    timestamp_ms: int
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Headers


class Difference(NamedTuple):
    """A kind of difference, and the number of times that it was found. `source_offset`,
    `target_offset`: the place of the first difference; None if the side lacks the record."""

    kind: str
    times: int
    source_offset: int | None
    target_offset: int | None

    def __str__(self) -> str:
        where = [
            f"{side} offset {offset}"
            for side, offset in (("source", self.source_offset), ("target", self.target_offset))
            if offset is not None
        ]
        first = ", ".join(where)
        return f"{self.kind}: {first}" + (f" and {self.times - 1} more" if self.times > 1 else "")


class Places(Protocol):
    """The mapping between the offsets of a record in both logs."""

    def target_of(self, offset: int) -> int | None:
        """The target's offset of a record of the source; None if it has not been copied."""
        ...

    def source_of(self, offset: int) -> int | None:
        """The source's offset of a record of the target; None if it is no copy."""
        ...


class SameOffsets:
    """The mapping of a copy with the same offsets, which knows the ends of both logs."""

    def __init__(self, source_end: int, target_end: int) -> None:
        self._source_end, self._target_end = source_end, target_end

    def target_of(self, offset: int) -> int | None:
        """The same offset if it is before the end of the target, else None."""
        return offset if offset < self._target_end else None

    def source_of(self, offset: int) -> int | None:
        """The same offset if it is before the end of the source, else None."""
        return offset if offset < self._source_end else None


class MappedOffsets:
    """The mapping of a copy with a run map."""

    def __init__(self, runs: Iterable[MappedRun]) -> None:
        self._runs = list(runs)
        self._sources = [run.source for run in self._runs]
        self._targets = [run.target for run in self._runs]

    def target_of(self, offset: int) -> int | None:
        """The target's offset, from the run that contains the source's offset; None if no run
        does."""
        return _moved(offset, self._sources, self._targets, self._runs)

    def source_of(self, offset: int) -> int | None:
        """The source's offset, from the run that contains the target's offset; None if no run
        does."""
        return _moved(offset, self._targets, self._sources, self._runs)


def _moved(
    offset: int, starts: Sequence[int], others: Sequence[int], runs: Sequence[MappedRun]
) -> int | None:
    at = bisect_right(starts, offset) - 1
    if at < 0 or offset >= starts[at] + runs[at].length:
        return None
    return others[at] + offset - starts[at]


class PartitionComparison:
    """The comparison of two logs in the given ranges of offsets.

    `same_offsets`: batches must be the same too, not only their records. `compacted`: each side may
    lack records that the other has, because the sides are compacted separately.
    """

    def __init__(
        self, places: Places, source: range, target: range, *, same_offsets: bool, compacted: bool
    ) -> None:
        self._places = places
        self._ranges = (source, target)
        self._same_offsets = same_offsets
        self._compacted = compacted
        self._batches: tuple[deque[ComparedBatch], deque[ComparedBatch]] = (deque(), deque())
        self._rows: tuple[deque[ComparedRecord], deque[ComparedRecord]] = (deque(), deque())
        self._ended = [False, False]
        self._found: dict[str, Difference] = {}
        self._other_batch: Difference | None = None
        #: The number of records of each side in its range, without markers of transactions.
        self.records = [0, 0]
        #: The number of source records whose copies were deleted at the start of the target's log.
        self.deleted_at_target = 0
        #: The number of records that only one side has, in a compacted topic.
        self.compacted_records = 0

    def wants(self, side: Side) -> bool:
        """True if the comparison waits for batches of a side."""
        return not (self._ended[side] or self._batches[side] or self._rows[side])

    def within(self, side: Side) -> range:
        """The offsets of a side that are compared."""
        return self._ranges[side]

    @property
    def done(self) -> bool:
        """True if both logs were compared to their ends."""
        return all(self._ended) and not any(self._batches) and not any(self._rows)

    @property
    def differences(self) -> list[Difference]:
        """The differences, each kind once. If only the division into batches differs, and all
        records are equal, the only difference is the first batch that differs."""
        if not self._found and self._other_batch is not None:
            return [self._other_batch]
        return list(self._found.values())

    def add(self, side: Side, batches: Iterable[ComparedBatch]) -> None:
        """Add the next batches of a side, and compare as far as possible. Raises BatchError."""
        self._batches[side].extend(batches)
        self._advance()

    def end(self, side: Side) -> None:
        """Called when a side has no more batches, and compare as far as possible. Raises
        BatchError."""
        self._ended[side] = True
        self._advance()

    def _advance(self) -> None:
        source, target = self._rows
        while not (self.wants(Side.SOURCE) or self.wants(Side.TARGET) or self.done):
            if not source and not target and all(self._batches):
                if self._pass_over():
                    continue
                self._note_batches(self._batches[0][0], self._batches[1][0])
            expanded = [self._expand(side) for side in Side if not self._rows[side]]
            if any(expanded) and not (source and target):
                continue
            while source and target:
                self._match(source[0], target[0])
            if self._is_over(Side.TARGET):
                while source:
                    row = source.popleft()
                    self._only_at_source(row, self._places.target_of(row.offset))
            if self._is_over(Side.SOURCE):
                while target:
                    self._only_at_target(target.popleft())

    def _is_over(self, side: Side) -> bool:
        return self._ended[side] and not self._batches[side] and not self._rows[side]

    def _expand(self, side: Side) -> bool:
        """Decode the next batch of a side; False if there is none."""
        if not self._batches[side]:
            return False
        header, octets = self._batches[side].popleft()
        append_time, within = header.is_log_append_time, self._ranges[side]
        columns = read_columns(octets, 0, header)
        rows = [
            ComparedRecord(offset, timestamp_ms, append_time, key, value, headers)
            for offset, timestamp_ms, key, value, headers in zip(*columns, strict=True)
            if offset in within
        ]
        self._rows[side].extend(rows)
        if not header.is_control:
            self.records[side] += len(rows)
        return True

    # --- batches ----------------------------------------------------------------------------------

    def _pass_over(self) -> bool:
        """Skip the next batch of each side if the records of both batches have matching offsets and
        equal bytes. Otherwise skip nothing, and return False."""
        ours, theirs = self._batches[0][0], self._batches[1][0]
        if not self._same_places(ours.header, theirs.header):
            return False
        same = ours.octets.tobytes() == theirs.octets.tobytes()
        if not same and not _same_records(ours, theirs):
            return False
        if not same:
            self._note_batches(ours, theirs)
        for side in Side:
            header, _ = self._batches[side].popleft()
            self.records[side] += 0 if header.is_control else header.record_count
        return True

    def _same_places(self, ours: BatchHeader, theirs: BatchHeader) -> bool:
        for header, within in zip((ours, theirs), self._ranges, strict=True):
            if header.base_offset not in within or header.last_offset not in within:
                return False
        whole = ours.record_count == ours.last_offset_delta + 1
        return (
            (whole or self._same_offsets)
            and self._places.target_of(ours.base_offset) == theirs.base_offset
            and self._places.target_of(ours.last_offset) == theirs.last_offset
        )

    def _note_batches(self, ours: ComparedBatch, theirs: ComparedBatch) -> None:
        """Note the first batch of the target that differs from its source batch, if the two batches
        must be the same."""
        if not self._same_offsets or self._compacted or self._other_batch is not None:
            return
        if ours.octets.tobytes() == theirs.octets.tobytes():
            return
        names = [
            each.name.replace("_", " ")
            for each in fields(BatchHeader)
            if getattr(ours.header, each.name) != getattr(theirs.header, each.name)
        ]
        self._other_batch = Difference(
            f"batch ({', '.join(names) or 'records'})",
            1,
            ours.header.base_offset,
            theirs.header.base_offset,
        )

    # --- records ----------------------------------------------------------------------------------

    def _match(self, ours: ComparedRecord, theirs: ComparedRecord) -> None:
        """Compare the next records of both sides if their offsets correspond, or else skip the
        record that has no counterpart."""
        source, target = self._rows
        place = self._places.target_of(ours.offset)
        if place is None or place < theirs.offset or place not in self._ranges[Side.TARGET]:
            source.popleft()
            self._only_at_source(ours, place)
        elif place > theirs.offset:
            target.popleft()
            self._only_at_target(theirs)
        else:
            source.popleft()
            target.popleft()
            if ours[1:] != theirs[1:]:
                self._compare(ours, theirs)

    def _compare(self, ours: ComparedRecord, theirs: ComparedRecord) -> None:
        pairs = {
            "key": ours.key == theirs.key,
            "value": ours.value == theirs.value,
            "headers": ours.headers == theirs.headers,
            "timestamp": ours.timestamp_ms == theirs.timestamp_ms,
            # In a copy with new offsets, timestamps of the type append time get the type create
            # time.
            "timestamp type": ours.append_time == theirs.append_time or not self._same_offsets,
        }
        other = [name for name, equal in pairs.items() if not equal]
        if other:
            self._differ(", ".join(other), ours.offset, theirs.offset)

    def _only_at_source(self, row: ComparedRecord, place: int | None) -> None:
        within = self._ranges[Side.TARGET]
        if place is not None and place < within.start:
            self.deleted_at_target += 1
        elif place is not None and place >= within.stop:
            # The record was copied after the end of the target was determined.
            self.records[Side.SOURCE] -= 1
        elif place is not None and self._compacted:
            self.compacted_records += 1
        else:
            self._differ("missing", row.offset, place)

    def _only_at_target(self, row: ComparedRecord) -> None:
        origin = self._places.source_of(row.offset)
        within = self._ranges[Side.SOURCE]
        if origin is not None and origin < within.start:
            self.records[Side.TARGET] -= 1
        elif origin is not None and self._compacted:
            self.compacted_records += 1
        else:
            self._differ("extra", origin, row.offset)

    def _differ(self, kind: str, source_offset: int | None, target_offset: int | None) -> None:
        known = self._found.get(kind)
        if known is None:
            self._found[kind] = Difference(kind, 1, source_offset, target_offset)
        else:
            self._found[kind] = known._replace(times=known.times + 1)


def _same_records(ours: ComparedBatch, theirs: ComparedBatch) -> bool:
    """True if the two bodies have the same bytes, and both headers give their records the same
    times."""
    one, other = ours.header, theirs.header
    return (
        one.record_count == other.record_count
        and one.last_offset_delta == other.last_offset_delta
        and one.base_timestamp == other.base_timestamp
        and one.max_timestamp == other.max_timestamp
        and one.codec is other.codec
        and one.is_log_append_time == other.is_log_append_time
        and one.has_delete_horizon == other.has_delete_horizon
        and ours.octets[HEADER_BYTES:].tobytes() == theirs.octets[HEADER_BYTES:].tobytes()
    )
