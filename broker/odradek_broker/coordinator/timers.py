"""The deadlines of a coordinator's core, by name.

The timers read no clock: the owner passes the time to `due`. Setting a name again moves its
deadline. A move to a later time, as with every heartbeat, costs one dictionary write: the heap
entry stays, and is corrected when it is at the top of the heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)

#: A heap is rebuilt if its stale entries exceed the number of deadlines by more than this.
_STALE_MAX = 64


class Timers(Generic[Name]):
    """A set of deadlines in milliseconds of one monotonic clock.

    Equal deadlines are due in the order in which they were set.
    """

    __slots__ = ("_deadlines", "_heap", "_sequence")

    def __init__(self) -> None:
        self._deadlines: dict[Name, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, Name]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, name: Name) -> bool:
        return name in self._deadlines

    def deadline(self, name: Name) -> int | None:
        """The deadline of a name; None if it is not set."""
        found = self._deadlines.get(name)
        return None if found is None else found[0]

    def set(self, name: Name, at_ms: int) -> None:
        """Set the deadline of `name` to `at_ms`; an earlier deadline of `name` is replaced."""
        entry = self._deadlines.get(name)
        self._sequence += 1
        self._deadlines[name] = (at_ms, self._sequence)
        if entry is None or at_ms < entry[0]:
            heapq.heappush(self._heap, (at_ms, self._sequence, name))
            self._rebuild_if_stale()

    def cancel(self, name: Name) -> None:
        """Cancel a deadline; nothing happens if it is not set."""
        self._deadlines.pop(name, None)
        self._rebuild_if_stale()

    def pop_due(self, now_ms: int) -> Name | None:
        """Remove and return the name with the earliest deadline that is due at `now_ms`; None if
        there is none.

        A call returns only one name, because the action for this deadline may cancel the next
        deadline.
        """
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._deadlines[name]
        self._rebuild_if_stale()
        return name

    def next_deadline(self) -> int | None:
        """The earliest deadline; None if nothing is set."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def _drop_stale(self) -> None:
        """Remove stale entries from the top of the heap."""
        heap = self._heap
        while heap:
            at_ms, sequence, name = heap[0]
            entry = self._deadlines.get(name)
            if entry == (at_ms, sequence):
                return
            if entry is None or entry[0] < at_ms:
                # The deadline was cancelled, or set to an earlier time, for which the heap has
                # another entry.
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (*entry, name))

    def _rebuild_if_stale(self) -> None:
        if len(self._heap) > 2 * len(self._deadlines) + _STALE_MAX:
            self._heap = [(*entry, name) for name, entry in self._deadlines.items()]
            heapq.heapify(self._heap)
