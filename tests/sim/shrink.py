"""Find the fewest faults with which a seed still fails in the same way."""

from __future__ import annotations

import contextlib
import io

from tests.sim.run import Result, checkers_of, run_seed

from odradek_testkit.simulation.faults import ScheduledFault


def shrink(result: Result) -> Result:
    """Leave out faults as long as a checker that reported the failure still reports a violation.

    The run is tried without any faults first. If it does not fail then, faults are left out one by
    one until the run needs each remaining fault to fail. Returns the result of the smallest run;
    its trace has the broker's decisions.
    """
    wanted = checkers_of(result.violations)

    def fails(faults: list[ScheduledFault]) -> bool:
        again = run_seed(result.workload, result.seed, faults)
        return bool(wanted & checkers_of(again.violations))

    with contextlib.redirect_stderr(io.StringIO()):
        faults = [] if fails([]) else list(result.faults)
        spared = True
        while spared and faults:
            spared = False
            for fault in list(faults):
                fewer = [each for each in faults if each is not fault]
                if fewer and fails(fewer):
                    faults, spared = fewer, True
        return run_seed(result.workload, result.seed, faults, explain=True)
