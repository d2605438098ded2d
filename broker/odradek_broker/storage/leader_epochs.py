"""The start offset of each leader epoch (F-13), as in `leader-epoch-checkpoint`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class LeaderEpochs:
    """(epoch, start offset) pairs, both ascending, in memory. The log writes the file when
    `changed`.

    `latest`: the latest epoch; -1 before the first append.
    """

    __slots__ = ("changed", "entries", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries: list[tuple[int, int]] = []
        self.latest = -1
        for epoch, start_offset in sorted(entries):
            self.assign(epoch, start_offset)
        self.changed = False

    def assign(self, epoch: int, start_offset: int) -> None:
        """Let `epoch` begin at `start_offset`. An older or equal epoch changes nothing."""
        if epoch <= self.latest:
            return
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        self.latest = epoch
        self.changed = True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, the end offset of that epoch); (-1, -1) if there is none
        (F-13).
        """
        at = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if epoch < 0 or at == 0:
            return -1, -1
        end = self.entries[at][1] if at < len(self.entries) else log_end_offset
        return self.entries[at - 1][0], end

    def truncate_end(self, offset: int) -> None:
        """Drop epochs that begin at `offset` or above."""
        while self.entries and self.entries[-1][1] >= offset:
            self.entries.pop()
            self.latest = self.entries[-1][0] if self.entries else -1
            self.changed = True

    def reach_back(self, log_start_offset: int) -> None:
        """Let the epochs begin at the log start. If compaction has removed the records before the
        first known epoch, their epochs are unknown. They count as epoch 0, which ends where the
        first known epoch begins: so no client that has read some of them is told of a truncation.
        """
        if not self.entries or self.entries[0][1] <= log_start_offset:
            return
        if self.entries[0][0] == 0:
            del self.entries[0]
        self.entries.insert(0, (0, log_start_offset))
        self.changed = True

    def truncate_start(self, offset: int) -> None:
        """Drop the epochs that ended at or below `offset`, the new log start. The epoch that
        contains `offset` starts there from now on."""
        while len(self.entries) > 1 and self.entries[1][1] <= offset:
            del self.entries[0]
            self.changed = True
        if self.entries and self.entries[0][1] < offset:
            self.entries[0] = (self.entries[0][0], offset)
            self.changed = True
