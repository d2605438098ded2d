"""Java's regular expressions, translated for Python's matcher, and for RE2.

The translation keeps the meaning: classes of characters are those of ASCII, a line ends at five
characters and one pair of them. What has no counterpart is refused with its name.

Python's matcher tries alternatives one after the other, as Java's, and some expressions take it an
exponential time. RE2 (the package google-re2) takes a time that is at most proportional to the
length of the text, but has no counterpart for some expressions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from odradek_protocol.lazy_tuple import NamedTuple

#: Java's line ends; `.` matches none of them, and `$` stands before the last one.
LINE_ENDS = "\n\r\x85\u2028\u2029"
_ANY = f"[^{LINE_ENDS}]"
_AT_END = rf"(?=(?:\r\n|[{LINE_ENDS}])?\Z)(?<!\r(?=\n))"


class _Dialect(NamedTuple):
    """The parts of another syntax for `.` and `$` of Java, and for the escapes outside and inside
    of a class of characters."""

    any: str
    at_end: str
    escapes: Mapping[str, str]
    in_class: Mapping[str, str]


def _alike(characters: str) -> dict[str, str]:
    """Escapes that are written alike and mean the same."""
    return {each: "\\" + each for each in characters}


_PYTHON_ESCAPES = {
    **_alike("dDwWsSbBtnrfaA\\0123456789xu"),
    "e": r"\x1b",
    "z": r"\Z",
    "Z": _AT_END,
}
_PYTHON = _Dialect(_ANY, _AT_END, _PYTHON_ESCAPES, _PYTHON_ESCAPES)
#: `$` is only translated at the end of an expression; see `Linear`.
_RE2 = _Dialect(
    _ANY,
    r"\z",
    {
        # \B is left out: RE2 finds it between the bytes of a character.
        **_alike("dDwWbtnrfaA\\x"),
        "e": r"\x1b",
        "z": r"\z",
        "s": "[[:space:]]",
        "S": "[[:^space:]]",
    },
    {**_alike("dDwWtnrfa\\x"), "e": r"\x1b", "s": "[:space:]", "S": "[:^space:]"},
)
_RE2_FIRST = _RE2._replace(at_end=rf"()(?:\r\n|[{LINE_ENDS}])?\z")
_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\(?P<escaped>.)|\(\?(?P<group><(?![=!])|[=!:>]|<[=!]|[a-zA-Z-]*[:)])"
    r"|(?P<class>\[)|(?P<odd>\(\?|\{(?!\d+(?:,\d*)?\}))|(?P<other>.)",
    re.DOTALL,
)


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression in Java's syntax. Raises ValueError that names the fault."""
    try:
        return re.compile(_translated(pattern, _PYTHON), re.ASCII)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None


class Linear(NamedTuple):
    """An expression for RE2, which finds it in UTF-8. `whole`: `$` only finds the end of a text.
    `first`: a `$` may also find the place before a line end there; then the line end is a part of
    the match, and the last group, which is one more than the expression has, stands before it."""

    whole: Any
    first: Any


def compile_linear(pattern: str) -> Linear | None:
    """The same expression for RE2; None if RE2 has no counterpart, or is not installed."""
    if "(?i" in pattern or _may_repeat_nothing(pattern):
        # RE2 ignores the case of all letters, and has other groups after a repetition of nothing.
        return None
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return Linear(
            *(
                re2.compile(_translated(pattern, dialect).encode(), options)
                for dialect in (_RE2, _RE2_FIRST)
            )
        )
    except (ValueError, re2.error):
        return None


def _may_repeat_nothing(pattern: str) -> bool:
    parser: Any = re._parser  # type: ignore[attr-defined]

    def repeats(parsed: Any) -> bool:
        if isinstance(parsed, parser.SubPattern):
            for operator, given in parsed:
                is_repeat = operator in (parser.MAX_REPEAT, parser.MIN_REPEAT)
                if is_repeat and given[1] > 1 and given[2].getwidth()[0] == 0:
                    return True
                if repeats(given):
                    return True
        return isinstance(parsed, list | tuple) and any(map(repeats, parsed))

    return repeats(parser.parse(_translated(pattern, _PYTHON), re.ASCII))


def _translated(pattern: str, dialect: _Dialect) -> str:
    made: list[str] = []
    position, dot = 0, dialect.any
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        assert token is not None, "the last alternative matches every character"
        position = token.end()
        if token["quoted"] is not None:
            made.append(re.escape(token["quoted"]))
        elif token["escaped"] is not None:
            made.append(_escape(token["escaped"], dialect.escapes))
        elif token["odd"] is not None:
            raise ValueError(f"{pattern!r} has {token['odd']!r} without what must follow it")
        elif token["class"] is not None:
            position, text = _class(pattern, position, dialect)
            made.append(text)
        elif token["group"] is not None:
            flags = token["group"][:-1]
            if flags.isalpha() and not (flags == "i" or (flags == "s" and not made)):
                raise ValueError(f"{pattern!r} has the flags {token[0]!r}, which are not supported")
            if flags == "s":
                dot = "(?s:.)"
            else:
                made.append("(?P<" if token["group"] == "<" else token[0])
        elif token[0] == "$" and dialect is not _PYTHON and position < len(pattern):
            raise ValueError(f"{pattern!r} has a $ before its end")
        else:
            made.append({".": dot, "$": dialect.at_end}.get(token[0], token[0]))
    return "".join(made)


def _escape(character: str, escapes: Mapping[str, str]) -> str:
    if character in escapes:
        return escapes[character]
    if character.isascii() and character.isalnum():
        raise ValueError(f"\\{character} is not supported in a regular expression here")
    return re.escape(character)


def _class(pattern: str, position: int, dialect: _Dialect) -> tuple[int, str]:
    """(the position behind the class of characters that begins here, its text)."""
    start = position
    made = ["["]
    if pattern.startswith("^", position):
        made.append("^")
        position += 1
    first = position
    while position < len(pattern):
        character = pattern[position]
        if character == "]" and position > first:
            return position + 1, "".join(made) + "]"
        if character == "[" or pattern.startswith("&&", position):
            raise ValueError(
                f"{pattern[start - 1 :]!r}: unions and intersections of classes of characters are not"
                " supported"
            )
        if character == "\\":
            position += 1
            made.append(_escape(pattern[position : position + 1], dialect.in_class))
        else:
            # At the beginning, and twice in a row, these signs are warnings of Python.
            plain = position == first or pattern[position - 1] == character
            made.append("\\" + character if character in "~|-" and plain else character)
        position += 1
    raise ValueError(f"{pattern!r} has a class of characters without an end")
