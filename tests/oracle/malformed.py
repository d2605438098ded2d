"""Malformed requests, derived from the declarations of messages.

The frames are encoded here, because the product's codec refuses to encode most of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.plain import from_plain
from tests.oracle.script import APIS_BY_NAME, Ask, Step

from odradek_protocol import codec
from odradek_protocol.message import ArrayOf, Struct
from odradek_protocol.primitives import WireType

_INT32_MAX = (1 << 31) - 1
#: The size of a length field in versions that are not flexible.
_WIDTHS = {"string": 2, "bytes": 4, "records": 4, "array": 4}


@dataclass(frozen=True)
class _Length:
    """A length field in a body: its path, its position, and True if null is allowed."""

    path: str
    kind: str
    start: int
    end: int
    nullable: bool


@dataclass
class _Writer:
    version: int
    flexible: bool
    data: bytearray = field(default_factory=bytearray)
    lengths: list[_Length] = field(default_factory=list)

    def struct(self, value: Struct, path: str = "") -> None:
        for spec in value.fields:
            if self.version not in spec.versions or self.version in spec.tagged:
                continue
            nullable = self.version in spec.nullable
            self._value(getattr(value, spec.name), spec.type, path + spec.name, nullable)
        if self.flexible:
            self.data.append(0)

    def _value(self, value: Any, type_: Any, path: str, nullable: bool) -> None:
        if isinstance(type_, ArrayOf):
            self._length(None if value is None else len(value), "array", path, nullable)
            for item in value or ():
                self._value(item, type_.element, path + ".", False)
        elif not isinstance(type_, WireType):
            if nullable:
                self.data.append(0xFF if value is None else 1)
            if value is not None:
                self.struct(value, path + ".")
        elif type_.name in _WIDTHS:
            data = value.encode() if isinstance(value, str) else value
            self._length(None if data is None else len(data), type_.name, path, nullable)
            self.data += data or b""
        else:
            self.data += type_.layout(self.flexible, False).build(value)

    def _length(self, count: int | None, kind: str, path: str, nullable: bool) -> None:
        start = len(self.data)
        self.data += length(count, kind, self.flexible)
        self.lengths.append(_Length(path, kind, start, len(self.data), nullable))


def length(count: int | None, kind: str, flexible: bool) -> bytes:
    """Encode the length of a text, of bytes or of an array; None is null."""
    if not flexible:
        width = _WIDTHS[kind]
        most = (1 << (8 * width - 1)) - 1
        return min(-1 if count is None else count, most).to_bytes(width, "big", signed=True)
    left = 0 if count is None else count + 1
    data = bytearray()
    while left > 0x7F:
        data.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*data, left])


def spoiled(api_name: str, version: int, values: Mapping[str, Any]) -> Iterator[Step]:
    """Yield steps with the valid request, and then with each malformed variant of it.

    `values`: the fields of the valid request. Each list has one element; names that differ between
    runs are not allowed.
    """
    api = APIS_BY_NAME[api_name]
    flexible = version in api.request.flexible
    request = from_plain(api.request, values, version, lambda value: value)
    writer = _Writer(version, flexible)
    writer.struct(request)
    body = bytes(writer.data)
    assert body == codec.encode_bytes(request, version), (api_name, version)

    def ask(changed: bytes) -> Ask:
        listing = api_name in ("ListGroups", "ListConfigResources")
        return Ask(api_name, values, version=version, edit=lambda _: changed, mine=listing)

    yield ask(body)
    yield ask(body + b"\0\0\0")
    if body:
        yield ask(body[:-1])
        yield ask(b"")
    if flexible:
        yield ask(body[:-1] + b"\x01\x63\x02ab")
        yield ask(body[:-1] + b"\x02\x63\x02ab")
        yield ask(body[:-1] + b"\x01\x63\x7fab")
        yield ask(body[:-1] + b"\xff\xff\xff\xff\x07")
    for each in writer.lengths:
        counts = [_INT32_MAX - 1] if each.nullable else [None, _INT32_MAX - 1]
        for count in counts:
            lied = length(count, each.kind, flexible)
            yield ask(body[: each.start] + lied + body[each.end :])
