"""Group commit: one fsync for everything that waits for it, off the loop's thread (D5).

A log has at most one flush running and at most one more asked for. What is appended while a flush
runs shares the next one, so the slower the disk, the more appends a flush covers, and nothing
queues up behind it.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, Protocol

from odradek_broker.storage.errors import out_of_files

#: How often, and how far apart, a file is tried to be opened while too many are.
_OPEN_TRIES = 200
_OPEN_PAUSE_S = 0.05


class Syncable(Protocol):
    """The extent of one flush; of a log it is a `FlushTicket`."""

    def sync(self) -> None:
        """Block until it is durable; OSError. Called in another thread."""
        ...


class Flushable(Protocol):
    """A log as seen from here. Both methods are called on the loop's thread."""

    def begin_flush(self) -> Any:
        """A `Syncable` for all that is not durable yet, or None if there is nothing to do."""
        ...

    def finish_flush(self, ticket: Any, error: OSError | None) -> None:
        """The outcome of the ticket's `sync`. After an error the log must not ask again (D5)."""
        ...


class _Job(NamedTuple):
    log: Flushable
    ticket: Syncable


class GroupCommit:
    """Runs the flushes of all logs of a broker.

    `workers`: threads, started when they are first needed. With 0 a flush runs on the loop
    itself, for a loop that must be deterministic (D10).
    `on_synced`: called on the loop with the seconds that one sync took.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: int = 4,
        *,
        on_synced: Callable[[float], None] | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        if workers < 0:
            raise ValueError("workers must not be negative")
        self._loop = loop
        self._workers = workers
        self._on_synced = on_synced
        self._timer = timer
        self._threads: list[Thread] = []
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # Logs, in the order in which they asked. A log that runs may be in `_asked` too.
        self._asked: dict[Flushable, None] = {}
        self._running: set[Flushable] = set()
        self._scheduled = False
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._closed = False

    def request(self, log: Flushable) -> None:
        """Make durable what has been appended so far; the log learns when it is.

        The flush begins when the loop has worked off what it has just read, so that appends that
        came together share it. RuntimeError after `close`.
        """
        if self._closed:
            raise RuntimeError("group commit is closed")
        self._asked[log] = None
        if not self._scheduled and log not in self._running:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a flush of every log that has asked and has none running."""
        self._scheduled = False
        ready = [log for log in self._asked if log not in self._running]
        for log in ready:
            del self._asked[log]
        for log in ready:
            # Each in its own step: should a log fail here, the others have their flush anyway.
            self._begin_one(log)
        self._wake_if_idle()

    def _begin_one(self, log: Flushable) -> None:
        try:
            ticket = log.begin_flush()
        except Exception as problem:  # noqa: BLE001 - one log's bug must not stop the others
            self._report("beginning a flush", log, problem)
            return
        if ticket is None:
            return
        self._running.add(log)
        job = _Job(log, ticket)
        if self._workers == 0:
            self._loop.call_soon(self._sync_on_loop, job)
            return
        if len(self._threads) < min(self._workers, len(self._running)):
            self._start_thread()
        self._jobs.put(job)

    def _start_thread(self) -> None:
        thread = Thread(target=self._work, name=f"odradek-flush-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        """A worker thread: syncs one ticket after another."""
        while (job := self._jobs.get()) is not None:
            error, seconds = self._sync(job)
            try:
                self._loop.call_soon_threadsafe(self._finish, job, error, seconds)
            except RuntimeError:
                # The loop is closed; there is nobody left to whom this means anything.
                return

    def _sync(self, job: _Job) -> tuple[OSError | None, float]:
        began = self._timer()
        error: OSError | None = None
        try:
            self._sync_ticket(job.ticket)
        except OSError as problem:
            error = problem
        except BaseException as problem:  # noqa: BLE001 - passed on as the flush's failure
            # Whatever it was, the bytes cannot be called durable, and the thread must live on.
            error = OSError(errno.EIO, f"the flush broke off: {problem!r}")
            error.__cause__ = problem
        return error, self._timer() - began

    def _sync_on_loop(self, job: _Job) -> None:
        self._finish(job, *self._sync(job))

    def _sync_ticket(self, ticket: Syncable) -> None:
        """Too many open files come from opening one more, never from a sync, and pass; so this,
        other than a failed sync, is tried again. Nobody but this thread waits for it."""
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

    def _finish(self, job: _Job, error: OSError | None, seconds: float) -> None:
        self._running.discard(job.log)
        if error is not None:
            # Never retried as if clean: what waited for the next flush fails with this one (D5).
            self._asked.pop(job.log, None)
        if self._on_synced is not None:
            self._on_synced(seconds)
        try:
            job.log.finish_flush(job.ticket, error)
        except Exception as problem:  # noqa: BLE001 - as above
            self._report("finishing a flush", job.log, problem)
        if job.log in self._asked and not self._scheduled:
            # Now rather than in the loop's next round: whoever waits has waited a flush already.
            self._begin()
        else:
            self._wake_if_idle()

    def _report(self, doing: str, log: Flushable, problem: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": f"{doing} of {log!r} failed", "exception": problem}
        )

    # -- the end ------------------------------------------------------------------------------

    @property
    def _idle(self) -> bool:
        return not self._asked and not self._running

    def _wake_if_idle(self) -> None:
        if self._idle and self._idle_waiters:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def drain(self) -> None:
        """Wait until nothing runs and nothing is asked for."""
        while not self._idle:
            waiter = self._loop.create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """Stop the threads, once what runs has ended; `drain` first. May be called again."""
        if self._closed:
            return
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
