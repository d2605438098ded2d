"""Known bugs, inserted into broker or client while a seed runs, to prove that the checkers detect
them.

A mutant is a patch that is applied here and removed at the end; neither broker nor client knows of
it.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass

from tests.sim.mutants.base import Mutant
from tests.sim.mutants.batches import BATCHES
from tests.sim.mutants.clients import CLIENTS
from tests.sim.mutants.compaction import COMPACTION
from tests.sim.mutants.delegation_tokens import DELEGATION_TOKENS
from tests.sim.mutants.everything import EVERYTHING
from tests.sim.mutants.full_disk import FULL_DISK
from tests.sim.mutants.groups import GROUPS
from tests.sim.mutants.long_requests import LONG_REQUESTS
from tests.sim.mutants.metadata import METADATA
from tests.sim.mutants.mirror import MIRROR
from tests.sim.mutants.mirror_out import MIRROR_OUT
from tests.sim.mutants.retention import RETENTION
from tests.sim.mutants.share import SHARE
from tests.sim.mutants.spark_sink import SPARK_SINK
from tests.sim.mutants.storage import STORAGE
from tests.sim.mutants.streams import STREAMS
from tests.sim.mutants.transactions import TRANSACTIONS
from tests.sim.run import run_seed

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        *STORAGE,
        *FULL_DISK,
        *BATCHES,
        *EVERYTHING,
        *GROUPS,
        *SHARE,
        *STREAMS,
        *METADATA,
        *LONG_REQUESTS,
        *DELEGATION_TOKENS,
        *MIRROR,
        *RETENTION,
        *COMPACTION,
        *TRANSACTIONS,
        *SPARK_SINK,
        *MIRROR_OUT,
        *CLIENTS,
    )
}

#: The number of seeds within which a mutant must be caught.
SEEDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Catch:
    """The search result for a mutant.

    `seed`: the seed that caught the mutant, None if none did. `violation`: the checker's message.
    """

    name: str
    seed: int | None
    violation: str = ""


def catch(name: str, seeds_max: int = SEEDS_MAX) -> Catch:
    """Search for a seed that catches the mutant: first try the known seed, then the others from 1
    on."""
    mutant = MUTANTS[name]
    seeds = [mutant.seed, *range(1, seeds_max + 1)]
    with mutant.patched(), contextlib.redirect_stderr(io.StringIO()):
        for seed in seeds:
            for violation in run_seed(mutant.workload, seed).violations:
                if mutant.is_caught_by(violation):
                    return Catch(name, seed, violation)
    return Catch(name, None)
