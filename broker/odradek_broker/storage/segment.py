"""The segments of a log: batches back to back in `.log` files, with sparse indexes (L-01..L-03).

A `SegmentList` has the segments of one log, and appends go to the last one. `segment_scanner` walks
the batches of a segment; `segment_indexes` has the offset index and the time index of a segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress

from odradek_broker.platform.seams import Buffer, File, Files, Randomness
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.index import RELATIVE_OFFSET_MAX
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.producers.snapshot import read_segment_state
from odradek_broker.storage.segment_indexes import SegmentIndexes
from odradek_broker.storage.segment_scanner import SegmentCorrupt
from odradek_broker.storage.segment_state import SegmentState
from odradek_protocol.records.batch import BatchError, BatchHeader, read_header_alone
from odradek_protocol.records.layout import HEADER_BYTES

SEGMENT_SUFFIXES = ("log", "index", "timeindex", "txnindex", "snapshot")
#: The suffix of files that retention has deleted and not yet removed. A name with this suffix shows
#: that all segments below were also deleted.
RETENTION_DELETED = ".retention.deleted"
#: The limit of batches that are passed to find one whose header is compared with a cache.
_PASSED_MAX = 1_000


class TruncateFailed(OSError):
    """A write failed, and the file could not be truncated to its former size (L-08)."""


def segment_name(base_offset: int) -> str:
    """The name of a segment's files: twenty digits (L-01)."""
    return f"{base_offset:020d}"


def find_header(segments: Sequence[Segment], offset: int) -> BatchHeader | None:
    """The header of the batch that holds an offset, or else of the next batch of the segment, to
    compare a cache with. None if there is no such batch, or if it takes long to find. Raises
    OSError."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if at < 0:
        return None
    segment = segments[at]
    try:
        position = segment.indexes.seek(offset, _PASSED_MAX)
        if position is None or position >= segment.size_bytes:
            return None
        return read_header_alone(segment.file.read_at(position, HEADER_BYTES), 0)
    except (SegmentCorrupt, BatchError):
        return None


class Segment:
    """`[base_offset, next_offset)` of a partition. The file opens at first use and may be closed
    by the handle cache at any time between two uses.

    In the active segment `next_offset` is the offset after the last batch. In a closed segment
    `next_offset` may be larger, because compaction may have removed the last batches.
    """

    __slots__ = (
        "_directory",
        "_handle",
        "base_offset",
        "closing",
        "created_ms",
        "durable_bytes",
        "handles",
        "indexes",
        "next_offset",
        "path",
        "pin_dirty",
        "roll_jitter_ms",
        "sealed",
        "size_bytes",
        "sync_pins",
        "synced_bytes",
        "torn",
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
        self.handles = handles
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
        """True if another segment is active: the indexes of this one may be unloaded."""
        self.pin_dirty = False
        """The handle stays open while bytes are unsynced, so that fsync reports their write
        errors."""
        self.sync_pins = 0
        """Flushes under way that use the handle."""
        self.closing = False
        self.torn = False
        """True if a failed write may have left bytes after the end of the file."""
        self.used = False
        self._handle: File | None = None
        self.indexes = SegmentIndexes(self)

    # ---- files

    def path_of(self, suffix: str) -> str:
        return f"{self._directory}/{segment_name(self.base_offset)}.{suffix}"

    def create(self) -> None:
        """Make an empty file, in place of the file that a failed attempt may have left."""
        self._handle = self.handles.open(self, create=True)
        if self._handle.size():
            self._handle.truncate(0)
        self.indexes.loaded = True

    def attach(self) -> None:
        """Use the existing file, and take its size. Indexes are read at first use."""
        self.size_bytes = self.file.size()
        self.synced_bytes = self.durable_bytes = self.size_bytes

    @property
    def file(self) -> File:
        """The handle, opened if it is not. Raises OSError."""
        handle = self._handle
        if handle is None:
            handle = self._handle = self.handles.open(self)
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
        """Close the file. If a flush uses the handle, the end of the flush closes it."""
        self.closing = True
        self.handles.forget_indexes(self)
        if not self.sync_pins:
            self.handles.forget(self)
            self.drop_handle()
        # They refer to this segment: only a collection of garbage would free both.
        with suppress(AttributeError):
            del self.indexes

    def unpin(self) -> None:
        """Called when a flush that used the handle has ended."""
        self.sync_pins -= 1
        if self.closing and not self.sync_pins:
            self.handles.forget(self)
            self.drop_handle()

    # ---- for the handle cache

    @property
    def index_bytes(self) -> int:
        return self.indexes.size_bytes

    def unload_indexes(self) -> None:
        self.indexes.unload()

    # ---- appending

    def append(
        self,
        batch: Buffer,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch at the end and index it.

        Raises OSError if the write failed and left no bytes in the file (L-08); TruncateFailed if
        it may have left bytes.
        """
        position = self.size_bytes
        if self.torn:
            self.cut_torn()
        file = self._handle
        if file is None:
            file = self.file
        else:
            self.used = True
        try:
            file.append((batch,))
        except OSError:
            self.torn = True
            self.cut_torn(flushed=False)
            raise
        self.size_bytes = position + size_bytes
        self.next_offset = last_offset + 1
        self.indexes.note(position, size_bytes, last_offset, max_timestamp, index_interval_bytes)

    def cut_torn(self, *, flushed: bool = True) -> None:
        """Remove the bytes that failed writes may have left after the end of the segment. If they
        may have been flushed meanwhile, the cut is synced: a power cut must not bring them back
        into a closed segment. Raises TruncateFailed."""
        if not self.torn:
            return
        try:
            if self.file.size() != self.size_bytes:
                self.file.truncate(self.size_bytes)
                if flushed:
                    self.file.sync()
        except OSError as problem:
            raise TruncateFailed(
                problem.errno,
                f"a write to {self.path} failed, and so did truncating it to {self.size_bytes}"
                f" bytes: {problem}",
            ) from problem
        self.torn = False

    # ---- reading

    def read(self, start: int, end: int) -> bytes:
        """The bytes in [start, end). Raises OSError; raises SegmentCorrupt if the file is
        shorter."""
        data = self.file.read_at(start, end - start)
        if len(data) != end - start:
            raise SegmentCorrupt(f"{self.path} is shorter than its {self.size_bytes} bytes")
        return data

    def state_at_end(self, *, checked: bool) -> SegmentState | None:
        """The segment's state in the producer snapshot at its end (P-26); None if there is none, or
        if the segment was compacted since. Raises OSError."""
        path = f"{self._directory}/{segment_name(self.next_offset)}.snapshot"
        state = read_segment_state(self.handles.files, path, checked=checked)
        extent = self.base_offset, self.size_bytes
        return None if state is None or (state.base_offset, state.size_bytes) != extent else state

    def detached(self, handles: HandleCache) -> Segment:
        """A copy of the segment that another thread can read. Only the signal to stop is shared."""
        copy = _Detached(handles, self._directory, self.base_offset, created_ms=self.created_ms)
        copy.origin = self.handles
        copy.size_bytes = self.size_bytes
        copy.next_offset = self.next_offset
        return copy

    # ---- sealing and truncating

    def set_sealed(self, sealed: bool) -> None:
        """Called when another segment becomes active, or this one becomes active again."""
        self.sealed = sealed
        self.indexes.keep()

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut at a batch start; the offset there is `next_offset`. Raises OSError."""
        self.indexes.load()
        self.file.truncate(position)
        self.size_bytes = position
        self.synced_bytes = min(self.synced_bytes, position)
        self.durable_bytes = min(self.durable_bytes, position)
        self.indexes.truncate(next_offset)


class _Detached(Segment):
    """A segment that another thread reads, block by block through `file`. Raises InterruptedError
    once the `origin` is halted."""

    __slots__ = ("origin",)
    origin: HandleCache

    @property
    def file(self) -> File:
        if self.origin.halted:
            raise InterruptedError("the broker is stopping")
        return super().file


class SegmentList:
    """The segments of one log, oldest first. There is always at least one segment; the last one is
    the active segment. `bases`: the base offsets, for binary search."""

    __slots__ = ("_closed", "_directory", "_files", "_handles", "active", "all", "bases")

    def __init__(self, directory: str, handles: HandleCache, segments: list[Segment]) -> None:
        if not segments:
            raise ValueError(f"{directory} has no segment")
        self._directory = directory
        self._handles = handles
        self._files: Files = handles.files
        self.all = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self._closed = False
        for segment in segments[:-1]:
            segment.set_sealed(True)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def total_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all)

    def starting_at(self, offset: int) -> list[Segment]:
        return self.all[max(bisect_right(self.bases, offset) - 1, 0) :]

    def must_roll(
        self, header: BatchHeader, last_offset: int, config: LogConfig, now_ms: int
    ) -> bool:
        """True if a new segment must begin with this batch (L-06)."""
        active = self.active
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not active.size_bytes:
            return False
        if active.size_bytes + header.size_bytes > config.segment_bytes:
            return True
        first = active.indexes.first_timestamp
        if first >= 0 and header.max_timestamp >= 0:
            age_ms = header.max_timestamp - first
        else:
            age_ms = now_ms - active.created_ms
        if age_ms > config.longest_segment_ms - active.roll_jitter_ms:
            return True
        return active.indexes.full(config.segment_index_bytes)

    def roll(
        self, base_offset: int, config: LogConfig, randomness: Randomness, now_ms: int
    ) -> Segment:
        """Seal the active segment and begin a new one; returns the sealed segment. If this raises
        OSError, nothing has changed."""
        sealed = self.active
        sealed.cut_torn()
        sealed.indexes.seal()
        bound = min(config.segment_jitter_ms, config.segment_ms)
        segment = Segment(
            self._handles,
            self._directory,
            base_offset,
            created_ms=now_ms,
            roll_jitter_ms=randomness.below(bound) if bound > 0 else 0,
        )
        segment.create()
        segment.pin_dirty = sealed.pin_dirty
        self.all.append(segment)
        self.bases.append(base_offset)
        self.active = segment
        sealed.set_sealed(True)
        return sealed

    def unsynced(self) -> list[Segment]:
        """The active segment and the segments with bytes that no fsync has covered. Segments are
        synced in order, so the search ends at the last synced segment."""
        found = [self.active]
        for segment in reversed(self.all[:-1]):
            if segment.size_bytes <= segment.synced_bytes:
                break
            found.append(segment)
        return found

    # ---- removing

    def discard_oldest(self, count: int, due_ms: int, deleted: DeletedFiles) -> None:
        """Take the oldest segments out of the log; their files are renamed now and `deleted`
        removes them from `due_ms` on (L-01). Snapshots at their start are removed too (L-22). If
        this raises OSError, only the segments before the failure were taken out."""
        for _ in range(count):
            segment = self.all[0]
            self._rename(segment, due_ms, deleted)
            del self.all[0], self.bases[0]
            segment.close()

    def _rename(self, segment: Segment, due_ms: int, deleted: DeletedFiles) -> None:
        renamed: list[str] = []
        deleted.add_files(due_ms, self._directory, renamed, lambda: not self._closed)
        # The log is renamed last, because the other files can be rebuilt from it.
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = segment.path_of(suffix)
            if self._files.exists(path):
                self._files.rename(path, path + RETENTION_DELETED)
                renamed.append(path + RETENTION_DELETED)

    def remove_later(self, paths: Sequence[str], due_ms: int, deleted: DeletedFiles) -> None:
        """Put renamed files into the queue of deleted files; they may be removed from `due_ms`
        on."""
        deleted.add_files(due_ms, self._directory, paths, lambda: not self._closed)

    def replace(self, sources: Sequence[Segment], cleaned: Segment) -> None:
        """Replace neighbouring closed segments by a cleaned segment in this list. No file is
        touched."""
        at = self.bases.index(sources[0].base_offset)
        self.all[at : at + len(sources)] = [cleaned]
        self.bases[at : at + len(sources)] = [cleaned.base_offset]
        cleaned.next_offset = self.bases[at + 1]
        cleaned.pin_dirty = sources[0].pin_dirty
        cleaned.set_sealed(True)
        for source in sources:
            source.close()

    def close(self) -> None:
        """Close all files. Renamed files stay: the next opening of the log removes them."""
        self._closed = True
        for segment in self.all:
            segment.close()
