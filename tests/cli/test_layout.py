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
def test_a_table_folds_its_widest_columns_to_fit_a_terminal() -> None:
    assert layout.table_lines([["NAME", "VALUE"], ["a", "b c"]]) == ["NAME  VALUE", "a     b c"]
    lines = layout.table_lines([["NAME", "VALUE", "SOURCE"], ["a", "word " * 30, "default"]])
    assert widest(lines) <= 60 and lines[1].endswith("  default")
    assert " ".join(lines).split().count("word") == 30
    assert all(line.startswith(" " * 6 + "word") for line in lines[2:])
    lines = layout.table_lines([["A", "B"], [LONG, LONG[:200]]])
    assert widest(lines) == 60
    assert "".join(lines).count("x") == 500


@pytest.mark.parametrize("available", [40, 60, 80, 130])
@pytest.mark.parametrize("columns", [1, 2, 8, 9, 10, 13])
def test_every_table_fits_a_terminal(
    terminal: None, monkeypatch: pytest.MonkeyPatch, columns: int, available: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(available))
    rows = [["LOG-END-OFFSET"] * columns, ["y" * 100] * columns, ["0"] * columns]
    lines = layout.table_lines(rows)
    assert widest(lines) <= available
    assert "".join(lines).count("y") == 100 * columns


def test_headings_are_folded_at_their_hyphens(
    terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    row = ["orders", "orders", "0", "12345678", "12345679", "1", "c-" + "9" * 40, "/127.0.0.1", "c"]
    lines = layout.table_lines([names.split(), row])
    assert widest(lines) <= 80
    assert [line.split() for line in lines[:3]] == [
        [
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-",
            "LOG-END-",
            "LAG",
            "CONSUMER",
            "HOST",
            "CLIENT-",
        ],
        ["OFFSET", "OFFSET", "-ID", "ID"],
        ["orders", "orders", "0", "12345678", "12345679", "1", "c-999999", "/127.0.0.", "c"],
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
