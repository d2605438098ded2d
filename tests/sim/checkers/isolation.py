"""Readers of committed records never get records of aborted or open transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.sim.checkers.attempts import Attempt, Logs, values_of


def check_isolation(attempts: Iterable[Attempt], committed: Logs) -> Iterator[str]:
    """Yield violations. `committed`: the records that a reader of committed records gets."""
    owners = {value: attempt for attempt in attempts for value in attempt.values}
    for value, places in values_of(committed).items():
        owner = owners.get(value)
        if owner is None:
            yield f"{value!r} at {places[0]} was never sent"
        elif not owner.may_commit:
            yield f"{value!r} at {places[0]} is of {owner}, which nobody has committed"
