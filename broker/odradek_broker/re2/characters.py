"""Character classes and assertions of RE2's syntax."""

from __future__ import annotations

from odradek_broker.re2.program import CharacterTest


def is_word(character: str) -> bool:
    """An ASCII letter, a digit or "_"."""
    return character.isascii() and (character.isalnum() or character == "_")


def _is_digit(character: str) -> bool:
    return character.isascii() and character.isdigit()


def _is_space(character: str) -> bool:
    return character in "\t\n\f\r "


def negated(test: CharacterTest) -> CharacterTest:
    """Every character that does not pass the test."""
    return lambda character: not test(character)


#: By the letter of their escape.
PERL_CLASSES: dict[str, CharacterTest] = {
    "d": _is_digit,
    "D": negated(_is_digit),
    "w": is_word,
    "W": negated(is_word),
    "s": _is_space,
    "S": negated(_is_space),
}

#: By their names in `[[:name:]]`.
POSIX_CLASSES: dict[str, CharacterTest] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "digit": _is_digit,
    "lower": lambda c: c.isascii() and c.islower(),
    "upper": lambda c: c.isascii() and c.isupper(),
    "punct": lambda c: c.isascii() and c.isprintable() and not c.isalnum() and c != " ",
    "space": lambda c: c in "\t\n\v\f\r ",
    "word": is_word,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}

#: By the letter of their escape.
CONTROL_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


def at_start(name: str, position: int) -> bool:
    """`^` and `\\A`."""
    return position == 0


def at_end(name: str, position: int) -> bool:
    """`$` and `\\z`."""
    return position == len(name)


def at_boundary(name: str, position: int) -> bool:
    """`\\b`."""
    before = position > 0 and is_word(name[position - 1])
    after = position < len(name) and is_word(name[position])
    return before != after


def not_at_boundary(name: str, position: int) -> bool:
    """`\\B`."""
    return not at_boundary(name, position)
