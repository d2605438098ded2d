"""The merge of state batches of a share partition (H-109).

The result is the same as Kafka's, down to the limits of the batches: Kafka goes through the batches
in their order, and finishes a batch when the next one does not touch it. Two batches stay apart if
their states became equal only after the first one was finished.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

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


def merge_into(
    settled: tuple[StateBatch, ...], batches: Sequence[StateBatch], start_offset: int
) -> tuple[tuple[StateBatch, ...], bool]:
    """`merge_batches` of settled batches and others, and true if the result is settled too.

    Only the settled batches that the others may touch are looked at, because a share partition may
    have thousands.
    """
    settled = _from_offset(settled, start_offset)
    if not batches:
        return settled, True
    lowest = min(batch.first_offset for batch in batches) - 1
    highest = max(batch.last_offset for batch in batches) + 1
    begin = bisect_left(settled, lowest, key=_last_offset)
    end = bisect_right(settled, highest, key=_first_offset)
    merged = merge_batches((*settled[begin:end], *batches), start_offset)
    return settled[:begin] + merged + settled[end:], is_settled(merged)


def is_settled(batches: tuple[StateBatch, ...]) -> bool:
    """True if a merge of these batches alone would change nothing."""
    return all(
        before.last_offset < after.first_offset - 1
        or (before.last_offset < after.first_offset and before[2:] != after[2:])
        for before, after in pairwise(batches)
    )


def _from_offset(settled: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
    """Settled batches, cut at the start offset."""
    if start_offset == NO_OFFSET or not settled or settled[0].first_offset >= start_offset:
        return settled
    kept = settled[bisect_left(settled, start_offset, key=_last_offset) :]
    if kept and kept[0].first_offset < start_offset:
        return (kept[0]._replace(first_offset=start_offset), *kept[1:])
    return kept


def _first_offset(batch: StateBatch) -> int:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset


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
    """Divide two batches that meet into batches that do not overlap."""
    (first, end, *kept), (begin, last, *new) = earlier, later
    if kept == new:
        return [(first, max(end, last), earlier[2], earlier[3])]
    if new < kept:
        rest = [(end + 1, last, later[2], later[3])] if last > end else []
        return [earlier, *rest]
    before = [(first, begin - 1, earlier[2], earlier[3])] if first < begin else []
    after = [(last + 1, end, earlier[2], earlier[3])] if end > last else []
    return [*before, later, *after]
