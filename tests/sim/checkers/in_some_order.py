"""The answers about one topic are those of some order of the operations, in which an operation
comes after those that had ended when it began, and after the earlier ones of its connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: A topic: its id, and its number of partitions. The id is empty while nobody has been told it.
Topic = tuple[bytes, int]
#: The time of an operation whose end is unknown.
NEVER = 1 << 60
_STEPS_MAX = 30_000


@dataclass(eq=False, slots=True)
class Operation:
    """An operation on a topic: `kind` is create, delete, grow or look. Times are numbers that grow.

    `done`: None if the outcome is unknown; the operation may then take effect until `ended`, or
    not at all. For look, `topic` is what was seen; for create it is the created topic.
    """

    kind: str
    begun: int
    ended: int = NEVER
    count: int = 0
    done: bool | None = None
    topic: Topic | None = None
    #: The operation before this one on its connection.
    after: Operation | None = None

    def applied(self, state: Topic | None) -> Iterator[Topic | None]:
        """The states that the operation may leave."""
        if self.kind == "look":
            if self.topic == state:
                yield state
            elif self.topic and state and not state[0] and state[1] == self.topic[1]:
                yield self.topic
        elif self.kind == "create":
            if self.done is False:
                yield from [state] if state else []
            elif state is None:
                yield self.topic or (b"", self.count)
        elif self.kind == "delete":
            if (state is None) is (self.done is False):
                yield None
        elif self.done is False:
            yield from [state] if state is None or state[1] >= self.count else []
        elif state is not None and state[1] < self.count:
            yield state[0], self.count


def in_some_order(operations: Sequence[Operation]) -> bool:
    """True if there is such an order, or if it would take too long to find out."""
    ordered = sorted(operations, key=lambda each: each.begun)
    numbers = {each: at for at, each in enumerate(ordered)}
    certain = frozenset(at for at, each in enumerate(ordered) if each.done is not None)
    seen: set[tuple[frozenset[int], Topic | None]] = set()
    nothing: tuple[frozenset[int], Topic | None] = (frozenset(range(len(ordered))), None)
    states = [nothing]
    while states and len(seen) < _STEPS_MAX:
        left, state = states.pop()
        if not left & certain:
            return True
        if (left, state) in seen:
            continue
        seen.add((left, state))
        first_end = min(ordered[at].ended for at in left & certain)
        for at in sorted(left, reverse=True):
            each = ordered[at]
            if each.begun > first_end or (
                each.after is not None and numbers.get(each.after) in left & certain
            ):
                continue
            # What is not known to have happened can not happen any more.
            past = {other for other in left - certain if ordered[other].ended < each.begun}
            states += [(left - {at} - past, after) for after in each.applied(state)]
    return len(seen) >= _STEPS_MAX
