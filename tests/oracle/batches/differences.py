"""Batches whose result differs from Kafka's on purpose, with the reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.oracle.differences import differing

#: The maximum number of cases with a deliberate difference.
MOST_CASES = 35


@dataclass(frozen=True)
class Difference:
    """A deliberate difference. `cases` may contain `*`. `error`: our error code."""

    cases: tuple[str, ...]
    error: int
    reason: str


INVALID_RECORD = 87

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        (
            "*: *record length *, gzip",
            "*: length of the last record *, gzip",
            "*: zeros as *, gzip",
        ),
        INVALID_RECORD,
        "Wrong lengths of compressed records: Kafka does not check them, and its own consumer "
        "stops at such a record.",
    ),
    Difference(
        ("*: offset delta*, none",),
        INVALID_RECORD,
        "Offset deltas outside the batch, in uncompressed records: Kafka accepts them, and then "
        "two records of a partition have the same offset.",
    ),
    Difference(
        ("*: varint with bit 32, *",),
        INVALID_RECORD,
        "A number with more bits than its type has: Kafka drops the extra bits, other clients do not.",
    ),
    Difference(
        ("*: gzip, rubbish behind", "*: lz4, rubbish behind"),
        INVALID_RECORD,
        "Bytes after the compressed records: Kafka does not read them, and other clients stop at "
        "them.",
    ),
    Difference(
        ("*: rubbish records, none", "*: length varint of six bytes, none"),
        INVALID_RECORD,
        "A record's length that is not a valid varint: Kafka answers UNKNOWN_SERVER_ERROR.",
    ),
)


@dataclass
class Verdict:
    """The result of a comparison. `lines`: differences without a reason; `used`: the rows that
    explain a difference."""

    lines: list[str] = field(default_factory=list)
    used: set[Difference] = field(default_factory=set)
    explained: int = 0


def compare(theirs: dict[str, dict[str, Any]], ours: dict[str, dict[str, Any]]) -> Verdict:
    """Compare the results case by case."""
    verdict = Verdict()
    for title in sorted(theirs.keys() | ours.keys()):
        one, other = theirs.get(title), ours.get(title)
        if one == other:
            continue
        row = _row(title)
        if row is not None and other is not None and _errors(other) == {row.error}:
            verdict.used.add(row)
            verdict.explained += 1
            continue
        for path, was, now in differing(one, other):
            verdict.lines.append(f"{title} {path}: Kafka {was!r}, ours {now!r}")
    return verdict


def _errors(said: dict[str, Any]) -> set[int]:
    """The error codes of all partitions."""
    return {one["error"] for one in said.get("partitions", [said])}


def _row(title: str) -> Difference | None:
    for row in DIFFERENCES:
        if any(fnmatchcase(title, each) for each in row.cases):
            return row
    return None
