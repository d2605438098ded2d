"""A compacted topic has the last committed write of each key, and no record that was not written.

Each key has one writer, which numbers its writes, so that the order of the numbers is that of
offsets. In addition to compaction, DeleteRecords removes records at the start of the log, and all
records are removed when the topic is deleted and created again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Fate(Enum):
    """The writer's knowledge about a write."""

    UNKNOWN = "may be there"
    ACKNOWLEDGED = "is there"
    ABORTED = "is not there"
    DELETED = "went with its topic"


@dataclass(slots=True)
class Write:
    """A write of a key; a `tombstone` has no value.

    `offset`: -1 until the write is acknowledged. `life`: the number of the write's topic among all
    topics that had its name. `over`: the producer will not send the write again. `deletion`: the
    number, from 1 on, of the topic deletion that removed the write; 0 if no deletion removed it.
    """

    number: int
    tombstone: bool
    fate: Fate = Fate.UNKNOWN
    offset: int = -1
    life: int = 1
    over: bool = False
    deletion: int = 0


@dataclass(slots=True)
class Writes:
    """The writes of one key, in order, and their partition."""

    place: str
    writes: list[Write] = field(default_factory=list)

    def add(self, *, tombstone: bool) -> Write:
        write = Write(len(self.writes), tombstone)
        self.writes.append(write)
        return write


#: (offset, key, number of the write), oldest first. A tombstone has the number in a header.
Found = Sequence[tuple[int, str, int]]
_NO_STARTS: Mapping[str, int] = {}


def check_latest(
    written: Mapping[str, Writes],
    found: Mapping[str, Found],
    starts: Mapping[str, int] = _NO_STARTS,
    *,
    whole: bool,
) -> Iterator[str]:
    """Yield violations.

    `found`: the records of a read_committed reader, by partition. `whole`: True if the reader has
    read all records that are in the log now. `starts`: the highest possible log start of each
    partition.
    """
    for place, records in found.items():
        by_key: dict[str, list[tuple[int, int]]] = {}
        for offset, key, number in records:
            by_key.setdefault(key, []).append((offset, number))
        for key in sorted(by_key):
            if key not in written or written[key].place != place:
                yield f"{place} has the key {key}, which nobody wrote there"
            else:
                yield from _check_visible(key, written[key], by_key[key], now=whole)
    if whole:
        for key, writes in written.items():
            numbers = [number for _, name, number in found.get(writes.place, ()) if name == key]
            start = starts.get(writes.place, 0)
            yield from _check_last(key, writes.writes, max(numbers, default=-1), start)


def _check_visible(
    key: str, writes: Writes, records: Iterable[tuple[int, int]], *, now: bool
) -> Iterator[str]:
    last = -1
    for offset, number in records:
        if number <= last:
            yield f"{key}: write {number} comes behind write {last}, at offset {offset}"
        last = max(last, number)
        if not 0 <= number < len(writes.writes):
            yield f"{key}: write {number} at offset {offset} was never made"
            continue
        write = writes.writes[number]
        if write.fate is Fate.ABORTED:
            yield f"{key}: write {number} at offset {offset} was aborted"
        elif write.fate is Fate.DELETED and now:
            yield f"{key}: write {number} at offset {offset} is of a deleted topic"
        elif write.offset not in (-1, offset):
            yield f"{key}: write {number} was at offset {write.offset}, and is at {offset} now"


def _check_last(key: str, writes: Sequence[Write], visible: int, start: int) -> Iterator[str]:
    """Check that the visible write is the last acknowledged one, or a later one.

    No write needs to be visible if a tombstone or DeleteRecords may have removed the key.
    """
    known = max((write.number for write in writes if write.fate is Fate.ACKNOWLEDGED), default=-1)
    if visible >= known or (visible < 0 and writes[known].offset < start):
        return
    removed = any(
        write.tombstone and write.number >= known and write.fate is not Fate.ABORTED
        for write in writes
    )
    if visible >= 0 or not removed:
        yield f"{key}: write {known} was acknowledged, but the last that is there is {visible}"


def check_uncompacted(
    written: Mapping[str, Writes],
    found: Mapping[str, Found],
    starts: Mapping[str, int] = _NO_STARTS,
) -> Iterator[str]:
    """Check a log that was never compacted: all acknowledged writes are in it, not only the last of
    each key.

    `starts`: the highest possible log start of each partition; writes below it need not be there.
    """
    for key, writes in written.items():
        numbers = {number for _, name, number in found.get(writes.place, ()) if name == key}
        start = starts.get(writes.place, 0)
        for write in writes.writes:
            if (
                write.fate is Fate.ACKNOWLEDGED
                and write.offset >= start
                and write.number not in numbers
            ):
                yield (
                    f"{key}: write {write.number} was acknowledged at {writes.place} offset"
                    f" {write.offset}, and is gone though nothing was compacted"
                )


def check_offsets_given_once(written: Mapping[str, Writes]) -> Iterator[str]:
    """Check that no offset of a topic belongs to two acknowledged writes."""
    holders: dict[tuple[str, int, int], str] = {}
    for key, writes in written.items():
        for write in writes.writes:
            if write.offset < 0:
                continue
            holder = holders.setdefault((writes.place, write.life, write.offset), key)
            if holder != key:
                yield f"{writes.place}: offset {write.offset} was given to {holder} and to {key}"
