"""The program of docs/use/share-groups.md prints what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from odradek.broker import SubprocessBroker
from snippets import snippets

PAGE = Path(__file__).parents[2] / "docs" / "use" / "share-groups.md"
PATIENCE_S = 120


def test_the_work_queue_does_what_the_page_says() -> None:
    (program,) = [
        each for each in snippets(PAGE.read_text("utf-8"), PAGE.name) if each.language == "python"
    ]
    with SubprocessBroker() as broker:
        done = subprocess.run(
            [sys.executable, "-c", program.code.replace("127.0.0.1:9092", broker.bootstrap)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['1 at attempt 1', '2 at attempt 2', 'rejected']\n"
