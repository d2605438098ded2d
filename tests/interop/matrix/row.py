"""A row of the matrix: a tool, the program that tries it, and the checks that the program makes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

#: The kinds of brokers.
OURS, KAFKA = "ours", "kafka"
DEADLINE_S = 300
_TOLD = re.compile(r"(ok|failed) (.+?)(?:: (.*))?")
_PROBLEM_CHARACTERS = 2000


class Missing(Exception):
    """A toolchain or a tool is not on this machine; the message says which."""


class Check(NamedTuple):
    """A check that a program made. `problem` is empty if the check passed."""

    name: str
    problem: str = ""


class Place(NamedTuple):
    """A broker to run a row against.

    `name`: a prefix for topics and groups that no other run uses. `folder`: an empty folder.
    `restart` kills the broker (SIGKILL) and returns when it is up again. `kafka`: the address of
    the Apache Kafka; the broker may be this Apache Kafka itself.
    """

    kind: str
    address: str
    name: str
    folder: Path
    restart: Callable[[], None]
    kafka: str


class Row(NamedTuple):
    """A row of the matrix. `what`: what a program does with the tool.

    `get` fetches and builds the tool, or raises Missing. `run` makes the checks. `differs`: the
    reason if our broker's result differs from Kafka's.
    """

    key: str
    tool: str
    version: str
    what: str
    get: Callable[[], Path]
    run: Callable[[Path, Place], Iterable[Check]]
    differs: str = ""


def executed(
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    deadline_s: float = DEADLINE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command. After the deadline the command is killed, and its exit code is -9."""
    arguments = [str(word) for word in command]
    try:
        return subprocess.run(
            arguments,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            input=stdin,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
        )
    except subprocess.TimeoutExpired as late:
        out, err = (
            part.decode(errors="replace") if isinstance(part, bytes) else part or ""
            for part in (late.stdout, late.stderr)
        )
        return subprocess.CompletedProcess(arguments, -9, out, f"{err}\nkilled at its deadline")


def told(done: subprocess.CompletedProcess[str]) -> list[Check]:
    """The checks that a program has printed, one in each line: `ok NAME` or `failed NAME:
    PROBLEM`."""
    checks = [
        Check(found[2], (found[3] or "failed") if found[1] == "failed" else "")
        for found in map(_TOLD.fullmatch, done.stdout.splitlines())
        if found is not None
    ]
    if done.returncode != 0 or not checks:
        last = (done.stdout + done.stderr).strip()[-_PROBLEM_CHARACTERS:]
        checks.append(Check("the program ends well", f"it ended with {done.returncode}: {last}"))
    return checks
