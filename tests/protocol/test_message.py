"""The parts of a declared message: its class, defaults, layouts."""

from __future__ import annotations

import construct as c
import pytest

from many_cases import looped
from odradek_protocol.message import (
    Message,
    Struct,
    Versions,
    array,
    field,
    layout,
    message,
    struct_layout,
)
from odradek_protocol.primitives import INT32, INT64, STRING
from wire_values import full, message_versions, null, version_id


class Part(Struct):
    """A struct in `Example`."""

    number: int = field(INT32, "1+", default=-1)


@message(key=99, versions="1-3", flexible="3+")
class Example(Message):
    """A message with every kind of field that a declaration distinguishes."""

    name: str | None = field(STRING, nullable="2+")
    parts: list[Part] = field(array(Part), "2+")
    part: Part = field(Part, "3+", tag=1, tagged="3+")
    epoch: int = field(INT64, "3+", tag=0, tagged="3+", default=-1, ignorable=True)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("3", [3], [2, 4]),
        ("3-5", [3, 4, 5], [2, 6]),
        ("9+", [9, 100, 32767], [8]),
        ("none", [], [0, 1, 2]),
    ],
)
def test_a_version_range_contains_its_versions(
    text: str, inside: list[int], outside: list[int]
) -> None:
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_a_version_range_lists_its_versions_in_order() -> None:
    assert list(Versions.parse("3-5")) == [3, 4, 5]
    assert list(Versions.parse("none")) == []
    for text in ("", "x", "1-x", "+"):
        with pytest.raises(ValueError, match="invalid literal"):
            Versions.parse(text)


def test_a_message_class_has_its_declared_versions_and_fields() -> None:
    assert Example.api_key == 99
    assert list(Example.versions) == [1, 2, 3]
    assert 3 in Example.flexible
    assert 2 not in Example.flexible
    assert [spec.name for spec in Example.fields] == ["name", "parts", "part", "epoch"]
    tag = Example.fields[2]
    assert (tag.tag, tag.ignorable, Example.fields[3].ignorable) == (1, False, True)


def test_a_message_has_kafkas_defaults_and_no_other_attributes() -> None:
    value = Example()
    assert (value.name, value.parts, value.part, value.epoch) == ("", [], Part(), -1)
    assert value.part.number == -1
    assert value.unknown_tags is None
    with pytest.raises(AttributeError):
        value.nmae = "a slip"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Example("x")  # type: ignore[arg-type, call-arg]
    assert Example(name="n") == Example(name="n") != value


def test_an_undeclared_field_is_refused_every_time() -> None:
    class Part(Struct):
        number: int = field(INT32)

    for _ in range(2):
        with pytest.raises(TypeError, match="other"):
            Part(other=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Part(1)  # type: ignore[arg-type, call-arg]
    assert Part(number=2) == Part(number=2) != Part()


def test_a_subclass_of_a_struct_with_fields_is_refused() -> None:
    with pytest.raises(TypeError, match="Longer: a subclass of Part would lose its fields"):

        class Longer(Part):
            other: int = field(INT32)


def test_mutable_defaults_are_not_shared() -> None:
    first, second = Example(), Example()
    first.parts.append(Part())
    first.part.number = 5
    assert second == Example()


def test_each_version_has_its_own_layout() -> None:
    value = Example(name="n", parts=[Part(number=2)], part=Part(number=3), epoch=4)
    assert layout(Example, 1).build(value).hex() == "00016e"
    assert layout(Example, 2).build(value).hex() == "00016e0000000100000002"
    assert layout(Example, 3).build(value).hex() == (
        "026e020000000200020008000000000000000401050000000300"
    )
    assert layout(Example, 3).parse(layout(Example, 3).build(value)) == value
    assert layout(Example, 1).parse(b"\0\1n") == Example(name="n")


def test_tagged_fields_at_their_default_are_left_out() -> None:
    assert layout(Example, 3).build(Example()).hex() == "010100"
    assert layout(Example, 3).parse(b"\1\1\0") == Example()


def test_unknown_tags_are_kept_by_number() -> None:
    data = bytes.fromhex("010102000800000000000000040703616263")
    value = layout(Example, 3).parse(data)
    assert value == Example(epoch=4, unknown_tags={7: b"abc"})
    assert layout(Example, 3).build(value) == data


def test_null_is_refused_in_versions_without_it() -> None:
    assert layout(Example, 2).parse(b"\xff\xff" + bytes(4)).name is None
    with pytest.raises(c.ConstructError):
        layout(Example, 1).parse(b"\xff\xff")
    with pytest.raises(c.ConstructError):
        layout(Example, 1).build(Example(name=None))


def test_the_layout_of_an_undeclared_version_is_refused() -> None:
    for version in (0, 4):
        with pytest.raises(ValueError, match=f"Example has no version {version}"):
            layout(Example, version)


def test_layouts_are_made_once() -> None:
    assert layout(Example, 2) is layout(Example, 2)
    assert struct_layout(Part, 2, False) is struct_layout(Part, 2, False)


@looped("cls, version", message_versions(), ids=version_id)
def test_every_layout_survives_its_own_bytes(cls: type[Message], version: int) -> None:
    for value in (full(cls, version), null(cls, version)):
        assert layout(cls, version).parse(layout(cls, version).build(value)) == value
