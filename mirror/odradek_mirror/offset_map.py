"""The run map, which translates offsets of the source to offsets of the target.

A run is a sequence of records with consecutive offsets on both sides. Runs end only at gaps:
offsets of the source that compaction, a marker or an aborted transaction has left out, and markers
in the target. So the translation of an offset is exact.

    source   0 1 2 3 . . 6 7 8        . a gap
    target   0 1 2 3 M 5 6 7          M a marker: the end of a transaction of the mirror
    runs     (0, 0, 4)  (6, 5, 3)

The runs of a partition are stored in records of the map topic (`map_topic.py`), whose keys and
values are encoded and decoded here. The module uses no clock and no I/O.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeGuard
from uuid import UUID

from odradek_client.errors import OdradekError, Refused
from odradek_client.structs import TopicPartition
from odradek_mirror.batches import ConsecutiveOffsets
from odradek_protocol.lazy_tuple import NamedTuple

#: The maximum number of runs in one record of the map topic. A record with fewer runs is written
#: again with the runs of the next transaction added, so that compaction leaves few records.
RUNS_PER_RECORD = 100
_OFFSET_END = 2**63 - 1


class MapDamaged(Refused):
    """The error if a record of the map topic was not written by the mirror, or contradicts the
    other records."""


class NotCopied(OdradekError):
    """The error of an offset that the mirror has not copied yet."""


class MappedRun(NamedTuple):
    """A run of `length` records with consecutive offsets in both logs. `source`, `target`: the
    offsets of the first record."""

    source: int
    target: int
    length: int


class Position(NamedTuple):
    """The state of a copied partition: the next offset to copy, and the target's offset after the
    last copied record (-1: no record was copied)."""

    next: int
    target_end: int
    source_topic_id: UUID
    target_topic_id: UUID


class MapEntry(NamedTuple):
    """A record of the map topic: the runs of a partition from the source offset `start` on."""

    tp: TopicPartition
    start: int
    runs: Sequence[MappedRun]
    position: Position


def runs_of(
    spans: Iterable[ConsecutiveOffsets], parts: Sequence[tuple[int, int]]
) -> list[MappedRun]:
    """The runs of a written batch. The target has appended the batch as one batch, or as several if
    it was split. `parts`: for each batch at the target, the index of its first record in the
    written batch, and its base offset."""
    runs: list[MappedRun] = []
    index = 0
    at = 0
    for first, count in spans:
        done = 0
        while done < count:
            while at + 1 < len(parts) and parts[at + 1][0] <= index:
                at += 1
            start, base = parts[at]
            end = parts[at + 1][0] if at + 1 < len(parts) else _OFFSET_END
            taken = min(count - done, end - index)
            runs.append(MappedRun(first + done, base + index - start, taken))
            done += taken
            index += taken
    return joined(runs)


def joined(runs: Iterable[MappedRun]) -> list[MappedRun]:
    """The runs in the same order, where runs without a gap between them become one run."""
    found: list[MappedRun] = []
    for run in runs:
        if found and _follows(found[-1], run):
            last = found[-1]
            found[-1] = MappedRun(last.source, last.target, last.length + run.length)
        else:
            found.append(run)
    return found


def _follows(before: MappedRun, run: MappedRun) -> bool:
    return (
        run.source == before.source + before.length and run.target == before.target + before.length
    )


class PartitionMap:
    """The runs of one partition in memory, three numbers for each run."""

    def __init__(self, start: int, source_topic_id: UUID, target_topic_id: UUID) -> None:
        self.start = start
        self.position = Position(start, -1, source_topic_id, target_topic_id)
        self._sources = array("q")
        self._targets = array("q")
        self._lengths = array("q")
        #: For each record of the map topic: its source offset `start`, and the index of its first
        #: run.
        self._entries: list[tuple[int, int]] = []

    @property
    def run_count(self) -> int:
        """The number of runs."""
        return len(self._sources)

    @property
    def record_count(self) -> int:
        """The number of copied records."""
        return sum(self._lengths)

    def runs(self, first: int = 0) -> Iterator[MappedRun]:
        """The runs from the index `first` on."""
        columns = (self._sources[first:], self._targets[first:], self._lengths[first:])
        return map(MappedRun, *columns)

    def entries_after(
        self, tp: TopicPartition, runs: Sequence[MappedRun], next_offset: int
    ) -> list[MapEntry]:
        """The records of the map topic for a transaction that copies these runs, up to
        `next_offset`. Call `add` with each of them after the commit; until then the map is
        unchanged."""
        old = self.position
        if next_offset < old.next:
            raise ValueError(f"the position would go back from {old.next} to {next_offset}")
        start, found = old.next, list(runs)
        target_end = old.target_end
        if self._entries and self.run_count - self._entries[-1][1] < RUNS_PER_RECORD:
            start, first = self._entries[-1]
            found[:0] = self.runs(first)
        found = joined(found)
        entries = []
        for at in range(0, max(len(found), 1), RUNS_PER_RECORD):
            some = found[at : at + RUNS_PER_RECORD]
            behind = at + RUNS_PER_RECORD
            end = found[behind].source if behind < len(found) else next_offset
            if some:
                target_end = some[-1].target + some[-1].length
            position = old._replace(next=end, target_end=target_end)
            entries.append(MapEntry(tp, start, some, position))
            start = end
        return entries

    def add(self, entry: MapEntry) -> None:
        """Add the content of a record of the map topic, in the order of the records. MapDamaged
        unless the record continues after the record added last, or replaces that record."""
        if self._entries and entry.start == self._entries[-1][0]:
            first = self._entries[-1][1]
            del self._sources[first:], self._targets[first:], self._lengths[first:]
        elif entry.start == self.position.next:
            self._entries.append((entry.start, self.run_count))
        else:
            raise MapDamaged(
                f"the record for {_name(entry.tp)} from offset {entry.start} does not continue the "
                f"one before it, which ends at {self.position.next}"
            )
        self.position = entry.position
        for run in entry.runs:
            self._sources.append(run.source)
            self._targets.append(run.target)
            self._lengths.append(run.length)

    def starts_below(self, source_offset: int) -> list[int]:
        """The starts of the records of the map topic whose source offsets are all smaller than
        `source_offset`. The last record is never included."""
        starts = [start for start, _ in self._entries]
        keep = min(bisect_right(starts, source_offset), len(starts)) - 1
        return starts[: max(keep, 0)]

    def forget(self, starts: Sequence[int]) -> None:
        """Forget records of the map topic that `starts_below` has returned."""
        if not starts:
            return
        first = self._entries[len(starts)][1]
        del self._sources[:first], self._targets[:first], self._lengths[:first]
        self._entries = [(start, index - first) for start, index in self._entries[len(starts) :]]
        self.start = self._entries[0][0]

    def translate(self, source_offset: int) -> int:
        """The target's offset of the first record that is at `source_offset` or after it.

        An offset after the last copied record becomes the offset after that record in the target.
        So a group that has read all records of the source has no records left to read at the
        target. NotCopied for an offset that the copy has not reached.
        """
        if source_offset > self.position.next:
            raise NotCopied(
                f"offset {source_offset} is not copied yet, only those before {self.position.next}"
            )
        at = bisect_right(self._sources, source_offset) - 1
        if at >= 0 and source_offset < self._sources[at] + self._lengths[at]:
            return self._targets[at] + source_offset - self._sources[at]
        if at + 1 < self.run_count:
            return self._targets[at + 1]
        return max(self.position.target_end, 0)


# --- records of the map topic ---------------------------------------------------------------------


def encode_key(tp: TopicPartition, start: int) -> bytes:
    """The key of a record of the map topic."""
    return _json({"topic": tp.topic, "partition": tp.partition, "from": start})


def encode_value(entry: MapEntry) -> bytes:
    """The value of a record of the map topic."""
    position = entry.position
    return _json(
        {
            "runs": [list(run) for run in entry.runs],
            "next": position.next,
            "target_end": position.target_end,
            "source_topic_id": str(position.source_topic_id),
            "target_topic_id": str(position.target_topic_id),
        }
    )


def decode_key(key: bytes | None) -> tuple[TopicPartition, int]:
    """The partition and first source offset of a key. Raises MapDamaged for any other key."""
    found = _object("key", key)
    topic, partition, start = (found.get(name) for name in ("topic", "partition", "from"))
    if not isinstance(topic, str) or not _is_offset(partition) or not _is_offset(start):
        raise MapDamaged(f"the key {key!r} names no partition and offset")
    return TopicPartition(topic, partition), start


def decode_entry(key: bytes | None, value: bytes) -> MapEntry:
    """The content of a record of the map topic. Raises MapDamaged for any other record."""
    tp, start = decode_key(key)
    found = _object("value", value)
    try:
        runs = [MappedRun(*each) for each in found["runs"]]
        position = Position(
            found["next"],
            found["target_end"],
            UUID(found["source_topic_id"]),
            UUID(found["target_topic_id"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MapDamaged(f"the record for {_name(tp)} from offset {start} is no run map") from None
    entry = MapEntry(tp, start, runs, position)
    trouble = _trouble(entry)
    if trouble:
        raise MapDamaged(f"the record for {_name(tp)} from offset {start} {trouble}")
    return entry


def _trouble(entry: MapEntry) -> str | None:
    """The reason why an entry is impossible, None if it is not."""
    position = entry.position
    numbers = [number for run in entry.runs for number in run]
    if not all(map(_is_offset, [*numbers, position.next])):
        return "has numbers that are no offsets"
    if not (_is_offset(position.target_end) or position.target_end == -1):
        return "has no end in the target"
    source, target = entry.start, 0
    for run in entry.runs:
        if run.length <= 0 or run.source < source or run.target < target:
            return "has runs that do not rise"
        source, target = run.source + run.length, run.target + run.length
    if source > position.next or (entry.runs and target != position.target_end):
        return "has runs beyond its end"
    return None


def _is_offset(number: Any) -> TypeGuard[int]:
    return type(number) is int and 0 <= number <= _OFFSET_END


def _object(part: str, octets: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(octets or b"")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise MapDamaged(f"the {part} {(octets or b'')[:80]!r} is no JSON object")
    return found


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
