"""A segment: batches back to back in a `.log` file, with two sparse indexes (L-01..L-03).

`segment_scanner` walks its batches, `segment_indexes` has the offset and the time index.
"""

from __future__ import annotations

from odradek_broker.platform.seams import Buffer, File
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.producers.snapshot import read_segment_state
from odradek_broker.storage.segment_indexes import SegmentIndexes
from odradek_broker.storage.segment_scanner import SegmentCorrupt
from odradek_broker.storage.segment_state import SegmentState


class TruncateFailed(Exception):
    """A write failed, and the file could not be truncated to its former size (L-08)."""


def segment_name(base_offset: int) -> str:
    """The name of a segment's files: twenty digits (L-01)."""
    return f"{base_offset:020d}"


class Segment:
    """`[base_offset, next_offset)` of a partition. The file opens at first use and may be closed
    by the handle cache at any time between two uses.

    `next_offset` is exact for the active segment; the next offset of a closed one is at least the
    base offset of the segment behind it.
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
        self.used = False
        self._handle: File | None = None
        self.indexes = SegmentIndexes(self)

    # ---- files

    def path_of(self, suffix: str) -> str:
        return f"{self._directory}/{segment_name(self.base_offset)}.{suffix}"

    def create(self) -> None:
        """Make the file, empty, even if a failed attempt left one."""
        self._handle = self.handles.open(self, create=True)
        if self._handle.size():
            self._handle.truncate(0)
        self.indexes.loaded = True

    def attach(self) -> None:
        """Take the size of the file that is there. Indexes are read at first use."""
        self.size_bytes = self.file.size()
        self.synced_bytes = self.durable_bytes = self.size_bytes

    @property
    def file(self) -> File:
        """The handle, opened if it is not; OSError."""
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
        """Close the file; if a flush uses the handle, when that is finished."""
        self.closing = True
        self.handles.forget_indexes(self)
        if not self.sync_pins:
            self.handles.forget(self)
            self.drop_handle()

    def unpin(self) -> None:
        """Note that a flush that used the handle has ended."""
        self.sync_pins -= 1
        if self.closing and not self.sync_pins:
            self.handles.forget(self)
            self.drop_handle()

    # ---- what the handle cache asks

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
        self.indexes.note(position, size_bytes, last_offset, max_timestamp, index_interval_bytes)

    def _undo(self, position: int) -> None:
        try:
            self.file.truncate(position)
        except OSError as problem:
            raise TruncateFailed(
                f"a write to {self.path} failed, and so did truncating it to {position} bytes:"
                f" {problem}"
            ) from problem

    # ---- reading

    def read(self, start: int, end: int) -> bytes:
        """The bytes between two positions. OSError; SegmentCorrupt if the file is shorter."""
        data = self.file.read_at(start, end - start)
        if len(data) != end - start:
            raise SegmentCorrupt(f"{self.path} is shorter than its {self.size_bytes} bytes")
        return data

    def state_at_end(self, *, checked: bool) -> SegmentState | None:
        """The segment's state in the producer snapshot at its end (P-26); None if there is none, or
        if it is about other bytes: the segment was compacted since. OSError."""
        path = f"{self._directory}/{segment_name(self.next_offset)}.snapshot"
        state = read_segment_state(self.handles.files, path, checked=checked)
        extent = self.base_offset, self.size_bytes
        return None if state is None or (state.base_offset, state.size_bytes) != extent else state

    def detached(self, handles: HandleCache) -> Segment:
        """The present content, for another thread to read. Only the signal to stop is shared."""
        copy = _Detached(handles, self._directory, self.base_offset, created_ms=self.created_ms)
        copy.origin = self.handles
        copy.size_bytes = self.size_bytes
        copy.next_offset = self.next_offset
        return copy

    # ---- sealing and truncating

    def set_sealed(self, sealed: bool) -> None:
        """Another segment is active from now on, or this one again."""
        self.sealed = sealed
        self.indexes.keep()

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut at a batch start; the offset there is `next_offset`. OSError (L-36)."""
        self.indexes.load()
        self.file.truncate(position)
        self.size_bytes = position
        self.synced_bytes = min(self.synced_bytes, position)
        self.durable_bytes = min(self.durable_bytes, position)
        self.indexes.truncate(next_offset)


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
