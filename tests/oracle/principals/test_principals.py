"""A certificate's name has the principal that Kafka's mapper gives it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from tests.oracle.principals.__main__ import RECORDED
from tests.oracle.principals.cases import NAMES, NOT_SUPPORTED, REFUSED_HERE, RULES

from odradek_broker.config.principal_mapping import NoRuleError, parse_rules, principal_of

_KAFKA: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))


def _ours(rules: str) -> list[str | None] | str:
    try:
        parsed = parse_rules(rules)
    except ValueError:
        return "refused"
    found: list[str | None] = []
    for name in NAMES:
        try:
            found.append(principal_of(parsed, name))
        except NoRuleError:
            found.append(None)
    return found


@pytest.mark.parametrize("with_re2", [True, False])
def test_n21_every_rule_maps_every_name_as_kafka(
    monkeypatch: pytest.MonkeyPatch, with_re2: bool
) -> None:
    if not with_re2:
        monkeypatch.setitem(sys.modules, "re2", None)
    assert {rules: _ours(rules) for rules in RULES} == {rules: _KAFKA[rules] for rules in RULES}


@pytest.mark.parametrize("rules", [*REFUSED_HERE, *NOT_SUPPORTED])
def test_n21_rules_that_cannot_be_as_kafkas_are_refused_at_the_start(rules: str) -> None:
    assert _KAFKA[rules] != "refused", "a difference that is listed on the page of compatibility"
    assert _ours(rules) == "refused"
