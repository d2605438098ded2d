"""Long work in slices of the event loop's time, between which other clients are served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.platform.seams import Scheduler

T = TypeVar("T")

#: The steps of a slice, each of some nanoseconds: a slice takes about a millisecond.
SLICE_STEPS = 200_000
#: The pause after a slice, so that long work takes half of the time of the event loop.
PAUSE_MS = 1.0

Work = Generator[int, None, T]
"""Work that yields the number of steps since its last yield, and returns its result. It raises no
exceptions."""


class Slices:
    """Runs one slice of one work at a time, however much work there is."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[tuple[Work[Any], Deferred[Any]]] = deque()

    def run(self, work: Work[T]) -> Deferred[T]:
        """Begin a work; resolves with its result, immediately if the work takes one slice. An
        abandoned work ends at its next slice."""
        deferred: Deferred[T] = Deferred()
        idle = not self._waiting
        self._waiting.append((work, deferred))
        if idle:
            self._turn()
        return deferred

    def _turn(self) -> None:
        work, deferred = self._waiting[0]
        finish = _slice(work, deferred)
        self._waiting.popleft()
        if finish is None:
            self._waiting.append((work, deferred))
        if self._waiting:
            self._scheduler.call_later(PAUSE_MS, self._turn)
        if finish is not None:
            finish()


def _slice(work: Work[T], deferred: Deferred[T]) -> Callable[[], None] | None:
    """Do one slice; returns what remains to be done if the work is finished, else None."""
    if deferred.abandoned:
        return work.close
    steps = 0
    try:
        while steps < SLICE_STEPS:
            steps += next(work)
    except StopIteration as done:
        result: T = done.value
        return lambda: deferred.resolve(result)
    return None
