"""Transactions as their clients knew them: what they wrote, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: (offset, value) of what is readable, by `topic-partition`, oldest first.
Logs = Mapping[str, Sequence[tuple[int, bytes]]]


@dataclass(slots=True)
class Attempt:
    """One transaction of one client. Of two that do the same work again each has its own values.

    `may_commit`: somebody has decided to commit it, and may have come through. `committed`: the
    broker said that it is.
    """

    name: str
    values: list[bytes] = field(default_factory=list)
    may_commit: bool = False
    committed: bool = False

    def __str__(self) -> str:
        return f"transaction {self.name}"


def values_of(logs: Logs) -> dict[bytes, list[tuple[str, int]]]:
    """Every value, and the (partition, offset)s where it is."""
    found: dict[bytes, list[tuple[str, int]]] = {}
    for partition, records in logs.items():
        for offset, value in records:
            found.setdefault(value, []).append((partition, offset))
    return found
