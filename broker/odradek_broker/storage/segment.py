"""One segment: batches back to back in a `.log` file, with its two sparse indexes (L-01..L-03)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek_broker.platform.seams import Buffer, File, Files
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.index import InvalidIndex, OffsetIndex, TimeIndex
from odradek_broker.storage.producers.snapshot import read_segment_state
from odradek_broker.storage.segment_state import SegmentState
from odradek_protocol.records.batch import BatchHeader, read_header_alone, verify_crc
from odradek_protocol.records.layout import HEADER_BYTES, LOG_OVERHEAD_BYTES, PACKED_EXTENT

_unpack_extent = PACKED_EXTENT.unpack_from
_WALK_BLOCK_BYTES = 4096
_READ_CHUNK_BYTES = 1024 * 1024
_RELATIVE_OFFSET_MAX = 2**31 - 1
_HINTS_MAX = 128
#: No batch of a closed segment lies further behind the last entry of its offset index, unless the
#: interval between entries was larger: then the index is made anew, once. Kafka's followers wrote
#: up to a megabyte between two.
_UNINDEXED_BYTES_MAX = 2 * 1024 * 1024


class SegmentCorrupt(Exception):
    """The bytes at a place where a batch should start are not a batch."""


class TruncateFailed(Exception):
    """A write failed and what it left behind could not be taken back (L-08)."""


class BatchAt(NamedTuple):
    """Where a batch lies, without opening it."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def segment_name(base_offset: int) -> str:
    """L-01: twenty digits."""
    return f"{base_offset:020d}"


class Segment:
    """`[base_offset, next_offset)` of a partition. The file opens at first use and may be closed
    by the handle cache at any time between two uses.

    `next_offset` is exact for the active segment; for others the log knows better.
    """

    __slots__ = (
        "_bytes_since_index",
        "_directory",
        "_files",
        "_first_timestamp",
        "_handle",
        "_handles",
        "_hints",
        "_indexed",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offsets",
        "_repairing",
        "_summarized",
        "_times",
        "base_offset",
        "closing",
        "created_ms",
        "damage",
        "durable_bytes",
        "next_offset",
        "path",
        "pin_dirty",
        "roll_jitter_ms",
        "sealed",
        "size_bytes",
        "sync_pins",
        "synced_bytes",
        "used",
    )

    def __init__(
        self,
        handles: HandleCache,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        roll_jitter_ms: int = 0,
    ) -> None:
        self._handles = handles
        self._files: Files = handles.files
        self._directory = directory
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.path = self.path_of("log")
        self.size_bytes = 0
        self.synced_bytes = 0
        """Bytes that an fsync has covered."""
        self.durable_bytes = 0
        """Bytes that an fsync or the journal has covered."""
        self.sealed = False
        """Nothing is written to it any more: its indexes may leave the memory."""
        self.pin_dirty = False
        """Keep the handle while bytes are unsynced, so that fsync reports their write errors."""
        self.sync_pins = 0
        """Flushes under way that hold the handle."""
        self.closing = False
        self.used = False
        self.damage = ""
        """The fault in the batches, once a scan for the indexes has met it: the indexes
        are as good as they get."""
        self._repairing = False
        self._handle: File | None = None
        self._offsets = OffsetIndex(self._files, self.path_of("index"), base_offset)
        self._times = TimeIndex(self._files, self.path_of("timeindex"), base_offset)
        self._indexed = False
        #: The largest timestamp is known without the indexes.
        self._summarized = False
        self._bytes_since_index = 0
        self._max_timestamp = -1
        self._max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None
        # Offset -> where its batch starts (or will start: the end), for readers that go on where
        # they were. Batches never move, so only truncation makes a hint wrong.
        self._hints: dict[int, int] = {}

    # ---- files

    def path_of(self, suffix: str) -> str:
        return f"{self._directory}/{segment_name(self.base_offset)}.{suffix}"

    def create(self) -> None:
        """Make the file, empty, whatever a failed attempt left there."""
        self._handle = self._handles.open(self, create=True)
        if self._handle.size():
            self._handle.truncate(0)
        self._indexed = True

    def attach(self) -> None:
        """Take the size of the file that is there. Indexes are read at first use."""
        self.size_bytes = self.file.size()
        self.synced_bytes = self.durable_bytes = self.size_bytes

    @property
    def file(self) -> File:
        """The handle, opened if it is not; OSError."""
        handle = self._handle
        if handle is None:
            handle = self._handle = self._handles.open(self)
        self.used = True
        return handle

    @property
    def pinned(self) -> bool:
        return self.sync_pins > 0 or (self.pin_dirty and self.size_bytes > self.synced_bytes)

    def drop_handle(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Give the handle back; if a flush holds it, when that is finished."""
        self.closing = True
        self._handles.forget_indexes(self)
        if not self.sync_pins:
            self._handles.forget(self)
            self.drop_handle()

    def unpin(self) -> None:
        """A flush that held the handle has ended."""
        self.sync_pins -= 1
        if self.closing and not self.sync_pins:
            self._handles.forget(self)
            self.drop_handle()

    # ---- appending

    def append(
        self,
        batch: Buffer,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch behind the end and index it.

        OSError if the write failed and left nothing behind (L-08); TruncateFailed if it may have.
        """
        position = self.size_bytes
        file = self._handle
        if file is None:
            file = self.file
        else:
            self.used = True
        try:
            file.append((batch,))
        except OSError:
            self._undo(position)
            raise
        self.size_bytes = position + size_bytes
        self.next_offset = last_offset + 1
        self._note(position, size_bytes, last_offset, max_timestamp, index_interval_bytes)

    def _undo(self, position: int) -> None:
        try:
            self.file.truncate(position)
        except OSError as problem:
            raise TruncateFailed(
                f"a write to {self.path} failed, and so did truncating it to {position} bytes:"
                f" {problem}"
            ) from problem

    def _note(
        self,
        position: int,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Index a batch that now lies at `position` (L-02, L-03)."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._first_timestamp is None:
            self._first_timestamp = max_timestamp
        if self._bytes_since_index > index_interval_bytes:
            self._offsets.add(last_offset, position)
            self._times.add(self._max_timestamp, self._max_timestamp_offset)
            self._bytes_since_index = 0
        self._bytes_since_index += size_bytes

    def seal(self) -> None:
        """Before a roll or a clean close: the largest timestamp goes into the time index, and both
        indexes onto disk (L-03)."""
        self.load_indexes()
        self._times.add(self._max_timestamp, self._max_timestamp_offset)
        self._offsets.write_out()
        self._times.write_out()

    def index_full(self, segment_index_bytes: int) -> bool:
        return (
            len(self._offsets) * 8 >= segment_index_bytes
            or (len(self._times) + 1) * 12 >= segment_index_bytes
        )

    @property
    def first_timestamp(self) -> int:
        """Max timestamp of the first batch, which ageing counts from (L-06); -1 if there is none,
        or none that can be read: appends go on behind damage. OSError."""
        if self._first_timestamp is None:
            try:
                first = next(self.walk(0), None) if self.size_bytes else None
            except SegmentCorrupt:
                first = None
            if first is None:
                return -1
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """(largest timestamp, last offset of the first batch that has it); (-1, base) if none.

        Retention asks for it again and again, so it stays when the indexes leave the memory."""
        if not (self._indexed or self._summarized or self._summarize()):
            self._need_indexes()
        return self._max_timestamp, self._max_timestamp_offset

    def _summarize(self) -> bool:
        """Learn the largest timestamp of a closed segment from a few entries of its indexes, which
        have a quarter of a million: a search by time asks every segment. False if they do not
        fit. OSError."""
        if not self.sealed:
            return False
        try:
            largest = self._times.last_on_disk()
            position = self._offsets.floor_on_disk(largest[1])
            last_position = self._offsets.last_position_on_disk()
            if not 0 <= position <= last_position < self.size_bytes:
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
        """`largest_timestamp` of the batches that end below an offset. SegmentCorrupt, OSError."""
        largest = self.largest_timestamp
        if bound >= self.next_offset:
            return largest
        self._need_indexes()
        timestamp, offset = entry = self._times.last_below(bound)
        for batch in self._walk_from_time(entry) if timestamp >= 0 else self.walk(0):
            if batch.last_offset >= bound:
                break
            if batch.max_timestamp > timestamp:
                timestamp, offset = batch.max_timestamp, batch.last_offset
        return timestamp, offset

    # ---- indexes

    def load_indexes(self) -> None:
        """Read the index files of a segment that was there at start; rebuild what does not fit
        (L-33), at once. OSError."""
        if not self._indexed and not self._read_indexes():
            self.rebuild_indexes()

    def _need_indexes(self) -> None:
        """As `load_indexes`, for readers: SegmentCorrupt where the files do not fit, for they know
        when to rebuild. OSError."""
        if not self._indexed and not self._read_indexes():
            raise SegmentCorrupt(f"the indexes of {self.path} do not fit it")

    def _read_indexes(self) -> bool:
        """False if the files do not fit the segment. OSError."""
        next_offset = self.next_offset
        try:
            self._offsets.load(self.size_bytes)
            self._times.load(self.size_bytes)
            if self.damage:
                self._max_timestamp, self._max_timestamp_offset = self._times.last()
            else:
                self._resume()
        except (InvalidIndex, SegmentCorrupt):
            # What was counted up to the damage does not say where the segment ends.
            self.next_offset = max(self.next_offset, next_offset)
            return False
        self._indexed = True
        self._keep_indexes()
        return True

    def set_sealed(self, sealed: bool) -> None:
        """Another segment is written to now, or this one again."""
        self.sealed = sealed
        self._keep_indexes()

    def _keep_indexes(self) -> None:
        if self.sealed and self._indexed:
            self._handles.keep_indexes(self)
        else:
            self._handles.forget_indexes(self)

    @property
    def index_bytes(self) -> int:
        """Memory of both indexes."""
        return 8 * len(self._offsets) + 12 * len(self._times)

    def _resume(self) -> None:
        """Continue behind the last index entry. SegmentCorrupt if that is no batch boundary, or if
        the last entries of an index are missing, which leaves whole entries."""
        self._max_timestamp, self._max_timestamp_offset = self._times.last()
        self._bytes_since_index = 0
        last_offset, position = self._offsets.last()
        for batch in self._walk_end(position, last_offset):
            self._count(batch)
            self._bytes_since_index += batch.size_bytes
        largest = self._times.last()
        if largest[0] >= 0:
            self._check_largest_timestamp(largest, self._offsets.floor(largest[1]))
        self._check_newest(largest, self._max_timestamp)
        state = None if self.sealed else self._state_at_end(checked=True)
        # The index of a closed segment may have been made anew with another interval.
        if state is not None and len(self._offsets) < state.offset_entries:
            raise SegmentCorrupt(f"{self._offsets.path} has lost entries")

    def _walk_end(self, position: int, last_offset: int | None = None) -> Iterator[BatchAt]:
        """`walk` from the last entry of the index. SegmentCorrupt if in a closed segment it is too
        far from the end to be the last."""
        walk = (
            self.walk(position) if last_offset is None else self._walk_from(last_offset, position)
        )
        for batch in walk:
            if self.sealed and batch.position - position > _UNINDEXED_BYTES_MAX:
                raise SegmentCorrupt(f"{self._offsets.path} has lost entries")
            yield batch

    def _check_largest_timestamp(self, largest: tuple[int, int], position: int) -> None:
        """Retention believes it, so it is compared with the batch that should have it, at or
        behind `position`. SegmentCorrupt."""
        timestamp, offset = largest
        for batch in self.walk(position):
            if batch.last_offset >= offset:
                if batch.last_offset == offset and batch.max_timestamp == timestamp:
                    return
                break
            if self.sealed and batch.position - position > _UNINDEXED_BYTES_MAX:
                raise SegmentCorrupt(f"{self._offsets.path} has lost entries")
        raise SegmentCorrupt(f"{self._times.path} does not match {self.path}")

    def _check_newest(self, largest: tuple[int, int], newest_at_end: int) -> None:
        """Does the time index end as it did when the segment was closed? The snapshot at the
        segment's end knows the largest timestamp; where it says nothing, `newest_at_end` of the
        last batches must not be larger. SegmentCorrupt."""
        state = self._state_at_end(checked=False)
        if state is not None and largest != (state.max_timestamp, state.max_timestamp_offset):
            if self._state_at_end(checked=True) is not None:
                raise SegmentCorrupt(f"{self._times.path} has lost entries")
            state = None
        if state is None and self.sealed and newest_at_end > largest[0]:
            raise SegmentCorrupt(f"{self._times.path} has lost entries")

    def _state_at_end(self, *, checked: bool) -> SegmentState | None:
        """The segment's state as the snapshot at its end has it (P-26); None if there is none, or
        if it is about other bytes: the segment was compacted since. OSError."""
        path = f"{self._directory}/{segment_name(self.next_offset)}.snapshot"
        state = read_segment_state(self._files, path, checked=checked)
        place = self.base_offset, self.size_bytes
        return None if state is None or (state.base_offset, state.size_bytes) != place else state

    def _count(self, batch: BatchAt) -> None:
        self.next_offset = batch.last_offset + 1
        if batch.max_timestamp > self._max_timestamp:
            self._max_timestamp = batch.max_timestamp
            self._max_timestamp_offset = batch.last_offset

    def start_rebuild(self) -> None:
        """Forget both indexes; `note_scanned` fills them again, `seal` writes them."""
        self._offsets.clear()
        self._times.clear()
        self._begin_scan()

    def _begin_scan(self) -> None:
        self._hints.clear()
        self._bytes_since_index = 0
        self._max_timestamp = -1
        self._max_timestamp_offset = self.base_offset
        self._first_timestamp = None
        self.next_offset = self.base_offset
        self.damage = ""
        self._indexed = True

    def note_scanned(self, batch: BatchAt, index_interval_bytes: int) -> None:
        """A scan found this batch to be good."""
        self.next_offset = batch.last_offset + 1
        self._note(
            batch.position,
            batch.size_bytes,
            batch.last_offset,
            batch.max_timestamp,
            index_interval_bytes,
        )

    def write_indexes(self) -> None:
        """Write the entries that the files do not hold yet. A failure is not told: they are
        caches."""
        self._offsets.write_out()
        self._times.write_out()

    def state(self, aborted_entries: int, aborted_crc: int) -> SegmentState:
        """What the indexes, which are in memory, say up to the end."""
        return SegmentState(
            self.base_offset,
            self.size_bytes,
            len(self._offsets),
            len(self._times),
            self._max_timestamp,
            self._max_timestamp_offset,
            aborted_entries,
            aborted_crc,
        )

    def go_on_behind(self, state: SegmentState, next_offset: int) -> None:
        """As `start_rebuild`, but take from the index files what they had when the segment ended at
        `next_offset`, and cut them there. SegmentCorrupt, BatchError if they, or the last batches
        before it, are not what they were: nothing has changed then; OSError."""
        largest = state.max_timestamp, state.max_timestamp_offset
        offsets = OffsetIndex(self._files, self.path_of("index"), self.base_offset)
        times = TimeIndex(self._files, self.path_of("timeindex"), self.base_offset)
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
        self._bytes_since_index = state.size_bytes - offsets.last()[1]
        self.next_offset = next_offset
        self._max_timestamp, self._max_timestamp_offset = largest

    def _check_end(self, last_offset: int, start: int, end: int, next_offset: int) -> None:
        """Whether good batches lie between the last entry of the offset index and `end`, where the
        next one would get `next_offset`. SegmentCorrupt, BatchError, OSError."""
        position, found = start, self.base_offset
        for position, header, batch in read_batches(self, start) if end else ():
            verify_crc(batch, 0, header)
            if position == start and start and header.last_offset != last_offset:
                raise SegmentCorrupt(f"{self._offsets.path} does not match {self.path}")
            position += header.size_bytes
            found = header.next_offset
            if position >= end:
                break
        if position != end or found != next_offset:
            raise SegmentCorrupt(f"{self.path} has no batch that ends at byte {end}")

    def rebuild_indexes(self, index_interval_bytes: int = 4096) -> None:
        """Make both indexes anew from the batch headers and write them. OSError.

        Where the file itself is damaged the indexes reach up to there, and `damage` says so.
        """
        next_offset = self.next_offset
        self.start_rebuild()
        try:
            self._scan(index_interval_bytes)
        finally:
            self.next_offset = max(self.next_offset, next_offset)
        self.seal()
        self._keep_indexes()

    def _scan(self, index_interval_bytes: int = 4096) -> None:
        try:
            for batch in self.walk(0):
                self.note_scanned(batch, index_interval_bytes)
        except SegmentCorrupt as problem:
            self.damage = str(problem)

    def repair_indexes(self) -> bool:
        """Make both indexes anew: True if they are; False while that is done in a worker, for
        a closed segment is large and everybody else waits. OSError."""
        background = self._handles.background
        if background is None or not self.sealed:
            self.rebuild_indexes()
            return True
        if not self._repairing:
            self._repairing = True
            copy = self.detached(HandleCache(self._files, limit=1))
            background(copy.scan_alone, lambda problem: self._repaired(copy, problem))
        return False

    def detached(self, handles: HandleCache) -> Segment:
        """The present content, for another thread to read: nothing in memory is shared but the word
        that it is time to stop."""
        copy = _Detached(handles, self._directory, self.base_offset, created_ms=self.created_ms)
        copy.origin = self._handles
        copy.size_bytes = self.size_bytes
        copy.next_offset = self.next_offset
        return copy

    def scan_alone(self) -> None:
        """Fill the indexes in memory, in whatever thread. OSError."""
        self._offsets.hold_back()
        self._times.hold_back()
        try:
            self._scan()
        finally:
            self.drop_handle()

    def _repaired(self, copy: Segment, problem: Exception | None) -> None:
        """The worker is done. If it failed, the next reader asks again."""
        self._repairing = False
        if problem is not None or self.closing or self.size_bytes != copy.size_bytes:
            return
        self._offsets, self._times = copy._offsets, copy._times
        self._max_timestamp = copy._max_timestamp
        self._max_timestamp_offset = copy._max_timestamp_offset
        self._first_timestamp = copy._first_timestamp
        self.damage = copy.damage
        self._hints.clear()
        self._indexed = True
        self.seal()
        self._keep_indexes()

    def unload_indexes(self) -> None:
        """Free the memory of the indexes of a closed segment; they are read again when needed."""
        self._offsets = OffsetIndex(self._files, self.path_of("index"), self.base_offset)
        self._times = TimeIndex(self._files, self.path_of("timeindex"), self.base_offset)
        self._hints.clear()
        self._summarized = self._summarized or self._indexed
        self._indexed = False

    # ---- reading

    def walk(self, position: int) -> Iterator[BatchAt]:
        """Batches from a batch start to the end, headers only. SegmentCorrupt, OSError.

        Offsets must ascend: checksums do not cover them.
        """
        block, block_start = b"", position
        end = self.size_bytes
        least_offset = self.base_offset
        if position < 0:
            raise SegmentCorrupt(f"{self.path} has no byte {position}")
        while position < end:
            at = position - block_start
            if at + HEADER_BYTES > len(block):
                size = min(_WALK_BLOCK_BYTES, end - position)
                block, block_start, at = self.file.read_at(position, size), position, 0
                if len(block) < HEADER_BYTES:
                    raise SegmentCorrupt(f"{self.path} ends inside a batch at byte {position}")
            base_offset, length, last_delta, max_timestamp = _unpack_extent(block, at)
            size_bytes = length + LOG_OVERHEAD_BYTES
            if (
                size_bytes < HEADER_BYTES
                or size_bytes > end - position
                or base_offset < least_offset
                or last_delta < 0
                or base_offset + last_delta - self.base_offset > _RELATIVE_OFFSET_MAX
            ):
                raise SegmentCorrupt(f"{self.path} has no batch at byte {position}")
            last_offset = base_offset + last_delta
            yield BatchAt(position, size_bytes, base_offset, last_offset, max_timestamp)
            least_offset = last_offset + 1
            position += size_bytes

    def _walk_to(self, offset: int) -> Iterator[BatchAt]:
        """`walk` from a batch at or before the one that holds `offset`, as near as the index
        knows."""
        return self._walk_from(*self._offsets.floor_entry(offset))

    def _walk_from(self, last_offset: int, position: int) -> Iterator[BatchAt]:
        """`walk` from an entry of the index; SegmentCorrupt if the entry is not true: who began
        behind what is looked for would not find it."""
        if position and position >= self.size_bytes:
            raise SegmentCorrupt(f"{self._offsets.path} goes on behind {self.path}")
        for batch in self.walk(position):
            if batch.position == position and position and batch.last_offset != last_offset:
                raise SegmentCorrupt(f"{self._offsets.path} does not match {self.path}")
            yield batch

    def position_of(self, offset: int) -> int:
        """Where the batch that holds `offset`, or else the next one, starts; the size if there is
        none. SegmentCorrupt, OSError."""
        if offset >= self.next_offset and self._indexed:
            return self.size_bytes
        position = self._hints.get(offset)
        if position is not None:
            return position
        self._need_indexes()
        for batch in self._walk_to(offset):
            if batch.last_offset >= offset:
                self.hint(offset, batch.position)
                return batch.position
        return self.size_bytes

    def hint(self, offset: int, position: int) -> None:
        """Remember that the batch that holds `offset` starts, or will start, here."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX and offset not in hints:
            del hints[next(iter(hints))]
        hints[offset] = position

    def end_position(self, start: int, limit: int, max_bytes: int, *, minimum_one: bool) -> int:
        """The last batch boundary that is at most `max_bytes` behind `start` and not behind
        `limit` (itself a boundary); with `minimum_one` at least the end of the first batch (F-06).
        """
        if limit - start <= max_bytes:
            return limit
        self._need_indexes()
        known = self._offsets.floor_position(start + max_bytes)
        end, target = start, start + max_bytes
        try:
            for batch in self.walk(max(start, known)):
                end = batch.position
                batch_end = batch.position + batch.size_bytes
                if batch_end > target:
                    if batch.position == start and minimum_one:
                        return min(batch_end, limit)
                    # Here the reader will go on.
                    self.hint(batch.base_offset, batch.position)
                    break
                end = batch_end
        except SegmentCorrupt:
            if end == start:
                raise
            # What is in front of the damage is read first.
        return min(end, limit)

    def read(self, start: int, end: int) -> bytes:
        """The bytes between two positions. OSError; SegmentCorrupt if the file is shorter."""
        data = self.file.read_at(start, end - start)
        if len(data) != end - start:
            raise SegmentCorrupt(f"{self.path} is shorter than its {self.size_bytes} bytes")
        return data

    def walk_to_time(self, timestamp: int) -> Iterator[BatchAt]:
        """`walk` from a batch at or before the first that reaches `timestamp`, as near as the index
        knows (L-15). SegmentCorrupt also where the entry that it begins at is not true."""
        self._need_indexes()
        entry = self._times.floor_entry(timestamp)
        return self.walk(0) if entry is None else self._walk_from_time(entry)

    def _walk_from_time(self, entry: tuple[int, int]) -> Iterator[BatchAt]:
        """`walk` from the batch of a time index entry, (timestamp, offset). SegmentCorrupt unless
        it is the first that reaches the timestamp, as far as it is looked at: who began behind the
        first would answer wrongly (L-33)."""
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
        raise SegmentCorrupt(f"{self._times.path} does not match {self.path}")

    # ---- truncating

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut at a batch start; the offset there is `next_offset`. OSError (L-36)."""
        self.load_indexes()
        self.file.truncate(position)
        self.size_bytes = position
        self.synced_bytes = min(self.synced_bytes, position)
        self.durable_bytes = min(self.durable_bytes, position)
        self._offsets.truncate_to(next_offset)
        self._times.truncate_to(next_offset)
        self._hints.clear()
        self._first_timestamp = None
        self.damage = ""
        self.next_offset = next_offset
        self._max_timestamp, self._max_timestamp_offset = self._times.last()
        _, last_position = self._offsets.last()
        self._bytes_since_index = 0
        for batch in self.walk(last_position):
            self._count(batch)
            self._bytes_since_index += batch.size_bytes
        self.next_offset = next_offset


class _Detached(Segment):
    """A segment as another thread reads it. InterruptedError once its `origin` is halted: each
    block is read through `file`."""

    __slots__ = ("origin",)
    origin: HandleCache

    @property
    def file(self) -> File:
        if self.origin.halted:
            raise InterruptedError("the broker is stopping")
        return super().file


def read_batches(
    segment: Segment, position: int, least_offset: int = 0
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, the batch) of each whole batch from `position` to the end.

    Offsets must ascend, from `least_offset` on; checksums are the caller's business. Never holds
    more than a megabyte, or one batch, which the file's size bounds. BatchError, SegmentCorrupt,
    OSError.
    """
    chunk, chunk_start = memoryview(b""), position
    next_offset = max(segment.base_offset, least_offset)
    while position < segment.size_bytes:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = _read_chunk(segment, position, 0), position, 0
        header = read_header_alone(chunk, at)
        _check_place(header, segment, position, next_offset)
        if at + header.size_bytes > len(chunk):
            chunk = _read_chunk(segment, position, header.size_bytes)
            chunk_start, at = position, 0
        yield position, header, chunk[at : at + header.size_bytes]
        next_offset = header.next_offset
        position += header.size_bytes


def _check_place(header: BatchHeader, segment: Segment, position: int, next_offset: int) -> None:
    remaining_bytes = segment.size_bytes - position
    if header.size_bytes > remaining_bytes:
        raise SegmentCorrupt(
            f"a batch of {header.size_bytes} bytes, of which {remaining_bytes} are there"
        )
    if header.last_offset_delta < 0 or header.base_offset < next_offset:
        raise SegmentCorrupt(
            f"a batch with offsets {header.base_offset} to {header.last_offset}, where"
            f" {next_offset} or more is expected"
        )
    if header.last_offset - segment.base_offset > _RELATIVE_OFFSET_MAX:
        raise SegmentCorrupt(f"a batch with offset {header.last_offset}, too far from the base")


def _read_chunk(segment: Segment, position: int, at_least_bytes: int) -> memoryview:
    wanted = max(_READ_CHUNK_BYTES, at_least_bytes)
    chunk = segment.file.read_at(position, wanted)
    if len(chunk) < min(wanted, segment.size_bytes - position):
        raise SegmentCorrupt(f"{segment.path} is shorter than its {segment.size_bytes} bytes")
    return memoryview(chunk)
