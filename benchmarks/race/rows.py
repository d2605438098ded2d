"""The rows of the race, and the choice of the rows to run."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.support import Target

MB_PER_S = "MB/s"
THOUSANDS_PER_S = "1,000/s"
MS = "ms"

#: A function that runs a trial once against one broker, and returns a figure for each row of the
#: trial.
Run = Callable[[], Sequence[float]]


@dataclass(frozen=True)
class Row:
    """A line of the table. `name`: the name for `--rows`; `title` and `unit`: the texts in the
    table."""

    name: str
    title: str
    unit: str = MB_PER_S

    @property
    def less_is_better(self) -> bool:
        return self.unit == MS


@dataclass(frozen=True)
class Trial:
    """A measurement that gives the figures of one row or several.

    `at` gets a broker and the scale, and opens the clients and the read-only topics that all rounds
    with this broker share.
    """

    rows: tuple[Row, ...]
    at: Callable[[Target, float], AbstractContextManager[Run]]
    #: True if librdkafka's mock can take part. The mock keeps too few records for consumers, and
    #: its topics have four partitions each.
    mock: bool = True
    #: True if there is a warm-up round before the measured rounds.
    warm: bool = True


def chosen(trials: Sequence[Trial], wanted: str) -> list[tuple[Trial, tuple[Row, ...]]]:
    """Each trial that has at least one of the wanted rows, with these rows.

    `wanted`: names of rows or shell patterns, separated by commas; empty for all rows. Raises
    ValueError if a name or pattern matches no row.
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
