"""Findings about a data directory, and their collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum

from odradek_protocol.lazy_tuple import NamedTuple

#: The maximum number of findings that are shown for one file and severity. Further findings are
#: only counted.
FINDINGS_PER_FILE_MAX = 20


class Severity(IntEnum):
    """The severities, in the order of exit codes."""

    NOTE = 0
    """Nothing is wrong: an explanation."""
    RECOVERABLE = 1
    """The broker repairs the file or needs none, and loses nothing that was flushed."""
    DAMAGED = 2
    """The user has to do something, or records are lost or cannot be read."""


class Finding(NamedTuple):
    """A finding. `problem` describes the damage, `remedy` the repair by the next start or by the
    user."""

    severity: Severity
    path: str
    problem: str
    remedy: str


class Findings:
    """Passes each finding to `report` immediately, up to a limit for each file and severity."""

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
        """Add a finding."""
        self.worst = max(self.worst, severity)
        self.counts[severity] += 1
        self._counts[path, severity] += 1
        count = self._counts[path, severity]
        if count == FINDINGS_PER_FILE_MAX:
            problem += " (more of this file are counted only)"
        if count <= FINDINGS_PER_FILE_MAX:
            self._report(Finding(severity, path, problem, remedy))
