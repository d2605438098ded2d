"""Each mutant patches attributes that exist."""

from __future__ import annotations

from tests.sim.mutants import MUTANTS


def test_d10_every_attribute_that_a_mutant_replaces_exists() -> None:
    missing = [
        (mutant.name, home.__name__, name)
        for mutant in MUTANTS.values()
        for home, name in mutant.patches
        if name not in vars(home)
    ]
    assert missing == []
