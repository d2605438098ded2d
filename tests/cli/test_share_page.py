"""The program of docs/use/share-groups.md prints the output that is on the page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.broker import SubprocessBroker
from snippets import snippets

PAGE = Path(__file__).parents[2] / "docs" / "use" / "share-groups.md"
PATIENCE_S = 120


@pytest.mark.full
def test_the_work_queue_program_prints_the_output_of_the_page() -> None:
    blocks = list(snippets(PAGE.read_text("utf-8"), PAGE.name))
    (program,) = [each for each in blocks if each.language == "python"]
    with SubprocessBroker() as broker:
        done = subprocess.run(
            [sys.executable, "-c", program.code.replace("127.0.0.1:9092", broker.bootstrap)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    (printed,) = [each.code for each in blocks if each.code.startswith("1, attempt 1\n")]
    assert done.stdout.strip() == printed.strip()
