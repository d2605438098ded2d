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


@pytest.mark.parametrize("workload", WORKLOADS)
def test_d10_nothing_is_violated(workload: str) -> None:
    for seed in SEEDS:
        result = run_seed(workload, seed)
        assert result.violations == [], (seed, result.faults)


def test_d10_a_seed_gives_the_same_trace_whatever_the_hashes() -> None:
    """Of every workload: two processes, other hash seeds, one text."""
    running = [
        subprocess.Popen(
            [sys.executable, *["-m", "odradek.simulation", "--seed", "2", "--trace"]],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for hash_seed in ("0", "1234")
    ]
    traces = {process.communicate(timeout=240) for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert len(traces) == 1
    out, _ = traces.pop()
    assert all(f"== {workload}, seed 2".encode() in out for workload in WORKLOADS)
    assert b"FAULT" in out


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
