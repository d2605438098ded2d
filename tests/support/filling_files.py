"""A disk in memory that is full for a while."""

from __future__ import annotations

import errno

from logs import NOW_MS
from odradek.simulation.disk import Failure, MemoryFiles

#: A file system that copies blocks needs room for a truncation too.
NEED_ROOM = {"append", "open", "rename", "truncate"}


class FillingFiles(MemoryFiles):
    """A disk that is full from one operation to another, by their numbers; a refused write may
    store some bytes."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        super().__init__(now_ms)
        self.full = range(0)
        self.refused: list[str] = []

    def trip(self, kind: str, path: str) -> Failure | None:
        number = self.operations
        failure = super().trip(kind, path)
        if failure is None and number in self.full and kind in NEED_ROOM:
            self.refused.append(kind)
            return Failure(kind, code=errno.ENOSPC, torn_bytes=7)
        return failure
