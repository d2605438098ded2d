"""The width of lines for people, and text wrapped to it."""

from __future__ import annotations

import shutil
import sys
import textwrap

#: Of lines that do not go to a terminal.
PIPED_COLUMNS = 100
#: A narrower terminal wraps by itself.
_COLUMNS_MIN = 40


def columns() -> int:
    """How long a line may be: as wide as the terminal, or `PIPED_COLUMNS` in a pipe or file."""
    if not sys.stdout.isatty():
        return PIPED_COLUMNS
    return max(shutil.get_terminal_size((PIPED_COLUMNS, 0)).columns, _COLUMNS_MIN)


def wrap(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of `text`, behind `first` and then behind `rest` (blanks as wide as `first`).

    Only a word that is longer than a line is broken.
    """
    blank = " " * len(first) if rest is None else rest
    return textwrap.wrap(
        text,
        columns(),
        initial_indent=first,
        subsequent_indent=blank,
        break_on_hyphens=False,
    ) or [first.rstrip()]
