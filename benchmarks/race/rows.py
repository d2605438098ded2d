"""The rows of the race, and the choice of those to run."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.support import Target

MB_PER_S = "MB/s"
THOUSANDS_PER_S = "1,000/s"
MS = "ms"

#: One run against one broker: a figure for each row of its trial.
Run = Callable[[], Sequence[float]]


@dataclass(frozen=True)
class Row:
    """One line of the table. `--rows` selects it by its name; it has a title, and a unit for its
    figures."""

    name: str
    title: str
    unit: str = MB_PER_S

    @property
    def less_is_better(self) -> bool:
        return self.unit == MS


@dataclass(frozen=True)
class Trial:
    """A measurement that gives the figures of one row or several.

    `at` gets a broker and the scale, and opens what all rounds there share: topics that are only
    read, clients.
    """

    rows: tuple[Row, ...]
    at: Callable[[Target, float], AbstractContextManager[Run]]
    #: librdkafka's mock keeps too few records to be read from, and has four partitions in each
    #: topic.
    mock: bool = True
    #: The round before all others, which does not count.
    warm: bool = True


def chosen(trials: Sequence[Trial], wanted: str) -> list[tuple[Trial, tuple[Row, ...]]]:
    """Trials with the rows of theirs whose names fit a pattern, in order; all without patterns.

    `wanted`: names or shell patterns, with commas. ValueError if one of them fits no row.
    """
    patterns = [word.strip() for word in wanted.split(",") if word.strip()] or ["*"]
    names = [row.name for trial in trials for row in trial.rows]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ValueError(f"no row is called {pattern!r}; there are {', '.join(names)}")
    found = []
    for trial in trials:
        rows = tuple(
            row
            for row in trial.rows
            if any(fnmatch.fnmatchcase(row.name, pattern) for pattern in patterns)
        )
        if rows:
            found.append((trial, rows))
    return found
