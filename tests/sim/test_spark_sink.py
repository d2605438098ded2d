"""The Spark sink's protocol in the simulator: the checker finds violations, and the protocol runs
without Spark."""

from __future__ import annotations

import subprocess
import sys

from tests.sim.checkers.sink_output import check_sink_output
from tests.sim.workloads import WORKLOADS

BATCHES = {0: [b"0/0", b"0/1"], 1: [b"1/0"]}
GOOD = {"sink-0": [(0, b"0/0"), (3, b"1/0")], "sink-1": [(0, b"0/1")]}

_WITHOUT_SPARK = """
import sys

class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "pandas"):
            raise ImportError(name)

sys.meta_path.insert(0, NoSpark())
from tests.sim.run import run_seed

assert run_seed("spark-sink", 1).violations == []
"""


def test_missing_and_duplicate_rows_of_a_batch_are_violations() -> None:
    assert list(check_sink_output(BATCHES, (), GOOD)) == []
    (problem,) = check_sink_output(BATCHES, (), {**GOOD, "sink-1": []})
    assert problem == "b'0/1' of batch 0 is nowhere, and nobody was told"
    (problem,) = check_sink_output(BATCHES, (), {**GOOD, "sink-2": [(7, b"1/0")]})
    assert problem.startswith("b'1/0' of batch 1 is there more than once")


def test_rows_of_uncommitted_batches_are_a_violation() -> None:
    (problem,) = check_sink_output({0: BATCHES[0]}, (), GOOD)
    assert problem == "b'1/0' at ('sink-0', 3) is of no batch that was committed"


def test_rows_named_as_lost_may_be_missing_but_not_duplicated() -> None:
    assert list(check_sink_output(BATCHES, {b"0/1"}, {**GOOD, "sink-1": []})) == []
    assert list(check_sink_output(BATCHES, {b"0/1"}, GOOD)) == []
    assert list(check_sink_output(BATCHES, {b"0/1"}, {**GOOD, "sink-2": [(0, b"0/1")]}))


def test_the_protocol_of_the_sink_runs_without_spark() -> None:
    assert "spark-sink" in WORKLOADS
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
