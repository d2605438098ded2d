"""Cycles of operations that depend on each other, except those that Kafka's transactions allow.

Operation A comes before operation B by an edge

- ww: in some partition, B's record is the next after A's;
- wr: B read a record of A;
- rw: B wrote to a partition after the last offset that A read there;
- order: A ended before B began.

Kafka does not isolate writes: transactions interleave in a partition, so cycles of ww alone (G0)
are legal, and so are cycles of ww and wr. Markers reach partitions one after the other, and a poll
may stop at any offset: a reader may see a transaction's records in one partition and not yet in
another, so cycles with rw are legal, too. But records become readable only after the commit of
their transaction, and a transaction reads before its own commit: in a cycle of only wr and order,
some operation has read a record before it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise

from tests.sim.checkers.history import Operation, Place

#: (earlier, later), by their places in the history.
Pair = tuple[int, int]


class Edge(Enum):
    """The reason why one operation comes before another."""

    WW = "ww"
    WR = "wr"
    RW = "rw"
    ORDER = "order"


#: A cycle of only these edges is a violation; with any other edge it is legal.
FORBIDDEN = (Edge.WR, Edge.ORDER)


def check_cycles(history: Sequence[Operation]) -> Iterator[str]:
    """Yield each cycle that Kafka does not allow.

    An operation outside of transactions must have only sends, or only polls.
    """
    for cycle in find_cycles(history, FORBIDDEN):
        who = ", ".join(f"number {number} by {history[number].client}" for number in cycle)
        yield f"dependency cycle: of the operations {who} each has read what came after it"


def find_cycles(history: Sequence[Operation], kinds: Iterable[Edge] = Edge) -> list[list[int]]:
    """Cycles of these edges: the strongly connected components with more than one operation.

    The operations of each component are in the order of the history.
    """
    graph: dict[int, dict[int, None]] = {number: {} for number in range(len(history))}
    for kind in kinds:
        for earlier, later in _PAIRS[kind](history):
            if earlier != later:
                graph[earlier][later] = None
    return [sorted(found) for found in components(graph) if len(found) > 1]


def components(graph: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """Strongly connected components (Kosaraju's algorithm)."""
    backwards: dict[int, list[int]] = {node: [] for node in graph}
    for node, followers in graph.items():
        for follower in followers:
            backwards[follower].append(node)
    seen: set[int] = set()
    finished = [node for start in graph for node in _depth_first(graph, start, seen)]
    seen.clear()
    found = [list(_depth_first(backwards, start, seen)) for start in reversed(finished)]
    return [each for each in found if each]


def _depth_first(graph: Mapping[int, Iterable[int]], start: int, seen: set[int]) -> Iterator[int]:
    """Yield the unvisited nodes that can be reached from `start`, each after all nodes reachable
    from it."""
    if start in seen:
        return
    seen.add(start)
    path = [(start, iter(graph[start]))]
    while path:
        node, followers = path[-1]
        following = next((each for each in followers if each not in seen), None)
        if following is None:
            path.pop()
            yield node
        else:
            seen.add(following)
            path.append((following, iter(graph[following])))


# --- edges ----------------------------------------------------------------------------------------


def _ww(history: Sequence[Operation]) -> Iterator[Pair]:
    for written in _written(history).values():
        in_order = [written[offset] for offset in sorted(written)]
        yield from pairwise(in_order)


def _wr(history: Sequence[Operation]) -> Iterator[Pair]:
    writers = {
        send.value: number for number, operation in enumerate(history) for send in operation.sends
    }
    for number, operation in enumerate(history):
        for poll in operation.polls:
            for _, _, value in poll.records:
                if value in writers:
                    yield writers[value], number


def _rw(history: Sequence[Operation]) -> Iterator[Pair]:
    written = _written(history)
    for number, operation in enumerate(history):
        highest: dict[Place, int] = {}
        for poll in operation.polls:
            for place, offset, _ in poll.records:
                highest[place] = max(offset, highest.get(place, offset))
        for place, read in highest.items():
            for offset, writer in written.get(place, {}).items():
                if offset > read:
                    yield number, writer


def _order(history: Sequence[Operation]) -> Iterator[Pair]:
    for number, operation in enumerate(history):
        for later, other in enumerate(history):
            if operation.ended is not None and operation.ended < other.began:
                yield number, later


def _written(history: Sequence[Operation]) -> dict[Place, dict[int, int]]:
    """The operation that wrote each offset, if an acknowledgement or a reader shows the offset."""
    read = {
        value: (place, offset)
        for operation in history
        for poll in operation.polls
        for place, offset, value in poll.records
    }
    written: dict[Place, dict[int, int]] = {}
    for number, operation in enumerate(history):
        for send in operation.sends:
            place, offset = read.get(send.value, (send.place, send.offset))
            if offset is not None:
                written.setdefault(place, {})[offset] = number
    return written


_PAIRS: dict[Edge, Callable[[Sequence[Operation]], Iterator[Pair]]] = {
    Edge.WW: _ww,
    Edge.WR: _wr,
    Edge.RW: _rw,
    Edge.ORDER: _order,
}
