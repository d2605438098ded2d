"""Programs in Go, Node, Rust, Java and Python, built and run in a given folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

DEADLINE_S = 300
#: A program prints this before a request to the test, and then waits for a line on its standard
#: input.
WANTED = "wanted: "
#: The exit code of a command that was killed at its deadline.
LATE = -9


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
    """Run a command, and carry out the requests that it prints.

    Returns the other lines that it prints; fails the test if it ends with an error.
    """
    done = answered(command, folder, do, deadline_s=deadline_s)
    printed = done.stdout.splitlines()
    assert done.returncode == 0, f"ended with {done.returncode}: {printed[-20:]}\n{done.stderr}"
    return printed


def answered(
    command: Sequence[str | Path],
    folder: Path,
    do: Callable[[str], None],
    environment: Mapping[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command, and carry out the requests that it prints.

    `do` is called with the text after `wanted: ` in a line; then the program gets an empty line.
    The result has the other lines as output. At the end all processes of the command are killed. A
    command that exceeds the deadline has the exit code LATE.
    """
    printed: list[str] = []
    late = threading.Event()
    with (folder / "errors.txt").open("w+", encoding="utf-8", errors="replace") as errors:
        program = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
            start_new_session=True,
        )

        def stop() -> None:
            late.set()
            _kill_all(program)

        limit = threading.Timer(deadline_s, stop)
        limit.start()
        try:
            assert program.stdin is not None and program.stdout is not None
            for line in program.stdout:
                if line.startswith(WANTED):
                    do(line.removeprefix(WANTED).strip())
                    # The program may have ended before the answer.
                    with contextlib.suppress(BrokenPipeError):
                        program.stdin.write("\n")
                        program.stdin.flush()
                else:
                    printed.append(line)
            code = program.wait(DEADLINE_S)
        finally:
            limit.cancel()
            _kill_all(program)
            program.wait(DEADLINE_S)
        errors.seek(0)
        told = errors.read()
    if late.is_set():
        code, told = LATE, f"{told}\nkilled at its deadline"
    return subprocess.CompletedProcess(list(command), code, "".join(printed), told)


def _kill_all(program: subprocess.Popen[str]) -> None:
    """Kill a program that leads a session, and the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
