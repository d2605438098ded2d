"""The wait before another try: exponential, with jitter, bounded (rule N-16)."""

from __future__ import annotations

from typing import Protocol

JITTER = 0.2
#: Above this many doublings the delay is at its maximum for every sensible setting.
_MAX_DOUBLINGS = 30


class Random(Protocol):
    """The used part of `random.Random`."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class Backoff:
    """`initial_ms` doubled with every failure up to `max_ms`, then moved by up to 20 % either way.

    The jitter keeps clients that lost the same broker from coming back all at once.
    """

    __slots__ = ("_initial_ms", "_max_ms", "_random")

    def __init__(self, initial_ms: int, max_ms: int, random: Random) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)
        self._random = random

    def delay_ms(self, failures: int) -> float:
        """The wait after `failures` failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        delay = min(self._initial_ms * 2.0**doublings, self._max_ms)
        return delay * (1 - JITTER + 2 * JITTER * self._random.random())
