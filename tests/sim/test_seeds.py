"""Seeds: the same one gives the same run, those kept here pass, and known bugs are caught."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from odradek.simulation.faults import Fault
from odradek.simulation.mutants import MUTANTS
from odradek.simulation.run import faults_of, run_seed
from odradek.simulation.shrink import shrink
from odradek.simulation.workloads import WORKLOADS

SEEDS = range(1, 6)
_ONE = ("--seed", "2", "--trace")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_d10_nothing_is_violated(workload: str) -> None:
    for seed in SEEDS:
        result = run_seed(workload, seed)
        assert result.violations == [], (seed, result.faults)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_d10_a_seed_gives_the_same_trace_whatever_the_hashes(workload: str) -> None:
    """Two processes, other hash seeds, one text."""
    traces = set()
    for hash_seed in ("0", "1234"):
        done = subprocess.run(
            [sys.executable, *f"-m odradek.simulation --workload {workload}".split(), *_ONE],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            timeout=120,
            check=True,
        )
        traces.add((done.stdout, done.stderr))
    assert len(traces) == 1
    assert b"FAULT" in traces.pop()[0]


def test_d10_a_mutant_is_caught_and_its_run_made_small() -> None:
    mutant = MUTANTS["sequences and duplicates that nobody checks"]
    with mutant.patched():
        result = run_seed(mutant.workload, mutant.seed)
        assert result.violations
        small = shrink(result)
    assert small.violations
    assert set(small.faults) <= set(result.faults)
    assert run_seed(mutant.workload, mutant.seed).violations == []


def test_faults_are_drawn_from_the_seed_alone() -> None:
    assert faults_of("produce", 3) == faults_of("produce", 3)
    assert faults_of("produce", 3) != faults_of("produce", 4)
    assert all(isinstance(fault, Fault) for fault in faults_of("produce", 3))
