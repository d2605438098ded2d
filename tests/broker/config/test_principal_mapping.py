"""ssl.principal.mapping.rules, with the examples of KIP-371 and of Kafka's documentation."""

from __future__ import annotations

import pytest

from odradek_broker.config.broker import BrokerConfigError, parse_config
from odradek_broker.config.principal_mapping import (
    NAME_CHARACTERS_MAX,
    NoRuleError,
    parse_rules,
    principal_of,
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
        ("RULE:(?=CN)(.*a){20}$/x/", _LONG + "!"),
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
        ("(a*)*", False),
        ("a$.*", False),
        ("a++", False),
        ("a\\B.*", False),
    ):
        (made,) = parse_rules(f"RULE:{rule}/x/")
        assert (made.linear is not None) is is_linear, rule


@pytest.mark.parametrize(
    "rules", ["RULE:a", "RULE:(/x/", "RULE:a/$1/", "RULE:a/b/X", "NONE", "DEFAULT DEFAULT"]
)
def test_n21_invalid_mapping_rules_are_refused(rules: str) -> None:
    with pytest.raises(BrokerConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_config({"ssl.principal.mapping.rules": rules})
