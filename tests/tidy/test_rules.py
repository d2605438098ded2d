"""docs/rules is the law: every cited rule exists there, and every rule there has a test with its
number in the name.

The name of a test has the numbers of its rules: `test_p09_...`, or `test_t50e_t50f_...` for two. A
citation in a docstring does not count, because it may be only an explanation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from product_modules import ROOMS

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docs" / "rules"
DESIGN = ROOT / "docs" / "understand" / "design.md"
FOLDERS = (*ROOMS, "benchmarks", "docs", "tests")
SUFFIXES = {".c", ".md", ".py", ".pyi", ".toml"}

#: Rule -> the reason why no test has the number of the rule in its name.
WITHOUT_TEST: dict[str, str] = {}

_WRITTEN = re.compile(r"^- \*\*([^*]+)\*\*", re.MULTILINE)
_RULE = re.compile(r"[A-Z]-\d{2,3}[a-k]?")
#: Any text that looks like the number of a rule, so that mistyped numbers are also found.
_CITED = re.compile(r"\b[A-Z]-\d+[A-Za-z]*\b")
_DECISION_WRITTEN = re.compile(r"^### (D\d+) ", re.MULTILINE)
_DECISION_CITED = re.compile(r"\bD\d+\b")
_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
_IN_NAME = re.compile(r"([a-z])(\d{1,3})([a-k]?)")
#: A row of the table of families: the letters, and the file with their rules.
_FAMILIES = re.compile(r"^\| ([A-Z](?:, [A-Z])*) \|.*\((\w+\.md)\) \|$", re.MULTILINE)


@cache
def _written() -> Counter[str]:
    """The number of times that each rule is defined."""
    return Counter(
        rule
        for path in sorted(RULES.glob("*.md"))
        for rule in _WRITTEN.findall(path.read_text("utf-8"))
    )


@cache
def _decisions() -> frozenset[str]:
    return frozenset(_DECISION_WRITTEN.findall(DESIGN.read_text("utf-8")))


def _texts() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    yield from ROOT.glob("*.py")
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


@cache
def _named_in_tests() -> dict[str, list[str]]:
    """The tests, as file::test, that have the number of each rule or decision in their names."""
    families = {rule[0] for rule in _written()}
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in _TEST.findall(path.read_text("utf-8")):
            for word in name.split("_")[1:]:
                match = _IN_NAME.fullmatch(word)
                if match is None:
                    continue
                letter, number, part = match[1].upper(), int(match[2]), match[3]
                if letter == "D":
                    found.setdefault(f"D{number}{part}", []).append(f"{path.name}::{name}")
                elif letter in families:
                    rule = f"{letter}-{number:02d}{part}"
                    found.setdefault(rule, []).append(f"{path.name}::{name}")
    return found


def _is_written(rule: str) -> bool:
    """True if the rule exists, or if it is defined in parts: T-50 is T-50a, T-50b and so on."""
    return rule in _written() or (rule[-1].isdigit() and f"{rule}a" in _written())


def test_each_rule_is_written_once() -> None:
    assert [rule for rule, times in _written().items() if times > 1] == []


def test_rules_have_numbers() -> None:
    assert [rule for rule in _written() if not _RULE.fullmatch(rule)] == []


def test_the_index_names_the_file_of_each_family() -> None:
    index = {
        letter: file
        for letters, file in _FAMILIES.findall((RULES / "README.md").read_text("utf-8"))
        for letter in letters.split(", ")
    }
    homes = {
        rule[0]: path.name
        for path in RULES.glob("*.md")
        for rule in _WRITTEN.findall(path.read_text("utf-8"))
    }
    assert index == homes
    for path in RULES.glob("*.md"):
        for rule in _WRITTEN.findall(path.read_text("utf-8")):
            assert index[rule[0]] == path.name, f"{rule} is in {path.name}"


def test_cited_rules_exist() -> None:
    unknown = [
        f"{path.relative_to(ROOT)}: {cited}"
        for path in _texts()
        for text in [path.read_text("utf-8")]
        for cited in [*_CITED.findall(text), *_DECISION_CITED.findall(text)]
        if not (_is_written(cited) or cited in _decisions())
    ]
    assert unknown == []


def test_pages_for_users_cite_no_rule() -> None:
    """The check includes the pages of settings, which are generated from the descriptions of the
    settings."""
    pages = [
        ROOT / "README.md",
        *(
            path
            for path in (ROOT / "docs").rglob("*.md")
            if not {"rules", "understand"} & {*path.parts}
        ),
    ]
    named = {
        str(path.relative_to(ROOT)): found
        for path in pages
        if (found := _CITED.findall(path.read_text("utf-8")))
    }
    assert named == {}


def test_no_test_is_named_after_a_missing_rule() -> None:
    unknown = {
        rule: names
        for rule, names in _named_in_tests().items()
        if not (_is_written(rule) or rule in _decisions())
    }
    assert unknown == {}


def test_every_rule_has_a_test_with_its_number() -> None:
    without = sorted(_written().keys() - _named_in_tests().keys() - WITHOUT_TEST.keys())
    assert without == [], (
        "no test bears their numbers; name one test_p09_... for P-09, or say in WITHOUT_TEST why"
        " there cannot be one"
    )


def test_rules_listed_without_a_test_exist_and_have_none() -> None:
    assert set(WITHOUT_TEST) <= set(_written())
    tested = sorted(WITHOUT_TEST.keys() & _named_in_tests().keys())
    assert tested == [], "they have tests by now: take them from the table"
