"""Every numbered rule has a test that bears its number: `test_p09_...`, `test_t50e_t50f_...`.

`RULES` lists the rules of this project by their letter, `UNTESTABLE` those that no test can have, with
the reason. A new family is one line; so is a new rule. Where the text of the rules lies beside this
checkout, the list is held equal to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
REFERENCE = ROOT.parent / "shared" / "reference" / "semantics.md"

#: Letter to numbers: single ones and ranges, as in the rules (50a-50k are eleven rules).
RULES = {
    "A": "01-20",
    "C": "01-05 10-18 20-26 30-34 40-45 50-55 60-70",
    "F": "01-15 20-27",
    "G": "01-07 10 20-32 40-46 50-52 60-65 70-72 80-82 90-91 95-99",
    "K": "01-20 25-26 30-41 50-55",
    "O": "01-18",
    "P": "01-30",
    "R": "01-19 30-32",
    "T": "01-06 10-16 20-25 30-34 40-45 50a-50k 51 55-68",
}
#: Rules of our own, whose text is in docs/.
OUR_RULES = {
    "G": "100-104 110-118 120-125 130-133 140-142 145-146 150-156 160-161",
    "O": "20-23",
    "S": "01-16",
    "T": "70-77",
}

#: Rules that no test can bear the number of, and why.
UNTESTABLE: dict[str, str] = {}

_NUMBER = re.compile(r"(\d{1,3})([a-k]?)")
_IN_NAME = re.compile(r"([a-z])(\d{1,3})([a-k]?)")


def expand(letter: str, numbers: str) -> Iterator[str]:
    """`T`, "50a-50c 51" gives T-50a, T-50b, T-50c, T-51."""
    for part in numbers.split():
        first, _, last = part.partition("-")
        low, high = _NUMBER.fullmatch(first), _NUMBER.fullmatch(last or first)
        assert low is not None and high is not None, f"{letter}: {part!r} is no range of rules"
        if low[2]:
            assert low[1] == high[1], f"{letter}: {part!r} spans two rules with letters"
            for code in range(ord(low[2]), ord(high[2]) + 1):
                yield f"{letter}-{low[1]}{chr(code)}"
        else:
            for number in range(int(low[1]), int(high[1]) + 1):
                yield f"{letter}-{number:02d}"


def _all(table: dict[str, str]) -> list[str]:
    return [rule for letter, numbers in table.items() for rule in expand(letter, numbers)]


@cache
def named_after_rules() -> dict[str, list[str]]:
    """Rule to the tests that name it, as file::test."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(
            r"^\s*(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE
        ):
            for word in name.split("_")[1:]:
                match = _IN_NAME.fullmatch(word)
                if match:
                    rule = f"{match[1].upper()}-{int(match[2]):02d}{match[3]}"
                    found.setdefault(rule, []).append(f"{path.name}::{name}")
    return found


@pytest.mark.parametrize("rule", [*_all(RULES), *_all(OUR_RULES)])
def test_a_rule_has_a_test_with_its_number(rule: str) -> None:
    if rule in UNTESTABLE:
        assert rule not in named_after_rules(), f"{rule} has a test by now; take it from UNTESTABLE"
        return
    assert rule in named_after_rules(), (
        f"no test bears the number of {rule}; name one test_{rule.lower().replace('-', '')}_..., or"
        " say in UNTESTABLE why there cannot be one"
    )


def test_no_test_names_a_rule_that_does_not_exist() -> None:
    known = set(_all(RULES)) | set(_all(OUR_RULES))
    families = set(RULES) | set(OUR_RULES)
    unknown = {
        rule: names
        for rule, names in named_after_rules().items()
        if rule[0] in families and rule not in known and not any(k.startswith(rule) for k in known)
    }
    assert unknown == {}


def test_what_cannot_be_tested_is_a_rule() -> None:
    assert set(UNTESTABLE) <= set(_all(RULES)) | set(_all(OUR_RULES))


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the rules are not beside this checkout")
def test_the_list_of_rules_is_that_of_the_reference() -> None:
    text = REFERENCE.read_text("utf-8")
    written = set(re.findall(r"\*\*([A-Z]-\d+[a-k]?)\*\*", text))
    for letter, numbers in RULES.items():
        assert set(expand(letter, numbers)) == {
            rule for rule in written if rule.startswith(f"{letter}-")
        }
