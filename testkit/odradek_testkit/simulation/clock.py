"""Clocks of virtual time, which passes only by calls of `advance` (`SimulatedClock`), or with the
simulated loop (`LoopClock`)."""

from __future__ import annotations

import asyncio

#: The initial time of wall clocks by default: a day in November 2023.
WALL_START_MS = 1_700_000_000_000


class SimulatedClock:
    """Both clocks of a broker (`odradek_broker.platform.seams.Clock`), milliseconds.

    `now_ms` is the time of the monotonic clock, and may be set. The wall clock shows
    `wall_start_ms` more than the monotonic clock.
    """

    __slots__ = ("now_ms", "wall_start_ms")

    def __init__(self, now_ms: int = 0, wall_start_ms: int = WALL_START_MS) -> None:
        self.now_ms = now_ms
        self.wall_start_ms = wall_start_ms

    def monotonic_ms(self) -> int:
        """The monotonic clock."""
        return self.now_ms

    def wall_ms(self) -> int:
        """The wall clock; `jump` moves it."""
        return self.wall_start_ms + self.now_ms

    def advance(self, duration_ms: int) -> None:
        """Let time pass. Raises ValueError for a negative duration."""
        if duration_ms < 0:
            raise ValueError(f"{duration_ms} ms cannot pass: time does not go back")
        self.now_ms += duration_ms

    def jump(self, by_ms: int) -> None:
        """Set the wall clock, forwards or back, as an administrator or NTP does."""
        self.wall_start_ms += by_ms


class LoopClock:
    """Both clocks of a broker, from an event loop's time; milliseconds."""

    __slots__ = ("_error_ms", "_loop", "wall_start_ms")

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_start_ms: int = WALL_START_MS) -> None:
        self._loop = loop
        self.wall_start_ms = wall_start_ms
        self._error_ms = 0

    def monotonic_ms(self) -> int:
        """The monotonic clock."""
        return int(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        """The wall clock; `jump` and `set_wrong` move it."""
        return self.wall_start_ms + self._error_ms + int(self._loop.time() * 1000)

    def jump(self, by_ms: int) -> None:
        """Set the wall clock, forwards or back, as an administrator or NTP does."""
        self.wall_start_ms += by_ms

    def set_wrong(self, by_ms: int) -> None:
        """Set the wall clock's difference from the true time; 0 corrects the clock."""
        self._error_ms = by_ms


class StoppedTimer:
    """A timer that never fires, for tests that call due work themselves."""

    def cancel(self) -> None:
        """Do nothing."""
