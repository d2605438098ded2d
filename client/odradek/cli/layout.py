"""The width of text for people: wrapped lines, and tables that fit a terminal.

In a pipe or file, text has `PIPED_COLUMNS`, and a table keeps each row on one line for grep and
awk.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from odradek_protocol.visible import visible, width

#: The width of lines that do not go to a terminal.
PIPED_COLUMNS = 100
#: The smallest width of wrapped lines; a narrower terminal wraps lines itself.
_COLUMNS_MIN = 40
#: The minimum width of a table's column, in characters.
_CELL_MIN = 12
_GAP = "  "
#: A blank at which `wrap` does not break a line.
NO_BREAK = "\xa0"


def is_terminal() -> bool:
    """True if standard output is a terminal."""
    return sys.stdout.isatty()


def columns() -> int:
    """The width of a line: the terminal's, or `PIPED_COLUMNS` in a pipe or file."""
    if not is_terminal():
        return PIPED_COLUMNS
    return max(shutil.get_terminal_size((PIPED_COLUMNS, 0)).columns, _COLUMNS_MIN)


def wrap(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of `text`. The first line begins with `first`, later lines with `rest` (by default
    blanks as wide as `first`).

    A word is broken only if it is longer than a line.
    """
    blank = " " * width(first) if rest is None else rest
    shown = visible(text, keep=NO_BREAK)
    return _wrapped(shown, columns(), first, blank) or [first.rstrip()]


def _wrapped(text: str, available: int, first: str = "", rest: str = "") -> list[str]:
    """The lines of a text, none of which takes more than `available` columns of the terminal."""
    if width(text) == len(text) and first.isascii():
        return textwrap.wrap(
            text,
            available,
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
        )
    lines: list[str] = []
    line = ""
    for word in filter(None, text.split(" ")):
        start = rest if lines else first
        joined = f"{line} {word}" if line else start + word
        if width(joined) <= available:
            line = joined
            continue
        if line:
            lines.append(line)
        line = rest if lines else first
        for letter in word:
            if line.strip() and width(line + letter) > available:
                lines.append(line)
                line = rest
            line += letter
    return [*lines, line] if line else lines


def fits(widths: Sequence[int]) -> bool:
    """True if a table with columns of these widths can be printed without folding."""
    return not is_terminal() or _table_width(widths) <= columns()


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns, each as wide as its cells need. In a table wider than the terminal, the
    widest columns are folded."""
    rows = [list(map(visible, row)) for row in rows]
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    if fits(widths):
        return [_row(row, widths) for row in rows]
    narrow = _narrowed(widths, columns())
    return [line for row in rows for line in _folded(row, narrow)]


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(map(padded, cells, widths)).rstrip()


def padded(text: str, columns: int) -> str:
    """The text with blanks up to a number of columns of the terminal."""
    return text + " " * (columns - width(text))


def _narrowed(widths: Sequence[int], available: int) -> list[int]:
    """The widths, after the widest columns were narrowed until the table fits or no column can be
    narrowed."""
    narrow = list(widths)
    while (excess := _table_width(narrow) - available) > 0:
        widest = max(narrow)
        if widest <= _CELL_MIN:
            break
        next_widest = max([each for each in narrow if each < widest], default=_CELL_MIN)
        cut = min(excess, widest - max(next_widest, _CELL_MIN))
        narrow[narrow.index(widest)] -= max(cut, 1)
    return narrow


def _folded(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    parts = [
        _wrapped(cell, available) or [""] for cell, available in zip(cells, widths, strict=True)
    ]
    height = max(map(len, parts))
    filled = [[*part, *[""] * (height - len(part))] for part in parts]
    return [_row(line, widths) for line in zip(*filled, strict=True)]
