"""The rules of ssl.principal.mapping.rules, which map the name in a client's certificate to a
principal's name (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from odradek_protocol.lazy_dataclass import dataclass

_DEFAULT = "DEFAULT"
_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"RULE:{_PART}/{_PART}/([LU]?)")
#: "$1" in a replacement, unless the dollar is escaped.
_REFERENCE = re.compile(r"\\(.)|\$(\d)", re.DOTALL)
NAME_CHARACTERS_MAX = 4096


class NoRuleError(ValueError):
    """The error for a name to which no rule applies, so that it has no principal."""


@dataclass(frozen=True)
class MappingRule:
    """A rule of ssl.principal.mapping.rules; without a pattern the name is unchanged."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The principal's name; None if the rule does not apply to this name."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None

        def referred(reference: re.Match[str]) -> str:
            escaped, group = reference.groups()
            return escaped if group is None else match[int(group)] or ""

        mapped = _REFERENCE.sub(referred, self.replacement)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules, in order: "DEFAULT" or "RULE:pattern/replacement/[LU]", separated by commas.
    Raises ValueError."""
    rules, position = [], 0
    text = text.strip() or _DEFAULT
    while position < len(text):
        rest = text[position:]
        match = _RULE.match(rest)
        if match is not None:
            rules.append(_rule(*match.groups()))
            end = match.end()
        elif rest.startswith(_DEFAULT):
            rules.append(MappingRule())
            end = len(_DEFAULT)
        else:
            raise ValueError(f"{rest!r} is no rule")
        between = re.match(r"\s*(,\s*|$)", rest[end:])
        if between is None:
            raise ValueError(f"{rest[end:]!r} follows a rule")
        position += end + between.end()
    return tuple(rules)


def _rule(pattern: str, replacement: str, case: str) -> MappingRule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    numbers = [int(each[2]) for each in _REFERENCE.finditer(replacement) if each[2]]
    if max(numbers, default=0) > compiled.groups:
        raise ValueError(f"{replacement!r} refers to a group that {pattern!r} does not have")
    return MappingRule(compiled, replacement, case)


def principal_of(rules: Sequence[MappingRule], name: str) -> str:
    """The principal's name by the first rule that applies to `name`. Raises NoRuleError if none
    applies, or if `name` is too long."""
    if len(name) <= NAME_CHARACTERS_MAX:
        for rule in rules:
            mapped = rule.apply(name)
            if mapped is not None:
                return mapped
    raise NoRuleError(f"no rule of ssl.principal.mapping.rules is for {name[:200]!r}")
