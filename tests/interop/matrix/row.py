"""A row of the matrix: a tool, the program that tries it, and the checks that the program makes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

#: Kinds of brokers.
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

    `name` is for topics and groups, and no other run has it; `folder` is empty. `restart` kills the
    broker (signal 9) and returns when it is up again. `kafka` is the address of the Apache Kafka,
    which may be this broker.
    """

    kind: str
    address: str
    name: str
    folder: Path
    restart: Callable[[], None]
    kafka: str


class Row(NamedTuple):
    """A row of the table: `what` a program does with a tool.

    `get` gets and builds the tool, or raises Missing; `run` makes the checks. `differs` is the
    reason if our broker's result is another one than Kafka's.
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
    """The ended command. One that exceeds the deadline is killed and has the code -9."""
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
    """The checks that a program printed as `ok NAME` and `failed NAME: PROBLEM`, one on a line."""
    checks = [
        Check(found[2], (found[3] or "failed") if found[1] == "failed" else "")
        for found in map(_TOLD.fullmatch, done.stdout.splitlines())
        if found is not None
    ]
    if done.returncode != 0 or not checks:
        last = (done.stdout + done.stderr).strip()[-_PROBLEM_CHARACTERS:]
        checks.append(Check("the program ends well", f"it ended with {done.returncode}: {last}"))
    return checks
