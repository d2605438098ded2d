"""Messages generated from their declarations: random messages from hypothesis, and a few fixed
messages for each version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from odradek_protocol.keys import APIS
from odradek_protocol.message import ArrayOf, Message, Struct
from odradek_protocol.primitives import WireType

MessageVersion = tuple[type[Message], int]

#: The first tag number that is unknown to every declaration.
_UNKNOWN_TAG_FIRST = 1000


def message_versions() -> list[Any]:
    """Every request and response of the APIs table, with every version for which it is declared."""
    return [
        (cls, version)
        for api in APIS.values()
        for cls in (api.request, api.response)
        for version in cls.versions
    ]


def version_id(value: Any) -> str:
    """The name of a pytest parameter, such as ProduceRequest or v3."""
    return f"v{value}" if isinstance(value, int) else str(getattr(value, "__name__", value))


def api_of(cls: type[Message], version: int) -> str:
    """The API whose request or response is `cls`."""
    return cls.__name__.removesuffix("Request").removesuffix("Response")


_INTEGERS = {
    name: st.one_of(st.sampled_from([low, -1 if low else 0, 0, 1, high]), st.integers(low, high))
    for name, low, high in (
        *((f"int{bits}", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)),
        ("uint16", 0, 2**16 - 1),
        ("uint32", 0, 2**32 - 1),
    )
}
_STRINGS = st.one_of(st.sampled_from(["", "a", "größe", "漢" * 50]), st.text(max_size=20))
_BYTES = st.one_of(st.sampled_from([b"", b"\0" * 127, b"x" * 300]), st.binary(max_size=20))
_UNKNOWN_TAGS = st.none() | st.dictionaries(
    st.integers(_UNKNOWN_TAG_FIRST, 2**32 - 1), _BYTES, min_size=1, max_size=2
)
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    **_INTEGERS,
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": _STRINGS,
    "bytes": _BYTES,
    "records": _BYTES,
}


def _values(type_: Any, version: int, flexible: bool, nullable: bool) -> st.SearchStrategy[Any]:
    if isinstance(type_, WireType):
        plain = _PRIMITIVES[type_.name]
    elif isinstance(type_, ArrayOf):
        plain = st.lists(_values(type_.element, version, flexible, False), max_size=3)
    else:
        plain = _structs(type_, version, flexible)
    return st.none() | plain if nullable else plain


def _structs(cls: type[Struct], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    values: dict[str, st.SearchStrategy[Any]] = {
        spec.name: _values(spec.type, version, flexible, version in spec.nullable)
        for spec in cls.fields
        if version in spec.versions
    }
    if flexible:
        values["unknown_tags"] = _UNKNOWN_TAGS
    return st.builds(cls, **values)


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """A strategy for messages of this version; fields that the version lacks have their
    defaults."""
    return _structs(cls, version, version in cls.flexible)


class _Full:
    """Makes values that fill a message: no null, no default, two elements in each array."""

    def __init__(self) -> None:
        self.count = 0

    def value(self, type_: Any, version: int, flexible: bool) -> Any:
        self.count += 1
        if isinstance(type_, ArrayOf):
            return [self.value(type_.element, version, flexible) for _ in range(2)]
        if not isinstance(type_, WireType):
            return self.struct(type_, version, flexible)
        return {
            "bool": True,
            "float64": self.count / 4,
            "uuid": bytes([self.count % 255 + 1]) * 16,
            "string": f"é{self.count}",
            "bytes": f"bytes {self.count}".encode(),
            "records": b"R" * (self.count % 7 + 1),
        }.get(type_.name, self.count % 120 + 2)

    def struct(self, cls: type[Struct], version: int, flexible: bool) -> Any:
        made = cls()
        for spec in cls.fields:
            if version in spec.versions:
                setattr(made, spec.name, self.value(spec.type, version, flexible))
        if flexible:
            made.unknown_tags = {_UNKNOWN_TAG_FIRST: b"later", _UNKNOWN_TAG_FIRST + 1: b""}
        return made


def full(cls: type[Message], version: int) -> Any:
    """A message in which every field of this version is set."""
    return _Full().struct(cls, version, version in cls.flexible)


def null(cls: type[Message], version: int) -> Any:
    """A message with null wherever this version allows it, and defaults elsewhere."""
    made = cls()
    for spec in cls.fields:
        if version in spec.versions and version in spec.nullable:
            setattr(made, spec.name, None)
    return made


def fixed(cls: type[Message], version: int) -> Iterator[Any]:
    """The fixed messages: full, default, null."""
    yield full(cls, version)
    yield cls()
    yield null(cls, version)
