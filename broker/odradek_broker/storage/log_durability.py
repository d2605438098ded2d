"""The durability of one log: flushes, and the offsets up to which it is on disk (D5, L-30, L-50).

    log start        recovery point       synced          durable          log end
        |- - - - - - - - -|- - - - - - - - - |- - - - - - - - |- - - - - - - - |
         segment files,                       segment file in  segment file in
         named by the                         the page cache,  the page cache
         checkpoint         segment files     commit journal   alone
         on disk            on disk           on disk

A flush either writes the end of the active segment to the commit journal, which moves the durable
offset, or syncs the files, which moves the durable and the synced offset. With `fsync` durability
the high watermark follows the durable offset; with `page-cache` it is the log end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from odradek_broker.platform.seams import File, Files
from odradek_broker.storage.errors import StorageError, no_room
from odradek_broker.storage.journal import CommitJournal, JournalTicket
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_files import LogFiles
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_broker.storage.segment import Segment
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import ZERO_UUID

#: A start after a crash reads at most this much of the flushed bytes of a log in use.
_SNAPSHOT_EVERY_BYTES = 4 * 1024 * 1024
#: The limit for an idle log, instead of _SNAPSHOT_EVERY_BYTES.
_SNAPSHOT_IDLE_BYTES = 64 * 1024
#: Bytes that are added to either limit for each producer, because a snapshot of many producers
#: takes long.
_SNAPSHOT_PRODUCER_BYTES = 1024


class FlushedLog(Protocol):
    """The log that is flushed."""

    name: str
    topic_id: bytes
    partition: int
    config: LogConfig
    loaded: bool
    offline: bool
    log_end_offset: int
    high_watermark: int
    on_flush_wanted: Callable[[Any], None]
    on_flushed: Callable[[], None]

    def go_offline(self, reason: str) -> None: ...

    def failed(self, doing: str, problem: OSError) -> StorageError:
        """The error for a failed operation, after which the partition may be offline."""
        ...

    def offline_error(self) -> StorageError:
        """The error for any use of a partition that is offline."""
        ...

    def move_high_watermark(self, high_watermark: int, *, others_moved: bool = False) -> None:
        """Set the high watermark, and the last stable offset with it."""
        ...


@dataclass(slots=True)
class _EndedLog:
    """The part of a log that a flush still needs after the log was closed for ever."""

    name: str
    topic_id: bytes
    partition: int
    config: LogConfig
    loaded: bool = False
    offline: bool = True

    def go_offline(self, reason: str) -> None:
        """The log is offline already."""


@dataclass(slots=True)
class FlushTicket:
    """The extent of one fsync: every byte below `end_offset`, new directory entries, and the
    derived files of sealed segments. (The derived files must be durable, because recovery does not
    scan a segment below the recovery point again.)

    `begin_flush` makes the ticket on the loop's thread, `sync` runs in a worker thread, and
    `finish_flush` takes the outcome on the loop's thread.
    """

    end_offset: int
    restarts: int
    """`LogDurability.restarts` when the ticket was made. If that has changed, the outcome says
    nothing of the bytes that are in the log afterwards."""
    segments: list[tuple[Segment, int]]
    """(segment, its size when the ticket was made)."""
    segment_files: list[File]
    files: Files
    paths: Sequence[str] = ()
    directories: Sequence[str] = ()
    """Directories with new or changed entries, outermost first."""

    def sync(self) -> None:
        """Wait until everything is on disk. Raises OSError. Uses no state that the loop changes."""
        for file in self.segment_files:
            file.sync()
        for path in self.paths:
            self._sync_path(path)
        for directory in self.directories:
            self.files.sync_dir(directory)

    def _sync_path(self, path: str) -> None:
        try:
            file = self.files.open(path)
        except FileNotFoundError:
            return  # Retention or a newer version has removed the file.
        try:
            file.sync()
        finally:
            file.close()


class LogDurability:
    """The flushes of one log, for `GroupCommit` (a `Flushable`) and the commit journal (a
    `JournaledLog`).

    `durable_offset`: everything below is on disk, in the segment files or in the journal.
    `synced_offset`: everything below is on disk in the segment files. `restarts`: how often the
    log was started again; records that were read before may have been removed. `start`:
    how the last process, or the last `close`, left the log. `journaled`: a journal may have records
    of this log.
    `gap_end_offset`: the end of the last batch that has unused offsets before it; flushes up to
    this offset sync the files, because the journal restores successive batches only.
    """

    __slots__ = (
        "_end_seen",
        "_files",
        "_files_flushing",
        "_gaps_known",
        "_left_unsynced",
        "_log",
        "_options",
        "durable_offset",
        "gap_end_offset",
        "journaled",
        "restarts",
        "start",
        "synced_offset",
    )

    def __init__(
        self, log: FlushedLog, files: LogFiles, options: LogOptions, start: LogStart
    ) -> None:
        self._log = log
        self._files = files
        self._options = options
        self.start = start
        self.durable_offset = start.log_end_offset
        self.synced_offset = start.log_end_offset
        self.restarts = 0
        self.journaled = False
        self.gap_end_offset = 0
        self._files_flushing = 0
        self._left_unsynced: list[str] = []
        self._gaps_known = start.gaps_known
        self._end_seen = -1

    def __repr__(self) -> str:
        return f"durability of {self._log.name}"

    @property
    def topic_id(self) -> bytes:
        return self._log.topic_id

    @property
    def partition(self) -> int:
        return self._log.partition

    @property
    def recovery_point(self) -> int:
        """The offset from which a start after a crash would scan (L-30)."""
        if self._log.loaded or self.start.clean:
            return self.synced_offset
        return self.start.recovery_point

    @property
    def gaps_known(self) -> bool:
        """True if a gap above the recovery point is due to lost records, not to compaction
        (L-32)."""
        return self._gaps_known or self.start.clean

    # ---- opening, closing

    def opened(self, end_offset: int) -> None:
        """Called when the files are open, and everything in them is on disk."""
        self._gaps_known = True
        self.durable_offset = self.synced_offset = end_offset
        for segment in self._files.segments:
            segment.pin_dirty = self._log.config.durability == "fsync"

    def abandoned(self) -> None:
        """Called when the log is closed for ever. A flush may still be in progress, and a journal
        may still have records; neither needs the log itself."""
        log = self._log
        ended = _EndedLog(log.name, log.topic_id, log.partition, log.config)
        self._log = cast(FlushedLog, ended)

    def recovery_failed(self) -> None:
        """Called when a sync after recovery has failed: the next start scans the same files again
        (L-30)."""
        self.synced_offset = min(self.synced_offset, self.start.recovery_point)
        self._gaps_known = self.start.gaps_known

    def closed(self, log_start_offset: int, *, clean: bool) -> None:
        """Called when the files are closed. Files with unsynced bytes are remembered, because they
        may have to be synced before a part of the journal is used again."""
        if self.synced_offset < self.durable_offset:
            self._left_unsynced = [segment.path for segment in self._files.segments.unsynced()]
        self.start = LogStart(
            log_start_offset,
            self._log.log_end_offset,
            self.synced_offset,
            clean,
            self.start.cleaned,
        )

    # ---- flushing the files

    def begin_flush(self) -> FlushTicket | None:
        """A ticket for all bytes and names that are not on disk yet; None if everything is on disk,
        or if this log must not be flushed.

        Call `ticket.sync()` in a worker thread, then `finish_flush` on the loop's thread.
        """
        log = self._log
        if log.offline or not log.loaded:
            return None
        if self.synced_offset >= log.log_end_offset and not self._files.directory.dirty:
            return None
        return self._files_ticket()

    def begin_checkpoint(self) -> FlushTicket | None:
        """A ticket that syncs the segment files for a checkpoint of the journal; None if the
        checkpoint has to wait.
        """
        if not self._log.loaded:
            # The log was closed without a clean stop. Its files are synced even if they are being
            # deleted, because a power cut could undo the deletion.
            return FlushTicket(
                self.durable_offset,
                self.restarts,
                [],
                [],
                self._options.files,
                self._left_unsynced,
            )
        if self._log.offline or self._files_flushing:
            return None
        if self._files.directory.dirty or self._files.producers.unsynced:
            self._log.on_flush_wanted(self)
            return None
        return self._files_ticket()

    def _files_ticket(self) -> FlushTicket | None:
        end_offset = self._log.log_end_offset
        segments, directory = self._files.segments, self._files.directory
        producers = self._files.producers
        unsynced = [(segment, segment.size_bytes) for segment in segments.unsynced()]
        try:
            handles = [segment.file for segment, _ in unsynced]
        except OSError as problem:
            # A segment with unsynced bytes keeps its handle open, so the segment that could not be
            # opened has no bytes that a request waits for.
            self._log.failed("opening it for a flush", problem)
            return None
        for segment, _ in unsynced:
            segment.sync_pins += 1
        segments.active.indexes.hint(end_offset, segments.active.size_bytes)
        self._files_flushing += 1
        ticket = FlushTicket(end_offset, self.restarts, unsynced, handles, self._options.files)
        if directory.dirty or producers.unsynced:
            ticket.paths = sorted(directory.take_unsynced_paths() | producers.unsynced)
            ticket.directories = directory.take_dirty()
            producers.unsynced.clear()
        return ticket

    def finish_flush(self, ticket: FlushTicket, error: OSError | None) -> None:
        """Take the outcome of `ticket.sync()`. Success moves the durable offset, and with `fsync`
        the high watermark. A failure takes the partition offline: the kernel may have dropped the
        pages, and a repeated fsync would not write them (D5)."""
        log, journal = self._log, self._options.journal
        if not log.loaded and error is None and journal is not None:
            journal.synced(self, ticket.end_offset)
        self._files_flushing = max(self._files_flushing - 1, 0)
        for segment, _ in ticket.segments:
            segment.unpin()
        if error is not None:
            log.go_offline(f"fsync failed: {error}")
        if log.offline or not log.loaded or ticket.restarts != self.restarts:
            return
        for segment, size_bytes in ticket.segments:
            segment.synced_bytes = max(segment.synced_bytes, size_bytes)
            segment.durable_bytes = max(segment.durable_bytes, size_bytes)
        if ticket.paths:
            self._files.producers.volatile.difference_update(ticket.paths)
        self.synced_offset = max(self.synced_offset, ticket.end_offset)
        self.durable_offset = max(self.durable_offset, ticket.end_offset)
        if journal is not None:
            journal.synced(self, self.synced_offset)
        if log.config.durability == "fsync" and self.durable_offset > log.high_watermark:
            log.move_high_watermark(self.durable_offset)
        log.on_flushed()

    def flush(self) -> None:
        """Begin, sync and finish a flush in one call: for shutdown, and where the loop may wait for
        the disk. Raises PartitionOffline if it fails."""
        ticket = self.begin_flush()
        if ticket is not None:
            try:
                ticket.sync()
            except OSError as problem:
                self.finish_flush(ticket, problem)
            else:
                self.finish_flush(ticket, None)
        if self._log.offline:
            raise self._log.offline_error()

    # ---- flushing to the commit journal

    def next_journal(self) -> CommitJournal | None:
        """The journal that the next flush would write to; None if the flush has to sync the files.
        A journal takes only the end of one segment, up to a limited size."""
        journal, log, files = self._options.journal, self._log, self._files
        if (
            journal is None
            or not log.loaded
            or log.offline
            or files.directory.dirty
            or files.producers.unsynced
            or log.config.durability != "fsync"
            or log.topic_id == ZERO_UUID
            or self.gap_end_offset > self.synced_offset
        ):
            return None
        active = files.segments.active
        if not 0 < active.size_bytes - active.durable_bytes <= journal.entry_bytes_max:
            return None
        if not (journal.usable or journal.prepare()):
            return None
        if len(files.segments.all) > 1:
            sealed = files.segments.all[-2]
            if sealed.size_bytes > sealed.synced_bytes:
                return None
        return journal

    def begin_journaled(self, journal: CommitJournal) -> JournalTicket | None:
        """Give the appends that are not durable yet to the journal's next write; None if there is
        no room for them. `next_journal` has named the journal, and `finish_journaled` follows."""
        log, active = self._log, self._files.segments.active
        position = active.durable_bytes
        try:
            file = active.file
        except OSError as problem:
            log.failed("opening it for a flush", problem)
            return None
        ticket = JournalTicket(
            journal,
            self,
            log.log_end_offset,
            self.restarts,
            active,
            position,
            active.size_bytes - position,
            file,
        )
        if not journal.take(ticket):
            return None
        self.journaled = True
        active.sync_pins += 1
        active.indexes.hint(log.log_end_offset, active.size_bytes)
        return ticket

    def finish_journaled(self, ticket: JournalTicket, error: OSError | None) -> None:
        """Take the outcome of the journal's write, as `finish_flush` takes the outcome of a sync.
        If the write found no room, the files are flushed instead, since their pages are still in
        the page cache."""
        log, segment, journal = self._log, ticket.segment, ticket.journal
        segment.unpin()
        if (error is not None or journal.crowded) and self._left_to_files(ticket, error):
            return
        if log.offline or not log.loaded or ticket.restarts != self.restarts:
            return
        segment.durable_bytes = max(segment.durable_bytes, ticket.position + ticket.size_bytes)
        self.durable_offset = max(self.durable_offset, ticket.end_offset)
        if self.durable_offset > log.high_watermark:
            log.move_high_watermark(self.durable_offset)

    def _left_to_files(self, ticket: JournalTicket, error: OSError | None) -> bool:
        """True if the journal has no room, so that the files are flushed. Any other error takes the
        partition offline."""
        log, journal = self._log, ticket.journal
        if error is not None and no_room(error):
            self._options.disk.failed(error, ticket.size_bytes)
            journal.found_no_room()
        if journal.crowded and (error is None or no_room(error)):
            if not log.loaded:
                journal.synced(self, ticket.end_offset)
            elif not log.offline:
                log.on_flush_wanted(self)
            return True
        if error is not None:
            log.go_offline(f"writing to the commit journal failed: {error}")
            journal.failed(error)
        return False

    # ---- producer snapshots

    def wants_snapshot(self) -> bool:
        """True if a start after a crash would read much less after a `take_snapshot` (L-30). Call
        it every minute or so: a log is idle if its end has not moved since the last call."""
        log = self._log
        if not log.loaded or log.offline or self._files.swap is not None:
            return False
        end_before, self._end_seen = self._end_seen, log.log_end_offset
        active = self._files.segments.active
        base_offset, covered_bytes = self._files.snapshot_at
        grown_bytes = active.size_bytes
        if base_offset == active.base_offset:
            grown_bytes -= covered_bytes
        idle = end_before == log.log_end_offset == self.synced_offset
        enough_bytes = _SNAPSHOT_IDLE_BYTES if idle else _SNAPSHOT_EVERY_BYTES
        enough_bytes += _SNAPSHOT_PRODUCER_BYTES * len(self._files.producers.state)
        return grown_bytes >= enough_bytes and log.config.durability == "fsync"

    def take_snapshot(self, recovery_point: int) -> None:
        """Take a snapshot. A scan can begin from the snapshot after a recovery point above the
        snapshot's offset has been written to disk (L-30). `recovery_point`: the recovery point that
        is on disk now. A failure is ignored: the scan then takes longer."""
        log = self._log
        if not log.loaded or log.offline or recovery_point > self.synced_offset:
            # With a snapshot below such a recovery point a start would take unsynced bytes for
            # flushed ones.
            return
        try:
            self._files.segments.active.indexes.write()
            self._files.take_snapshot(log.log_end_offset)
            self._files.producers.remove_outdated(self._files.segments.bases, recovery_point)
        except OSError:
            return
