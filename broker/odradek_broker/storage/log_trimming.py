"""The removal of records from one log: DeleteRecords, retention, the cleaner's swap (L-11,
L-20, L-27)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol, TypeVar

from odradek_broker.storage.cleaner.job import GroupCleaned
from odradek_broker.storage.cleaner.swap import SegmentSwap, remove_cleaned
from odradek_broker.storage.errors import StorageError, no_room
from odradek_broker.storage.log_durability import FlushedLog, LogDurability
from odradek_broker.storage.log_files import LogFiles
from odradek_broker.storage.log_options import LogOptions
from odradek_broker.storage.retention import (
    delete_records_target,
    segment_facts,
    segments_to_delete,
)
from odradek_broker.storage.segment import Segment, SegmentList
from odradek_protocol.errors import ErrorCode

_Result = TypeVar("_Result")


class TrimmedLog(FlushedLog, Protocol):
    """The log that records are removed from."""

    options: LogOptions
    log_start_offset: int

    def ensure_loaded(self, now_ms: int = 0) -> None:
        """Open the files if they are closed. Raises PartitionOffline, StorageError."""
        ...

    def roll_at(self, base_offset: int, now_ms: int) -> None:
        """Begin a new segment at an offset. Raises OSError."""
        ...


class LogTrimming:
    """Removes records of one log, at its start and in its middle."""

    __slots__ = ("_durability", "_files", "_log")

    def __init__(self, log: TrimmedLog, files: LogFiles, durability: LogDurability) -> None:
        self._log = log
        self._files = files
        self._durability = durability

    # ---- the log start

    def delete_records_target(self, offset: int) -> int:
        """The log start after `delete_records(offset)` (L-11). Raises DeleteRecordsRejected,
        PartitionOffline."""
        log = self._log
        log.ensure_loaded()
        target = delete_records_target(log.name, log.config, offset, log.high_watermark)
        return max(log.log_start_offset, target)

    def delete_records(self, offset: int) -> int:
        """Move the log start to `offset`, or to the high watermark if `offset` is -1. Returns the
        new log start (L-11).

        Records below the new log start become unreadable immediately; the next retention removes
        whole segments. A crash would undo the move, so `LogManager.delete_records` writes the new
        log start first. Raises DeleteRecordsRejected, PartitionOffline.
        """
        target = self.delete_records_target(offset)
        if target > self._log.log_start_offset:
            self._move_log_start(target)
        return self._log.log_start_offset

    def _move_log_start(self, offset: int) -> None:
        self._log.log_start_offset = offset
        self._files.epochs.truncate_start(offset)
        if self._files.epochs.changed:
            self._files.write_epochs()
        self._log.move_high_watermark(self._log.high_watermark, others_moved=True)

    def advance_log_start(self, offset: int) -> None:
        """Move the log start up to `offset`, unless `offset` is above the high watermark. A crash
        may undo the move, so the caller must have the removed records in another place. The next
        retention removes the segments below `offset`. Raises PartitionOffline."""
        self._log.ensure_loaded()
        if self._log.log_start_offset < offset <= self._log.high_watermark:
            self._move_log_start(offset)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Remove all records and producers, and begin again at `offset`, which is beyond the log
        end. The caller has the earlier records in another place. Waits for the disk. Raises
        PartitionOffline; StorageError while a cleaned segment is swapped in; raises ValueError for
        an offset in the log."""
        log, segments = self._log, self._opened_segments(now_ms)
        if offset <= log.log_end_offset:
            raise ValueError(f"{log.name} ends at {log.log_end_offset}, not before {offset}")
        if self.swapping:
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name} is being compacted; try again"
            )
        self._durability.restarts += 1
        try:
            self._files.producers.forget_all(offset)
            log.roll_at(offset, now_ms)
            self._files.directory.sync()
            oldest = segments.all[:-1]
            segments.discard_oldest(len(oldest), now_ms, self._log.options.deleted)
            for segment in oldest:
                self._files.producers.aborted_transactions.forget(segment)
            # If a crash restored the old segments, a start would take the gap before the new
            # segment for damage (L-32).
            self._files.directory.sync()
        except OSError as problem:
            log.go_offline(f"starting it again at {offset} failed: {problem}")
            raise log.offline_error() from problem
        log.log_end_offset = offset
        self._durability.durable_offset = self._durability.synced_offset = offset
        self._move_log_start(offset)
        log.move_high_watermark(offset)

    def _opened_segments(self, now_ms: int = 0) -> SegmentList:
        self._log.ensure_loaded(now_ms)
        return self._files.segments

    # ---- producers

    def producers_known_from(self, offset: int, now_ms: int) -> int | None:
        """The base offset of the first segment from `offset` on that has a producer snapshot, so
        that a start does not need the records before it for the producers (L-55). If there is none,
        a snapshot of the log end is taken, in a new segment, and the result is None. Raises
        StorageError, OSError."""
        log, segments, producers = self._log, self._opened_segments(now_ms), self._files.producers
        known = set(producers.snapshot_offsets())
        for base in segments.bases[bisect_left(segments.bases, offset) :]:
            if base in known:
                return base
        if segments.active.size_bytes:
            log.roll_at(log.log_end_offset, now_ms)
        if log.log_end_offset not in producers.snapshot_offsets():
            self._files.take_snapshot_of_base(log.log_end_offset)
        self._files.directory.dirty = True
        log.on_flush_wanted(self._durability)
        return None

    # ---- retention

    def apply_retention(self, now_ms: int) -> int:
        """Take the segments that retention deletes (L-20) out of the log; returns their number.
        Their files are renamed in this call and removed later by `LogOptions.deleted`. Raises
        LogCorrupt, PartitionOffline; raises OSError."""
        log, segments = self._log, self._opened_segments(now_ms)
        if self.swapping:
            return 0  # Retention is applied again soon enough.
        count = segments_to_delete(
            segment_facts(segments, log.log_end_offset, self._log.options.files),
            total_bytes=segments.total_bytes,
            config=log.config,
            now_ms=now_ms,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )
        if count == 0:
            return 0
        producers = self._files.producers
        if count == len(segments):
            log.roll_at(log.log_end_offset, now_ms)
            producers.sync()
            # Once the other segments are removed, only the name of the new segment shows the log
            # end.
            self._files.directory.sync()
        elif not self._producers_kept(segments.bases[count], now_ms):
            return 0
        oldest = segments.all[:count]
        try:
            due_ms = now_ms + log.config.file_delete_delay_ms
            segments.discard_oldest(count, due_ms, self._log.options.deleted)
        finally:
            # If a rename fails, the segments before it have been taken out of the log already.
            for segment in oldest:
                if segment.base_offset < segments.bases[0]:
                    producers.aborted_transactions.forget(segment)
            if segments.bases[0] > log.log_start_offset:
                self._move_log_start(segments.bases[0])
        return count

    def _producers_kept(self, offset: int, now_ms: int) -> bool:
        """True if the producers of the records below an offset, which retention is about to remove,
        are in a snapshot behind them that is on disk, or, with page-cache, that is written (P-27).
        A disk without room for the snapshot gets room by the removal."""
        log = self._log
        try:
            known = self.producers_known_from(offset, now_ms)
        except OSError as problem:
            if not no_room(problem):
                raise
            return True
        if log.config.durability != "fsync":
            return True
        return known is not None and not self._files.producers.is_volatile(known)

    # ---- the cleaner's swap, see `cleaner/swap.py`

    @property
    def swapping(self) -> bool:
        """True while a cleaned segment is being swapped in."""
        return self._files.swap is not None

    def begin_swap(self, group: GroupCleaned) -> bool:
        """Commit the swap of a cleaned segment if its sources still exist; True if they do (L-27).
        `swap_in` follows after `sync_directory`. Raises PartitionOffline, StorageError.
        """
        bases, sources = self._opened_segments().bases, list(group.sources)
        path = self._files.directory.path
        at = bisect_left(bases, sources[0])
        if self.swapping or bases[at : at + len(sources) + 1][:-1] != sources:
            # Retention has removed sources since they were cleaned. (The active segment is never a
            # source.)
            remove_cleaned(self._log.options.files, path, sources[0])
            return False
        swap = self._files.swap = SegmentSwap(self._log.options.files, path, sources)
        doing = "swapping a cleaned segment in"
        try:
            swap.commit()
        except OSError as problem:
            if not no_room(problem):
                raise self._log.failed(doing, problem) from problem
            # The last rename commits the swap; the renames before it have no effect on a start.
            self._files.swap = None
            remove_cleaned(self._log.options.files, path, sources[0])
            raise self._no_room(doing, problem) from problem
        return True

    def sync_directory(self) -> None:
        """Make the steps of a swap durable. Called in any thread. Raises OSError."""
        self._files.directory.sync()

    def directory_sync_failed(self, problem: Exception) -> StorageError:
        """Take the partition offline, because the state on disk is unknown."""
        self._log.go_offline(f"making a compaction durable failed: {problem}")
        return self._log.offline_error()

    def swap_in(self, size_bytes: int, now_ms: int) -> None:
        """Put the cleaned segment, of `size_bytes`, in the place of its sources. Raises
        PartitionOffline; raises StorageError if there is no room for its names: call `swap_in`
        again later."""
        swap, segments = self._files.swap, self._files.segments
        assert swap is not None
        first = segments.bases.index(swap.sources[0])
        sources = segments.all[first : first + len(swap.sources)]
        cleaned = Segment(
            self._log.options.handles,
            self._files.directory.path,
            swap.sources[0],
            created_ms=now_ms,
        )
        cleaned.size_bytes = cleaned.synced_bytes = size_bytes
        self._files.directory.dirty = True
        self._step(swap.swap_in, "swapping a cleaned segment in")
        segments.replace(sources, cleaned)
        for source in sources:
            self._files.producers.aborted_transactions.forget(source)

    def retire_sources(self, at_most: int) -> bool:
        """Rename the files of at most `at_most` sources. Returns True if no source is left; the
        caller then calls `sync_directory` and `end_swap`. Raises as `swap_in` does."""
        swap = self._files.swap
        assert swap is not None
        return self._step(lambda: swap.retire(at_most), "retiring what was compacted")

    def end_swap(self, now_ms: int) -> None:
        """End a swap that is durable. Call `sync_directory` before this log is cleaned again.
        Raises as `swap_in` does."""
        swap = self._files.swap
        assert swap is not None
        self._step(swap.end, "swapping a cleaned segment in")
        self._files.swap = None
        self._files.directory.dirty = True
        due_ms = now_ms + self._log.config.file_delete_delay_ms
        self._files.segments.remove_later(swap.retired_paths, due_ms, self._log.options.deleted)

    def _step(self, step: Callable[[], _Result], doing: str) -> _Result:
        """Take a step of a committed swap."""
        try:
            return step()
        except OSError as problem:
            swap = self._files.swap
            if no_room(problem) and swap is not None and not swap.half_in:
                raise self._no_room(doing, problem) from problem
            raise self._log.failed(doing, problem) from problem

    def _no_room(self, doing: str, problem: OSError) -> StorageError:
        """The error for a step that found no room on the disk, and has changed nothing."""
        self._log.options.disk.failed(problem)
        return StorageError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} failed for {self._log.name}: {problem}"
        )
