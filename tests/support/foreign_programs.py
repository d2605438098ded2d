"""Programs in Go, Node and Java that are built and run in a folder of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

DEADLINE_S = 300


def run(*command: str, folder: Path) -> str:
    """Run a command. Returns its output; fails the test if it ends with an error."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "GOFLAGS": "-mod=mod"},
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
