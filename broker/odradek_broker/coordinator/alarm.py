"""One timer of the node for the nearest of a coordinator's many deadlines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek_broker.seams import Clock


class Timer(Protocol):
    """Something that was scheduled and may be called off."""

    def cancel(self) -> None: ...


class AlarmEnv(Protocol):
    """What an alarm asks of the node."""

    @property
    def clock(self) -> Clock: ...

    def call_at(self, monotonic_ms: float, callback: Callable[[], None], /) -> Timer: ...


class Alarm:
    """Calls `ring` with the moment, in milliseconds of the monotonic clock, once each time it is set.

    Whoever is rung acts on what is due and sets it again.
    """

    __slots__ = ("_at_ms", "_closed", "_env", "_ring", "_timer")

    def __init__(self, env: AlarmEnv, ring: Callable[[int], None]) -> None:
        self._env = env
        self._ring = ring
        self._at_ms: int | None = None
        self._timer: Timer | None = None
        self._closed = False

    def set(self, at_ms: int | None) -> None:
        """Ring then and not before; never for None."""
        if at_ms != self._at_ms and not self._closed:
            self._cancel()
            if at_ms is not None:
                self._at_ms = at_ms
                self._timer = self._env.call_at(at_ms, self._rings)

    def bring_forward(self, at_ms: int | None) -> None:
        """Ring then, if that is earlier than what it is set to: one of the deadlines has changed."""
        if at_ms is not None and (self._at_ms is None or at_ms < self._at_ms):
            self.set(at_ms)

    def close(self) -> None:
        """It never rings again, whatever it is set to."""
        self._cancel()
        self._closed = True

    def _cancel(self) -> None:
        timer, self._timer, self._at_ms = self._timer, None, None
        if timer is not None:
            timer.cancel()

    def _rings(self) -> None:
        self._timer = self._at_ms = None
        if not self._closed:
            self._ring(self._env.clock.monotonic_ms())
