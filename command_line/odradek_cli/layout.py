"""The width of text for people: wrapped lines, and tables that fit a terminal.

In a pipe or file, text has `PIPED_COLUMNS`, and a table keeps each row on one line for grep and
awk.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from odradek_protocol.visible import visible, width

#: The width of lines that do not go to a terminal.
PIPED_COLUMNS = 100
#: The smallest width of wrapped lines; a narrower terminal wraps lines itself.
_COLUMNS_MIN = 40
#: A column of a table is left out before other columns are narrower than this.
_CELL_MIN = 12
#: Numbers, with units or signs, and times: their digits stay together.
_WHOLE = re.compile(r"(?=.{1,26}$)[<>]?\s?[-+]?\d[\d.,:T-]*Z?( ?[A-Za-zµ%/]{1,5})?")
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


def table_lines(rows: Sequence[Sequence[str]], *, drop: str = "", folds: str = "") -> list[str]:
    """Aligned columns, each as wide as its cells need; the first row has the headings.

    In a table wider than the terminal, headings are folded at their hyphens and long cells lose
    their middle, so that each row has one line; numbers and times stay whole. If that is not
    enough, columns are left out, and the last line names them. `drop`: headings in the order in
    which they are left out. `folds`: headings of columns of prose, whose cells are folded instead.
    """
    columns_of = [list(map(visible, column)) for column in zip(*rows, strict=True)]
    needed = [max(map(width, column)) for column in columns_of]
    if fits(needed):
        return [_row(row, needed) for row in zip(*columns_of, strict=True)]
    available, order, dropped = columns(), drop.split(), []
    folded = folds.split()
    fixed, needed = map(
        list, zip(*(_widths(each, each[0] in folded) for each in columns_of), strict=True)
    )
    while len(fixed) > 1 and _table_width(_least(fixed, needed)) > available:
        names = [column[0] for column in columns_of]
        at = next((names.index(name) for name in order if name in names), len(names) - 1)
        dropped.append(names[at])
        del columns_of[at], needed[at], fixed[at]
    widths = _narrowed(fixed, needed, available)
    for at, column in enumerate(columns_of):
        lacking = width(column[0]) - widths[at]
        if 0 < lacking <= available - _table_width(widths):
            widths[at] += lacking
    foldable = [column[0] in folded for column in columns_of]
    heading, *body = zip(*columns_of, strict=True)
    lines = _folded(heading, widths, at_hyphens=True)
    for row in body:
        cells = [
            _divisible(text, most) if folding else shortened(text, most)
            for text, most, folding in zip(row, widths, foldable, strict=True)
        ]
        lines += _folded(cells, widths)
    if dropped:
        lines += wrap(f"(left out in {available} columns: {', '.join(dropped)})")
    return lines


def shortened(text: str, available: int) -> str:
    """A text without its middle, if it takes more than `available` columns of the terminal."""
    if width(text) <= available:
        return text
    head = _fitting(text, available // 2)
    tail = _fitting(reversed(text), available - 1 - width(head))
    return f"{head}…{tail[::-1]}"


def _fitting(letters: Iterable[str], available: int) -> str:
    taken = ""
    for letter in letters:
        available -= width(letter)
        if available < 0:
            break
        taken += letter
    return taken


def _widths(column: Sequence[str], folded: bool) -> tuple[int, int]:
    """The width of what must stay whole, and the width that all cells need. The heading is folded
    before cells are shortened."""
    heads = [width(each) for each in column[0].replace("-", "- ").split()]
    parts = [part for cell in column[1:] for part in (cell.split() if folded else [cell])]
    whole = [width(each) for each in parts if _WHOLE.fullmatch(each)]
    return max(heads + whole, default=0), max([*heads, *map(width, column[1:])], default=0)


def _divisible(text: str, available: int) -> str:
    """The text with blanks at which long lists can be folded."""
    return " ".join(
        word.replace(",", ", ") if width(word) > available else word for word in text.split(" ")
    )


def _least(fixed: Sequence[int], needed: Sequence[int]) -> list[int]:
    return [max(each, min(need, _CELL_MIN)) for each, need in zip(fixed, needed, strict=True)]


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(map(padded, cells, widths)).rstrip()


def padded(text: str, columns: int) -> str:
    """The text with blanks up to a number of columns of the terminal."""
    return text + " " * (columns - width(text))


def _narrowed(fixed: Sequence[int], needed: Sequence[int], available: int) -> list[int]:
    """The widths, at most as large as a limit with which the table fits, or `fixed` if that is
    more. Space that is left goes to the columns that lack least."""
    in_all = available - len(_GAP) * (len(needed) - 1)

    def within(limit: int) -> list[int]:
        return [max(each, min(need, limit)) for each, need in zip(fixed, needed, strict=True)]

    fitting = (limit for limit in range(in_all, 1, -1) if sum(within(limit)) <= in_all)
    narrow = within(next(fitting, 1))
    for at in sorted(range(len(needed)), key=needed.__getitem__):
        narrow[at] += min(needed[at] - narrow[at], max(in_all - sum(narrow), 0))
    return narrow


def _folded(cells: Sequence[str], widths: Sequence[int], *, at_hyphens: bool = False) -> list[str]:
    parts = [
        _wrapped(cell, available, at_hyphens=at_hyphens) or [""]
        for cell, available in zip(cells, widths, strict=True)
    ]
    height = max(map(len, parts))
    filled = [[*part, *[""] * (height - len(part))] for part in parts]
    return [_row(line, widths) for line in zip(*filled, strict=True)]
