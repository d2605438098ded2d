"""Files and directories that were renamed and wait to be removed (L-01, L-38).

They wait in a queue ordered by due time, and are removed in the background, one directory at a
time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from odradek_broker.storage.handles import HandleCache

#: The limit of the entries that one call removes. Other due entries wait for the next call.
_ENTRIES_AT_ONCE_MAX = 300
_RETRY_MS = 60_000
_PROBLEMS_MAX = 20


@dataclass(order=True, slots=True)
class _Entry:
    """Files to be removed: `paths` in a directory, or the whole directory if `paths` is None.
    `wanted` returns False once another owner may use the directory's name."""

    due_ms: int
    number: int
    directory: str = field(compare=False)
    paths: Sequence[str] | None = field(compare=False)
    wanted: Callable[[], bool] = field(compare=False)


def _always() -> bool:
    return True


class DeletedFiles:
    """The queue of files and directories to be removed. Everything but the removal itself
    happens on the loop."""

    def __init__(self, handles: HandleCache) -> None:
        self._handles = handles
        self._files = handles.files
        self._queue: list[_Entry] = []
        self._added = 0
        self._busy = False
        self._problems: list[str] = []

    def add_files(
        self, due_ms: int, directory: str, paths: Sequence[str], wanted: Callable[[], bool]
    ) -> None:
        """Remove files of a directory from `due_ms` on (wall clock), if `wanted` then returns True.
        `paths` may grow until then."""
        self._add(due_ms, directory, paths, wanted)

    def add_directory(self, due_ms: int, directory: str) -> None:
        """Remove a directory and all that is in it from `due_ms` on."""
        self._add(due_ms, directory, None, _always)

    def _add(
        self,
        due_ms: int,
        directory: str,
        paths: Sequence[str] | None,
        wanted: Callable[[], bool],
    ) -> None:
        self._added += 1
        heapq.heappush(self._queue, _Entry(due_ms, self._added, directory, paths, wanted))

    def remove_due(self, now_ms: int) -> int:
        """Begin to remove the entries that are due, unless a removal is under way; returns their
        number. Failed removals are tried again later, and are returned by `take_problems`."""
        if self._busy:
            return 0
        due: list[_Entry] = []
        while self._queue and self._queue[0].due_ms <= now_ms and len(due) < _ENTRIES_AT_ONCE_MAX:
            entry = heapq.heappop(self._queue)
            if entry.wanted():
                due.append(entry)
        if due:
            self._begin(due, now_ms)
        return len(due)

    def take_problems(self) -> list[str]:
        """The removals that failed since the last call, as texts."""
        taken, self._problems = self._problems, []
        return taken

    def _begin(self, due: list[_Entry], now_ms: int) -> None:
        failed: list[tuple[_Entry, OSError]] = []

        def work() -> None:
            by_directory: dict[str, list[_Entry]] = {}
            for entry in due:
                by_directory.setdefault(entry.directory, []).append(entry)
            for directory, entries in by_directory.items():
                self._remove(directory, entries, failed)

        def done(problem: Exception | None) -> None:
            self._busy = False
            for entry, error in failed:
                self._again(entry, now_ms, error)
            if problem is not None and not isinstance(problem, InterruptedError):
                raise problem

        self._busy = True
        background = self._handles.background
        if background is not None:
            background(work, done)
        else:
            work()
            done(None)

    def _again(self, entry: _Entry, now_ms: int, error: OSError) -> None:
        self._add(now_ms + _RETRY_MS, entry.directory, entry.paths, entry.wanted)
        if len(self._problems) < _PROBLEMS_MAX:
            self._problems.append(f"deleted files could not be removed: {error}")

    def _remove(
        self, directory: str, entries: list[_Entry], failed: list[tuple[_Entry, OSError]]
    ) -> None:
        """Remove files in the background. The next start removes what is left when this process
        ends.
        """
        entries = [entry for entry in entries if entry.wanted() and not self._handles.halted]
        try:
            if any(entry.paths for entry in entries):
                # After a crash a start concludes from these names which other files also had to be
                # renamed, so the names must be durable first.
                self._files.sync_dir(directory)
        except FileNotFoundError:
            return  # The whole directory was renamed, and is removed later.
        except OSError as problem:
            failed += ((entry, problem) for entry in entries)
            return
        for entry in entries:
            try:
                if entry.paths is None:
                    self._files.remove_tree(directory)
                    continue
                for path in entry.paths:
                    self._files.remove(path)
            except OSError as problem:
                failed.append((entry, problem))
