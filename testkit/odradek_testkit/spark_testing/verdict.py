"""The comparison of a topic's rows with the expected rows, as multisets, and the difference as
text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: The columns that can be compared, in the order of comparison.
COMPARED = ("key", "value", "headers", "partition")
#: A row is a tuple of its compared columns.
Rows = Counter[tuple[Any, ...]]

_SHOWN = 10
_SHOWN_CHARS = 120


def given_rows(expected: Iterable[Any]) -> tuple[tuple[str, ...], Rows]:
    """(columns, rows) of what a test expects: values, or pairs of key and value.

    Text is encoded in UTF-8. Raises TypeError for other types; raises ValueError for a mixture of
    values and pairs."""
    rows = [as_row(each) for each in expected]
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise ValueError("expected mixes values and (key, value) pairs; give one or the other")
    columns = ("key", "value") if widths == {2} else ("value",)
    return columns, Counter(rows)


def as_row(given: Any) -> tuple[bytes | None, ...]:
    """The bytes of a value, or of a (key, value). Raises TypeError for anything else."""
    if isinstance(given, tuple) and len(given) == 2:
        return as_bytes(given[0]), as_bytes(given[1])
    return (as_bytes(given),)


def as_bytes(given: Any) -> bytes | None:
    """The bytes of a key or value in a record. Raises TypeError for anything else."""
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise TypeError(
        f"{given!r} is no key or value of a record: give str, bytes or None, or (key, value)"
    )


def spark_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Rows:
    """The rows that a query would write, in the form of records."""
    return Counter(tuple(_cell(name, row[name]) for name in columns) for row in rows)


def _cell(name: str, value: Any) -> Any:
    if name in ("key", "value"):
        return as_bytes(value)
    if name == "headers":
        return tuple((each["key"], as_bytes(each["value"])) for each in value or ())
    return value


def differences(found: Rows, expected: Rows) -> list[str]:
    """The rows that are missing, too many, or unexpected; empty if there are none."""
    missing = expected - found
    more = found - expected
    repeated = Counter({row: count for row, count in more.items() if row in expected})
    unexpected = more - repeated
    lines = []
    for rows, what in (
        (missing, "missing"),
        (repeated, "repeated"),
        (unexpected, "there and not expected"),
    ):
        if rows:
            lines.append(f"{rows.total()} {what}:")
            lines += [
                f"  {_shown(row)} ({found[row]} times instead of {expected[row]})"
                for row in sorted(rows, key=repr)[:_SHOWN]
            ]
            if len(rows) > _SHOWN:
                lines.append(f"  and {len(rows) - _SHOWN} more")
    return lines


def _shown(row: tuple[Any, ...]) -> str:
    text = repr(row[0] if len(row) == 1 else row)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
