"""Transactions as their clients know them: their records and outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: (offset, value) of readable records, by `topic-partition`, oldest first.
Logs = Mapping[str, Sequence[tuple[int, bytes]]]


@dataclass(slots=True)
class Attempt:
    """One transaction of one client. If a client repeats its work in a new transaction, the new
    attempt has different values.

    `may_commit`: a commit was requested, and may have succeeded. `committed`: the broker
    acknowledged the commit.
    """

    name: str
    values: list[bytes] = field(default_factory=list)
    may_commit: bool = False
    committed: bool = False

    def __str__(self) -> str:
        return f"transaction {self.name}"


def values_of(logs: Logs) -> dict[bytes, list[tuple[str, int]]]:
    """Every value, with its (partition, offset)s."""
    found: dict[bytes, list[tuple[str, int]]] = {}
    for partition, records in logs.items():
        for offset, value in records:
            found.setdefault(value, []).append((partition, offset))
    return found
