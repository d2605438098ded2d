"""Text of strangers for terminals and log lines.

Clients choose the names of groups, members, transactional ids and clients, and the texts of
records. A terminal acts on escape sequences in them, shows the text after U+202E backwards, and
shows nothing for zero-width characters, so two different names may look the same.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_WIDE = frozenset("WF")
_NO_WIDTH = frozenset({"Mn", "Me", "Cf", "Cc"})


def visible(text: str, keep: str = "") -> str:
    """The text with escapes for characters that are not printable: control characters and ends of
    lines, direction marks, zero-width characters, lone surrogates. `keep`: characters that stay,
    such as ends of lines."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def visible_json(text: str) -> str:
    """JSON whose texts have JSON's own escapes for these characters; its ends of lines stay. The
    value is the same."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text
    ).replace("\x7f", "\\u007f")


def json_line(value: Any) -> str:
    """The value as JSON on one line, with letters of all scripts, and without characters that are
    not printable."""
    return visible_json(json.dumps(value, ensure_ascii=False))


def width(text: str) -> int:
    """The number of columns of a terminal that a text takes: two for a wide letter, none for a
    combining mark."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(each) in _NO_WIDTH
        else 2
        if unicodedata.east_asian_width(each) in _WIDE
        else 1
        for each in text
    )
