"""Wrapped text, and tables that fit the width of a terminal."""

from __future__ import annotations

import pytest

from odradek_cli import layout
from odradek_protocol.visible import width

LONG = "x" * 300


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 60 columns."""
    monkeypatch.setattr(layout, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")


def widest(lines: list[str]) -> int:
    return max(map(len, lines))


def test_text_is_100_columns_wide_in_a_pipe_and_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert widest(layout.wrap("word " * 90)) == 99
    monkeypatch.setattr(layout, "is_terminal", lambda: True)
    assert widest(layout.wrap("word " * 90)) == 59
    monkeypatch.setenv("COLUMNS", "160")
    assert widest(layout.wrap("word " * 90)) == 159


def test_wrapping_breaks_no_names_at_hyphens_but_words_that_are_too_long() -> None:
    name = "a-" * 40
    assert layout.wrap(f"{'word ' * 10}{name}", "now  ") == [f"now {' word' * 10}", f"     {name}"]
    assert widest(layout.wrap(LONG, "  ")) == 100
    assert layout.wrap("", "now  ") == ["now"]


def test_a_table_in_a_pipe_keeps_a_row_on_a_line() -> None:
    rows = [["NAME", "VALUE", "SOURCE"], ["a", LONG, "default"]]
    assert layout.table_lines(rows) == [
        f"NAME  {'VALUE'.ljust(300)}  SOURCE",
        f"a     {LONG}  default",
    ]


@pytest.mark.usefixtures("terminal")
def test_a_table_shortens_long_cells_in_their_middle_and_folds_prose() -> None:
    assert layout.table_lines([["NAME", "VALUE"], ["a", "b c"]]) == ["NAME  VALUE", "a     b c"]
    rows = [["NAME", "VALUE", "SOURCE"], ["a", "word " * 30, "default"]]
    lines = layout.table_lines(rows, folds="VALUE")
    assert widest(lines) <= 60 and lines[1].endswith("  default")
    assert " ".join(lines).split().count("word") == 30
    assert all(line.startswith(" " * 6 + "word") for line in lines[2:])
    _, row = layout.table_lines([["ID", "LAG"], ["abc" + LONG + "xyz", "9223372036854775807"]])
    assert len(row) == 60
    assert row.startswith("abcxxx") and row.endswith("xxxyz  9223372036854775807") and "x…x" in row


@pytest.mark.usefixtures("terminal")
def test_headings_are_unfolded_while_there_is_room() -> None:
    names = ["GROUP", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"]
    assert layout.table_lines([names, ["payments", "0", "5", "105", "100", "-"]]) == [
        "GROUP     PARTITION  CURRENT-OFFSET  LOG-    LAG  CONSUMER-",
        "                                     END-         ID",
        "                                     OFFSET",
        "payments  0          5               105     100  -",
    ]


@pytest.mark.usefixtures("terminal")
def test_lists_without_blanks_are_folded_at_their_commas() -> None:
    held = ",".join(map(str, range(10_000, 10_050)))
    rows = [["GROUP", "ASSIGNMENT"], ["readers", f"orders({held}), users(3)"]]
    found = " ".join(layout.table_lines(rows, folds="ASSIGNMENT")[1:])
    assert [each for each in range(10_000, 10_050) if str(each) not in found] == []


@pytest.mark.usefixtures("terminal")
def test_columns_are_left_out_in_their_declared_order_and_then_from_the_right() -> None:
    names = ["GROUP", "HOST", "TOPIC", "OFFSET", "CLIENT-ID", "LAG"]
    big = str(2**63 - 1)
    rows = [names, ["a" * 40, "b" * 40, "c" * 40, big, "d" * 40, "7"]]
    lines = layout.table_lines(rows, drop="CLIENT-ID HOST")
    assert lines[0].split() == ["GROUP", "TOPIC", "OFFSET", "LAG"]
    assert len(lines) == 3 and lines[1].split()[2:] == [big, "7"]
    assert lines[2] == "(left out in 60 columns: CLIENT-ID, HOST)"
    assert layout.table_lines([["A"] * 5, [big] * 5])[-1] == "(left out in 60 columns: A, A, A)"


@pytest.mark.parametrize("available", [40, 60, 80, 130])
@pytest.mark.parametrize("columns", [1, 2, 8, 9, 10, 13])
def test_every_table_fits_a_terminal(
    terminal: None, monkeypatch: pytest.MonkeyPatch, columns: int, available: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(available))
    rows = [["LOG-END-OFFSET"] * columns, ["y" * 100] * columns, ["0"] * columns]
    assert widest(layout.table_lines(rows)) <= available


def test_headings_are_folded_at_their_hyphens(
    terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    row = ["orders", "orders", "0", "12345678", "12345679", "1", "c-" + "9" * 40, "/127.0.0.1", "c"]
    lines = layout.table_lines([names.split(), row], drop="HOST")
    assert widest(lines) <= 80
    assert lines == [
        "GROUP   TOPIC   PARTITION  CURRENT-  LOG-END-  LAG  CONSUMER-ID          CLIENT-",
        "                           OFFSET    OFFSET                              ID",
        "orders  orders  0          12345678  12345679  1    c-9999999…999999999  c",
        "(left out in 80 columns: HOST)",
    ]


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    "name", ["日本語" * 20, "e\u0301" * 50, "\u202e" * 9, "\x1b[2J" * 9, "a b\nc"]
)
def test_wide_and_invisible_letters_break_no_table(name: str) -> None:
    rows = [["GROUP", "HOST"], [name, "here"], ["x" * 70, "there"], [f"{name} {name}", "there"]]
    for lines in (layout.table_lines(rows), layout.wrap(f"the group {name} is stable", "now  ")):
        assert max(map(width, lines)) <= 60
        assert all(line.isprintable() for line in lines)
    at = {width(line.partition(" here")[0]) for line in layout.table_lines(rows) if " here" in line}
    at |= {
        width(line.partition(" there")[0]) for line in layout.table_lines(rows) if " there" in line
    }
    assert len(at) == 1


def test_a_table_in_a_pipe_is_aligned_by_columns_of_the_terminal() -> None:
    assert layout.table_lines([["日本", "a"], ["x", "b"]]) == ["日本  a", "x     b"]
