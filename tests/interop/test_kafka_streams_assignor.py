"""Our assignor of streams groups and Kafka's own class give the same results for random
histories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kafka_cluster
from streams_histories import histories, printed

pytestmark = pytest.mark.kafka

PROGRAM = Path(__file__).parent / "java" / "StickyTasks.java"
DEADLINE_S = 120


@pytest.mark.parametrize("seed", [1_000, 2_000])
def test_j40_our_streams_assignor_assigns_every_task_like_kafkas(seed: int) -> None:
    cases = list(histories(seed, 500))
    done = subprocess.run(
        [kafka_cluster.java(), "-cp", kafka_cluster.class_path(), str(PROGRAM)],
        input="".join(f"{case.line()}\n" for case in cases),
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    for case, answer in zip(cases, done.stdout.splitlines(), strict=True):
        assert printed(case.assigned()) == answer, case.line()
