"""The simulator: `python -m tests.sim --seeds 1000 | --seed N [--trace] | --minutes M |
--mutants`."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import NoReturn

from tests.sim.many import Tally, quietly, run_many
from tests.sim.mutants import MUTANTS
from tests.sim.mutants.base import Mutant
from tests.sim.mutants.table import report_mutants, write_table
from tests.sim.regressions import append_regression, regression_of
from tests.sim.run import Result
from tests.sim.shrink import shrink
from tests.sim.workers import WorkerEndedError
from tests.sim.workloads import WORKLOADS

_TRACE_TAIL = 80
#: The exit code after Ctrl+C, as in shells.
_INTERRUPTED = 130


def main() -> int:
    """Return the exit code: 0 if nothing was violated and every mutant was caught, 1 otherwise, 130
    after Ctrl+C."""
    arguments = _parsed()
    workloads = [arguments.workload] if arguments.workload else list(WORKLOADS)
    try:
        if arguments.mutants:
            return _mutants(workloads, arguments.table)
        if arguments.seed is not None:
            return _one(workloads, arguments.seed, arguments.trace, arguments.keep)
        return _seeds(workloads, arguments)
    except KeyboardInterrupt:
        _leave(_INTERRUPTED)
    except WorkerEndedError as problem:
        sys.stdout.flush()
        print(f"python -m tests.sim: error: {problem}", file=sys.stderr)
        return 1


def _leave(code: int) -> NoReturn:
    """End the process immediately: an interrupted run leaves objects on its event loop that would
    log."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# --- Arguments ---


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim",
        description="Run the shipped broker and clients through disasters drawn from seeds.",
        allow_abbrev=False,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--seeds", type=_seed, metavar="N", help="seeds 1 to N of each workload (100)"
    )
    what.add_argument("--seed", type=_seed, metavar="N", help="one seed of each workload")
    what.add_argument("--minutes", type=_minutes, metavar="M", help="new seeds for so long")
    what.add_argument(
        "--mutants", action="store_true", help="put known bugs in, and see each of them caught"
    )
    parser.add_argument(
        "--from", type=_seed, metavar="SEED", dest="first", help="begin with this seed"
    )
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="this one only")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happened")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="append failing seeds, made small, to this file"
    )
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="with --mutants: also into this document"
    )
    return parser


def _parsed() -> argparse.Namespace:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.trace and arguments.seed is None:
        parser.error("--trace needs --seed: it prints what happened in one seed")
    if arguments.first is not None and (arguments.seed is not None or arguments.mutants):
        parser.error("--from goes with --seeds or --minutes")
    if arguments.first is not None and arguments.first > (arguments.seeds or arguments.first):
        parser.error(f"--from {arguments.first} is behind the last seed, {arguments.seeds}")
    if arguments.table is not None and not arguments.mutants:
        parser.error("--table needs --mutants: it is the table of them")
    if arguments.keep is not None and arguments.mutants:
        parser.error("--keep goes with --seed, --seeds or --minutes")
    return arguments


def _seed(text: str) -> int:
    seed = int(text) if text.isdecimal() else 0
    if seed < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return seed


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return minutes


# --- Seeds ---


def _one(workloads: Iterable[str], seed: int, trace: bool, keep: Path | None) -> int:
    failed = False
    for workload in workloads:
        result = quietly(workload, seed, explain=trace)
        if trace:
            print(f"== {workload}, seed {seed}: {len(result.faults)} faults")
            print("\n".join(result.trace))
        if result.violations:
            failed = True
            _failed(result, keep)
        else:
            print(f"{workload}, seed {seed}: nothing violated in {result.virtual_ms} ms")
    return int(failed)


def _seeds(workloads: list[str], arguments: argparse.Namespace) -> int:
    first = arguments.first or 1
    seeds: Iterable[int] = range(first, (arguments.seeds or max(first, 100)) + 1)
    until_s = float("inf")
    if arguments.minutes is not None:
        seeds, until_s = count(first), time.monotonic() + arguments.minutes * 60
    jobs = ((workload, seed) for seed in seeds for workload in workloads)
    tally = Tally()
    try:
        for result in run_many(jobs, until_s):
            tally.add(result)
            if result.violations:
                _failed(result, arguments.keep)
    finally:
        print(tally, flush=True)
    return int(tally.failures > 0)


def _failed(result: Result, keep: Path | None) -> None:
    small = shrink(result)
    _print_failure(result, small)
    if keep is not None:
        append_regression(keep, regression_of(small))
        print(f"kept in {keep}", flush=True)


def _print_failure(result: Result, small: Result) -> None:
    print(f"\nVIOLATED: {result.workload}, seed {result.seed}")
    print("\n".join(f"  {problem}" for problem in small.violations[:10]))
    print(f"with {len(small.faults)} of its {len(result.faults)} faults:")
    print("\n".join(f"  at {fault.at_ms} ms: {fault}" for fault in small.faults))
    print(f"the last {_TRACE_TAIL} lines of its trace:")
    print("\n".join(f"  {line}" for line in small.trace[-_TRACE_TAIL:]))
    print(
        f"again: python -m tests.sim --workload {result.workload} --seed {result.seed} --trace\n",
        flush=True,
    )


# --- Mutants ---


def _mutants(workloads: list[str], table: Path | None) -> int:
    chosen: list[Mutant] = [each for each in MUTANTS.values() if each.workload in workloads]
    catches = []
    for catch, line in report_mutants(chosen):
        catches.append(catch)
        print(line, flush=True)
    if table is not None:
        write_table(table, catches)
    caught = sum(catch.seed is not None for catch in catches)
    print(f"caught {caught} of {len(chosen)}")
    return int(caught < len(chosen))


def _with_fixed_hashes() -> None:
    """Run the command again with a fixed hash seed: the order of sets of strings must be the same
    in every run."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.sim", *sys.argv[1:]],
            environment,
        )


if __name__ == "__main__":
    _with_fixed_hashes()
    random.seed(0)
    sys.exit(main())
