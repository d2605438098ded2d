"""The results of calls about many topics, partitions, groups or brokers."""

from __future__ import annotations

from typing import TypeVar

from odradek_client.errors import OdradekError

K = TypeVar("K")
V = TypeVar("V")

#: The result or the error of each item.
Outcomes = dict[K, V | OdradekError]


class Results(dict[K, V]):
    """The results by item. `errors`: the errors by item, if they were not raised."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[K, OdradekError] = {}


def settle(
    results: Results[K, V], errors: dict[K, OdradekError], raise_errors: bool
) -> Results[K, V]:
    """The results, including the errors. With `raise_errors`, raise the first error instead, with
    the other errors in its notes."""
    if raise_errors and errors:
        first, *others = errors.values()
        for other in others:
            first.add_note(f"also: {other}")
        raise first
    results.errors = errors
    return results
