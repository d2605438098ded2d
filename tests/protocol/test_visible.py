"""Text of strangers, as terminals and log lines show it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from odradek_protocol.visible import json_line, visible, visible_json, width


def test_what_is_not_printable_is_escaped() -> None:
    for hostile in (
        "\x1b[2J",
        "a\x07",
        "\x7f",
        "\x9b1m",
        "\u202egnp",
        "\u200b",
        "\u2028",
        "\ufeff",
    ):
        assert visible(hostile).isprintable()
    assert visible("\x1b]0;x\x07\n\u202e") == r"\x1b]0;x\x07\n\u202e"
    assert visible("Grüße, 日本, e\u0301") == "Grüße, 日本, e\u0301"
    assert visible("a\tb\nc\x1b", keep="\t\n") == "a\tb\nc\\x1b"
    assert visible("\udc80") == r"\udc80"


@given(st.text())
def test_json_keeps_its_value(text: str) -> None:
    line = json_line({text: [text]})
    assert line.isprintable()
    assert json.loads(line) == {text: [text]}
    indented = visible_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
    assert json.loads(indented) == {text: [text]}
    assert all(line.isprintable() for line in indented.split("\n"))


def test_the_width_is_that_of_a_terminal() -> None:
    assert [width(text) for text in ("abc", "日本", "e\u0301", "")] == [3, 4, 1, 0]
