"""Java's regular expressions, translated for Python's matcher, and for RE2.

The translation keeps the meaning: classes of characters are those of ASCII, a line ends at five
characters and one pair of them. What has no counterpart is refused with its name.

Python's matcher tries alternatives one after the other, as Java's, and some expressions take it an
exponential time. RE2 (the package google-re2) takes a time that is at most proportional to the
length of the text, but has no counterpart for some expressions.
"""

from __future__ import annotations

import math
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
    **_alike("dDwWsSbBtnrfaA\\xu"),
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
#: An octal number has one to three digits behind the zero.
_ESCAPED = r"0(?:[0-3][0-7]{2}|[0-7]{1,2})|."
_QUANTIFIER = re.compile(
    r"(?:(?P<sign>[*+?])|\{(?P<least>\d+)(?P<open>,)?(?P<most>\d*)\})[+?]?", re.ASCII
)
_IN_CLASS = re.compile(_ESCAPED, re.DOTALL)
#: Python reads three digits as an octal number.
_REFERENCE_DIGITS = 2
_SIGNS: Mapping[str, tuple[int, float]] = {"*": (0, math.inf), "+": (1, math.inf), "?": (0, 1)}
_TOKEN = re.compile(
    rf"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\(?P<escaped>[1-9][0-9]*|{_ESCAPED})|\(\?(?P<group><(?![=!])|[=!:>]|<[=!]|[a-zA-Z-]*[:)])"
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
    if "(?i" in pattern or repetitions(pattern).of_nothing:
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


class Repetitions(NamedTuple):
    """The kinds of repetitions in an expression. `of_nothing`: of something that may be empty;
    `nested`: of something that has a repetition or alternatives, for which a matcher that tries one
    after the other may take an exponential time."""

    of_nothing: bool
    nested: bool


class _Group:
    """An open group: whether an alternative may be empty, whether the present one may be, and
    whether there are repetitions or alternatives in it. `looks`: it looks around."""

    def __init__(self, looks: bool) -> None:
        self.looks = looks
        self.empty = self.varies = False
        self.present_empty = True


def repetitions(pattern: str) -> Repetitions:
    """The repetitions of an expression that `compile_java` accepts."""
    of_nothing = nested = False
    groups, position = [_Group(looks=False)], 0
    while position < len(pattern):
        token = _token(pattern, position)
        position = token.end()
        if token["class"] is not None:
            position, _ = _class(pattern, position, _PYTHON)
        item = _item(token, groups)
        if item is None:
            continue
        empty, varies = item
        count = _QUANTIFIER.match(pattern, position)
        if count is not None:
            position = count.end()
            least, most = _bounds(count)
            of_nothing |= most > 1 and empty
            nested |= most > 1 and varies
            varies |= most > least
            empty |= not least
        groups[-1].present_empty &= empty
        groups[-1].varies |= varies
    return Repetitions(of_nothing, nested)


def _item(token: re.Match[str], groups: list[_Group]) -> tuple[bool, bool] | None:
    """The item that a quantifier behind the token would repeat: whether it may be empty, and
    whether it has repetitions or alternatives. None if the token begins a group or an alternative.
    """
    sign = token["other"]
    if token["group"] is not None or sign == "(":
        if not (token["group"] or "").endswith(")"):
            groups.append(_Group(looks=token["group"] in ("=", "!", "<=", "<!")))
        return None
    if sign == "|":
        groups[-1].empty |= groups[-1].present_empty
        groups[-1].present_empty = groups[-1].varies = True
        return None
    if sign == ")":
        group = groups.pop()
        return group.looks or group.empty or group.present_empty, group.varies
    if token["quoted"] is not None:
        groups[-1].present_empty &= len(token["quoted"]) < 2
        return not token["quoted"], False
    return sign in ("^", "$") or (token["escaped"] or " ")[0] in "bBAzZ123456789", False


def _bounds(count: re.Match[str]) -> tuple[int, float]:
    """The smallest and the largest number of repetitions."""
    if count["sign"]:
        return _SIGNS[count["sign"]]
    least = int(count["least"])
    if count["most"]:
        return least, int(count["most"])
    return least, math.inf if count["open"] else least


def _translated(pattern: str, dialect: _Dialect) -> str:
    made: list[str] = []
    position, dot, groups = 0, dialect.any, 0
    while position < len(pattern):
        token = _token(pattern, position)
        position = token.end()
        groups += token[0] in ("(", "(?<")
        if token["quoted"] is not None:
            made.append(re.escape(token["quoted"]))
        elif token["escaped"] is not None:
            refers = dialect is _PYTHON and token["escaped"][0] in "123456789"
            made.append(
                _reference(token["escaped"], groups)
                if refers
                else _escape(token["escaped"], dialect.escapes)
            )
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


def _token(pattern: str, position: int) -> re.Match[str]:
    token = _TOKEN.match(pattern, position)
    assert token is not None, "the last alternative matches every character"
    return token


def _reference(digits: str, groups: int) -> str:
    """A reference to a group: it takes as many digits as make a group that is there already."""
    end = 1
    while end < len(digits) and int(digits[: end + 1]) <= groups:
        end += 1
    if end > _REFERENCE_DIGITS:
        raise ValueError(f"\\{digits[:end]} is not supported in a regular expression here")
    return rf"(?:\{digits[:end]}){digits[end:]}"


def _escape(character: str, escapes: Mapping[str, str]) -> str:
    if character in escapes:
        return escapes[character]
    if len(character) > 1 and character[0] == "0":
        return f"\\x{int(character, 8):02x}"
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
            escaped = _IN_CLASS.match(pattern, position + 1)
            made.append(_escape(escaped[0] if escaped else "", dialect.in_class))
            position = escaped.end() - 1 if escaped else position
        else:
            # At the beginning, and twice in a row, these signs are warnings of Python.
            plain = position == first or pattern[position - 1] == character
            made.append("\\" + character if character in "~|-" and plain else character)
        position += 1
    raise ValueError(f"{pattern!r} has a class of characters without an end")
