"""The segments of one log, oldest first; the last one is the active segment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from odradek_broker.platform.seams import Files, Randomness
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.index import RELATIVE_OFFSET_MAX
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.segment_scanner import walk_batches
from odradek_protocol.records.batch import BatchHeader

SEGMENT_SUFFIXES = ("log", "index", "timeindex", "txnindex", "snapshot")
#: The suffix of files that retention has deleted and not yet removed: a file with it says that
#: everything below was deleted as well.
RETENTION_DELETED = ".retention.deleted"


class SegmentList:
    """A list that is never empty. `bases` are the base offsets, for searching."""

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
        """The segments from the one that has `offset` on."""
        return self.all[max(bisect_right(self.bases, offset) - 1, 0) :]

    def must_roll(
        self, header: BatchHeader, last_offset: int, config: LogConfig, now_ms: int
    ) -> bool:
        """True if this batch begins a new segment (L-06)."""
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
        """Seal the active segment and begin another; returns the sealed one. OSError: nothing has
        changed."""
        sealed = self.active
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
        """The active segment and those with bytes that no fsync has covered. Segments are synced in
        order, so the search ends at the last synced one."""
        found = [self.active]
        for segment in reversed(self.all[:-1]):
            if segment.size_bytes <= segment.synced_bytes:
                break
            found.append(segment)
        return found

    # ---- removing

    def discard_oldest(self, count: int, due_ms: int, deleted: DeletedFiles) -> None:
        """Take the oldest segments out of the log; their files are renamed now and `deleted`
        removes them from `due_ms` on (L-01). Snapshots at their start go with them (L-22). OSError:
        those before the failure are gone, the others stay."""
        for _ in range(count):
            segment = self.all[0]
            self._rename(segment, due_ms, deleted)
            del self.all[0], self.bases[0]
            segment.close()

    def _rename(self, segment: Segment, due_ms: int, deleted: DeletedFiles) -> None:
        renamed: list[str] = []
        deleted.add_files(due_ms, self._directory, renamed, lambda: not self._closed)
        # The log last: the other files can be rebuilt from it.
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = segment.path_of(suffix)
            if self._files.exists(path):
                self._files.rename(path, path + RETENTION_DELETED)
                renamed.append(path + RETENTION_DELETED)

    def remove_later(self, paths: Sequence[str], due_ms: int, deleted: DeletedFiles) -> None:
        """Have renamed files removed from `due_ms` on."""
        deleted.add_files(due_ms, self._directory, paths, lambda: not self._closed)

    def replace(self, sources: Sequence[Segment], cleaned: Segment) -> None:
        """Replace some closed segments, which follow each other, by a cleaned one. Their files are
        not touched."""
        at = self.bases.index(sources[0].base_offset)
        self.all[at : at + len(sources)] = [cleaned]
        self.bases[at : at + len(sources)] = [cleaned.base_offset]
        cleaned.next_offset = self.bases[at + 1]
        cleaned.pin_dirty = sources[0].pin_dirty
        cleaned.set_sealed(True)
        for source in sources:
            source.close()

    def truncate_to(self, offset: int) -> tuple[int, list[Segment]]:
        """Cut at the start of the batch that holds `offset` (L-36).

        Returns the new end offset and the removed segments. OSError, SegmentCorrupt.
        """
        gone = []
        while len(self.all) > 1 and self.bases[-1] >= offset:
            segment = self.all.pop()
            self.bases.pop()
            segment.close()
            for suffix in SEGMENT_SUFFIXES:
                self._files.remove(segment.path_of(suffix))
            gone.append(segment)
        active = self.active = self.all[-1]
        active.set_sealed(False)
        active.indexes.load()
        position = active.indexes.position_of(offset)
        first = next(walk_batches(active, position), None)
        end = active.next_offset if first is None else min(first.base_offset, offset)
        active.truncate(position, end)
        return end, gone

    def close(self) -> None:
        """Close all files. Renamed files stay: the next opening of the log removes them."""
        self._closed = True
        for segment in self.all:
            segment.close()
