"""Log lines whose number others decide: the same one once in a while, with how often it came, and a
limit to all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: The same line comes again after so long.
AGAIN_S = 60.0
#: Lines that are remembered: what tells them apart may hold what a peer sent.
REMEMBERED_MAX = 1_000


class RepeatedLines:
    """Lines of one logger of structlog, at most `lines_max` in AGAIN_S. `now_s`: a clock that does
    not go back."""

    def __init__(self, log: Any, lines_max: int, now_s: Callable[[], float]) -> None:
        self._log = log
        self._lines_max = lines_max
        self._now_s = now_s
        #: When a line was written, and how often it came since.
        self._told: dict[tuple[str, ...], tuple[float, int]] = {}
        self._began_s = now_s()
        self._lines = 0
        self._left_out = 0

    def say(
        self, level: str, event: str, same: tuple[str, ...], details: Mapping[str, object]
    ) -> None:
        """Write it, unless that was done lately. Lines with an equal `same` are the same."""
        now_s = self._now_s()
        told_s, more = self._told.pop(same, (now_s - AGAIN_S, 0))
        if now_s - told_s < AGAIN_S:
            self._told[same] = told_s, more + 1
            return
        if now_s - self._began_s >= AGAIN_S:
            self._began_s, self._lines = now_s, 0
        if self._lines >= self._lines_max:
            self._left_out += 1
            return
        self._lines += 1
        while len(self._told) >= REMEMBERED_MAX:
            del self._told[next(iter(self._told))]
        self._told[same] = now_s, 0
        shown = dict(details)
        if more:
            shown["repeated"] = more
        if self._left_out:
            shown["lines_left_out"], self._left_out = self._left_out, 0
        getattr(self._log, level)(event, **shown)
