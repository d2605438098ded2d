"""Java's regular expressions, translated for Python's matcher.

The translation keeps the meaning: classes of characters are those of ASCII, a line ends at five
characters and one pair of them. What has no counterpart is refused with its name.
"""

from __future__ import annotations

import re

#: Java's line ends; `.` matches none of them, and `$` stands before the last one.
_LINE_ENDS = r"\n\r\x85\u2028\u2029"
_ANY = f"[^{_LINE_ENDS}]"
_AT_END = rf"(?=(?:\r\n|[{_LINE_ENDS}])?\Z)(?<!\r(?=\n))"
#: Escapes that are written alike and mean the same.
_SAME = frozenset("dDwWsSbBtnrfaA\\0123456789xu")
_ESCAPES = {"e": r"\x1b", "z": r"\Z", "Z": _AT_END}
_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\(?P<escaped>.)|\(\?(?P<group><(?![=!])|[=!:>]|<[=!]|[a-zA-Z-]*[:)])"
    r"|(?P<class>\[)|(?P<odd>\(\?|\{(?!\d+(?:,\d*)?\}))|(?P<other>.)",
    re.DOTALL,
)


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression in Java's syntax. Raises ValueError that names the fault."""
    made, position, dot = [], 0, _ANY
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        assert token is not None, "the last alternative matches every character"
        position = token.end()
        if token["quoted"] is not None:
            made.append(re.escape(token["quoted"]))
        elif token["escaped"] is not None:
            made.append(_escape(token["escaped"]))
        elif token["odd"] is not None:
            raise ValueError(f"{pattern!r} has {token['odd']!r} without what must follow it")
        elif token["class"] is not None:
            position, text = _class(pattern, position)
            made.append(text)
        elif token["group"] is not None:
            flags = token["group"][:-1]
            if flags.isalpha() and not (flags == "i" or (flags == "s" and not made)):
                raise ValueError(f"{pattern!r} has the flags {token[0]!r}, which are not supported")
            if flags == "s":
                dot = "(?s:.)"
            else:
                made.append("(?P<" if token["group"] == "<" else token[0])
        else:
            made.append({".": dot, "$": _AT_END}.get(token[0], token[0]))
    try:
        return re.compile("".join(made), re.ASCII)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None


def _escape(character: str) -> str:
    if character in _SAME:
        return "\\" + character
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isascii() and character.isalpha():
        raise ValueError(f"\\{character} is not supported in a regular expression here")
    return re.escape(character)


def _class(pattern: str, position: int) -> tuple[int, str]:
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
            made.append(_escape(pattern[position : position + 1]))
        else:
            # At the beginning, and twice in a row, these signs are warnings of Python.
            plain = position == first or pattern[position - 1] == character
            made.append("\\" + character if character in "~|-" and plain else character)
        position += 1
    raise ValueError(f"{pattern!r} has a class of characters without an end")
