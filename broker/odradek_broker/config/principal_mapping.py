"""The rules of ssl.principal.mapping.rules, which map the name in a client's certificate to a
principal's name (KIP-371).

A rule applies if its pattern matches the whole name. Then, as in Kafka, everything that the pattern
finds in the name is replaced: `.*` finds the name and the empty text behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from odradek_broker.config.java_patterns import Linear, compile_java, compile_linear, repetitions
from odradek_protocol.lazy_dataclass import dataclass

_DEFAULT = "DEFAULT"
_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"RULE:{_PART}/{_PART}/([LU]?)")
#: A part of a replacement: an escaped character, a group by number or name, or a lone sign.
_REFERENCE = re.compile(r"\\(.)|\$([0-9])|\$\{([a-zA-Z][a-zA-Z0-9]*)\}|([\\$])", re.DOTALL)
#: Longer names are refused. Other connections wait while a name is mapped, so there is a limit for
#: the steps of one rule too, each of some nanoseconds.
NAME_CHARACTERS_MAX = 4096
RULE_STEPS_MAX = 3_000_000
#: The limit of names for patterns that only Python's matcher knows, which may take a time that
#: grows with a high power of the length.
BACKTRACKED_CHARACTERS_MAX = 256

_REMEDY = (
    "RE2 (pip install 'odradek[regex]') takes no longer for it, but has nothing for look-around,"
    " groups that must be equal, possessive repetitions, repetitions of what may be empty, (?i), and"
    " $ before the end"
)

#: A text, or the number of a group.
Piece = str | int


class NoRuleError(ValueError):
    """The error for a name to which no rule applies, so that it has no principal."""


@dataclass(frozen=True)
class MappingRule:
    """A rule of ssl.principal.mapping.rules; without a pattern the name is unchanged. `linear`: the
    pattern for RE2, which is used if there is one."""

    pattern: re.Pattern[str] | None = None
    replacement: tuple[Piece, ...] = ()
    case: str = ""
    linear: Linear | None = None

    def apply(self, name: str) -> str | None:
        """The principal's name; None if the rule does not apply to this name. Raises NoRuleError if
        the rule may take too long for it."""
        if self.pattern is None:
            return name
        if self.linear is not None:
            mapped = self._mapped_linearly(self.linear, self.pattern.groups, name)
        elif len(name) > BACKTRACKED_CHARACTERS_MAX:
            raise _refusal(name)
        else:
            mapped = self._mapped(self.pattern, name)
        if mapped is None:
            return None
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)

    def _mapped(self, pattern: re.Pattern[str], name: str) -> str | None:
        """The name with every match replaced. After an empty match, the next one begins a character
        later, as in Java and not as in Python."""
        if pattern.fullmatch(name) is None:
            return None
        made: list[str] = []
        kept_from = search_from = 0
        while search_from <= len(name) and (match := pattern.search(name, search_from)):
            made += [name[kept_from : match.start()], *self._replaced(match, match[0])]
            kept_from = match.end()
            search_from = kept_from + (match.start() == kept_from)
        return "".join(made) + name[kept_from:]

    def _mapped_linearly(self, linear: Linear, groups: int, name: str) -> str | None:
        """The same by RE2."""
        text = name.encode("utf-8", "surrogatepass")
        steps = linear.whole.programsize * (len(text) + 1)
        if steps > RULE_STEPS_MAX:
            raise _refusal(name)
        if linear.whole.fullmatch(text) is None:
            return None
        made: list[bytes] = []
        kept_from = search_from = 0
        while search_from <= len(text):
            steps += linear.first.programsize * (len(text) - search_from + 1)
            if steps > RULE_STEPS_MAX:
                raise _refusal(name)
            match = linear.first.search(text, search_from)
            if match is None:
                break
            start, end = match.span()
            if linear.first.groups > groups and match.start(groups + 1) >= 0:
                end = match.start(groups + 1)
                if text[end - 1 : end + 1] == b"\r\n":
                    raise _refusal(name)  # for Java, there is nothing between these two
            made += [text[kept_from:start], *self._replaced(match, text[start:end])]
            kept_from = search_from = end
            if start == end:
                search_from += 1
                while text[search_from : search_from + 1] and text[search_from] & 0xC0 == 0x80:
                    search_from += 1
        return (b"".join(made) + text[kept_from:]).decode("utf-8", "surrogatepass")

    def _replaced(self, match: Any, whole: Any) -> list[Any]:
        """The replacement of a match, in parts that are texts or bytes as `whole`, group 0."""
        made: list[Any] = []
        for piece in self.replacement:
            if isinstance(piece, int):
                made.append((match[piece] if piece else whole) or whole[:0])
            else:
                made.append(piece.encode() if isinstance(whole, bytes) else piece)
        return made


def _refusal(name: str) -> NoRuleError:
    return NoRuleError(f"no rule of ssl.principal.mapping.rules is for {name[:200]!r}")


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
    pieces = tuple(_pieces(compiled, replacement))
    linear = compile_linear(pattern)
    if linear is None and repetitions(pattern).nested:
        raise ValueError(
            f"{pattern!r} repeats what has repetitions or alternatives itself, and some names could take"
            f" years; {_REMEDY}"
        )
    return MappingRule(compiled, pieces, case, linear)


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
    raise _refusal(name)
