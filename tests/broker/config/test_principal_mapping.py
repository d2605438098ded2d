"""ssl.principal.mapping.rules, with the examples of KIP-371 and of Kafka's documentation."""

from __future__ import annotations

import contextlib
import sys
from re._constants import (  # type: ignore[import-not-found]
    MAX_REPEAT,
    MIN_REPEAT,
    POSSESSIVE_REPEAT,
)
from re._parser import SubPattern, parse  # type: ignore[import-not-found]
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from odradek_broker.config.broker import BrokerConfigError, parse_config
from odradek_broker.config.java_patterns import _PYTHON, _translated, compile_java, repetitions
from odradek_broker.config.principal_mapping import (
    NAME_CHARACTERS_MAX,
    NoRuleError,
    parse_rules,
    principal_of,
)

_SIGNS = (
    "a",
    "(",
    ")",
    "(?:",
    "(?=",
    "|",
    "*",
    "+",
    "?",
    "{2}",
    "{0,}",
    "^",
    "$",
    "\\b",
    "[*]",
    "\\Qa*\\E",
)
RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        (RULES, "CN=duke,OU=ServiceUsers,O=Org,C=DE", "duke"),
        (RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (RULES, "cn=JohnDoe,OU=SME", "johndoe"),
        (RULES, "OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/$1/U", "CN=a", "A"),
        (r"RULE:^CN=(.*)\/x$/$1\/y/", "CN=a/x", "a/y"),
        (r"RULE:^CN=(.*)$/\$1/", "CN=a", "$1"),
        ("RULE:^CN=(\\w+)(,.*)?$/$1/ ,\n DEFAULT", "O=b", "O=b"),
    ],
)
def test_n21_the_first_matching_rule_makes_the_principal(
    rules: str, name: str, principal: str
) -> None:
    assert principal_of(parse_rules(rules), name) == principal


def test_n21_no_rule_splits_a_character_of_a_name() -> None:
    assert principal_of(parse_rules(r"RULE:a|\B|a.*b/x/"), "a\u00e9b") == "x\u00e9b"


def test_n21_a_subject_without_a_matching_rule_has_no_principal() -> None:
    rules = parse_rules("RULE:^CN=(.*?),O=Sun$/$1/")
    for name in ("CN=a,O=Moon", "CN=" + "a" * NAME_CHARACTERS_MAX + ",O=Sun"):
        with pytest.raises(NoRuleError):
            principal_of(rules, name)
    with pytest.raises(NoRuleError):
        principal_of(parse_rules(""), "CN=a")


_LONG = "CN=" + "a" * 4_000


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("RULE:^(.*a){20}$/x/", _LONG + "!"),
        ("RULE:^CN=(a|aa)+$/x/", _LONG + "!"),
        (",".join(RULES.split(",RULE:^.*")[:1]), "CN=" + ",OU=,O=,L=,ST=" * 200),
        ("RULE:(.*?)/$1/", _LONG),
        ("RULE:(?=CN).*.*.*a$/x/", _LONG + "!"),
    ],
)
def test_n57_no_name_in_a_certificate_takes_a_rule_long(rule: str, name: str) -> None:
    """A matcher that tries alternatives one after the other would take years."""
    with pytest.raises(NoRuleError):
        principal_of(parse_rules(rule), name)


def test_n57_rules_are_matched_by_re2_where_it_can() -> None:
    for rule, is_linear in (
        (r"^CN=([^,\s\S]*?),\s*OU=(?<unit>\w+).*$", True),
        ("(?i)cn=a", False),
        ("(?=CN).*", False),
        ("(a)\\1", False),
        ("(^)*a", False),
        ("a$.*", False),
        ("a++", False),
        ("a\\B.*", False),
    ):
        (made,) = parse_rules(f"RULE:{rule}/x/")
        assert (made.linear is not None) is is_linear, rule


#: Rules that would take Python's matcher years for some names. RE2 knows those without a look.
_NESTED = ("(.*a){20}", "(a|aa)+", "(?:a+b)*", "((ab?))+", "(a{2,3}){2}", "(?:x|(a))*", "(a?){30}a")


@pytest.mark.parametrize("with_re2", [True, False])
def test_n57_a_rule_that_could_take_years_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, with_re2: bool
) -> None:
    if not with_re2:
        monkeypatch.setitem(sys.modules, "re2", None)
    for pattern in _NESTED:
        if with_re2 and pattern != "(a?){30}a":
            assert parse_rules(f"RULE:{pattern}/x/")
        for rule in [f"(?=a){pattern}", f"(?i){pattern}", "(a*)*", *[pattern] * (not with_re2)]:
            with pytest.raises(BrokerConfigError, match=r"odradek\[regex\]"):
                parse_config({"ssl.principal.mapping.rules": f"RULE:{rule}/x/"})
    for pattern in (
        "(.*),(.*)",
        "(a|b)?",
        "(ab){2}",
        "(a)(,.*)?",
        "[*+]+(?:b)",
        r"(\QC*|\E)+",
        "(?=a*)b*",
    ):
        assert parse_rules(f"RULE:{pattern}/x/"), pattern


@settings(max_examples=budget.examples(2_000), deadline=None)
@given(st.lists(st.sampled_from(_SIGNS), max_size=9).map("".join))
def test_n21_what_may_be_empty_is_known_of_every_repetition(pattern: str) -> None:
    """As Python's own parser sees it."""
    try:
        compile_java(pattern)
    except ValueError:
        return
    assert repetitions(pattern).of_nothing == _repeats_nothing(parse(_translated(pattern, _PYTHON)))


def _repeats_nothing(parsed: Any) -> bool:
    if isinstance(parsed, SubPattern):
        for operator, given_to in parsed:
            is_repeat = operator in (MAX_REPEAT, MIN_REPEAT, POSSESSIVE_REPEAT)
            if is_repeat and given_to[1] > 1 and given_to[2].getwidth()[0] == 0:
                return True
            if _repeats_nothing(given_to):
                return True
    return isinstance(parsed, list | tuple) and any(map(_repeats_nothing, parsed))


def test_n21_a_reference_takes_as_many_digits_as_make_a_group() -> None:
    for rule, name, applies in (
        (r"(a)\11", "aa1", True),
        (r"(a)\11", "a\t", False),
        (r"(a)\18", "aa8", True),
        (r"(a)\1*", "aaa", True),
        (r"(a)\12+", "aa22", True),
        ("(a)" * 11 + r"\11", "a" * 12, True),
        ("(b)" + "(a)" * 9 + r"\11", "b" + "a" * 9 + "b1", True),
        ("(?<n>b)(?:a)" + r"\21", "ba", False),
        (r"\0101\061\07", "A1\a", True),
        (r"\0477", "'7", True),
        (r"[\0101-C]", "B", True),
    ):
        rules = f"RULE:{rule}/x/,DEFAULT"
        with contextlib.suppress(ValueError):
            assert (principal_of(parse_rules(rules), name) == "x") is applies, rule
            continue
        assert not applies, rule
    for refused in (r"\0", r"\09", r"[\1]", "(a)" * 100 + r"\100"):
        with pytest.raises(ValueError, match="is not supported"):
            parse_rules(f"RULE:{refused}/x/")


@pytest.mark.parametrize(
    "rules", ["RULE:a", "RULE:(/x/", "RULE:a/$1/", "RULE:a/b/X", "NONE", "DEFAULT DEFAULT"]
)
def test_n21_invalid_mapping_rules_are_refused(rules: str) -> None:
    with pytest.raises(BrokerConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_config({"ssl.principal.mapping.rules": rules})
