"""Protobuf: the fields of a message by their numbers, read from the wire format alone."""

from __future__ import annotations

import base64
import struct
from typing import Any

from odradek.decoders.plain import CannotDecode, Found, Limits, as_text, json_float

_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_VARINT_BYTES_MAX = 10
_U64 = (1 << 64) - 1
_FIELD_NUMBER_MAX = (1 << 29) - 1
#: Field numbers beyond are rare in messages, and common in bytes that are none.
_LIKELY_FIELD_NUMBER_MAX = 10_000
#: The bytes with which messages begin, and with which texts seldom do: keys of the first field.
_BEGINS_A_MESSAGE = ("\t", "\n", "\r")


def raw(data: bytes, limits: Limits, *, likely: bool = False) -> Found:
    """The fields of a message, by number; those that occur several times are lists.

    A field of bytes is shown as text, a message or base64, whichever fits first. Numbers of fixed
    size are shown as integer and as floating point. `likely`: refuse what is seldom a message.
    CannotDecode for bytes that are no message.
    """
    if not data:
        raise CannotDecode("no bytes: a message without fields, or none")
    return Found(_Reader(data, limits, likely).message(0, len(data), 0))


class _Reader:
    def __init__(self, data: bytes, limits: Limits, likely: bool) -> None:
        self._data = data
        self._limits = limits
        self._left = limits.items_max
        self._number_max = _LIKELY_FIELD_NUMBER_MAX if likely else _FIELD_NUMBER_MAX

    def message(self, at: int, end: int, depth: int) -> dict[str, Any]:
        return self._fields(at, end, depth, group=None)[0]

    def _fields(
        self, at: int, end: int, depth: int, group: int | None
    ) -> tuple[dict[str, Any], int]:
        """The fields up to `end`, or of a group up to its end tag, and the position behind them."""
        if depth > self._limits.depth_max:
            raise CannotDecode(f"nested more than {self._limits.depth_max} deep")
        found: dict[str, list[Any]] = {}
        while at < end:
            start = at
            key, at = self._varint(at, end)
            number, kind = key >> 3, key & 7
            if not 1 <= number <= self._number_max:
                raise CannotDecode(f"field number {number} at {start}")
            if kind == _GROUP_END:
                if group != number:
                    raise CannotDecode(f"end of group {number} at {start}, which did not begin")
                return _collected(found), at
            self._left -= 1
            if self._left < 0:
                raise CannotDecode(f"more than {self._limits.items_max} fields")
            value, at = self._value(number, kind, at, end, depth)
            found.setdefault(str(number), []).append(value)
        if group is not None:
            raise CannotDecode(f"group {group} has no end")
        return _collected(found), at

    def _value(self, number: int, kind: int, at: int, end: int, depth: int) -> tuple[Any, int]:
        if kind == _VARINT:
            return self._varint(at, end)
        if kind == _FIXED64:
            integer, real = self._fixed("<Q", "<d", at, end)
            return {"fixed64": integer, "double": json_float(real)}, at + 8
        if kind == _FIXED32:
            integer, real = self._fixed("<I", "<f", at, end)
            return {"fixed32": integer, "float": json_float(real)}, at + 4
        if kind == _GROUP:
            return self._fields(at, end, depth + 1, group=number)
        if kind != _BYTES:
            raise CannotDecode(f"wire type {kind} of field {number} at {at}")
        size, at = self._varint(at, end)
        if size > end - at:
            raise CannotDecode(f"field {number} at {at} has {size} bytes, and {end - at} are left")
        return self._bytes(at, at + size, depth), at + size

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        for position in range(at, min(end, at + _VARINT_BYTES_MAX)):
            byte = self._data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > _U64:
                    break
                return value, position + 1
            shift += 7
        raise CannotDecode(f"no integer at {at}")

    def _fixed(self, integer: str, real: str, at: int, end: int) -> tuple[int, float]:
        if struct.calcsize(integer) > end - at:
            raise CannotDecode(f"a number at {at} is cut off")
        return (
            struct.unpack_from(integer, self._data, at)[0],
            struct.unpack_from(real, self._data, at)[0],
        )

    def _bytes(self, at: int, end: int, depth: int) -> Any:
        data = self._data[at:end]
        try:
            text: str | None = as_text(data)
        except CannotDecode:
            text = None
        if text is not None and not text.startswith(_BEGINS_A_MESSAGE):
            return text
        try:
            return self.message(at, end, depth + 1)
        except CannotDecode:
            # Fields of a failed attempt stay counted: they took as long.
            if self._left < 0:
                raise
        return text if text is not None else {"base64": base64.b64encode(data).decode()}


def _collected(found: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: each if len(each) > 1 else each[0] for name, each in found.items()}
