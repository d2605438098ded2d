"""The runner of a cleaner, which cleans one log at a time, outside of the event loop.

Heavy work in Python holds up every other thread of a process, so the broker cleans in a child
process (`odradek_broker.server.cleaner_process`). `BackgroundCleaner` cleans in the broker's own
process, if there is no child process, as in a simulation.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from odradek_broker.platform.seams import Files
from odradek_broker.storage.cleaner.cleaner import clean
from odradek_broker.storage.cleaner.job import Cleaning, CleaningJob, CleaningStep
from odradek_broker.storage.handles import BackgroundRunner
from odradek_broker.storage.segment_scanner import SegmentCorrupt
from odradek_broker.storage.transaction_index import CorruptTransactionIndex
from odradek_protocol.records.batch import BatchError


class CleaningFailure(enum.Enum):
    """Kinds of reasons for giving up a cleaning."""

    DISK = "the disk failed"
    DAMAGED = "batches are damaged"
    INDEX = "a transaction index is damaged"
    DIED = "the process died"


class CleaningFailed(Exception):
    """A failed cleaning: the kind of failure, and a text for a log line."""

    def __init__(self, failure: CleaningFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


CleaningDone = Callable[[CleaningStep | CleaningFailed], None]


class CleanerRunner(Protocol):
    """The runner of cleanings, one after the other. Callbacks are called on the loop."""

    def begin(self, job: CleaningJob, done: CleaningDone) -> None:
        """Begin the cleaning of a log; calls `done` with the first step of the cleaning."""
        ...

    def go_on(self, done: CleaningDone) -> None:
        """Continue the cleaning; calls `done` with the next step."""
        ...

    def give_up(self) -> None:
        """Stop the cleaning, without calling `done`."""
        ...

    def close(self) -> None:
        """Give up the cleaning, and begin no other."""
        ...


def failed(problem: Exception) -> CleaningFailed:
    """The failure that an exception of `clean` stands for."""
    if isinstance(problem, CorruptTransactionIndex):
        return CleaningFailed(CleaningFailure.INDEX, str(problem))
    if isinstance(problem, SegmentCorrupt | BatchError):
        return CleaningFailed(CleaningFailure.DAMAGED, str(problem))
    if isinstance(problem, OSError):
        return CleaningFailed(CleaningFailure.DISK, str(problem))
    return CleaningFailed(CleaningFailure.DIED, repr(problem))


class BackgroundCleaner:
    """Cleans in the background of this process; never throttled."""

    def __init__(self, files: Files, background: BackgroundRunner) -> None:
        self._files = files
        self._background = background
        self._cleaning: Cleaning | None = None

    def begin(self, job: CleaningJob, done: CleaningDone) -> None:
        self._cleaning = clean(job, self._files)
        self.go_on(done)

    def go_on(self, done: CleaningDone) -> None:
        cleaning = self._cleaning
        if cleaning is None:
            return
        steps: list[CleaningStep] = []

        def finished(problem: Exception | None) -> None:
            if self._cleaning is cleaning:
                done(steps[0] if problem is None else failed(problem))

        self._background(lambda: steps.append(next(cleaning)), finished)

    def give_up(self) -> None:
        self._cleaning = None

    def close(self) -> None:
        self.give_up()
