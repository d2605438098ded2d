"""Limits of log lines that peers can cause: a repeated line is written at intervals, with the
number of repetitions, and the number of all lines is limited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

#: The interval at which a repeated line is written.
AGAIN_S = 60.0
#: The limit of the lines that are remembered. There is a limit because the texts may come from
#: peers.
REMEMBERED_MAX = 1_000


class RepeatedLines:
    """Lines of one logger of structlog, at most `lines_max` in AGAIN_S, and `lines_per_source_max`
    of one source. `now_s`: a monotonic clock."""

    def __init__(
        self,
        log: Any,
        lines_max: int,
        now_s: Callable[[], float],
        lines_per_source_max: int | None = None,
    ) -> None:
        self._log = log
        self._lines_max = lines_max
        self._lines_per_source_max = lines_max
        if lines_per_source_max is not None:
            self._lines_per_source_max = lines_per_source_max
        self._now_s = now_s
        #: The time at which each line was last written, and the number of repetitions since then.
        self._told: dict[tuple[str, ...], tuple[float, int]] = {}
        self._began_s = now_s()
        self._lines: Counter[str] = Counter()
        self._left_out = 0

    def say(
        self,
        level: str,
        event: str,
        same: tuple[str, ...],
        details: Mapping[str, object],
        source: str = "",
    ) -> None:
        """Write the line, unless it was written recently. Lines with equal `same` count as the same
        line. `source`: the peer that causes the line, which may choose a part of its text.
        """
        now_s = self._now_s()
        told_s, more = self._told.pop(same, (now_s - AGAIN_S, 0))
        if now_s - told_s < AGAIN_S:
            self._told[same] = told_s, more + 1
            return
        if now_s - self._began_s >= AGAIN_S:
            self._began_s = now_s
            self._lines.clear()
        if (
            self._lines.total() >= self._lines_max
            or self._lines[source] >= self._lines_per_source_max
        ):
            self._left_out += 1
            return
        self._lines[source] += 1
        while len(self._told) >= REMEMBERED_MAX:
            del self._told[next(iter(self._told))]
        self._told[same] = now_s, 0
        shown = dict(details)
        if more:
            shown["repeated"] = more
        if self._left_out:
            shown["lines_left_out"], self._left_out = self._left_out, 0
        getattr(self._log, level)(event, **shown)
