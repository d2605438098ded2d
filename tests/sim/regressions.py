"""Failing seeds with minimised faults, kept as lines of JSON. The tests of `tests/sim` run the
seeds again.

A line has the faults themselves, so that it does not depend on how a seed draws faults. The line
does not have the order of events, which depends on the seed and on the code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.sim.run import Result, run_seed
from tests.sim.workloads import WORKLOADS

from odradek_testkit.simulation.faults import FAULTS, ScheduledFault


@dataclass(frozen=True, slots=True)
class Regression:
    """A failing seed with its faults.

    `violated`: the checker's message. `found`: the day, such as 2026-11-23. `mutant`: the name of
    the known bug that was inserted for the run; empty if the run failed without an inserted bug.
    """

    workload: str
    seed: int
    faults: tuple[ScheduledFault, ...]
    violated: str
    found: str
    mutant: str = ""

    def run(self) -> Result:
        """Run the seed again with the kept faults."""
        return run_seed(self.workload, self.seed, self.faults)


def regression_of(result: Result, mutant: str = "") -> Regression:
    """The regression to keep for a run that failed."""
    today = datetime.now(UTC).date().isoformat()
    violated = result.violations[0] if result.violations else ""
    return Regression(result.workload, result.seed, tuple(result.faults), violated, today, mutant)


def append_regression(path: Path, regression: Regression) -> None:
    """Add a line; the file is created if it is missing."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(regression)) + "\n")


def read_regressions(path: Path) -> Iterator[Regression]:
    """Read every line of a file. Raises ValueError, with the line number, for a malformed line."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            fields = json.loads(line)
            faults = tuple(ScheduledFault(**fault) for fault in fields.pop("faults"))
            regression = Regression(faults=faults, **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise ValueError(f"{path}, line {number}: not a regression: {problem}") from problem
        if regression.workload not in WORKLOADS:
            raise ValueError(f"{path}, line {number}: no workload {regression.workload!r}")
        for fault in faults:
            if fault.kind not in FAULTS:
                raise ValueError(f"{path}, line {number}: no fault {fault.kind!r}")
        yield regression
