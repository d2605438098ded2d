"""Many seeds on all cores: each worker process gets a few of them at a time."""

from __future__ import annotations

import contextlib
import gc
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, takewhile

from tests.sim.run import Result, run_seed
from tests.sim.workers import in_workers

#: A workload and a seed.
Job = tuple[str, int]

#: The number of jobs that a worker gets at a time.
_CHUNK = 5


@dataclass
class Tally:
    """The runs so far, in one sentence."""

    begun_s: float = field(default_factory=time.monotonic)
    runs: int = 0
    failures: int = 0
    virtual_ms: int = 0

    def add(self, result: Result) -> None:
        self.runs += 1
        self.failures += bool(result.violations)
        self.virtual_ms += result.virtual_ms

    def __str__(self) -> str:
        spent_s = max(time.monotonic() - self.begun_s, 0.001)
        return (
            f"{self.runs} runs in {spent_s:.0f} s ({self.runs / spent_s * 60:.0f} a minute),"
            f" {self.virtual_ms / 3_600_000:.1f} hours of virtual time:"
            f" {self.failures} with violations"
        )


def quietly(workload: str, seed: int, *, explain: bool = False) -> Result:
    """Call `run_seed` without printing the log messages of broker and clients."""
    with contextlib.redirect_stderr(io.StringIO()):
        return run_seed(workload, seed, explain=explain)


def run_many(jobs: Iterator[Job], until_s: float = float("inf")) -> Iterator[Result]:
    """Yield the results in the order of the jobs; start no job after the monotonic time `until_s`.

    Raises WorkerEndedError, which names the jobs in progress, when a worker is killed from outside.
    """
    in_time = takewhile(lambda _: time.monotonic() < until_s, _chunks(jobs))
    for _, results in in_workers(_run_chunk, in_time):
        yield from results


class _Chunk(tuple[Job, ...]):
    """The jobs that a worker gets at a time."""

    def __str__(self) -> str:
        seeds: dict[str, list[int]] = {}
        for workload, seed in self:
            seeds.setdefault(workload, []).append(seed)
        return ", ".join(f"{workload}, {_named(each)}" for workload, each in seeds.items())


def _named(seeds: list[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def _chunks(jobs: Iterator[Job]) -> Iterator[_Chunk]:
    while chunk := _Chunk(islice(jobs, _CHUNK)):
        yield chunk


def _run_chunk(jobs: _Chunk) -> list[Result]:
    gc.disable()
    results = [quietly(workload, seed) for workload, seed in jobs]
    for result in results:
        if not result.violations:
            result.trace = []
    with contextlib.redirect_stderr(io.StringIO()):
        # Producers of killed processes would warn that they were not closed.
        gc.collect()
    return results
