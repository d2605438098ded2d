"""Does the data directory take what is written to it? Who writes tells, people are told of changes.

A full disk refuses each request by itself; what is told here is told once, and once more when
there is room again.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.storage.errors import out_of_files

_TRIAL_BYTES_MIN = 64 * 1024
_TRIAL_BYTES_MAX = 8 * 1024 * 1024


def _nothing(_: str) -> None:
    pass


class DiskWatch:
    """One for a data directory. `problem` is empty while writes work; `unreadable` has the partitions
    whose last read failed, with the reason.

    Hooks, with text for people: `on_failing` with the problem and `on_working` when it is over;
    `on_offline` for every partition that the disk takes away, `on_online` for one that has come back;
    `on_unreadable` when reads of a partition begin to fail.
    """

    __slots__ = (
        "_largest_bytes",
        "failures",
        "on_failing",
        "on_offline",
        "on_online",
        "on_unreadable",
        "on_working",
        "problem",
        "read_failures",
        "unreadable",
    )

    def __init__(self) -> None:
        self.problem = ""
        #: Failed writes since the start.
        self.failures = 0
        self.on_failing: Callable[[str], None] = _nothing
        self.on_working: Callable[[str], None] = _nothing
        self.on_offline: Callable[[str, str], None] = lambda _, __: None
        self.on_online: Callable[[str], None] = _nothing
        self.on_unreadable: Callable[[str, str], None] = lambda _, __: None
        #: Failed reads since the start.
        self.read_failures = 0
        self.unreadable: dict[str, str] = {}
        self._largest_bytes = 0

    @property
    def trial_bytes(self) -> int:
        """How much must fit before the disk is believed to have room again: as much as did not."""
        return min(max(self._largest_bytes, _TRIAL_BYTES_MIN), _TRIAL_BYTES_MAX)

    def failed(self, problem: OSError, size_bytes: int = 0) -> None:
        """A write of so many bytes failed. Too many open files say nothing of the disk."""
        if out_of_files(problem):
            return
        self.failures += 1
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        if not self.problem:
            self.problem = problem.strerror or str(problem)
            self.on_failing(self.problem)

    def read_failed(self, name: str, reason: str) -> None:
        """A read of a partition failed. It says nothing of what is written, so nothing is taken away."""
        self.read_failures += 1
        if name not in self.unreadable:
            self.unreadable[name] = reason
            self.on_unreadable(name, reason)

    def works(self) -> None:
        """`trial_bytes` could be written."""
        if self.problem:
            over, self.problem = self.problem, ""
            self._largest_bytes = 0
            self.on_working(over)
