"""The offset index and the time index of one segment, which are extended while the segment grows,
read, checked and rebuilt (L-02, L-03, L-05, L-33).

    <base>.log        | 100-104 | 105 | 106-119 | 120 | 121-140 | 141 | 142 |
                                      ^               ^                     ^ size_bytes
    <base>.index                      (119, position) (140, position)
    <base>.timeindex                  (largest timestamp up to 119, its last offset)
                                                      (largest timestamp up to 140, ...)

An entry is added after `index.interval.bytes` of batches. A lookup takes the last entry at or below
its target and walks the batch headers from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from odradek_broker.storage.handles import HandleCache, HandleOwner
from odradek_broker.storage.index import InvalidIndex, OffsetIndex, TimeIndex
from odradek_broker.storage.segment_scanner import (
    BatchAt,
    ScannedSegment,
    SegmentCorrupt,
    read_batches,
    walk_batches,
)
from odradek_broker.storage.segment_state import SegmentState
from odradek_protocol.records.batch import verify_crc

_HINTS_MAX = 128
#: The limit of the distance, in bytes, from the last entry of a closed segment's offset index to a
#: later batch. Beyond it the index is rebuilt, because it may have lost entries. Followers of Kafka
#: wrote up to a megabyte between two entries.
_UNINDEXED_BYTES_MAX = 2 * 1024 * 1024


class IndexedSegment(HandleOwner, ScannedSegment, Protocol):
    """The segment that the indexes belong to."""

    next_offset: int
    sealed: bool
    closing: bool
    handles: HandleCache

    def path_of(self, suffix: str) -> str: ...

    def state_at_end(self, *, checked: bool) -> SegmentState | None:
        """The segment's state in the producer snapshot at its end, if any. Raises OSError."""
        ...

    def detached(self, handles: HandleCache) -> Any:
        """A copy of the segment that another thread can read."""
        ...


class SegmentIndexes:
    """The indexes of a segment. `loaded`: both indexes are in memory and reach to the end.
    `damage`: the damaged batch that a scan for the indexes has found; the indexes reach up to it,
    and another scan would not extend them."""

    __slots__ = (
        "_bytes_since_entry",
        "_first_timestamp",
        "_hints",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offsets",
        "_repairing",
        "_segment",
        "_summarized",
        "_times",
        "damage",
        "loaded",
    )

    def __init__(self, segment: IndexedSegment) -> None:
        self._segment = segment
        self.loaded = False
        self.damage = ""
        self._offsets, self._times = self._empty()
        self._repairing = False
        #: True if the largest timestamp is known without loading the indexes.
        self._summarized = False
        self._bytes_since_entry = 0
        self._max_timestamp = -1
        self._max_timestamp_offset = segment.base_offset
        self._first_timestamp: int | None = None
        # Offset -> position of its batch, or of the end, for readers that continue their last read.
        # Batches never move, so only a cut makes a hint wrong.
        self._hints: dict[int, int] = {}

    def _empty(self) -> tuple[OffsetIndex, TimeIndex]:
        files, path_of = self._segment.handles.files, self._segment.path_of
        base_offset = self._segment.base_offset
        return (
            OffsetIndex(files, path_of("index"), base_offset),
            TimeIndex(files, path_of("timeindex"), base_offset),
        )

    # ---- a segment that grows

    def note(
        self,
        position: int,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Index a batch that was written at `position` (L-02, L-03)."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._first_timestamp is None:
            self._first_timestamp = max_timestamp
        if self._bytes_since_entry > index_interval_bytes:
            self._offsets.add(last_offset, position)
            self._times.add(self._max_timestamp, self._max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def seal(self) -> None:
        """Put the largest timestamp into the time index and write both indexes, before a roll or a
        clean close (L-03)."""
        self.load()
        self._times.add(self._max_timestamp, self._max_timestamp_offset)
        self._offsets.write_out()
        self._times.write_out()

    def full(self, segment_index_bytes: int) -> bool:
        return (
            len(self._offsets) * 8 >= segment_index_bytes
            or (len(self._times) + 1) * 12 >= segment_index_bytes
        )

    def write(self) -> None:
        """Write the entries that the files do not have yet. A failure is ignored, because the files
        are caches."""
        self._offsets.write_out()
        self._times.write_out()

    def state(self, aborted_entries: int, aborted_crc: int) -> SegmentState:
        """The state of the segment and its loaded indexes, for a producer snapshot at its end."""
        return SegmentState(
            self._segment.base_offset,
            self._segment.size_bytes,
            len(self._offsets),
            len(self._times),
            self._max_timestamp,
            self._max_timestamp_offset,
            aborted_entries,
            aborted_crc,
        )

    # ---- reading the files

    def load(self) -> None:
        """Read the index files if they are not in memory; indexes that do not match the segment are
        rebuilt before the call returns (L-33). Raises OSError."""
        if not self.loaded and not self._read():
            self.rebuild()

    def _need(self) -> None:
        """Read the index files for a reader. Raises SegmentCorrupt if they do not match the
        segment: the reader then decides about a rebuild; raises OSError."""
        if not self.loaded and not self._read():
            raise SegmentCorrupt(f"the indexes of {self._segment.path} do not fit it")

    def _read(self) -> bool:
        """Read the index files; False if they do not match the segment. Raises OSError."""
        next_offset = self._segment.next_offset
        try:
            self._offsets.load(self._segment.size_bytes)
            self._times.load(self._segment.size_bytes)
            if self.damage:
                self._max_timestamp, self._max_timestamp_offset = self._times.last()
            else:
                self._resume()
        except (InvalidIndex, SegmentCorrupt):
            # The end of the segment is not known from the batches before the damage.
            self._segment.next_offset = max(self._segment.next_offset, next_offset)
            return False
        self.loaded = True
        self.keep()
        return True

    def _resume(self) -> None:
        """Continue after the last index entry. Raises SegmentCorrupt if that position is no batch
        boundary, or if an index has lost its last entries (the size of its file does not show such
        a loss)."""
        self._max_timestamp, self._max_timestamp_offset = self._times.last()
        self._bytes_since_entry = 0
        last_offset, position = self._offsets.last()
        for batch in self._walk_end(position, last_offset):
            self._count(batch)
            self._bytes_since_entry += batch.size_bytes
        largest = self._times.last()
        if largest[0] >= 0:
            self._check_largest_timestamp(largest, self._offsets.floor(largest[1]))
        self._check_newest(largest, self._max_timestamp)
        state = None if self._segment.sealed else self._segment.state_at_end(checked=True)
        # The index of a closed segment may have been rebuilt with another interval.
        if state is not None and len(self._offsets) < state.offset_entries:
            raise SegmentCorrupt(f"{self._offsets.path} has lost entries")

    def _walk_end(self, position: int, last_offset: int | None = None) -> Iterator[BatchAt]:
        """Walk from the last entry of the index to the end of the segment. Raises SegmentCorrupt
        if a closed segment extends so far beyond that entry that later entries must be missing."""
        walk = (
            walk_batches(self._segment, position)
            if last_offset is None
            else self._walk_from(last_offset, position)
        )
        for batch in walk:
            if self._segment.sealed and batch.position - position > _UNINDEXED_BYTES_MAX:
                raise SegmentCorrupt(f"{self._offsets.path} has lost entries")
            yield batch

    def _check_largest_timestamp(self, largest: tuple[int, int], position: int) -> None:
        """Compare the largest timestamp, on which retention relies, with the batch at or after
        `position` that should have it. Raises SegmentCorrupt."""
        timestamp, offset = largest
        for batch in walk_batches(self._segment, position):
            if batch.last_offset >= offset:
                if batch.last_offset == offset and batch.max_timestamp == timestamp:
                    return
                break
            if self._segment.sealed and batch.position - position > _UNINDEXED_BYTES_MAX:
                raise SegmentCorrupt(f"{self._offsets.path} has lost entries")
        raise SegmentCorrupt(f"{self._times.path} does not match {self._segment.path}")

    def _check_newest(self, largest: tuple[int, int], newest_at_end: int) -> None:
        """Check that the time index ends as it did when the segment was closed. The snapshot at the
        segment's end has the largest timestamp. Without a snapshot, the last entry must not be
        older than `newest_at_end`, the largest timestamp of the last batches. Raises
        SegmentCorrupt."""
        state = self._segment.state_at_end(checked=False)
        if state is not None and largest != (state.max_timestamp, state.max_timestamp_offset):
            if self._segment.state_at_end(checked=True) is not None:
                raise SegmentCorrupt(f"{self._times.path} has lost entries")
            state = None
        if state is None and self._segment.sealed and newest_at_end > largest[0]:
            raise SegmentCorrupt(f"{self._times.path} has lost entries")

    def _count(self, batch: BatchAt) -> None:
        self._segment.next_offset = batch.last_offset + 1
        if batch.max_timestamp > self._max_timestamp:
            self._max_timestamp = batch.max_timestamp
            self._max_timestamp_offset = batch.last_offset

    def keep(self) -> None:
        """Count the memory of a closed segment's indexes, so that others may be unloaded."""
        if self._segment.sealed and self.loaded:
            self._segment.handles.keep_indexes(self._segment)
        else:
            self._segment.handles.forget_indexes(self._segment)

    @property
    def size_bytes(self) -> int:
        return 8 * len(self._offsets) + 12 * len(self._times)

    def unload(self) -> None:
        """Free the memory of the indexes of a closed segment; they are read again when needed."""
        self._offsets, self._times = self._empty()
        self._hints.clear()
        self._summarized = self._summarized or self.loaded
        self.loaded = False

    # ---- rebuilding

    def start_rebuild(self) -> None:
        """Empty both indexes; `note_scanned` fills them again, `seal` writes them."""
        self._offsets.clear()
        self._times.clear()
        self._begin_scan()

    def _begin_scan(self) -> None:
        self._hints.clear()
        self._bytes_since_entry = 0
        self._max_timestamp = -1
        self._max_timestamp_offset = self._segment.base_offset
        self._first_timestamp = None
        self._segment.next_offset = self._segment.base_offset
        self.damage = ""
        self.loaded = True

    def note_scanned(self, batch: BatchAt, index_interval_bytes: int) -> None:
        """Index a batch that a scan has found to be good."""
        self._segment.next_offset = batch.last_offset + 1
        self.note(
            batch.position,
            batch.size_bytes,
            batch.last_offset,
            batch.max_timestamp,
            index_interval_bytes,
        )

    def go_on_behind(self, state: SegmentState, next_offset: int) -> None:
        """Start a rebuild in the middle: keep the entries that the index files had when the segment
        ended at `next_offset`, and cut the files there. Raises SegmentCorrupt, BatchError if these
        entries, or the last batches before that offset, have changed since; the files then stay
        unchanged. Raises OSError."""
        largest = state.max_timestamp, state.max_timestamp_offset
        offsets, times = self._empty()
        try:
            offsets.load_first(state.offset_entries, state.size_bytes)
            times.load_first(state.time_entries, largest)
        except InvalidIndex as problem:
            raise SegmentCorrupt(str(problem)) from problem
        self._check_end(*offsets.last(), state.size_bytes, next_offset)
        offsets.cut_file()
        times.cut_file()
        self._begin_scan()
        self._offsets, self._times = offsets, times
        self._bytes_since_entry = state.size_bytes - offsets.last()[1]
        self._segment.next_offset = next_offset
        self._max_timestamp, self._max_timestamp_offset = largest

    def _check_end(self, last_offset: int, start: int, end: int, next_offset: int) -> None:
        """Check the batches between the last entry of the offset index and `end`, where the next
        batch would get `next_offset`. Raises SegmentCorrupt, BatchError, OSError."""
        position, found = start, self._segment.base_offset
        for position, header, batch in read_batches(self._segment, start) if end else ():
            verify_crc(batch, 0, header)
            if position == start and start and header.last_offset != last_offset:
                raise SegmentCorrupt(f"{self._offsets.path} does not match {self._segment.path}")
            position += header.size_bytes
            found = header.next_offset
            if position >= end:
                break
        if position != end or found != next_offset:
            raise SegmentCorrupt(f"{self._segment.path} has no batch that ends at byte {end}")

    def rebuild(self, index_interval_bytes: int = 4096) -> None:
        """Rebuild both indexes from the batch headers and write them. Raises OSError.

        If the segment file is damaged, the indexes reach up to the damage, which `damage`
        describes.
        """
        next_offset = self._segment.next_offset
        self.start_rebuild()
        try:
            self._scan(index_interval_bytes)
        finally:
            self._segment.next_offset = max(self._segment.next_offset, next_offset)
        self.seal()
        self.keep()

    def _scan(self, index_interval_bytes: int = 4096) -> None:
        try:
            for batch in walk_batches(self._segment, 0):
                self.note_scanned(batch, index_interval_bytes)
        except SegmentCorrupt as problem:
            self.damage = str(problem)

    def repair(self) -> bool:
        """Rebuild both indexes; True when they are ready. A closed segment may be large, so its
        indexes are rebuilt in a worker thread: False until the thread has finished. Raises OSError.
        """
        background = self._segment.handles.background
        if background is None or not self._segment.sealed:
            self.rebuild()
            return True
        if not self._repairing:
            self._repairing = True
            handles = self._segment.handles
            copy = self._segment.detached(HandleCache(handles.files, limit=1))
            background(
                copy.indexes.scan_alone, lambda problem: self._repaired(copy.indexes, problem)
            )
        return False

    def scan_alone(self) -> None:
        """Fill the indexes in memory, in any thread. Raises OSError."""
        self._offsets.hold_back()
        self._times.hold_back()
        try:
            self._scan()
        finally:
            self._segment.drop_handle()

    def _repaired(self, copy: SegmentIndexes, problem: Exception | None) -> None:
        """Use the indexes that a worker has filled. If the worker failed, the next reader starts
        another rebuild.
        """
        self._repairing = False
        if (
            problem is not None
            or self._segment.closing
            or self._segment.size_bytes != copy._segment.size_bytes
        ):
            return
        self._offsets, self._times = copy._offsets, copy._times
        self._max_timestamp = copy._max_timestamp
        self._max_timestamp_offset = copy._max_timestamp_offset
        self._first_timestamp = copy._first_timestamp
        self.damage = copy.damage
        self._hints.clear()
        self.loaded = True
        self.seal()
        self.keep()

    def truncate(self, next_offset: int) -> None:
        """Drop the index entries from `next_offset` on, where the segment was cut. Raises
        OSError."""
        self._offsets.truncate_to(next_offset)
        self._times.truncate_to(next_offset)
        self._hints.clear()
        self._first_timestamp = None
        self.damage = ""
        self._max_timestamp, self._max_timestamp_offset = self._times.last()
        _, last_position = self._offsets.last()
        self._bytes_since_entry = 0
        for batch in walk_batches(self._segment, last_position):
            self._count(batch)
            self._bytes_since_entry += batch.size_bytes
        self._segment.next_offset = next_offset

    # ---- lookups by offset

    def _walk_to(self, offset: int) -> Iterator[BatchAt]:
        """Walk from a batch at or before the one that holds `offset`, as near as the index
        knows."""
        return self._walk_from(*self._offsets.floor_entry(offset))

    def _walk_from(self, last_offset: int, position: int) -> Iterator[BatchAt]:
        """Walk from an entry of the index. Raises SegmentCorrupt if the entry is wrong: a walk that
        begins after its target would not find it."""
        if position and position >= self._segment.size_bytes:
            raise SegmentCorrupt(f"{self._offsets.path} goes on after {self._segment.path}")
        for batch in walk_batches(self._segment, position):
            if batch.position == position and position and batch.last_offset != last_offset:
                raise SegmentCorrupt(f"{self._offsets.path} does not match {self._segment.path}")
            yield batch

    def position_of(self, offset: int) -> int:
        """The position of the batch that has `offset`, or else of the next batch; the size of the
        segment if there is no such batch. Raises SegmentCorrupt, OSError."""
        if offset >= self._segment.next_offset and self.loaded:
            return self._segment.size_bytes
        position = self._hints.get(offset)
        if position is not None:
            return position
        self._need()
        for batch in self._walk_to(offset):
            if batch.last_offset >= offset:
                self.hint(offset, batch.position)
                return batch.position
        return self._segment.size_bytes

    def seek(self, offset: int, batches_max: int) -> int | None:
        """The same as `position_of`, with little work: the indexes are neither loaded nor rebuilt.
        None if more than `batches_max` batches would have to be passed. Raises SegmentCorrupt,
        OSError."""
        position = self._hints.get(offset)
        if position is not None:
            return position
        try:
            start = (self._offsets.floor if self.loaded else self._offsets.floor_on_disk)(offset)
        except InvalidIndex as problem:
            raise SegmentCorrupt(str(problem)) from problem
        for passed, batch in enumerate(walk_batches(self._segment, start)):
            if batch.last_offset >= offset:
                return batch.position
            if passed >= batches_max:
                return None
        return self._segment.size_bytes

    def hint(self, offset: int, position: int) -> None:
        """Remember the position where the batch that holds `offset` starts, or will start."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX and offset not in hints:
            del hints[next(iter(hints))]
        hints[offset] = position

    def end_position(self, start: int, limit: int, max_bytes: int, *, minimum_one: bool) -> int:
        """The last batch boundary that is at most `max_bytes` after `start` and not after `limit`
        (`limit` is also a boundary); with `minimum_one` at least the end of the first batch
        (F-06)."""
        if limit - start <= max_bytes:
            return limit
        self._need()
        known = self._offsets.floor_position(start + max_bytes)
        end, target = start, start + max_bytes
        try:
            for batch in walk_batches(self._segment, max(start, known)):
                end = batch.position
                batch_end = batch.position + batch.size_bytes
                if batch_end > target:
                    if batch.position == start and minimum_one:
                        return min(batch_end, limit)
                    # The next read will begin at this position.
                    self.hint(batch.base_offset, batch.position)
                    break
                end = batch_end
        except SegmentCorrupt:
            if end == start:
                raise
            # The batches before the damage are read first.
        return min(end, limit)

    # ---- timestamps

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, from which the age of the segment counts
        (L-06). -1 if there is no readable batch, so that appends can continue after damaged bytes.
        Raises OSError."""
        if self._first_timestamp is None:
            try:
                first = (
                    next(walk_batches(self._segment, 0), None) if self._segment.size_bytes else None
                )
            except SegmentCorrupt:
                first = None
            if first is None:
                return -1
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """(largest timestamp, last offset of the first batch that has it); (-1, base offset) if no
        batch has a timestamp. Retention often needs these two values, so they stay in memory when
        the indexes are unloaded."""
        if not (self.loaded or self._summarized or self._summarize()):
            self._need()
        return self._max_timestamp, self._max_timestamp_offset

    def _summarize(self) -> bool:
        """Read the largest timestamp of a closed segment from a few entries of its index files.
        Reading all entries, up to 250,000, would take too long, because a search by time needs the
        largest timestamp of every segment. False if the files do not match the segment. Raises
        OSError."""
        if not self._segment.sealed:
            return False
        try:
            largest = self._times.last_on_disk()
            position = self._offsets.floor_on_disk(largest[1])
            last_position = self._offsets.last_position_on_disk()
            if not 0 <= position <= last_position < self._segment.size_bytes:
                return False
            self._check_largest_timestamp(largest, position)
            self._check_newest(
                largest, max(batch.max_timestamp for batch in self._walk_end(last_position))
            )
        except (InvalidIndex, SegmentCorrupt):
            return False
        self._max_timestamp, self._max_timestamp_offset = largest
        self._summarized = True
        return True

    def largest_timestamp_below(self, bound: int) -> tuple[int, int]:
        """The `largest_timestamp` of the batches that end below an offset. Raises SegmentCorrupt,
        OSError."""
        largest = self.largest_timestamp
        if bound >= self._segment.next_offset:
            return largest
        self._need()
        timestamp, offset = entry = self._times.last_below(bound)
        for batch in (
            self._walk_from_time(entry) if timestamp >= 0 else walk_batches(self._segment, 0)
        ):
            if batch.last_offset >= bound:
                break
            if batch.max_timestamp > timestamp:
                timestamp, offset = batch.max_timestamp, batch.last_offset
        return timestamp, offset

    def walk_to_time(self, timestamp: int) -> Iterator[BatchAt]:
        """Walk from a batch at or before the first that reaches `timestamp`, as near as the index
        knows (L-15). Raises SegmentCorrupt if the segment is damaged, or the index entry at which
        the walk begins is wrong."""
        self._need()
        entry = self._times.floor_entry(timestamp)
        return walk_batches(self._segment, 0) if entry is None else self._walk_from_time(entry)

    def _walk_from_time(self, entry: tuple[int, int]) -> Iterator[BatchAt]:
        """Walk from the batch of a time index entry, (timestamp, offset). Raises SegmentCorrupt
        unless that batch is the first that reaches the timestamp, as far as the walk can tell: a
        search that began after the first such batch would give a wrong answer (L-33)."""
        timestamp, offset = entry
        met = False
        for batch in self._walk_to(offset):
            if not met and batch.last_offset < offset:
                if batch.max_timestamp >= timestamp:
                    break
                continue
            if not met and (batch.base_offset > offset or batch.max_timestamp != timestamp):
                break
            met = True
            yield batch
        else:
            if met:
                return
        raise SegmentCorrupt(f"{self._times.path} does not match {self._segment.path}")
