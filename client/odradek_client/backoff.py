"""The exponential backoff before a retry, with jitter and a maximum (rule N-16)."""

from __future__ import annotations

from typing import Protocol

JITTER = 0.2
#: The limit of doublings of a delay. With any sensible setting, fewer doublings reach the maximum
#: delay.
_MAX_DOUBLINGS = 30


class Random(Protocol):
    """The part of `random.Random` that is used."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class Backoff:
    """The delay after failures: `initial_ms`, doubled with every failure up to `max_ms`, plus or
    minus up to 20 %.

    Because of the jitter, the clients of a lost broker do not all reconnect at the same time.
    """

    __slots__ = ("_initial_ms", "_max_ms", "_random")

    def __init__(self, initial_ms: int, max_ms: int, random: Random) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)
        self._random = random

    def delay_ms(self, failures: int) -> float:
        """The delay in ms after `failures` failures in a row; 0 after no failure."""
        if failures <= 0:
            return 0.0
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        delay = min(self._initial_ms * 2.0**doublings, self._max_ms)
        return delay * (1 - JITTER + 2 * JITTER * self._random.random())
