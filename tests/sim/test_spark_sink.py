"""The Spark sink's protocol in the simulator: its checker, and that it needs no Spark."""

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


def test_every_row_of_every_committed_batch_is_there_once() -> None:
    assert list(check_sink_output(BATCHES, (), GOOD)) == []
    (problem,) = check_sink_output(BATCHES, (), {**GOOD, "sink-1": []})
    assert problem == "b'0/1' of batch 0 is nowhere, and nobody was told"
    (problem,) = check_sink_output(BATCHES, (), {**GOOD, "sink-2": [(7, b"1/0")]})
    assert problem.startswith("b'1/0' of batch 1 is there more than once")


def test_rows_of_other_batches_are_not_there() -> None:
    (problem,) = check_sink_output({0: BATCHES[0]}, (), GOOD)
    assert problem == "b'1/0' at ('sink-0', 3) is of no batch that was committed"


def test_rows_that_an_error_has_named_as_lost_may_be_missing_and_not_twice() -> None:
    assert list(check_sink_output(BATCHES, {b"0/1"}, {**GOOD, "sink-1": []})) == []
    assert list(check_sink_output(BATCHES, {b"0/1"}, GOOD)) == []
    assert list(check_sink_output(BATCHES, {b"0/1"}, {**GOOD, "sink-2": [(0, b"0/1")]}))


def test_the_protocol_runs_where_there_is_no_spark() -> None:
    assert "spark-sink" in WORKLOADS
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
