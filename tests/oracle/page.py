"""The section of docs/compatibility.md about deliberate differences, made from their rows."""

from __future__ import annotations

from pathlib import Path

from tests.oracle.differences import DIFFERENCES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
_BEGIN = "<!-- differences, written by: python -m tests.oracle page -->\n"
_END = "<!-- end of differences -->\n"


def section() -> str:
    """A list with an item for each reason that a row gives."""
    reasons = dict.fromkeys(row.reason for row in DIFFERENCES)
    return "".join(f"- {reason}\n" for reason in reasons)


def page(text: str) -> str:
    """The page with its section made anew. ValueError if it has no place for it."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} needs the lines {_BEGIN!r} and {_END!r}")
    return before + begin + section() + end + after
