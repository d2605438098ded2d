"""The state of the disk under a data directory, as the results of reads and writes show it.

Hooks are called once when writes begin to fail, and once when they work again.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.storage.errors import no_room, out_of_files

_TRIAL_BYTES_MIN = 64 * 1024
_TRIAL_BYTES_MAX = 8 * 1024 * 1024


def _nothing(_: str) -> None:
    pass


class DiskWatch:
    """The state of the disk under a data directory. `problem` is empty while writes work;
    `unreadable` has the partitions whose last read failed, with the reason.

    Hooks, called with a text: `on_failing` with the problem and `on_working` when it is over;
    `on_offline` for every partition that goes offline because of the disk, `on_online` for a
    partition that is online again; `on_unreadable` when reads of a partition begin to fail;
    `on_lost` when the whole directory is given up.
    """

    __slots__ = (
        "_largest_bytes",
        "doubted",
        "failures",
        "on_failing",
        "on_lost",
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
        self.on_lost: Callable[[str], None] = _nothing
        #: True after an error that may mean that the whole directory has failed (L-42).
        self.doubted = False
        #: Failed reads since the start.
        self.read_failures = 0
        self.unreadable: dict[str, str] = {}
        self._largest_bytes = 0

    @property
    def trial_bytes(self) -> int:
        """The size of a trial write: that of the largest failed write, within limits. If the trial
        succeeds, the disk has room again."""
        return min(max(self._largest_bytes, _TRIAL_BYTES_MIN), _TRIAL_BYTES_MAX)

    def failed(self, problem: OSError, size_bytes: int = 0) -> None:
        """Note a failed write of this size. An error because of too many open files is ignored,
        because it is no fault of the disk."""
        if out_of_files(problem):
            return
        self.doubt(problem)
        self.failures += 1
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        if not self.problem:
            self.problem = problem.strerror or str(problem)
            self.on_failing(self.problem)

    def doubt(self, problem: OSError) -> None:
        """Note an error after which the whole directory has to be tried. The error of a full disk
        is ignored, because a full disk can be read."""
        if not out_of_files(problem) and not no_room(problem):
            self.doubted = True

    def took_offline(self, name: str, reason: str, *, is_reported: bool = False) -> None:
        """Note a partition that went offline, or that could not be opened again."""
        self.doubted = True
        if not is_reported:
            self.on_offline(name, reason)

    def lost(self, reason: str) -> None:
        """Give up the whole directory."""
        self.problem = ""
        self.doubted = False
        self.unreadable.clear()
        self.on_lost(reason)

    def read_failed(self, name: str, reason: str) -> None:
        """Note a failed read of a partition. The partition stays online, as writes may work."""
        self.read_failures += 1
        self.doubted = True
        if name not in self.unreadable:
            self.unreadable[name] = reason
            self.on_unreadable(name, reason)

    def works(self) -> None:
        """Called when `trial_bytes` could be written."""
        if self.problem:
            over, self.problem = self.problem, ""
            self._largest_bytes = 0
            self.on_working(over)
