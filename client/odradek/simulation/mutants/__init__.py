"""Known bugs, put into broker or client while a seed runs: the proof that the checkers see them.

A mutant is a patch, made here and taken back at the end; neither broker nor client knows of it.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass

from odradek.simulation.mutants.base import Mutant
from odradek.simulation.mutants.batches import BATCHES
from odradek.simulation.mutants.clients import CLIENTS
from odradek.simulation.mutants.compaction import COMPACTION
from odradek.simulation.mutants.everything import EVERYTHING
from odradek.simulation.mutants.groups import GROUPS
from odradek.simulation.mutants.metadata import METADATA
from odradek.simulation.mutants.retention import RETENTION
from odradek.simulation.mutants.spark_sink import SPARK_SINK
from odradek.simulation.mutants.storage import STORAGE
from odradek.simulation.mutants.transactions import TRANSACTIONS
from odradek.simulation.run import run_seed

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        *STORAGE,
        *BATCHES,
        *EVERYTHING,
        *GROUPS,
        *METADATA,
        *RETENTION,
        *COMPACTION,
        *TRANSACTIONS,
        *SPARK_SINK,
        *CLIENTS,
    )
}

#: A mutant must be caught within so many seeds.
SEEDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Catch:
    """Of a mutant: the seed that caught it, None if none did, and what was said of it."""

    name: str
    seed: int | None
    violation: str = ""


def catch(name: str, seeds_max: int = SEEDS_MAX) -> Catch:
    """Look for the seed that catches it: the known one, or else the first of all."""
    mutant = MUTANTS[name]
    seeds = [mutant.seed, *range(1, seeds_max + 1)]
    with mutant.patched(), contextlib.redirect_stderr(io.StringIO()):
        for seed in seeds:
            for violation in run_seed(mutant.workload, seed).violations:
                if mutant.is_caught_by(violation):
                    return Catch(name, seed, violation)
    return Catch(name, None)
