"""The lag of groups over time, in records: fine points of the last quarter of an hour, and coarse
points of the last two days.

A coarse point is the largest lag of its five minutes, so that a short incident of last night is
still seen.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

#: The points of the last quarter of an hour, at intervals of ten seconds.
FINE_MAX = 90
#: The points of the last two days, and their interval.
COARSE_MAX = 576
COARSE_MS = 300_000
GROUPS_MAX = 1_000
_NUMBERS = 2


class _Points:
    """The points of one group, each as (time, lag)."""

    __slots__ = ("coarse", "fine")

    def __init__(self) -> None:
        self.fine = array("q")
        self.coarse = array("q")

    def add(self, wall_ms: int, lag: int) -> None:
        _append(self.fine, wall_ms, lag, FINE_MAX)
        coarse = self.coarse
        if coarse and wall_ms // COARSE_MS == coarse[-2] // COARSE_MS:
            if lag > coarse[-1]:
                coarse[-2:] = array("q", (wall_ms, lag))
        else:
            _append(coarse, wall_ms, lag, COARSE_MAX)


def _append(points: array[int], wall_ms: int, lag: int, most: int) -> None:
    points.extend((wall_ms, lag))
    if len(points) > most * _NUMBERS:
        del points[:_NUMBERS]


class GroupLags:
    """The lag of the groups that the present round of samples or the one before it has found, at
    most GROUPS_MAX of each."""

    def __init__(self) -> None:
        self._groups: dict[str, _Points] = {}
        self._before: dict[str, _Points] = {}

    def begin_round(self) -> None:
        """Forget the groups that the last round did not find, because they were deleted."""
        self._groups, self._before = {}, self._groups

    def add(self, group_id: str, wall_ms: int, lag: int) -> None:
        """Add a sample of a group's lag, in records."""
        if len(self._groups) < GROUPS_MAX:
            points = self._before.pop(group_id) if group_id in self._before else _Points()
            self._groups[group_id] = points
            points.add(wall_ms, lag)

    def coarse(self) -> Iterator[tuple[str, array[int]]]:
        """The coarse points of each group, as alternating times and lags. They may change during
        the iteration."""
        for group_id, points in {**self._before, **self._groups}.items():
            yield group_id, points.coarse

    def restore(self, coarse: Mapping[str, array[int]], wall_ms: int) -> None:
        """Begin with these points of the time before a restart, those of the last two days."""
        for group_id, numbers in coarse.items():
            while numbers and numbers[0] < wall_ms - COARSE_MAX * COARSE_MS:
                del numbers[:_NUMBERS]
            if numbers:
                self._groups[group_id] = _Points()
                self._groups[group_id].coarse = numbers

    def of(self, group_id: str) -> list[tuple[int, int]]:
        """The points of a group, each as (time, lag in records), oldest first."""
        points = self._groups.get(group_id) or self._before.get(group_id)
        if points is None:
            return []
        fine = list(zip(points.fine[::_NUMBERS], points.fine[1::_NUMBERS], strict=True))
        coarse = zip(points.coarse[::_NUMBERS], points.coarse[1::_NUMBERS], strict=True)
        return [each for each in coarse if not fine or each[0] < fine[0][0]] + fine
