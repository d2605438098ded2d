"""A disk in memory that is full for a while."""

from __future__ import annotations

from logs import NOW_MS
from odradek_testkit.simulation.disk import MemoryFiles

#: A file system that copies blocks also needs room for a truncation.
NEED_ROOM = {"append", "open", "rename", "truncate"}
#: The number of bytes that a refused write stores.
_WRITTEN_BYTES = 7


class FillingFiles(MemoryFiles):
    """A disk that is full during some of its operations.

    `full`: the numbers of these operations. A refused write may store some bytes.
    """

    def __init__(self, now_ms: int = NOW_MS) -> None:
        super().__init__(now_ms)
        self.full = range(0)
        self.refused: list[str] = []
        self.shortage = self

    def written_before_refusal(self, kind: str, size_bytes: int) -> int | None:
        """See `odradek_testkit.simulation.shortage.Shortage`."""
        # This operation is already counted.
        if self.operations - 1 not in self.full or kind not in NEED_ROOM:
            return None
        self.refused.append(kind)
        return min(_WRITTEN_BYTES, size_bytes)
