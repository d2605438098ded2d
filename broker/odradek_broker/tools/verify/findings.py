"""Findings about a data directory, and their collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

#: Of one file and severity; what comes behind is counted only.
FINDINGS_PER_FILE_MAX = 20


class Severity(IntEnum):
    """Their order is the order of exit codes."""

    NOTE = 0
    """Nothing is wrong; somebody may wonder what it is."""
    RECOVERABLE = 1
    """The broker repairs it or does without it, and loses nothing that was flushed."""
    DAMAGED = 2
    """Somebody has to do something, or records are lost or cannot be read."""


class Finding(NamedTuple):
    """`problem` is what is there, `remedy` what the next start does about it, or what to do."""

    severity: Severity
    path: str
    problem: str
    remedy: str


class Findings:
    """Hands on what is found, in order, not more than so much of one file."""

    def __init__(self, report: Callable[[Finding], None]) -> None:
        self._report = report
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self.worst = Severity.NOTE
        self.counts: Counter[Severity] = Counter()

    def note(self, path: str, problem: str, remedy: str = "") -> None:
        self.add(Severity.NOTE, path, problem, remedy)

    def recoverable(self, path: str, problem: str, remedy: str) -> None:
        self.add(Severity.RECOVERABLE, path, problem, remedy)

    def damaged(self, path: str, problem: str, remedy: str) -> None:
        self.add(Severity.DAMAGED, path, problem, remedy)

    def add(self, severity: Severity, path: str, problem: str, remedy: str) -> None:
        """Take one in."""
        self.worst = max(self.worst, severity)
        self.counts[severity] += 1
        self._counts[path, severity] += 1
        count = self._counts[path, severity]
        if count == FINDINGS_PER_FILE_MAX:
            problem += " (more of this file are counted only)"
        if count <= FINDINGS_PER_FILE_MAX:
            self._report(Finding(severity, path, problem, remedy))
