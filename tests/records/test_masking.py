"""Masks: what they hide in keys, values and headers, and what they keep."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek_records.decoders import Decoders
from odradek_records.masking import Masks, bytes_shown, masked_header, masked_part


@pytest.mark.parametrize(
    ("masks", "shown"),
    [
        (Masks(), {"a": {"b": "<number>", "c": [{"d": "<text of 2>"}]}, "n": None, "t": "<boolean>"}),
        (Masks(show_all=True), {"a": {"b": 1, "c": [{"d": "xy"}]}, "n": None, "t": True}),
        (Masks(shown=["a.b"]), {"a": {"b": 1, "c": [{"d": "<text of 2>"}]}, "n": None, "t": "<boolean>"}),
        (Masks(shown=["*.d"]), {"a": {"b": "<number>", "c": [{"d": "xy"}]}, "n": None, "t": "<boolean>"}),
        (Masks(True, hidden=["a.c"]), {"a": {"b": 1, "c": "<list>"}, "n": None, "t": True}),
        (Masks(True, ["*"], ["a"]), {"a": "<object>", "n": None, "t": True}),
    ],
)  # fmt: skip
def test_masks_keep_the_shape_of_values(masks: Masks, shown: Any) -> None:
    assert masks.apply({"a": {"b": 1, "c": [{"d": "xy"}]}, "n": None, "t": True}) == shown


HIDE = Masks(True, hidden=["who.*", "Token"])


@pytest.mark.parametrize(
    ("masks", "shown", "kept"),
    [
        (HIDE.apply({"WHO": {"name": "hush"}}, "value"), {"WHO": {"name": "<text of 4>"}}, None),
        (HIDE.apply({"token": "hush", "id": 1}, "value"), {"token": "<text of 4>", "id": 1}, None),
        (HIDE.apply([{"TOKEN": "hush"}], "value"), [{"TOKEN": "<text of 4>"}], None),
        (HIDE.apply("hush", "key"), "<text of 4>", None),
        (HIDE.apply("token=hush", "value"), "<text of 10>", None),
        (HIDE.apply(["hush", 7], "value"), ["<text of 4>", "<number>"], None),
        (HIDE.apply({"p": '{"token": "hush"}'}, "value"), {"p": '{"token": "<text of 4>"}'}, None),
        (HIDE.apply({"p": '{"token": "hush", "token": null}'}, "value"), {"p": '{"token": null}'}, None),
        (HIDE.apply({"p": '"{\\"token\\": \\"hush\\"}"'}), {"p": '"<text of 17>"'}, None),
        (HIDE.apply({"p": r'"\u007B\"token\": \"hush\"}"'}), {"p": '"<text of 17>"'}, None),
        (Masks(True, hidden=["p.a"]).apply({"p": '[{"a": "hush"}]'}), {"p": '[{"a": "<text of 4>"}]'}, None),
        (HIDE.apply({"p": '\ufeff{"token": "hush"}'}), {"p": "<text of 18>"}, None),
        (HIDE.apply({"p": '{"token": "hush"}\n{"token": "hush"}'}), {"p": "<text of 35>"}, None),
        (HIDE.apply({"p": 'got {"token": "hush"}'}), {"p": "<text of 21>"}, None),
        (HIDE.apply({"p": '{"token": "hush",}'}), {"p": "<text of 18>"}, None),
        (Masks(True, ["value"], ["x"]).apply('{"x": "hush"', "value"), "<text of 12>", None),
        (Masks(True, hidden=["headers.*"]).header("", "hush"), "<text of 4>", None),
        (HIDE.apply({"p": '{"id": 1}'}), {"p": '{"id": 1}'}, "id"),
        (HIDE.header("TOKEN", "hush"), "<text of 4>", None),
        (HIDE.header("h", '{"who": {"x": "hush"}}'), '{"who": {"x": "<text of 4>"}}', None),
        (Masks(True, hidden=["headers.h"]).header("H", "hush"), "<text of 4>", None),
        (Masks(True, hidden=["VALUE.a"]).apply({"a": "hush"}, "value"), {"a": "<text of 4>"}, None),
        (Masks(True, hidden=["*"]).apply("hush", "key"), "<text of 4>", None),
        (Masks(True, ["key"], ["x"]).apply("seen", "key"), "seen", "seen"),
        (Masks(True, ["key"], ["Key"]).apply("hush", "key"), "<text of 4>", None),
        (HIDE.header("h", "seen"), "seen", "seen"),
    ],
)  # fmt: skip
def test_what_is_to_be_hidden_is_hidden_everywhere(
    masks: Any, shown: Any, kept: str | None
) -> None:
    assert masks == shown
    assert "hush" not in json.dumps(masks) and (kept is None or kept in json.dumps(masks))


def test_masked_values_are_bounded() -> None:
    assert Masks(show_all=True).apply([*range(25)]) == [*range(20), "5 more items"]
    wide = Masks().apply({str(each): each for each in range(300)})
    assert len(wide) == 201 and wide["..."] == "100 more fields"
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    assert "nested too deeply" in json.dumps(Masks().apply(deep))
    whole = Masks(show_all=True, items_max=25).apply([*range(25)])
    assert whole == [*range(25)]


@pytest.mark.parametrize(
    ("data", "format_", "shown"),
    [
        (b'{"token": "hush", "id": 7}', "json", b'{"token": "<text of 4>", "id": 7}'),
        # Fields that the text has twice are read once: the first one is hidden too.
        (b'{"token": "hush", "token": null}', "json", b'{"token": null}'),
        (b"hush", "text", b"<text of 4>"),
        (b"\xff\x00hush", "hex", b"<text of 68>"),
        (b"7", "json", b"<number>"),
        (None, "null", None),
    ],
)
def test_a_masked_part_never_has_the_bytes_of_the_record(
    data: bytes | None, format_: str, shown: bytes | None
) -> None:
    found = masked_part(data, HIDE, topic="t", is_key=False, registry=Decoders())
    assert (found.format, found.text, found.attempts) == (format_, "", ())
    assert bytes_shown(found.value) == shown


def test_without_masks_the_failed_formats_are_told() -> None:
    found = masked_part(b"x", Masks(True), topic="t", is_key=False, registry=Decoders())
    assert (found.value, [each.format for each in found.attempts]) == ("x", ["json"])


def test_masked_headers_of_all_kinds_are_text() -> None:
    assert masked_header("h", None, HIDE) is None
    assert masked_header("h", b"\xff", HIDE) == "ff"
    assert masked_header("TOKEN", b"\xff", HIDE) == "<text of 2>"
