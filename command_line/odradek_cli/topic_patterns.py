"""The selection of topics by regular expressions in commands.

A word with a character that is not allowed in names of topics, such as `*`, is a regular expression
for whole names; any other word is a name. `orders.items` is a name, `orders.*` an expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from odradek_cli.commands import fail

_OF_EXPRESSIONS = frozenset(r"\^$*+?{}[]()|")


def is_pattern(text: str) -> bool:
    """True if a word is a regular expression, and not the name of a topic."""
    return not _OF_EXPRESSIONS.isdisjoint(text)


def pattern_of(words: Iterable[str]) -> str:
    """A single expression that matches every topic that one of the words names or matches. Ends the
    program if a word is an invalid expression."""
    return "|".join(_alternative(word) for word in words)


def _alternative(word: str) -> str:
    if not is_pattern(word):
        return word.replace(".", r"\.")
    try:
        re.compile(word)
    except re.error as error:
        fail(f"{quoted([word])} is no regular expression: {error}", 2)
    return f"(?:{word})"


def matching(words: Iterable[str], there: Iterable[str]) -> list[str]:
    """The topics of `there` that match one of the words, sorted by name. Ends the program for an
    invalid expression."""
    pattern = re.compile(pattern_of(words))
    return sorted(name for name in there if pattern.fullmatch(name))


def quoted(words: Iterable[str]) -> str:
    """The words as a user types them in a shell."""
    return " ".join(f"'{word}'" for word in words)


def nothing_matches(words: list[str]) -> str:
    """The error for expressions that match no topic."""
    hint = ""
    if len(words) == 1 and re.search(r"[\w-]\*$", words[0]):
        start = words[0][:-1]
        hint = f"; it is a regular expression: '{start}.*' is all that begins with {start}"
    return (
        f"no topic matches {quoted(words)}{hint}; `odradek topic list` shows those that there are"
    )
