"""Random regular expressions (rule G-117), compared with RE2/J, the library of Kafka."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_cluster import class_path, compiled, java
from odradek_broker.patterns import PatternError, compile_pattern

_SOURCE = Path(__file__).parent / "Re2jAnswers.java"
_EXPRESSIONS = 3_000
_NAMES = (
    *("", "a", "b", "A", "B", "0", "1", "ab", "ba", "aB", "a.b", "_", "-", ".", "aa", "aaa", "k"),
    *("bb", "a-b", "__x", "\u00e9", "K", "s", "S", "a0", "aaaa", "ab01", "Ab", "a_b"),
)
_PARTS = (
    *("a", "b", "A", "0", "_", "-", ".", r"\.", "[ab]", "[^a]", "[a-b0]", r"\d", r"\D", r"\w"),
    *(
        r"\W",
        r"\s",
        r"\S",
        r"[\d_.-]",
        "[[:alpha:]]",
        "[[:^digit:]]",
        "[[:foo:]]",
        "[[:alpha]",
        "[[:graph:]]",
    ),
    *("[[:blank:]]", "[[:cntrl:]a]", "[[:print:]]", "[[:ascii:]]", "[[:xdigit:]_]", "[[:^space:]]"),
    *("[[:upper:]]", "[[:lower:]-]", "[[:punct:]]", "[[:alnum:]]", r"\Qa\E", r"a{\Q2\E}", r"\QB"),
    *(r"\pL", r"\p{Lu}", r"\PN", r"\p{Greek}", r"\p{^L}", r"\p{Foo}", r"\p{L", r"[\pL]"),
    *(r"\x41", r"\x{41}", r"\101", r"\08", r"\0", r"\1", r"\8", r"\a", r"\n", r"\e", r"\C"),
    *(
        r"\z",
        r"\Z",
        r"\A",
        r"\b",
        r"\B",
        r"\Q.a\E",
        r"\-",
        "\\\u00e9",
        "\u00e9",
        "^",
        "$",
        "(",
        ")",
    ),
    *("[", "]", "{", "}", "|", "(?i:a)", "(?-i:a)", "(?x)", "(?-)", "(?i-)", "(?P<n>a)", "(?<m>a)"),
    *("(?P=n)", "(?P<n", "(?:", "(?=a)", "(?>a)", "(?#c)", "[]a]", "[^]a]", "[a-]", "[-a]"),
    *("[b-a]", r"[\Qa\E]", "[]", "[^]", "[a&&b]", "[a[b]]", r"[\x41-\x43]", r"[\b]", r"[^\W]"),
    *(
        "a{0}",
        "{1}",
        "a{",
        "a{,2}",
        "a{1",
        "a{2,1}",
        "a{1001}",
        "a{01}",
        "a{1,02}",
        "a{1234567890123}",
        "a**",
        "a*+",
        "a??",
        "*",
        "|a",
    ),
    *("a|", "()", "(|)", "(a|b)*", ".*", r"[a-\d]", "[--a]", r"[\]]", "[a^]", r"\N{x}", r"\G"),
)
_REPEATS = (*[""] * 12, *("*", "+", "?", "*?", "{2}", "{1,}", "{0,2}", "{1,3}?", "{0}", "{,3}"))


def _expressions(chance: random.Random) -> Iterator[str]:
    for _ in range(_EXPRESSIONS):
        parts = chance.choices(_PARTS, k=chance.choice([1, 1, 2, 2, 3, 4]))
        text = "".join(part + chance.choice(_REPEATS) for part in parts)
        if chance.random() < 0.2:
            text = f"({text}){chance.choice(_REPEATS)}"
        yield f"(?i){text}" if chance.random() < 0.2 else text


def _ours(text: str) -> str:
    try:
        pattern = compile_pattern(text)
    except PatternError:
        return "invalid"
    return "".join(str(int(pattern.matches(name))) for name in _NAMES)


@pytest.mark.kafka
def test_g117_random_expressions_mean_the_same_as_in_the_library_of_kafka(tmp_path: Path) -> None:
    classes = compiled(_SOURCE, tmp_path)
    # RE2/J applies a repetition after flags to the part before the flags; RE2 refuses it.
    texts = [text for text in _expressions(random.Random(117)) if not text.startswith("(?i)*")]
    command = [java(), "-cp", f"{class_path()}:{classes}", _SOURCE.stem]
    asked = "".join("\t".join([text, *_NAMES]) + "\n" for text in texts)
    run = subprocess.run(command, input=asked.encode(), capture_output=True, check=True, timeout=60)
    answers = run.stdout.decode().splitlines()
    different = [
        (text, theirs, ours)
        for text, theirs in zip(texts, answers, strict=True)
        if (ours := _ours(text)) != theirs
    ]
    assert not different
