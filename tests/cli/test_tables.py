"""Every table of the command line fits a terminal, whatever names and numbers are in it.

The tables are found in the code: each call of `print_table`, `print_rows` and `table_lines`, with
its headings and the columns that it leaves out or folds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek_cli import layout
from odradek_protocol.visible import width

_ROOT = Path(__file__).parents[2]
_PRINTERS = {"print_table": 0, "print_rows": 0, "table_lines": 0}
_HEADING = re.compile(r"[A-Z#][A-Z0-9#()/.-]*( \([A-Z]+\))?|NODE-")
#: Headings of numbers of 64 bits, and of those of 32 bits.
_LONG = re.compile(
    r".*OFFSET|LAG|GONE|RECORDS|NEXT|TARGET-END|SOURCE|TARGET|PRODUCER-ID|AGE-MS|OFFSETS"
)
_INT = re.compile(
    r"PARTITIONS?|#PARTITIONS|#MEMBERS|NODE|PORT|COORDINATOR-ID|LEADER|EPOCH|LEADER-EPOCH|LEFT|MET"
    r"|PUSHES|METRICS|DELIVERIES|REPLICATION-FACTOR|ITERATIONS|RECORDS/S|MB/S|SECONDS|.*-MS"
)
_TIMES = {"ISSUED", "EXPIRES", "ENDS", "TIME"}
#: Columns whose longest cell is known.
_KNOWN = {
    "PERMISSION": "allow", "PATTERN": "prefixed", "OPERATION": "describe-configs",
    "RESOURCE": "transactional-id", "SIZE": "1,023.9 GiB", "FREE": "1,023.9 GiB",
    "OF": "1,023.9 GiB", "MEDIAN-MS": "12345.678", "P95-MS": "12345.678", "P99-MS": "12345.678",
    "MAX-MS": "12345.678",
}  # fmt: skip
_PROSE = {"FOUND", "ORDER", "REASON", "LABELS", "SETTINGS", "ASSIGNMENT"}
_IDS = ("7f9c24e5-3b1a-4a55-9d1c-0123456789ab", "spark-" + "x" * 200, "日本語" * 30)


class Table(NamedTuple):
    where: str
    headings: list[str]
    fitted: dict[str, str]


def _tables() -> Iterator[Table]:
    for room in ("command_line", "mirror", "log_tools"):
        for path in sorted((_ROOT / room).rglob("*.py")):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _tables_of(path.name, function)


def _tables_of(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Table]:
    if function.name in _PRINTERS:
        return
    values = {
        target.id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id not in _PRINTERS:
                continue
            first = node.args[0]
            first = (
                first.elts[0]
                if isinstance(first, ast.List) and node.func.id == "table_lines"
                else first
            )
            fitted = {
                each.arg: " ".join(_texts(each.value, values))
                for each in node.keywords
                if each.arg in ("drop", "folds")
            }
            found = [each for text in _texts(first, values) for each in _names(text)]
            yield Table(f"{name}:{function.name}", found, fitted)


def _texts(node: ast.AST, values: dict[str, ast.expr]) -> list[str]:
    """The texts in an expression, and in the values of the names that it uses."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Name) and node.id in values:
        return _texts(
            values[node.id], {name: value for name, value in values.items() if name != node.id}
        )
    return [text for child in ast.iter_child_nodes(node) for text in _texts(child, values)]


def _names(text: str) -> list[str]:
    return (
        [text]
        if _HEADING.fullmatch(text)
        else [each for each in text.split() if _HEADING.fullmatch(each)]
    )


TABLES = list(_tables())


def _cell(heading: str, row: int, is_setting: bool) -> str:
    if is_setting:
        return ("9223372036854775807", "compact,delete " * 30, _IDS[0])[row]
    if heading in _KNOWN:
        return _KNOWN[heading]
    if _LONG.fullmatch(heading):
        return str(2**63 - 1 - row)
    if _INT.fullmatch(heading):
        return str(2**31 - 1 - row)
    if heading in _TIMES:
        return f"2026-11-30T14:17:4{row}.123Z"
    if heading in _PROSE:
        return f"{2**62 + row} of partition " * 8
    return _IDS[row]


def test_all_tables_of_the_command_line_are_found() -> None:
    assert len(TABLES) > 30
    assert {"groups.py:_print_offsets", "doctor.py:_print", "status.py:status"} <= {
        table.where for table in TABLES
    }
    for where, headings, fitted in TABLES:
        assert headings, where
        for names in fitted.values():
            assert set(names.split()) <= {*headings}, (where, names)


@pytest.mark.parametrize("available", [80, 100, 120])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.where)
def test_a_table_with_hostile_names_and_numbers_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch, table: Table, available: int
) -> None:
    monkeypatch.setattr(layout, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(available))
    where, headings, fitted = table
    is_setting = [where.startswith("configs") and name == "VALUE" for name in headings]
    rows = [list(map(_cell, headings, [row] * len(headings), is_setting)) for row in range(3)]
    lines = layout.table_lines([headings, *rows], **fitted)
    assert max(map(width, lines)) <= available, where
    left_out = re.search(r"\(left out in \d+ columns: (.*)\)", " ".join(lines))
    missing = left_out[1].split(", ") if left_out else []
    assert set(missing) <= set(fitted.get("drop", "").split()), f"{where}: declare what to drop"
    text = "\n".join(lines)
    for row in rows:
        for heading, cell in zip(headings, row, strict=True):
            if heading not in missing and heading not in fitted.get("folds", ""):
                assert not cell.isdigit() or cell in text, f"{where}: {heading} is split"
    for number in re.findall(r"\d{19,}", " ".join(map(" ".join, rows))):
        dropped = [each for each in missing if _LONG.fullmatch(each)]
        assert number in text or dropped, where
    if "folds" not in fitted:
        parts = {part for name in headings for part in re.split(r"[\s-]+", name)}
        body = [line for line in lines if not set(re.split(r"[\s-]+", line)) <= parts | {""}]
        note = next((at for at, line in enumerate(body) if line.startswith("(left out")), len(body))
        assert note == 3, f"{where}: a row is folded"
