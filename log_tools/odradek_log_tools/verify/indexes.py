"""The check of a segment's indexes against its batches (L-02, L-03).

Both indexes are read along with the batches, one entry at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek_broker.platform.seams import File
from odradek_log_tools.dump import OFFSET_ENTRY, TIME_ENTRY, entries
from odradek_log_tools.segment_file import Damaged
from odradek_protocol.records.batch import BatchHeader

Problem = Callable[[str], None]


class OffsetIndexCheck:
    """The check of an offset index. Call `batch` with every batch, then `finish`. `problem` is
    called with the first fault."""

    def __init__(self, file: File, base_offset: int, problem: Problem) -> None:
        self._entries = _ascending(entries(file, OFFSET_ENTRY), ("offset", "position"))
        self._base_offset = base_offset
        self._problem = problem
        self._next: tuple[int, ...] | None = None
        self._advance()

    def _advance(self) -> None:
        try:
            self._next = next(self._entries, None)
        except Damaged as damage:
            self._stop(str(damage))

    def _stop(self, problem: str) -> None:
        self._problem(problem)
        self._entries, self._next = iter(()), None

    def batch(self, position: int, header: BatchHeader) -> None:
        """Check the next batch of the segment."""
        while self._next is not None and self._next[1] <= position:
            offset = self._base_offset + self._next[0]
            if self._next[1] < position:
                self._stop(f"the entry of offset {offset} points into a batch, at {self._next[1]}")
            elif offset < header.base_offset:
                self._stop(
                    f"the entry of offset {offset} points to the batch of offset"
                    f" {header.base_offset}, at {position}"
                )
            else:
                self._advance()

    def finish(self, next_offset: int) -> None:
        """End the check after the last batch. `next_offset`: the offset after the segment."""
        if self._next is not None:
            self._stop(f"an entry points past the last batch, to {self._next[1]}")


class TimeIndexCheck:
    """The check of a time index. `complete`: the segment's largest timestamp must be in it."""

    def __init__(self, file: File, base_offset: int, problem: Problem, *, complete: bool) -> None:
        self._entries = _ascending(entries(file, TIME_ENTRY), ("timestamp", "offset"))
        self._base_offset = base_offset
        self._problem = problem
        self._complete = complete
        self._stopped = False
        self._last_timestamp = -1
        self._largest = -1
        self._next: tuple[int, ...] | None = None
        self._advance()

    def _advance(self) -> None:
        if self._next is not None:
            self._last_timestamp = self._next[0]
        try:
            self._next = next(self._entries, None)
        except Damaged as damage:
            self._stop(str(damage))

    def _stop(self, problem: str) -> None:
        self._problem(problem)
        self._entries, self._next, self._stopped = iter(()), None, True

    def batch(self, position: int, header: BatchHeader) -> None:
        """Check the next batch of the segment."""
        before = self._largest
        self._largest = max(self._largest, header.max_timestamp)
        while self._next is not None:
            timestamp, relative = self._next
            offset = self._base_offset + relative
            if offset > header.last_offset:
                return
            # The offset of an entry is the last offset of a batch, or the offset of a record inside
            # it.
            newest = self._largest if offset == header.last_offset else before
            if newest > timestamp:
                self._stop(
                    f"the entry of time {timestamp} says that nothing newer is below offset"
                    f" {offset}, but there is {newest}"
                )
                return
            self._advance()

    def finish(self, next_offset: int) -> None:
        """End the check after the last batch. `next_offset`: the offset after the segment."""
        if self._next is not None:
            self._stop(f"an entry names offset {self._base_offset + self._next[1]}, after the end")
        elif self._complete and not self._stopped and self._last_timestamp != self._largest:
            self._stop(f"it ends with time {self._last_timestamp}, the segment has {self._largest}")


def _ascending(
    found: Iterator[tuple[int, ...]], names: tuple[str, str]
) -> Iterator[tuple[int, ...]]:
    """The entries of an index. Raises Damaged if the first number does not increase from entry to
    entry, or if the second number decreases."""
    before: tuple[int, ...] = (-1, -1)
    for number, entry in enumerate(found):
        if entry[0] <= before[0] or entry[1] < max(before[1], 0):
            raise Damaged(
                number,
                f"entry {number} with {names[0]} {entry[0]} and {names[1]} {entry[1]} does not"
                f" follow one with {before[0]} and {before[1]}",
            )
        before = entry
        yield entry
