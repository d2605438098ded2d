"""Programs in Go, Node and Java that are built and run in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 300
#: A program that prints this wants the test to do something, and waits for a line from it.
WANTED = "wanted: "


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


def converse(
    *command: str, folder: Path, do: Callable[[str], None], deadline_s: float = DEADLINE_S
) -> list[str]:
    """Run a command, and do what it wants meanwhile. Returns the other lines that it prints; fails
    the test if it ends with an error.

    `do` gets what stands behind `wanted: ` in a line; then the program gets an empty line.
    """
    errors = folder / "errors.txt"
    printed: list[str] = []
    with errors.open("wb") as output:
        program = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    limit = threading.Timer(deadline_s, program.kill)
    limit.start()
    try:
        assert program.stdin is not None and program.stdout is not None
        for line in program.stdout:
            if line.startswith(WANTED):
                do(line.removeprefix(WANTED).strip())
                program.stdin.write("\n")
                program.stdin.flush()
            else:
                printed.append(line.rstrip("\n"))
        code = program.wait(DEADLINE_S)
    finally:
        limit.cancel()
        program.kill()
        program.wait(DEADLINE_S)
    assert code == 0, f"ended with {code}: {printed[-20:]}\n{errors.read_text()[-4000:]}"
    return printed
