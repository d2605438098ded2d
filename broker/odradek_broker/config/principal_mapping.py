"""The rules of ssl.principal.mapping.rules, which map the name in a client's certificate to a
principal's name (KIP-371).

A rule applies if its pattern matches the whole name. Then, as in Kafka, everything that the pattern
finds in the name is replaced: `.*` finds the name and the empty text behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from odradek_broker.config.java_patterns import compile_java
from odradek_protocol.lazy_dataclass import dataclass

_DEFAULT = "DEFAULT"
_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"RULE:{_PART}/{_PART}/([LU]?)")
#: A part of a replacement: an escaped character, a group by number or name, or a lone sign.
_REFERENCE = re.compile(r"\\(.)|\$([0-9])|\$\{([a-zA-Z][a-zA-Z0-9]*)\}|([\\$])", re.DOTALL)
#: Longer names are refused, because some patterns take a time that grows with the square of the
#: length or faster, and other connections wait meanwhile.
NAME_CHARACTERS_MAX = 4096

#: A text, or the number of a group.
Piece = str | int


class NoRuleError(ValueError):
    """The error for a name to which no rule applies, so that it has no principal."""


@dataclass(frozen=True)
class MappingRule:
    """A rule of ssl.principal.mapping.rules; without a pattern the name is unchanged."""

    pattern: re.Pattern[str] | None = None
    replacement: tuple[Piece, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The principal's name; None if the rule does not apply to this name."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self._replaced(self.pattern, name)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)

    def _replaced(self, pattern: re.Pattern[str], name: str) -> str:
        """The name with every match replaced. After an empty match, the next one begins a character
        later, as in Java and not as in Python."""
        made: list[str] = []
        kept_from = search_from = 0
        while search_from <= len(name) and (match := pattern.search(name, search_from)):
            made.append(name[kept_from : match.start()])
            made += [
                (match[piece] or "") if isinstance(piece, int) else piece
                for piece in self.replacement
            ]
            kept_from = match.end()
            search_from = kept_from + (match.start() == kept_from)
        return "".join(made) + name[kept_from:]


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules, in order: "DEFAULT" or "RULE:pattern/replacement/[LU]", separated by commas; an
    empty text has none. Raises ValueError."""
    rules, position = [], 0
    text = text.strip()
    while position < len(text):
        rest = text[position:]
        match = _RULE.match(rest)
        end = 0
        if match is not None:
            rules.append(_rule(*match.groups()))
            end = match.end()
        elif rest.startswith(_DEFAULT):
            rules.append(MappingRule())
            end = len(_DEFAULT)
        elif not rest.startswith(","):
            raise ValueError(f"{rest!r} is no rule")
        between = re.match(r"\s*(,\s*|$)", rest[end:])
        if between is None:
            raise ValueError(f"{rest[end:]!r} follows a rule")
        position += end + between.end()
    return tuple(rules)


def _rule(pattern: str, replacement: str, case: str) -> MappingRule:
    compiled = compile_java(pattern)
    return MappingRule(compiled, tuple(_pieces(compiled, replacement)), case)


def _pieces(pattern: re.Pattern[str], replacement: str) -> list[Piece]:
    """The parts of a replacement. Raises ValueError for a part that is none.

    A number takes as many digits as there are groups for. If there is no such group, the first `$5`
    is text, as in Kafka, if the pattern has any group at all. With more of them, or without a
    group, Kafka fails at each connection.
    """
    made: list[Piece] = []
    position = strays = 0
    while match := _REFERENCE.search(replacement, position):
        made.append(replacement[position : match.start()])
        position = match.end()
        escaped, digit, name, sign = match.groups()
        if escaped is not None:
            made.append(escaped)
        elif digit is not None:
            number = int(digit)
            while (more := replacement[position : position + 1]).isdigit() and (
                number * 10 + int(more) <= pattern.groups
            ):
                number = number * 10 + int(more)
                position += 1
            if number > pattern.groups:
                strays += 1
                if strays > 1 or not pattern.groups:
                    raise ValueError(
                        f"{replacement!r} refers to group {number}, which the pattern does not have"
                    )
                made.append(f"${number}")
            else:
                made.append(number)
        elif name in pattern.groupindex:
            made.append(pattern.groupindex[name])
        else:
            raise ValueError(
                f"{replacement!r} has a {sign or '$'} without a group behind it: escape it with a backslash"
            )
    return [*made, replacement[position:]]


def principal_of(rules: Sequence[MappingRule], name: str) -> str:
    """The principal's name by the first rule that applies to `name`. Raises NoRuleError if none
    applies, or if `name` is too long."""
    if len(name) <= NAME_CHARACTERS_MAX:
        for rule in rules:
            mapped = rule.apply(name)
            if mapped is not None:
                return mapped
    raise NoRuleError(f"no rule of ssl.principal.mapping.rules is for {name[:200]!r}")
