"""Results of the rounds: medians, ranges, and the rows in which our broker is slower."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.race.contenders import (
    ALL,
    KAFKA_FLUSHING,
    KAFKA_PAGE_CACHE,
    MOCK,
    OURS_FSYNC,
    OURS_PAGE_CACHE,
)
from benchmarks.race.rows import Row
from benchmarks.support import Report, Spread

BEHIND = "**behind**"
#: (column, our broker, the other broker). There is no target for the ratio to the mock.
COMPARISONS = (
    ("page cache / Kafka page cache", OURS_PAGE_CACHE, KAFKA_PAGE_CACHE),
    ("fsync / Kafka page cache", OURS_FSYNC, KAFKA_PAGE_CACHE),
    ("fsync / Kafka flushing", OURS_FSYNC, KAFKA_FLUSHING),
    ("page cache / mock", OURS_PAGE_CACHE, MOCK),
)


@dataclass
class Result:
    """The figures of one row by broker, one for each round. A broker that failed has no figures for
    later rounds."""

    row: Row
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, ours: str, theirs: str) -> Spread | None:
        """The factors by which our broker is better, one for each round. None if there is no round
        with figures of both.

        For rates, a factor is our figure divided by the other figure; for milliseconds, the other
        figure divided by ours. So our broker is better if the factor is above 1.
        """
        pairs = list(zip(self.rounds.get(ours, []), self.rounds.get(theirs, []), strict=False))
        if not pairs:
            return None
        if self.row.less_is_better:
            pairs = [(theirs_, ours_) for ours_, theirs_ in pairs]
        return Spread.of([one / other for one, other in pairs])

    def behind(self) -> list[str]:
        """The comparisons with Kafka whose median is below 1."""
        found = []
        for column, ours, theirs in COMPARISONS:
            ratio = None if theirs == MOCK else self.ratio(ours, theirs)
            if ratio is not None and ratio.median < 1:
                found.append(column)
        return found

    def cells(self) -> list[str]:
        """The cells of the table: the title with its unit, the figures, and the ratios."""
        return [f"{self.row.title}, {self.row.unit}", *self._figures(), *self._ratios()]

    def _figures(self) -> Iterator[str]:
        for name in ALL:
            found = self.rounds.get(name)
            yield shown(found) if found else "-"

    def _ratios(self) -> Iterator[str]:
        behind = self.behind()
        for column, ours, theirs in COMPARISONS:
            ratio = self.ratio(ours, theirs)
            mark = f" {BEHIND}" if column in behind else ""
            yield "-" if ratio is None else f"{ratio}{mark}"


def shown(values: Sequence[float]) -> str:
    """Median and range, with about three digits."""
    median = statistics.median(values)
    form = ",.0f" if median >= 100 else ".1f" if median >= 10 else ".2f"
    return f"{median:{form}} ({min(values):{form}}-{max(values):{form}})"


def tell(report: Report, results: Sequence[Result], rounds: int) -> None:
    """Print the table, and the number of rows in which our broker is slower than Kafka."""
    report.table(
        f"The race, {rounds} rounds: median (range)",
        ("row", *ALL, *(column for column, _, _ in COMPARISONS)),
    )
    for result in results:
        report.row(
            result.cells(),
            name=result.row.name,
            unit=result.row.unit,
            rounds=result.rounds,
            behind=result.behind(),
        )
    behind = [result.row.name for result in results if result.behind()]
    report.note(
        f"{len(behind)} of {len(results)} rows are {BEHIND} Kafka in a comparison"
        + (f": {', '.join(behind)}." if behind else ".")
    )
