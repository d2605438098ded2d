"""Time-outs of requests: one timer of the loop for each duration, instead of one for each request.

Nearly all waiting requests have the same time-out, and finish long before it has passed. Among
requests with time-outs of the same duration, the first to begin is the first to time out. So there
is a queue for each duration, with one timer for the head of the queue.
"""

from __future__ import annotations

from typing import Protocol

from odradek_broker.platform.seams import Clock, Scheduler, Timer

#: The limit of the durations whose timers are kept without a waiting request. There is a limit
#: because clients choose durations.
_KEPT_MAX = 16


class Expiring(Protocol):
    """A waiting object, hashed by identity."""

    def timed_out(self) -> None:
        """Called when the time has passed."""
        ...


class _Queue:
    __slots__ = ("deadlines_ms", "timer")

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        #: The waiting objects, in the order of their deadlines.
        self.deadlines_ms: dict[Expiring, int] = {}


class Timeouts:
    """The time-outs of waiting objects, to a millisecond."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._queues: dict[int, _Queue] = {}

    def begin(self, waiting: Expiring, wait_ms: int) -> None:
        """Call `waiting.timed_out` after `wait_ms`, unless `end` is called before."""
        queue = self._queues.get(wait_ms)
        if queue is None:
            queue = self._queues[wait_ms] = _Queue(self._timer(wait_ms, wait_ms))
        queue.deadlines_ms[waiting] = self._clock.monotonic_ms() + wait_ms

    def end(self, waiting: Expiring, wait_ms: int) -> None:
        """Remove a waiting object; `wait_ms` is the value that `begin` was called with."""
        queue = self._queues.get(wait_ms)
        if queue is None:
            return
        queue.deadlines_ms.pop(waiting, None)
        if len(self._queues) > _KEPT_MAX and not queue.deadlines_ms:
            queue.timer.cancel()
            del self._queues[wait_ms]

    def __len__(self) -> int:
        """The number of waiting objects."""
        return sum(len(queue.deadlines_ms) for queue in self._queues.values())

    def _timer(self, wait_ms: int, delay_ms: int) -> Timer:
        return self._scheduler.call_later(delay_ms, lambda: self._look(wait_ms))

    def _look(self, wait_ms: int) -> None:
        """Call the objects with this duration whose time has passed, and set the timer for the next
        object."""
        queue = self._queues[wait_ms]
        now_ms = self._clock.monotonic_ms()
        due: list[Expiring] = []
        next_ms = 0
        for waiting, deadline_ms in queue.deadlines_ms.items():
            if deadline_ms > now_ms:
                next_ms = deadline_ms
                break
            due.append(waiting)
        for waiting in due:
            del queue.deadlines_ms[waiting]
        if queue.deadlines_ms:
            queue.timer = self._timer(wait_ms, next_ms - now_ms)
        else:
            del self._queues[wait_ms]
        failure: Exception | None = None
        for waiting in due:
            try:
                waiting.timed_out()
            except Exception as error:  # noqa: BLE001 - raised after the other calls
                failure = failure or error
        if failure is not None:
            raise failure
