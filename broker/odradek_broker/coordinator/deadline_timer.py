"""One timer of the node for the nearest of a coordinator's many deadlines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek_broker.platform.seams import Clock, Timer


class DeadlineTimerEnv(Protocol):
    """The clock and the timers of the node."""

    @property
    def clock(self) -> Clock: ...

    def call_at(self, monotonic_ms: float, callback: Callable[[], None], /) -> Timer: ...


class DeadlineTimer:
    """Calls `on_due` with the monotonic time in milliseconds, once each time it is set.

    Whoever is called acts on what is due and sets it again.
    """

    __slots__ = ("_at_ms", "_closed", "_env", "_on_due", "_timer")

    def __init__(self, env: DeadlineTimerEnv, on_due: Callable[[int], None]) -> None:
        self._env = env
        self._on_due = on_due
        self._at_ms: int | None = None
        self._timer: Timer | None = None
        self._closed = False

    def set(self, at_ms: int | None) -> None:
        """Fire then and not before; never for None."""
        if at_ms != self._at_ms and not self._closed:
            self._cancel()
            if at_ms is not None:
                self._at_ms = at_ms
                self._timer = self._env.call_at(at_ms, self._fired)

    def bring_forward(self, at_ms: int | None) -> None:
        """Fire then, if that is earlier than what it is set to: one of the deadlines has changed."""
        if at_ms is not None and (self._at_ms is None or at_ms < self._at_ms):
            self.set(at_ms)

    def close(self) -> None:
        """It never fires again, whatever it is set to."""
        self._cancel()
        self._closed = True

    def _cancel(self) -> None:
        timer, self._timer, self._at_ms = self._timer, None, None
        if timer is not None:
            timer.cancel()

    def _fired(self) -> None:
        self._timer = self._at_ms = None
        if not self._closed:
            self._on_due(self._env.clock.monotonic_ms())
