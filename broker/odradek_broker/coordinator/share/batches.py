"""The merge of state batches of a share partition (H-109).

The result is the same as Kafka's, also in where a batch ends: Kafka goes through the batches in
their order, and a batch that is out of reach of the next one is finished. So two batches stay apart
if their states became equal after the first was finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from odradek_broker.share_state import StateBatch
from odradek_protocol.constants import NO_OFFSET

#: A batch in the order of the merge: first and last offset, delivery count, delivery state.
_Sorted = tuple[int, int, int, int]


def merge_batches(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Batches without overlaps, sorted, that begin at the start offset or behind it.

    Where batches overlap, the higher delivery count wins, and among equal ones the higher delivery
    state. Batches that touch and are equal in both become one. A batch that ends before it begins
    is dropped.
    """
    pending: list[_Sorted] = []
    for first, last, state, count in batches:
        if start_offset != NO_OFFSET:
            first = max(first, start_offset)
        if first <= last:
            pending.append((first, last, count, state))
    if len(pending) > 1:
        heapify(pending)
        pending = list(_merged(pending))
    return tuple(StateBatch(first, last, state, count) for first, last, count, state in pending)


def _merged(heap: list[_Sorted]) -> Iterator[_Sorted]:
    """The batches of a heap without overlaps, in their order."""
    while heap:
        earlier = heappop(heap)
        if heap and _meets(earlier, heap[0]):
            for piece in _pieces(earlier, heappop(heap)):
                heappush(heap, piece)
        else:
            yield earlier


def _meets(earlier: _Sorted, later: _Sorted) -> bool:
    """True if the batches overlap, or touch and are equal in count and state."""
    if later[0] <= earlier[1]:
        return True
    return later[0] == earlier[1] + 1 and later[2:] == earlier[2:]


def _pieces(earlier: _Sorted, later: _Sorted) -> list[_Sorted]:
    """Two batches that meet as batches that do not overlap."""
    (first, end, *kept), (begin, last, *new) = earlier, later
    if kept == new:
        return [(first, max(end, last), earlier[2], earlier[3])]
    if new < kept:
        rest = [(end + 1, last, later[2], later[3])] if last > end else []
        return [earlier, *rest]
    before = [(first, begin - 1, earlier[2], earlier[3])] if first < begin else []
    after = [(last + 1, end, earlier[2], earlier[3])] if end > last else []
    return [*before, later, *after]
