"""The results of each row's last run, and the table of them in docs/compatibility.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.interop.matrix.row import KAFKA, OURS, Check, Row

FILE = Path(__file__).parent / "results.json"


class Result(NamedTuple):
    """A row's result with one broker: the number of passed checks, of all checks, and the names of
    the failed ones."""

    passed: int
    of: int
    failed: tuple[str, ...] = ()

    @classmethod
    def from_checks(cls, checks: Sequence[Check]) -> Self:
        failed = tuple(check.name for check in checks if check.problem)
        return cls(len(checks) - len(failed), len(checks), failed)

    def __str__(self) -> str:
        return f"{self.passed:,} of {self.of:,}"


class Results(NamedTuple):
    """A row's results with both brokers and a version of the tool. `skipped`: the reason if the row
    was skipped."""

    version: str
    ours: Result | None = None
    kafka: Result | None = None
    skipped: str = ""

    @property
    def differ(self) -> bool:
        return self.ours != self.kafka


def load() -> dict[str, Results]:
    """Read the kept results, by row key."""
    kept = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}

    def result(of: dict[str, Any] | None) -> Result | None:
        return None if of is None else Result(of["passed"], of["of"], tuple(of["failed"]))

    return {
        key: Results(
            each["version"],
            result(each.get(OURS)),
            result(each.get(KAFKA)),
            each.get("skipped", ""),
        )
        for key, each in kept.items()
    }


def save(results: Mapping[str, Results]) -> None:
    kept = {}
    for key, each in sorted(results.items()):
        found: dict[str, object] = {"version": each.version}
        if each.skipped:
            found["skipped"] = each.skipped
        for kind, result in ((OURS, each.ours), (KAFKA, each.kafka)):
            if result is not None:
                found[kind] = result._asdict()
        kept[key] = found
    FILE.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The lines of a table with one line for each row of the matrix."""
    yield "| tool | version | what was done | Odradek | Kafka | why they differ |"
    yield "|---|---|---|--:|--:|---|"
    results = load()
    before = ("", "")
    for row in rows:
        found = results[row.key]
        same = (row.tool, row.version) == before
        before = (row.tool, row.version)
        tool, version = ("", "") if same else before
        ours, kafka = (
            f"skipped: {found.skipped}" if result is None else str(result)
            for result in (found.ours, found.kafka)
        )
        reason = row.differs if found.differ else ""
        cells = (tool, version, row.what, ours, kafka, reason)
        yield "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
