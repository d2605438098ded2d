"""The commit journal: one durable write for the small appends of all partitions of a directory (D5,
L-50).

An append that is to be durable is in its segment file already, in the page cache. Instead of an
fsync of each file, the ends of all files are written to the journal with one durable write. The
files are synced later (a checkpoint), before their part of the journal is used again; a start after
a crash restores what the files have lost (`journal_replay.py`).

    a-0/<base>.log   |##################|++++|
    b-0/<base>.log   |#########|++|                  #  synced      +  not synced
    c-3/<base>.log   |###############|+|
                                 the ends of all logs: one block, one durable write
                                                         v
    commit-journal   | header | full part | full part | block block .... | free part |
                              the oldest part is checkpointed,  current part
                              and free when its logs are synced

A copy-on-write file system may have no room for a write although the file is large enough. Then
neither this write nor later ones make anything durable, because a start reads no block after a
missing one. The segment files are synced instead; once all of them are synced, a new journal is
begun.

The parts have equal size and are filled in turn. The file grows by one part when all are in use, up
to `bytes_max`; beyond half of `bytes_max` the oldest parts are checkpointed. A flush syncs the
files, as without a journal, if the journal has no room, or if more than the end of one segment is
to be made durable.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from odradek_broker.platform.seams import BlockFile, File, Files, Randomness
from odradek_broker.storage.errors import DataDirectoryError
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.journal_format import (
    ALIGN_BYTES,
    BLOCK_HEADER_BYTES,
    ENTRY_HEADER_BYTES,
    JOURNAL,
    CorruptJournal,
    JournalEntry,
    JournalHeader,
    UnknownJournal,
    aligned,
    encode_block,
    encode_header,
)
from odradek_broker.storage.journal_replay import JournalReplay
from odradek_protocol.lazy_dataclass import dataclass

#: The suffix of a journal that is damaged.
DAMAGED = ".damaged"
#: The limit of a block: in a larger block the first tickets would wait too long for the last.
_BLOCK_BYTES_MAX = 512 * 1024
#: The limit of unsynced bytes of a log that the journal takes; with more, the log's file is synced.
_ENTRY_BYTES_MAX = 64 * 1024
_PARTS_MAX = 32
_PART_BLOCKS_MIN = 4
_PARTS_AT_FIRST = 2
#: The limit of logs whose files are synced at the same time for a checkpoint.
_CHECKPOINT_LOGS = 32
#: The bytes of a new part that are written at a time.
_GROW_BYTES = 1024 * 1024


class JournaledLog(Protocol):
    """A log whose end may be in the journal: see `LogDurability`."""

    synced_offset: int
    journaled: bool

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partition(self) -> int: ...

    def begin_checkpoint(self) -> Any:
        """A `Syncable` that syncs the segment files; None if the checkpoint has to wait for a
        flush.
        """
        ...

    def finish_journaled(self, ticket: JournalTicket, error: OSError | None) -> None: ...

    def finish_flush(self, ticket: Any, error: OSError | None) -> None: ...


@dataclass(slots=True, eq=False)
class JournalTicket:
    """The end of one segment that is to be durable: `size_bytes` at `position` of its file."""

    journal: CommitJournal
    log: JournaledLog
    end_offset: int
    restarts: int
    segment: Any
    position: int
    size_bytes: int
    file: File


@dataclass(slots=True, eq=False)
class JournalWrite:
    """The write of one block: its position in the file, and the tickets in it."""

    journal: CommitJournal
    position: int
    number: int
    tickets: list[JournalTicket]

    def sync(self) -> None:
        """Wait until the block is durable. Raises OSError. Called in any thread, one write after
        the other."""
        self.journal.write(self.position, self.number, self._read_entries())

    def _read_entries(self) -> list[JournalEntry]:
        entries = []
        for ticket in self.tickets:
            batches = ticket.file.read_at(ticket.position, ticket.size_bytes)
            if len(batches) != ticket.size_bytes:
                # The broker truncates no file that is being flushed, so the disk has lost bytes.
                raise OSError(
                    errno.EIO,
                    f"{ticket.segment.path} has lost what was just written to it: "
                    f"{len(batches)} of {ticket.size_bytes} bytes at {ticket.position}",
                )
            entries.append(
                JournalEntry(
                    ticket.log.topic_id,
                    ticket.log.partition,
                    ticket.segment.base_offset,
                    ticket.position,
                    batches,
                )
            )
        return entries


class _Part:
    """A part of the file. `logs`: the logs that have to be synced before the part is used again,
    each up to an offset."""

    __slots__ = ("logs", "start", "used_bytes")

    def __init__(self, start: int) -> None:
        self.start = start
        self.used_bytes = 0
        self.logs: dict[JournaledLog, int] = {}


class _Checkpoint:
    """A log whose files are synced in addition to its flushes, as a `Flushable`."""

    def __init__(self, journal: CommitJournal, log: JournaledLog) -> None:
        self._journal = journal
        self._log = log

    def begin_flush(self) -> Any:
        ticket = self._log.begin_checkpoint()
        if ticket is None:
            # The log is offline, or a flush of its files is under way and makes the checkpoint
            # unnecessary.
            self._journal.checkpoint_ended(self._log)
        return ticket

    def finish_flush(self, ticket: Any, error: OSError | None) -> None:
        self._log.finish_flush(ticket, error)
        self._journal.checkpoint_ended(self._log)

    def next_journal(self) -> None:
        """Always None: a checkpoint syncs files."""

    def begin_journaled(self, journal: CommitJournal) -> None:
        """Always None."""


class CommitJournal:
    """The commit journal of one directory. Everything but `write` is called on the loop's thread.

    `replay`: the entries that the last run left; None once all logs have been recovered.
    """

    def __init__(
        self, handles: HandleCache, randomness: Randomness, directory: str, bytes_max: int
    ) -> None:
        """With a `bytes_max` of 0 the journal is never used."""
        self._handles = handles
        self._files: Files = handles.files
        self._randomness = randomness
        self._directory = directory
        self._path = f"{directory}/{JOURNAL}"
        self._bytes_max = bytes_max
        blocks = max(bytes_max // _PARTS_MAX // ALIGN_BYTES, _PART_BLOCKS_MIN)
        self._part_bytes = blocks * ALIGN_BYTES
        self._parts_max = max(bytes_max // self._part_bytes, _PARTS_AT_FIRST)
        self._header = JournalHeader(randomness.uuid(), self._part_bytes)
        self.entry_bytes_max = min(_ENTRY_BYTES_MAX, self._part_bytes // 4)
        self.replay: JournalReplay | None = None
        #: Called once when a write has failed, with the reason.
        self.on_failed: Callable[[str], None] = _ignore
        self._request: Callable[[Any], None] | None = None
        self._file: BlockFile | None = None
        self._number = 0
        self._current = _Part(0)
        self._full: deque[_Part] = deque()
        self._free: deque[_Part] = deque()
        self._parts = 0
        self._growing = False
        # True after a failed attempt to grow, until the next checkpoint.
        self._stunted = False
        # The number of parts that each log is in.
        self._logs: dict[JournaledLog, int] = {}
        self._collected: list[JournalTicket] = []
        self._collected_bytes = BLOCK_HEADER_BYTES
        self._writes: list[JournalWrite] = []
        #: The number of writes that were taken and have not ended.
        self.unwritten = 0
        # Logs whose files are to be synced, and those whose sync is under way.
        self._due: dict[JournaledLog, None] = {}
        self._checkpointing: set[JournaledLog] = set()
        self._failed = False
        #: True from a write that found no room until a new journal is begun. A write that ends
        #: during this time has made nothing durable.
        self.crowded = False
        #: True while flushes may use the journal; otherwise they sync the files.
        self.usable = False
        #: The number of tickets that found no room, so that segment files were synced instead.
        self.crowded_out = 0

    @property
    def bytes_max(self) -> int:
        """The bytes that may be in use; 0 if the journal is never used."""
        return self._parts_max * self._part_bytes if self._bytes_max else 0

    @property
    def used_bytes(self) -> int:
        """The bytes of the parts whose logs have not been synced."""
        return len(self._full) * self._part_bytes + self._current.used_bytes if self.usable else 0

    # ---- begin and end

    def read(self, problems: list[str]) -> None:
        """Read the journal that a crash left. Raises DataDirectoryError if a later version of the
        broker wrote it; raises OSError."""
        if not self._files.exists(self._path):
            return
        try:
            self.replay = JournalReplay(self._files, self._path)
        except UnknownJournal as problem:
            raise DataDirectoryError(
                f"{self._path} cannot be read: {problem}; start the version that wrote it, and stop that"
                " cleanly"
            ) from problem
        except CorruptJournal as problem:
            self._files.rename(self._path, self._path + DAMAGED)
            problems.append(
                f"{self._path} is damaged ({problem}), and set aside as {JOURNAL}{DAMAGED}; records that"
                " were acknowledged shortly before the crash may be lost"
            )

    def start(self, request: Callable[[Any], None]) -> None:
        """Allow the use of the journal, after all logs were recovered and made durable. `request`:
        see `GroupCommit.request`."""
        if self.replay is not None:
            # Records that no log has got back, because a log has lost synced bytes before them,
            # would fit when it has grown again. A disk without room may refuse the removal.
            self.replay = None
            with suppress(OSError):
                self.remove()
        if self._bytes_max:
            self._request = request
        else:
            self._handles.run(self.remove, lambda _: None)

    def prepare(self) -> bool:
        """True if the journal can be used; otherwise begin to create its file, if that is
        allowed.
        """
        if not self.usable and not self._growing and not self.crowded:
            self._grow()
        return self.usable

    def stop(self) -> None:
        """Stop taking tickets: flushes from now on sync the files."""
        self._request = None
        self.usable = False

    def close(self) -> None:
        """Close the file, which stays on disk."""
        file, self._file = self._file, None
        self.usable = False
        if file is not None:
            file.close()

    def remove(self) -> None:
        """Remove the file once all segment files are synced. In any thread. Raises OSError."""
        self._files.remove(f"{self._path}.tmp")
        if self._files.exists(self._path):
            self._files.remove(self._path)
            self._files.sync_dir(self._directory)

    def _grow(self) -> None:
        """Begin to add a part, or to create the file with its first parts."""
        if self._growing or self._stunted or self._request is None:
            return
        if self._parts >= self._parts_max:
            return
        self._growing = True
        count = 1 if self._parts else _PARTS_AT_FIRST
        self._handles.run(
            lambda: self._add_parts(count), lambda problem: self._grown(count, problem)
        )

    def _add_parts(self, count: int) -> None:
        """Add the parts to the file, in any thread. Raises OSError."""
        if not self._parts:
            # An earlier file, whose entries are no longer needed, would take room on a full disk.
            self.remove()
        path = self._path if self._parts else f"{self._path}.tmp"
        size_bytes = ALIGN_BYTES + self._parts * self._part_bytes if self._parts else 0
        file = self._files.open(path, create=not self._parts)
        try:
            file.truncate(size_bytes)
            if not self._parts:
                file.append([encode_header(self._header)])
            left = count * self._part_bytes
            while left:
                step = min(left, _GROW_BYTES)
                file.append([bytes(step)])
                left -= step
            file.sync()
        except OSError:
            # Free the room of the unfinished parts, because other files need it on a full disk.
            with suppress(OSError):
                file.truncate(size_bytes)
            raise
        finally:
            file.close()
        if not self._parts:
            self._files.rename(path, self._path)
            self._files.sync_dir(self._directory)
            self._file = self._files.open_blocks(self._path)

    def _grown(self, count: int, problem: Exception | None) -> None:
        self._growing = False
        if problem is not None:
            # The disk may be full, for example. Flushes that find no room in the journal sync the
            # files.
            self._stunted = True
            return
        for _ in range(count):
            self._free.append(_Part(ALIGN_BYTES + self._parts * self._part_bytes))
            self._parts += 1
        if not self.usable and self._request is not None and not self.crowded:
            self._current = self._free.popleft()
            self.usable = True

    # ---- flushes

    def take(self, ticket: JournalTicket) -> bool:
        """Put a ticket into the next write; False if there is no room."""
        log = ticket.log
        if log not in self._logs and len(self._logs) >= self._handles.limit // 2:
            # The number of logs in the journal is limited, because each of them keeps a file open.
            self._sweep(self._logs)
            return False
        size_bytes = ENTRY_HEADER_BYTES + ticket.size_bytes
        if self._collected_bytes + size_bytes > _BLOCK_BYTES_MAX:
            self._end_block()
        room_bytes = self._part_bytes - self._current.used_bytes
        if aligned(self._collected_bytes + size_bytes) > room_bytes:
            self._end_block()
            if not self._next_part():
                self.crowded_out += 1
                return False
        self._collected.append(ticket)
        self._collected_bytes += size_bytes
        if log not in self._current.logs:
            self._logs[log] = self._logs.get(log, 0) + 1
        self._current.logs[log] = ticket.end_offset
        return True

    def _end_block(self) -> None:
        if not self._collected:
            return
        position, number = self._place(aligned(self._collected_bytes))
        self._writes.append(JournalWrite(self, position, number, self._collected))
        self._collected = []
        self._collected_bytes = BLOCK_HEADER_BYTES

    def _place(self, size_bytes: int) -> tuple[int, int]:
        """The position of the next block, and its number."""
        part = self._current
        position = part.start + part.used_bytes
        part.used_bytes += size_bytes
        self._number += 1
        return position, self._number

    def _next_part(self) -> bool:
        if not self._free:
            self._grow()
            self._sweep(log for part in self._full for log in part.logs)
            return False
        self._full.append(self._current)
        self._current = self._free.popleft()
        self._current.used_bytes = 0
        if len(self._free) < _PARTS_AT_FIRST:
            self._grow()
        if len(self._full) > self._parts_max // 2:
            oldest = list(self._full)[: len(self._full) - self._parts_max // 4]
            self._sweep(log for part in oldest for log in part.logs)
        return True

    def take_writes(self) -> Sequence[JournalWrite]:
        """The blocks that hold all tickets taken since the last call of this method. The caller
        must sync the blocks in the order of the list."""
        self._end_block()
        writes, self._writes = self._writes, []
        self.unwritten += len(writes)
        return writes

    def write(self, position: int, number: int, entries: Sequence[JournalEntry]) -> None:
        """Write a block to the file; waits for the disk. Raises OSError."""
        file = self._file
        if file is None:
            raise OSError(errno.EBADF, f"{self._path} is closed")
        file.write_at(position, encode_block(self._header.incarnation, number, entries))

    def written(self) -> None:
        """Count the end of a write."""
        self.unwritten -= 1

    def found_no_room(self) -> None:
        """Stop taking tickets, because the disk is full or read-only. Have all logs synced."""
        self.crowded = True
        self.usable = False
        self._sweep(self._logs)

    def _begin_anew(self) -> None:
        """Stop using a file whose entries are no longer needed; a new file replaces it."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self._header = JournalHeader(self._randomness.uuid(), self._part_bytes)
        self._current = _Part(0)
        self._full.clear()
        self._free.clear()
        self._parts = self._number = 0
        self.crowded = False

    def failed(self, problem: OSError) -> None:
        """Stop after a failed write: the state on disk is unknown, so all logs go offline (D5)."""
        if not self._failed:
            # The logs go offline even while the broker stops, because a start reads no block after
            # the missing one.
            self._failed = True
            self.stop()
            self.on_failed(f"its commit journal failed: {problem}")

    # ---- checkpoints

    def checkpoint(self) -> None:
        """Have all logs in the journal synced, a few at a time, so that a start after a crash has
        less to do."""
        self._stunted = False
        if self._file is not None and not self._files.exists(self._path):
            # Another program has removed the file: a start would not find the blocks that are
            # written to it, not even if there is a new file of its name.
            self.usable = False
            self._parts_max = 0
        if self.crowded and not self._logs and not self.unwritten and not self._growing:
            self._begin_anew()
        self._sweep(self._logs)

    def synced(self, log: JournaledLog, offset: int) -> None:
        """Free the parts of a log whose files are on disk up to an offset."""
        if log not in self._logs:
            return
        for part in (*self._full, self._current):
            if part.logs.get(log, offset + 1) <= offset:
                del part.logs[log]
                self._logs[log] -= 1
        if not self._logs[log]:
            del self._logs[log]
        while self._full and not self._full[0].logs:
            self._free.append(self._full.popleft())

    def _sweep(self, logs: Iterable[JournaledLog]) -> None:
        """Have the files of logs synced, a few at a time, unless an earlier sweep is under way."""
        if self._due:
            return
        self._due.update(dict.fromkeys(logs))
        self._continue_sweep()

    def _continue_sweep(self) -> None:
        request = self._request
        while request is not None and self._due and len(self._checkpointing) < _CHECKPOINT_LOGS:
            log = next(iter(self._due))
            del self._due[log]
            if log in self._logs and log not in self._checkpointing:
                self._checkpointing.add(log)
                request(_Checkpoint(self, log))

    def checkpoint_ended(self, log: JournaledLog) -> None:
        """Go on with the next logs, after a checkpoint that succeeded or failed."""
        self._checkpointing.discard(log)
        self._continue_sweep()


def _ignore(_: str) -> None:
    pass
