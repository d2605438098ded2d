"""Failing seeds that were kept and minimised are run again: `regressions.jsonl`, one per line.

`python -m tests.sim --seeds N --keep tests/sim/regressions.jsonl` adds new findings.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sim.mutants import MUTANTS
from tests.sim.regressions import Regression, read_regressions

import budget

FILE = Path(__file__).parent / "regressions.jsonl"
_FAULT = '{"at_ms": 1, "kind": "earthquake", "lasts_ms": 1, "size": 1}'
_LINE = (
    '{"workload": "produce", "seed": 1, "violated": "", "found": "", "faults": [' + _FAULT + "]}"
)
KEPT = list(read_regressions(FILE))


@pytest.mark.parametrize(
    "kept", budget.of_which(KEPT, KEPT[::12]), ids=lambda kept: f"{kept.workload}-{kept.seed}"
)
def test_d10_kept_failing_seeds_pass(kept: Regression) -> None:
    assert kept.run().violations == [], kept.violated


def test_kept_seeds_of_mutants_name_existing_mutants() -> None:
    assert {kept.mutant for kept in KEPT} - {""} <= set(MUTANTS)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "not a regression"),
        ('{"workload": "produce"}', "not a regression"),
        (
            '{"workload": "w", "seed": 1, "faults": [], "violated": "", "found": ""}',
            "no workload 'w'",
        ),
        (_LINE, "no fault 'earthquake'"),
    ],
)
def test_a_malformed_regression_line_is_told_with_its_number(
    tmp_path: Path, line: str, problem: str
) -> None:
    file = tmp_path / "kept.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(ValueError, match=f"line 1: {problem}"):
        list(read_regressions(file))
