"""Regular expressions over topic names (rule G-117), compared with Python's `re` for the syntax
that both support."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from odradek_broker.patterns import (
    MATCH_STEPS_MAX,
    PROGRAM_STEPS_MAX,
    PatternError,
    compile_pattern,
)
from odradek_broker.topic_partition import TOPIC_NAME_MAX

NAMES = st.text(alphabet="abAB01._-", max_size=8)
ATOMS = st.sampled_from(
    ["a", "b", "A", "0", r"\.", ".", "[ab]", "[^a]", "[a-b0]", r"\d", r"\w", r"\W", r"[\d_.-]"]
)
#: Names that none of the expressions below match.
OTHERS = ["", "aaa", "k--", "K-", "s--", "0-0-"]
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "*?", "{2}", "{1,}", "{0,2}", "{1,3}?"])


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.tuples(inner, REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    return st.one_of(
        st.lists(repeated, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(ATOMS, REPEATS).map("".join),
        inner.map(lambda part: f"^{part}$"),
        inner.map(lambda part: rf"\b{part}"),
    )


@given(st.recursive(ATOMS, _compound, max_leaves=5), st.booleans(), st.lists(NAMES, max_size=5))
@settings(max_examples=budget.examples(150), deadline=None)
def test_g117_an_expression_matches_whole_names_like_python_re(
    text: str, folded: bool, names: list[str]
) -> None:
    text = f"(?i){text}" if folded else text
    ours, theirs = compile_pattern(text), re.compile(text, re.ASCII)
    for name in names:
        assert ours.matches(name) == bool(theirs.fullmatch(name)), name


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("^orders.*", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("^a.*|^b.*", "b1", True),
        ("", "", True),
        ("", "a", False),
        ("(?P<kind>a|b)c", "bc", True),
        ("(?<kind>a|b)c", "ac", True),
        ("(?i:AB)c", "abc", True),
        ("(?i:AB)c", "abC", False),
        (r"\Qa.b\E+", "a.bbb", True),
        (r"a\\Qb", "a\\Qb", True),
        (r"\Qa.b\Ec", "a.bc", True),
        (r"\Qa.b\Ec", "axbc", False),
        ("[[:alpha:]]+[[:^digit:]]", "ab-", True),
        ("[[:digit:]]", "a", False),
        (r"\x61\x{62}", "ab", True),
        ("[]a]", "]", True),
        ("[a-]", "-", True),
        ("a{,3}", "a{,3}", True),
        (r"\Aab\z", "ab", True),
        (r"[\w.]+-\d{3}", "x.y_z-123", True),
    ],
)
def test_g117_the_syntax_of_re2_is_supported(text: str, name: str, matches: bool) -> None:
    assert compile_pattern(text).matches(name) is matches


@pytest.mark.parametrize(
    "text",
    ["(", ")", "a)", "[", "[a", "*", "a**", "(?=a)", "(?!a)", "(?<!a)b", r"(a)\1", "\\", r"\p{Foo}", r"\p{L", r"\8", r"\1",
         r"\x4", "{1}", "a{*", "|{2}", "a{1234567890123}", "(?-)", "(?i-)", "(?i)*", r"[\Qa\E]", r"\x\Q41\E", r"(?\Qi\E)", "(?P<n>a)(?P<n>b)",
     "a{3,2}", "a{1001}", "[b-a]", "(?x)a", "(?P<>a)", "[[:nothing:]]", r"\xzz", "(" * 200,
     "a" * 5_000, "((a{100}){100}){100}", r"\pL" * 1_300, r"[\pL\PN]" * 17, "(?i)" + r"\pN" * 33],
)  # fmt: skip
def test_g117_an_invalid_or_too_large_expression_is_refused(text: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(text)
    assert str(caught.value)


def test_g117_matching_needs_no_exponential_time() -> None:
    """A backtracking matcher takes 2^n steps for `(a+)+b` on a text of n letters a."""
    assert not compile_pattern("(a+)+b").matches("a" * 249)
    assert not compile_pattern("(a|a)*(a|a)*c").matches("a" * 249)
    assert compile_pattern("((a{10}){10}){10}").matches("a" * 1_000)
    slow = compile_pattern("(?:.?.?.?.?.?.?.?.?.?.?){100}")
    assert slow.matches("a" * 249)
    assert slow.steps("a" * 249) <= PROGRAM_STEPS_MAX * 250


@given(st.text(alphabet=r"ab()[]{}*+?|\^$.-,:<>PQEdwx019i", max_size=20))
@settings(max_examples=budget.examples(150), deadline=None)
def test_g117_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        pattern = compile_pattern(text)
    except PatternError:
        return
    pattern.matches("ab01.-")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (r"\101\x{42}\060", ["AB0"]),
        (r"\0", ["\0"]),
        ("\\\u00e9?a", ["a", "\u00e9a"]),
        (r"\pL\PL\p{Nd}\p{^L}", ["a-0_", "B.1-"]),
        (r"[\p{Lu}0]+", ["AB0"]),
        (r"\p{Latin}\p{Common}\P{Greek}\PC", ["a-bc"]),
        (r"(?i)\p{Lu}[\p{Lu}]", ["ab", "AB"]),
        ("(?i)\u017f\u212a", ["sk", "SK"]),
        ("(?i)[\u017f]", ["s", "S"]),
        (r"(?i)\W", ["-"]),
        ("{a{", ["{a{"]),
        ("[[:alpha]", ["a", "[", ":"]),
        (r"(?:(?P<n>a)){2}", ["aa"]),
        (r"\Qa.[\E]", ["a.[]"]),
        (r"a{\Q2\E}", ["a{2}"]),
        ("a{01}", ["a{01}"]),
        (r"\Qab\E{2}", ["abb"]),
        ("[[:blank:][:cntrl:]]", [" ", "\0"]),
        ("[[:blank:]][[:graph:]][[:ascii:]]", [" a\0"]),
    ],
)
def test_g117_an_expression_means_the_same_as_in_the_library_of_kafka(
    text: str, names: list[str]
) -> None:
    compiled = compile_pattern(text)
    for name in [*names, *OTHERS]:
        assert compiled.matches(name) == (name in names), name


@pytest.mark.parametrize("text", [r"(?i)\pN+", r"(?i)\w", r"(?i)[\p{Nd}_]"])
@pytest.mark.parametrize("name", ["\u00df", "\u0130"])
def test_g117_a_character_whose_other_case_is_a_text_can_be_compared(text: str, name: str) -> None:
    assert not compile_pattern(text).matches(name)


@pytest.mark.parametrize("text", [r"[\x{dfff}-\x{d800}]", "a\ud800"])
def test_g117_an_error_about_surrogates_can_be_encoded(text: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(text)
    assert str(caught.value).encode()


def test_g117_a_surrogate_in_a_name_is_no_letter() -> None:
    assert not compile_pattern(r"a\pL").matches("a\ud800")


def test_g117_without_the_library_an_expression_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(PatternError, match=r"pip install 'odradek\[regex\]'"):
        compile_pattern("one that no other test compiles")


def test_g117_a_match_that_would_take_too_long_is_none() -> None:
    """A transactional id may be long, and nothing can be done during a match."""
    pattern = compile_pattern(".*a.{100}")
    length = MATCH_STEPS_MAX // pattern.steps("")
    assert pattern.matches("a" * (length - 1))
    assert not pattern.matches("a" * length)
    assert compile_pattern(".*b").matches("a" * 32_766 + "b")


def test_g117_every_name_of_a_topic_can_be_matched() -> None:
    assert PROGRAM_STEPS_MAX * (TOPIC_NAME_MAX + 1) <= MATCH_STEPS_MAX


def test_g117_the_memory_of_an_expression_is_limited() -> None:
    """Classes of Unicode are large; repeated, they are refused before they take much memory."""
    for text in (r"(?:\pL?){300}", r"(?i)[\pL\pM]{40}"):
        with pytest.raises(PatternError):
            compile_pattern(text)
