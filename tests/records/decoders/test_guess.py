"""The guess of a format; JSON, text and hex dumps; decoders of plugins."""

from __future__ import annotations

import json
import threading
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from odradek.decoders import Attempt, Decoded, Decoders, Limits, decode
from odradek_records.decoders import decoding as module

PLAIN = Decoders(plugins={})


def shown(data: bytes | None, which: str = "guess", decoders: Decoders = PLAIN) -> Decoded:
    return decode(data, which=which, topic="t", is_key=False, registry=decoders)


def failures(decoded: Decoded) -> dict[str, str]:
    return {each.format: each.failure for each in decoded.attempts}


@pytest.mark.parametrize(
    ("data", "name", "value"),
    [
        (b'{"a": [1, 2.50]}', "json", {"a": [1, 2.5]}),
        (b"42", "json", 42),
        (b'"x"', "json", "x"),
        (b" null ", "json", None),
        (b"", "text", ""),
        (b"NaN", "text", "NaN"),
        (b"{broken", "text", "{broken"),
        ("Äpfel\tund\r\nBirnen\n".encode(), "text", "Äpfel\tund\r\nBirnen\n"),
        (b"\x08\x96\x01", "protobuf-raw", {"1": 150}),
        ((42).to_bytes(8, "big"), "hex", None),
        (b"\xff\xfe", "hex", None),
        (None, "null", None),
    ],
)
def test_the_first_format_that_fits_is_chosen(data: bytes | None, name: str, value: Any) -> None:
    found = shown(data)
    assert (found.format, found.value) == (name, value)


def test_each_failed_format_names_its_reason() -> None:
    assert failures(shown(b"\x00\x01")) == {
        "json": "no JSON: Expecting value at line 1, column 1",
        "text": "control character U+0000 at 0",
        "protobuf-raw": "field number 0 at 0",
    }
    assert failures(shown(b"ab\xff")) == {
        "json": "no UTF-8: byte 0xff at 2",
        "text": "no UTF-8: byte 0xff at 2: invalid start byte",
        "protobuf-raw": "a number at 1 is cut off",
    }


def test_a_requested_format_that_does_not_fit_falls_back_to_text_or_hex() -> None:
    assert shown(b"plain", "json").format == "text"
    assert failures(shown(b"plain", "json")).keys() == {"json"}
    assert shown(b"\xff", "json").format == "hex"
    assert failures(shown(b"\xff", "json")).keys() == {"json", "text"}
    assert shown(b'{"a": 1}', "text").value == '{"a": 1}'
    assert shown(b"{}", "hex") == Decoded("hex", "00000000  " + "7b 7d".ljust(48) + "  |{}|", None)


@pytest.mark.parametrize("data", [b"x", None])
def test_an_unknown_format_is_refused_with_a_list_of_formats(data: bytes | None) -> None:
    with pytest.raises(ValueError, match="no format 'xml'; there are guess, json, text"):
        shown(data, "xml")


# --- JSON -----------------------------------------------------------------------------------------


def test_indented_json_keeps_digits_order_and_duplicate_keys() -> None:
    found = shown(b'{"b":12.10,"a":[],"a":{"x":1e2,"y":"\\u00e4 , : {"},"n":[1,[2]]}')
    assert found.text == (
        '{\n  "b": 12.10,\n  "a": [],\n  "a": {\n    "x": 1e2,\n    "y": "\\u00e4 , : {"\n  },\n'
        '  "n": [\n    1,\n    [\n      2\n    ]\n  ]\n}'
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=budget.examples(100))
@given(JSON, st.sampled_from([None, 0, 3]))
def test_indented_json_has_the_same_value(value: Any, indent: int | None) -> None:
    found = shown(json.dumps(value, indent=indent).encode(), "json")
    assert found.format == "json"
    assert found.value == value and json.loads(found.text) == value
    assert [line.strip() for line in found.text.split("\n")] == [
        line.strip() for line in json.dumps(value, indent=2).split("\n")
    ]


def test_json_nesting_has_a_limit() -> None:
    limit = PLAIN.limits.depth_max
    assert shown(b"[" * limit + b"]" * limit).format == "json"
    for depth in (limit + 1, 100_000):
        found = shown(b"[" * depth + b"]" * depth, "json")
        assert failures(found) == {"json": f"nested more than {limit} deep"}


def test_huge_numbers_and_lone_surrogates_are_handled() -> None:
    assert "json" in failures(shown(b"9" * 10_000, "json"))
    found = shown(b'["\\ud800", "\\ud83d\\ude00"]')
    assert found.value == ["?", "\U0001f600"] and "\\ud800" in found.text
    json.dumps(found.value, ensure_ascii=False).encode()


def test_control_sequences_do_not_reach_the_terminal() -> None:
    assert shown('"\x9b2J\x7f"'.encode()).text == '"\\u009b2J\\u007f"'
    for text in ("\x1b[2J", "\x9b2J", "a\rb"):
        assert shown(text.encode(), "text").format == "hex"


# --- Limits and hex -------------------------------------------------------------------------------


def test_long_data_is_not_decoded() -> None:
    small = Decoders(plugins={}, limits=Limits(data_bytes_max=10, hex_bytes_max=4))
    found = shown(b"[1,2,3,4,5]", decoders=small)
    assert (found.format, found.value) == ("hex", None)
    assert found.attempts == (Attempt("json", "11 bytes are more than 10, the limit"),)
    assert found.text.endswith("|[1,2|\n... 7 more bytes")


def test_json_that_is_too_long_when_indented_is_shown_unchanged() -> None:
    small = Decoders(plugins={}, limits=Limits(text_characters_max=40))
    assert shown(b"[[1],[2],[3]]", decoders=small).text == "[[1],[2],[3]]"


def test_a_hex_dump_has_offsets_bytes_and_letters() -> None:
    assert shown(bytes(range(0x30, 0x41)), "hex").text == (
        "00000000  30 31 32 33 34 35 36 37  38 39 3a 3b 3c 3d 3e 3f  |0123456789:;<=>?|\n"
        f"00000010  {'40':<48}  |@|"
    )


@given(st.binary(max_size=200), st.sampled_from(PLAIN.formats))
def test_any_bytes_can_be_shown(data: bytes, which: str) -> None:
    found = shown(data, which)
    json.dumps(found.value, ensure_ascii=False).encode()
    assert found.text or not data


# --- Decoders of others ---------------------------------------------------------------------------


def test_plugin_decoders_are_tried_first() -> None:
    calls = []

    def celsius(data: bytes, topic: str, is_key: bool) -> Any:
        calls.append((data, topic, is_key))
        if len(data) != 2:
            raise ValueError("two bytes are wanted")
        return {"celsius": int.from_bytes(data, "big", signed=True) / 10}

    decoders = Decoders(plugins={"celsius": celsius})
    assert "celsius" in decoders.formats
    found = decode(b"\0\xd7", topic="weather", is_key=True, registry=decoders)
    assert (found.format, found.value) == ("celsius", {"celsius": 21.5})
    assert found.text == '{\n  "celsius": 21.5\n}'
    assert calls == [(b"\0\xd7", "weather", True)]
    other = shown(b"abc", decoders=decoders)
    assert other.format == "text"
    assert failures(other)["celsius"] == "ValueError: two bytes are wanted"
    assert shown(b"abc", "celsius", decoders).format == "text"


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({1, 2}, "not JSON serializable"),
        (float("nan"), "not JSON compliant"),
        (b"bytes", "not JSON serializable"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_plugin_values_that_json_cannot_express_are_refused(result: Any, why: str) -> None:
    found = shown(b"x", "odd", Decoders(plugins={"odd": lambda *_: result}))
    assert why in failures(found)["odd"] and found.format == "text"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), RecursionError("deep")])
def test_errors_of_a_plugin_decoder_fall_back_to_text(error: BaseException) -> None:
    def fails(*_: object) -> None:
        raise error

    found = shown(b"x", decoders=Decoders(plugins={"odd": fails}))
    assert found.format == "text"
    assert type(error).__name__ in failures(found)["odd"]


def test_a_plugin_decoder_that_hangs_is_not_called_again() -> None:
    gate = threading.Event()
    calls = []

    def hangs(*_: object) -> None:
        calls.append(1)
        gate.wait()

    decoders = Decoders(plugins={"slow": hangs}, limits=Limits(plugin_s=0.01))
    assert failures(shown(b"x", decoders=decoders))["slow"] == "took longer than 0.01 s"
    assert "took longer" in failures(shown(b"x", decoders=decoders))["slow"]
    gate.set()
    assert calls == [1]


def test_entry_points_are_loaded_and_a_broken_one_is_a_failed_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [
        EntryPoint("length", "builtins:len", "odradek.decoders"),
        EntryPoint("gone", "no_such_module:it", "odradek.decoders"),
        EntryPoint("json", "no_such_module:it", "odradek.decoders"),
    ]
    monkeypatch.setattr(
        module, "entry_points", lambda group: points if group == "odradek.decoders" else []
    )
    found = shown(b"xyz", decoders=Decoders())
    assert found.format == "text"
    assert "ModuleNotFoundError" in failures(found)["gone"]
    assert "TypeError" in failures(found)["length"]
    assert shown(b"{}", "json", Decoders()).format == "json"
