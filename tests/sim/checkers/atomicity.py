"""Either every record of a transaction is readable exactly once, or no record of the transaction
is readable in any partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.sim.checkers.attempts import Attempt, Logs, values_of


def check_atomicity(attempts: Iterable[Attempt], committed: Logs) -> Iterator[str]:
    """Yield violations. `committed`: the records that a reader of committed records gets when no
    transaction is open."""
    found = values_of(committed)
    for attempt in attempts:
        present = [value for value in attempt.values if value in found]
        missing = [value for value in attempt.values if value not in found]
        if missing and attempt.committed:
            yield f"{attempt} was committed, and {missing[0]!r} is nowhere"
        elif missing and present:
            where = found[present[0]][0]
            yield f"of {attempt} {present[0]!r} is there, at {where}, and {missing[0]!r} is not"
        for value in present:
            if len(found[value]) > 1:
                yield f"{value!r} of {attempt} is there more than once: {found[value]}"
