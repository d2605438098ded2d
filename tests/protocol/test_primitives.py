"""The declared primitive types compared with bytes that were written by hand from Kafka's protocol
guide."""

from __future__ import annotations

from typing import Any

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_protocol import primitives as p
from odradek_protocol.primitives import (
    DecodeError,
    EncodeError,
    NullableStruct,
    SizedArray,
    WireType,
    decode_uvarint,
    encode_uvarint,
)


@pytest.mark.parametrize(
    ("type_", "value", "encoded"),
    [
        (p.BOOL, True, "01"),
        (p.BOOL, False, "00"),
        (p.INT8, -2, "fe"),
        (p.INT16, -2, "fffe"),
        (p.UINT16, 65534, "fffe"),
        (p.INT32, -2, "fffffffe"),
        (p.UINT32, 4294967294, "fffffffe"),
        (p.INT64, -2, "fffffffffffffffe"),
        (p.FLOAT64, 1.5, "3ff8000000000000"),
        (p.UUID, bytes(range(16)), "000102030405060708090a0b0c0d0e0f"),
    ],
    ids=lambda value: value.name if isinstance(value, WireType) else None,
)
@pytest.mark.parametrize("flexible", [False, True])
def test_types_of_fixed_size_have_kafkas_bytes(
    type_: WireType, value: Any, encoded: str, flexible: bool
) -> None:
    layout = type_.layout(flexible, nullable=False)
    assert layout.build(value).hex() == encoded
    assert layout.parse(bytes.fromhex(encoded)) == value
    assert type_.size_bytes == len(encoded) // 2 == type_.min_bytes(flexible)


@pytest.mark.parametrize(
    ("type_", "flexible", "nullable", "value", "encoded"),
    [
        (p.STRING, False, False, "é", "0002c3a9"),
        (p.STRING, False, False, "", "0000"),
        (p.STRING, False, True, None, "ffff"),
        (p.STRING, True, False, "é", "03c3a9"),
        (p.STRING, True, False, "", "01"),
        (p.STRING, True, True, None, "00"),
        (p.STRING, True, False, "x" * 127, "8001" + "78" * 127),
        (p.BYTES, False, False, b"ab", "000000026162"),
        (p.BYTES, False, True, None, "ffffffff"),
        (p.BYTES, True, False, b"ab", "036162"),
        (p.BYTES, True, True, None, "00"),
        (p.RECORDS, False, True, b"r", "0000000172"),
        (p.RECORDS, True, True, b"r", "0272"),
        (p.RECORDS, True, True, None, "00"),
    ],
)
def test_strings_and_bytes_have_kafkas_bytes(
    type_: WireType, flexible: bool, nullable: bool, value: Any, encoded: str
) -> None:
    layout = type_.layout(flexible, nullable)
    assert layout.build(value).hex() == encoded
    assert layout.parse(bytes.fromhex(encoded)) == value


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("type_", [p.STRING, p.BYTES], ids=lambda t: t.name)
def test_null_is_refused_unless_it_is_allowed(type_: WireType, flexible: bool) -> None:
    null = type_.layout(flexible, nullable=True).build(None)
    with pytest.raises(c.ConstructError, match="null"):
        type_.layout(flexible, nullable=False).parse(null)
    with pytest.raises(c.ConstructError, match="null"):
        type_.layout(flexible, nullable=False).build(None)


def test_a_length_below_null_is_an_error() -> None:
    for nullable in (False, True):
        with pytest.raises(c.ConstructError, match="-2"):
            p.BYTES.layout(False, nullable).parse(b"\xff\xff\xff\xfe")


def test_strings_have_at_most_32767_bytes() -> None:
    layout = p.STRING.layout(True, False)
    assert layout.parse(layout.build("x" * 32767)) == "x" * 32767
    with pytest.raises(c.ConstructError, match="32768"):
        layout.build("x" * 32768)
    with pytest.raises(c.ConstructError, match="32768"):
        layout.parse(encode_uvarint(32769) + b"x" * 32768)


@pytest.mark.parametrize(
    ("length", "compact", "value", "encoded"),
    [
        (c.Int32sb, False, [1, 2], "0000000200010002"),
        (c.Int32sb, False, [], "00000000"),
        (c.Int32sb, False, None, "ffffffff"),
        (p.UVARINT, True, [1, 2], "0300010002"),
        (p.UVARINT, True, [], "01"),
        (p.UVARINT, True, None, "00"),
    ],
)
def test_arrays_have_kafkas_bytes(length: Any, compact: bool, value: Any, encoded: str) -> None:
    layout = SizedArray(length, compact, True, c.Int16sb)
    assert layout.build(value).hex() == encoded
    assert layout.parse(bytes.fromhex(encoded)) == value


def test_an_array_over_the_limit_is_an_error() -> None:
    with pytest.raises(c.ConstructError, match="1000001"):
        SizedArray(c.Int32sb, False, False, c.Int8sb).parse((1_000_001).to_bytes(4, "big"))


def test_kip_893_nullable_structs_have_kafkas_bytes() -> None:
    layout = NullableStruct(c.Struct("number" / c.Int16sb))
    assert layout.build(None) == b"\xff"
    assert layout.build({"number": 7}) == b"\x01\x00\x07"
    assert layout.parse(b"\xff") is None
    assert layout.parse(b"\x01\x00\x07").number == 7


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16384, "808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varints_have_kafkas_bytes(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_uvarint(value) == data == p.UVARINT.build(value)
    assert decode_uvarint(b"\xff" + data, 1) == (value, 1 + len(data))
    assert p.UVARINT.parse(data) == value


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_survive_a_round_trip(value: int) -> None:
    data = encode_uvarint(value)
    assert len(data) <= 5
    assert decode_uvarint(data, 0) == (value, len(data))
    assert p.UVARINT.parse(data) == value


@pytest.mark.parametrize("value", [-1, 2**32])
def test_values_beyond_unsigned_varints_are_refused(value: int) -> None:
    with pytest.raises(EncodeError, match=str(value)):
        encode_uvarint(value)


@pytest.mark.parametrize("data", ["ffffffff10", "ffffffff7f", "808080808000", "ffffffffffff01"])
def test_n06_overlong_varints_are_a_decode_error(data: str) -> None:
    with pytest.raises(DecodeError, match="varint"):
        decode_uvarint(bytes.fromhex(data), 0)
    with pytest.raises(c.ConstructError, match="varint"):
        p.UVARINT.parse(bytes.fromhex(data))


@given(st.binary(max_size=8))
def test_varint_readers_agree_on_any_bytes(data: bytes) -> None:
    try:
        value, end = decode_uvarint(data, 0)
    except (DecodeError, IndexError):
        with pytest.raises(c.ConstructError):
            p.UVARINT.parse(data)
    else:
        assert 1 <= end <= 5
        assert p.UVARINT.parse(data) == value


def test_strings_and_bytes_take_at_least_their_length_field() -> None:
    assert [p.STRING.min_bytes(False), p.BYTES.min_bytes(False), p.RECORDS.min_bytes(False)] == [
        2,
        4,
        4,
    ]
    assert [p.STRING.min_bytes(True), p.BYTES.min_bytes(True), p.RECORDS.min_bytes(True)] == [
        1,
        1,
        1,
    ]
