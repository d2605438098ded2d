"""The assignors by which the leader of a group divides partitions among its members."""

from __future__ import annotations

from collections.abc import Sequence

from odradek_client.consumer.assignors.base import Assignor, GroupMember, MemberAssignment
from odradek_client.consumer.assignors.range import RangeAssignor
from odradek_client.consumer.assignors.round_robin import RoundRobinAssignor
from odradek_client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "BUILT_IN",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "MemberAssignment",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "resolve",
]

BUILT_IN: dict[str, type[Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def resolve(strategies: Sequence[str | Assignor]) -> dict[str, Assignor]:
    """The assignors by name, in order of preference. A strategy is a name or an assignor of the
    application.

    Raises ValueError for an empty list, an unknown name, or two assignors with the same name
    (K-54)."""
    found: dict[str, Assignor] = {}
    for strategy in strategies:
        if isinstance(strategy, str):
            if strategy not in BUILT_IN:
                known = ", ".join(BUILT_IN)
                raise ValueError(
                    f"partition_assignment_strategy: no assignor is called {strategy!r}; "
                    f"there are {known}, or give an Assignor of your own"
                )
            strategy = BUILT_IN[strategy]()
        if strategy.name in found:
            raise ValueError(
                f"partition_assignment_strategy: two assignors are called {strategy.name!r}"
            )
        found[strategy.name] = strategy
    if not found:
        raise ValueError("partition_assignment_strategy: name at least one assignor")
    return found
