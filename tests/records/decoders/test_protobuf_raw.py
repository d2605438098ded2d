"""Protobuf without a schema: fields by number, read from the wire format."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.decoders import CannotDecode, Limits
from odradek_records.decoders.protobuf import raw


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("08 96 01", {"1": 150}),
        ("08 ff ff ff ff ff ff ff ff ff 01", {"1": 2**64 - 1}),
        ("12 07 74 65 73 74 69 6e 67", {"2": "testing"}),
        ("1a 03 08 96 01", {"3": {"1": 150}}),
        ("08 01 08 02 08 03", {"1": [1, 2, 3]}),
        ("09 00 00 00 00 00 00 f0 3f", {"1": {"fixed64": 0x3FF0000000000000, "double": 1.0}}),
        ("0d 00 00 80 3f", {"1": {"fixed32": 0x3F800000, "float": 1.0}}),
        ("0d 00 00 c0 7f", {"1": {"fixed32": 0x7FC00000, "float": "nan"}}),
        ("0b 10 01 0c", {"1": {"2": 1}}),
        ("0a 00", {"1": ""}),
        # Field 1 of the first input could also be text, but is read as a message. Field 1 of the
        # second input is text.
        ("0a 04 0a 02 61 62", {"1": {"1": "ab"}}),
        ("0a 02 61 62", {"1": "ab"}),
        ("0a 02 ff fe", {"1": {"base64": "//4="}}),
    ],
)
def test_messages_are_decoded_by_field_number(data: str, value: dict[str, Any]) -> None:
    assert raw(bytes.fromhex(data), Limits()).value == value


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "no bytes"),
        ("00 01", "field number 0 at 0"),
        ("08", "no integer at 1"),
        ("08 ff ff ff ff ff ff ff ff ff 02", "no integer at 1"),
        ("08 ff ff ff ff ff ff ff ff ff ff 01", "no integer at 1"),
        ("0a 05 61", "field 1 at 2 has 5 bytes, and 1 are left"),
        ("0e", "wire type 6 of field 1 at 1"),
        ("09 01", "a number at 1 is cut off"),
        ("0b 10 01", "group 1 has no end"),
        ("0b 14", "end of group 2 at 1"),
        ("0c", "end of group 1 at 0"),
    ],
)
def test_bytes_that_are_no_message_name_the_place(data: str, why: str) -> None:
    with pytest.raises(CannotDecode) as refused:
        raw(bytes.fromhex(data), Limits())
    assert why in str(refused.value)


def test_a_guess_refuses_large_field_numbers() -> None:
    data = bytes.fromhex("80 80 40 01")
    assert raw(data, Limits()).value == {"131072": 1}
    with pytest.raises(CannotDecode, match="field number 131072"):
        raw(data, Limits(), likely=True)


def test_nesting_and_the_number_of_fields_have_limits() -> None:
    with pytest.raises(CannotDecode, match="nested more than 64 deep"):
        raw(b"\x0b" * 1_000_000, Limits())
    nested = b"\x08\x01"
    for _ in range(200):
        nested = b"\x0a" + _varint(len(nested)) + nested
    assert raw(nested, Limits()).value
    with pytest.raises(CannotDecode, match="more than 10 fields"):
        raw(b"\x08\x01" * 11, Limits(items_max=10))
    with pytest.raises(CannotDecode, match="more than 10 fields"):
        raw(b"\x0a\x16" + b"\x08\x01" * 11, Limits(items_max=10))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), st.integers(0, 2**64 - 1)), min_size=1))
def test_integers_are_decoded_as_encoded(fields: list[tuple[int, int]]) -> None:
    data = b"".join(_varint(number << 3) + _varint(value) for number, value in fields)
    wanted: dict[str, Any] = {}
    for number, value in fields:
        wanted.setdefault(str(number), []).append(value)
    assert raw(data, Limits()).value == {
        name: values if len(values) > 1 else values[0] for name, values in wanted.items()
    }
