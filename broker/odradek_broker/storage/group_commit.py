"""Group commit: one fsync for all appends that wait for it, in another thread than the loop's (D5).

A log has at most one flush running and at most one more requested. All appends during a flush share
the next flush, so the slower the disk, the more appends a flush covers, and flushes do not queue
up.

Logs with simultaneous requests are handed to a worker, and their outcomes to the loop, a few at a
time: with many partitions a hand-over for each of them would take longer than the disk.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from odradek_broker.storage.errors import out_of_files
from odradek_broker.storage.journal import CommitJournal, JournalTicket, JournalWrite
from odradek_protocol.lazy_tuple import NamedTuple

#: The attempts to open a file while too many are open, and the pause between them.
_OPEN_TRIES = 200
_OPEN_PAUSE_S = 0.05
#: The limit of logs that a worker syncs before it reports them; the first log waits for the last.
_JOB_LOGS_MAX = 16
#: The limit of flushes in progress, if nobody has set it.
_FILES_MAX = 512


class Syncable(Protocol):
    """The extent of one flush; for a log, a `FlushTicket`."""

    def sync(self) -> None:
        """Wait until the extent is durable. Raises OSError. Called in another thread."""
        ...


class Flushable(Protocol):
    """A log to be flushed: `LogDurability`. All methods are called on the loop's thread."""

    def next_journal(self) -> CommitJournal | None:
        """The journal that the next flush would write to; None if the next flush syncs files."""
        ...

    def begin_journaled(self, journal: CommitJournal) -> JournalTicket | None:
        """Add all appends that are not durable yet to the journal's next write; None if there is no
        room.
        """
        ...

    def begin_flush(self) -> Any:
        """A `Syncable` for all that is not durable yet, or None if there is nothing to do."""
        ...

    def finish_flush(self, ticket: Any, error: OSError | None) -> None:
        """Take the outcome of the ticket's `sync`. After an error the log must not request another
        flush (D5)."""
        ...


class _Synced(NamedTuple):
    """The outcome of a sync, and its duration."""

    log: Flushable
    ticket: Syncable
    error: OSError | None
    seconds: float


#: Logs that are synced one after the other, with their tickets.
_Job = Sequence[tuple[Flushable, Syncable]]


class GroupCommit:
    """Runs the flushes of all logs of a broker.

    `workers`: threads, started when they are first needed. With 0 a flush runs on the loop itself,
    for a loop that must be deterministic (D10). `files_max`: the limit of flushes in progress, each
    of which keeps a file open; other logs wait their turn. `on_synced`: called on the loop with the
    seconds that one sync of a log took. `on_written`: called with the seconds that a write to a
    journal took; if it is None, `on_synced` is called instead.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: int = 4,
        *,
        on_synced: Callable[[float], None] | None = None,
        on_written: Callable[[float], None] | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        if workers < 0:
            raise ValueError("workers must not be negative")
        self._loop = loop
        self._workers = workers
        self.files_max = _FILES_MAX
        self._on_synced = on_synced
        self._on_written = on_written or on_synced
        self._timer = timer
        self._threads: list[Thread] = []
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # Logs with a requested flush, in the order of the requests. A log that is being flushed may
        # request another flush.
        self._asked: dict[Flushable, None] = {}
        # Logs whose flush waits for the end of others, because it would open too many files.
        self._held: dict[Flushable, None] = {}
        self._running: set[Flushable] = set()
        # The number of blocks that each journal is writing. Later requests wait, and share the next
        # block.
        self._writing: dict[CommitJournal, int] = {}
        self._asked_behind: dict[CommitJournal, dict[Flushable, None]] = {}
        self._journal_queues: dict[CommitJournal, SimpleQueue[JournalWrite | None]] = {}
        self._journal_threads: list[Thread] = []
        self._scheduled = False
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._closed = False

    def request(self, log: Flushable) -> None:
        """Request a flush of everything appended so far; `finish_flush` follows. The flush begins
        after the events that the loop has just read, so that their appends share it. Raises
        RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("group commit is closed")
        if log in self._held:
            return
        if self._writing and log not in self._running:
            journal = log.next_journal()
            if journal in self._writing:
                self._asked_behind[journal][log] = None
                return
        self._asked[log] = None
        if not self._scheduled and log not in self._running:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin the requested flush of every log without a running flush."""
        self._scheduled = False
        asked, self._asked = self._asked, {}
        for log in asked:
            (self._asked if log in self._running else self._held)[log] = None
        flushes = []
        journaled: dict[CommitJournal, None] = {}
        while self._held and len(self._running) < self.files_max:
            log = next(iter(self._held))
            del self._held[log]
            # An exception of one log must not keep the others from being flushed.
            try:
                journal = log.next_journal()
                if journal is not None and journal in self._writing:
                    self._asked_behind[journal][log] = None
                    continue
                if journal is not None and log.begin_journaled(journal) is not None:
                    self._running.add(log)
                    journaled[journal] = None
                    continue
                ticket = log.begin_flush()
            except Exception as problem:  # noqa: BLE001 - one log's bug must not stop the others
                self._report("beginning a flush", log, problem)
                continue
            if ticket is not None:
                self._running.add(log)
                flushes.append((log, ticket))
        for journal in journaled:
            self._write(journal)
        if flushes:
            self._hand_over(flushes)
        self._wake_if_idle()

    def _hand_over(self, flushes: _Job) -> None:
        """Give the flushes to the workers, a few logs at a time."""
        if not self._workers:
            for flush in flushes:
                self._loop.call_soon(self._sync_on_loop, (flush,))
            return
        size = min(-(-len(flushes) // self._workers), _JOB_LOGS_MAX)
        for first in range(0, len(flushes), size):
            if len(self._threads) < min(self._workers, len(self._running)):
                self._start_thread()
            self._jobs.put(flushes[first : first + size])

    def _write(self, journal: CommitJournal) -> None:
        """Give the writes to the journal's own worker, so that they do not wait for syncs of files,
        most of which take longer."""
        writes = journal.take_writes()
        if not writes:
            return
        self._writing[journal] = len(writes)
        self._asked_behind[journal] = {}
        for write in writes:
            if not self._workers:
                self._loop.call_soon(self._write_on_loop, write)
                continue
            queue = self._journal_queues.get(journal)
            if queue is None:
                queue = self._journal_queues[journal] = SimpleQueue()
                name = f"odradek-journal-{len(self._journal_queues)}"
                thread = Thread(target=self._work_on_journal, args=(queue,), name=name, daemon=True)
                self._journal_threads.append(thread)
                thread.start()
            queue.put(write)

    def _work_on_journal(self, queue: SimpleQueue[JournalWrite | None]) -> None:
        """A worker thread: one write after another."""
        while (write := queue.get()) is not None:
            error, seconds = self._timed_sync(write)
            try:
                self._loop.call_soon_threadsafe(self._finish_write, write, error, seconds)
            except RuntimeError:
                return

    def _write_on_loop(self, write: JournalWrite) -> None:
        self._finish_write(write, *self._timed_sync(write))

    def _finish_write(self, write: JournalWrite, error: OSError | None, seconds: float) -> None:
        write.journal.written()
        left = self._writing[write.journal] - 1
        if left:
            self._writing[write.journal] = left
        else:
            del self._writing[write.journal]
            self._asked.update(self._asked_behind.pop(write.journal))
        if self._on_written is not None:
            self._on_written(seconds)
        for ticket in write.tickets:
            self._finish_one(ticket.log, partial(ticket.log.finish_journaled, ticket), error)
        if not self._scheduled and (self._held or (not left and self._asked)):
            self._begin()
        else:
            self._wake_if_idle()

    def _start_thread(self) -> None:
        thread = Thread(target=self._work, name=f"odradek-flush-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        """A worker thread: one job after another."""
        while (job := self._jobs.get()) is not None:
            synced = [self._sync(log, ticket) for log, ticket in job]
            try:
                self._loop.call_soon_threadsafe(self._finish, synced)
            except RuntimeError:
                # The loop is closed, and nobody waits for the result.
                return

    def _sync(self, log: Flushable, ticket: Syncable) -> _Synced:
        return _Synced(log, ticket, *self._timed_sync(ticket))

    def _timed_sync(self, ticket: Syncable) -> tuple[OSError | None, float]:
        began = self._timer()
        error: OSError | None = None
        try:
            self._sync_ticket(ticket)
        except OSError as problem:
            error = problem
        except BaseException as problem:  # noqa: BLE001 - passed on as the flush's failure
            # After any exception the bytes do not count as durable, and the thread must continue.
            error = OSError(errno.EIO, f"the flush broke off: {problem!r}")
            error.__cause__ = problem
        return error, self._timer() - began

    def _sync_on_loop(self, job: _Job) -> None:
        self._finish([self._sync(log, ticket) for log, ticket in job])

    def _sync_ticket(self, ticket: Syncable) -> None:
        """Sync, and try again while too many files are open: this error comes from opening a file,
        never from a sync, and is temporary. Only the logs of this job wait."""
        tries_left = _OPEN_TRIES if self._workers else 1
        while True:
            tries_left -= 1
            try:
                ticket.sync()
                return
            except OSError as problem:
                if not tries_left or not out_of_files(problem):
                    raise
            time.sleep(_OPEN_PAUSE_S)

    def _finish(self, job: Sequence[_Synced]) -> None:
        for log, ticket, error, seconds in job:
            if self._on_synced is not None:
                self._on_synced(seconds)
            self._finish_one(log, partial(log.finish_flush, ticket), error)
        if not self._scheduled and (self._held or any(log in self._asked for log, *_ in job)):
            # The next flush begins now, not in the next turn of the event loop, because these logs
            # have waited already.
            self._begin()
        else:
            self._wake_if_idle()

    def _finish_one(
        self, log: Any, finish: Callable[[OSError | None], None], error: OSError | None
    ) -> None:
        self._running.discard(log)
        if error is not None:
            # A failed flush is never retried: the appends that wait for the next flush fail too
            # (D5).
            self._asked.pop(log, None)
        try:
            finish(error)
        except Exception as problem:  # noqa: BLE001 - one log's bug must not stop the others
            self._report("finishing a flush", log, problem)

    def _report(self, doing: str, log: Flushable, problem: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": f"{doing} of {log!r} failed", "exception": problem}
        )

    # -- the end ------------------------------------------------------------------------------

    @property
    def _idle(self) -> bool:
        return not (self._asked or self._held or self._running or self._writing)

    def _wake_if_idle(self) -> None:
        if self._idle and self._idle_waiters:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def drain(self) -> None:
        """Wait until no flush runs and none is requested."""
        while not self._idle:
            waiter = self._loop.create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """Stop the threads once their work has ended; call `drain` first. May be called again."""
        if self._closed:
            return
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for queue in self._journal_queues.values():
            queue.put(None)
        for thread in (*self._threads, *self._journal_threads):
            thread.join()
