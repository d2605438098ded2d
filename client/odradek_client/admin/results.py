"""The results of calls about many topics, partitions, groups or brokers."""

from __future__ import annotations

from typing import TypeVar

from odradek_client.errors import OdradekError

K = TypeVar("K")
V = TypeVar("V")

#: Item -> its result or its error.
Outcomes = dict[K, V | OdradekError]


class Results(dict[K, V]):
    """The results, one for each item; `errors` has the failed items, if their errors were not
    raised."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[K, OdradekError] = {}


def settle(
    results: Results[K, V], errors: dict[K, OdradekError], raise_errors: bool
) -> Results[K, V]:
    """Results and errors together, or the first error with the others in its notes."""
    if raise_errors and errors:
        first, *others = errors.values()
        for other in others:
            first.add_note(f"also: {other}")
        raise first
    results.errors = errors
    return results
