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
#: The minimum width of a table's column, in characters, if all columns can have it.
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


def _wrapped(
    text: str, available: int, first: str = "", rest: str = "", *, at_hyphens: bool = False
) -> list[str]:
    """The lines of a text, none of which takes more than `available` columns of the terminal."""
    if width(text) == len(text) and first.isascii():
        return textwrap.wrap(
            text,
            available,
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=at_hyphens,
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
    headings (the first row) are folded at their hyphens, and then the widest columns."""
    rows = [list(map(visible, row)) for row in rows]
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    if fits(widths):
        return [_row(row, widths) for row in rows]
    words = [heading.replace("-", "- ").split() for heading in rows[0]]
    cells = zip(words, *rows[1:], strict=True)
    least = [max(map(width, [*heads, *column]), default=0) for heads, *column in cells]
    narrow = _narrowed(least, columns())
    heading = _folded(rows[0], narrow, at_hyphens=True)
    return heading + [line for row in rows[1:] for line in _folded(row, narrow)]


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(map(padded, cells, widths)).rstrip()


def padded(text: str, columns: int) -> str:
    """The text with blanks up to a number of columns of the terminal."""
    return text + " " * (columns - width(text))


def _narrowed(widths: Sequence[int], available: int) -> list[int]:
    """The widths, at most as large as a limit with which the table fits. Space that is left goes to
    the columns that lack least."""
    in_all = available - len(_GAP) * (len(widths) - 1)
    least = max(min(_CELL_MIN, in_all // len(widths)), 1)
    fitting = (
        limit
        for limit in range(in_all, least, -1)
        if sum(min(each, limit) for each in widths) <= in_all
    )
    limit = next(fitting, least)
    narrow = [min(each, limit) for each in widths]
    for at in sorted(range(len(widths)), key=widths.__getitem__):
        narrow[at] += min(widths[at] - narrow[at], max(in_all - sum(narrow), 0))
    return narrow


def _folded(cells: Sequence[str], widths: Sequence[int], *, at_hyphens: bool = False) -> list[str]:
    parts = [
        _wrapped(cell, available, at_hyphens=at_hyphens) or [""]
        for cell, available in zip(cells, widths, strict=True)
    ]
    height = max(map(len, parts))
    filled = [[*part, *[""] * (height - len(part))] for part in parts]
    return [_row(line, widths) for line in zip(*filled, strict=True)]
