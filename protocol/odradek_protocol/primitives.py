"""Kafka's primitive wire types, declared with construct.

Each `WireType` has a construct for each of its encodings: plain or nullable, classic or flexible
(KIP-482: the compact length is an unsigned varint of length + 1, or 0 for null). These declarations
are the reference; `odradek_protocol.codec` derives straight-line code from them, and a test checks
that this code has the same result.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import construct as c

from odradek_protocol.lazy_dataclass import dataclass

#: The limit of elements in a single array (D11).
MAX_ARRAY_ELEMENTS = 1_000_000
#: The limit of elements in all arrays of a message together, unless its reader has another limit.
#: The limit is needed because an element of six bytes may become an object of some hundred bytes.
MAX_MESSAGE_ELEMENTS = 4_000_000
#: The limit of the bytes of a string. A compact length could be larger, but Kafka has this limit
#: for all strings.
MAX_STRING_BYTES = 32767
ZERO_UUID = bytes(16)


def uuid_text(raw: bytes) -> str:
    """An id in Kafka's form, URL-safe Base64: 22 characters for 16 bytes."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


class WireError(ValueError):
    """The error for bytes that are not a valid message, or for a message that cannot be encoded."""


class DecodeError(WireError):
    """The error for bytes that are incomplete, or that contain an impossible value (rule N-06)."""


class EncodeError(WireError):
    """The error for a message with a value that the version cannot represent."""


def encode_uvarint(value: int) -> bytes:
    """The varint of a number: base 128, least significant byte first, at most 32 bits. EncodeError
    outside of [0, 2^32)."""
    if not 0 <= value < 1 << 32:
        raise EncodeError(f"{value} does not fit an unsigned varint of 32 bits")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buffer: Any, position: int) -> tuple[int, int]:
    """(value, position after it). Raises DecodeError for more than 32 bits; raises IndexError if
    the bytes end first."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 32:
                raise DecodeError("an unsigned varint holds more than 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise DecodeError("an unsigned varint is longer than five bytes")


class UnsignedVarint(c.Construct):  # type: ignore[misc]
    """The encoding of lengths and tags in flexible versions."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = shift = 0
        while shift <= 28:
            byte = c.stream_read(stream, 1, path)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                if value >> 32:
                    raise c.FormatFieldError("an unsigned varint of over 32 bits", path=path)
                return int(value)
            shift += 7
        raise c.FormatFieldError("an unsigned varint is longer than five bytes", path=path)

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        c.stream_write(stream, data := encode_uvarint(obj), len(data), path)
        return obj


class _Sized(c.Construct):  # type: ignore[misc]
    """A length, compact or not, followed by the bytes or elements; None for null, if null is
    allowed."""

    def __init__(self, length: Any, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.length, self.compact, self.nullable = length, compact, nullable

    def _read_length(self, stream: Any, context: Any, path: str) -> int | None:
        value: int = self.length._parsereport(stream, context, path)
        if self.compact:
            value -= 1
        if value >= 0:
            return value
        if value == -1 and self.nullable:
            return None
        raise c.RangeError(f"length {value} where none may be null", path=path)

    def _write_length(self, value: int | None, stream: Any, context: Any, path: str) -> None:
        if value is None and not self.nullable:
            raise c.RangeError("null where none may be null", path=path)
        coded = -1 if value is None else value
        self.length._build(coded + 1 if self.compact else coded, stream, context, path)


class SizedBytes(_Sized):
    """Bytes, a record set, or with `text` a string in UTF-8."""

    def __init__(self, length: Any, compact: bool, nullable: bool, text: bool) -> None:
        super().__init__(length, compact, nullable)
        self.text = text

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        size = self._read_length(stream, context, path)
        if size is None:
            return None
        if self.text and size > MAX_STRING_BYTES:
            raise c.RangeError(f"a string of {size} bytes", path=path)
        data = c.stream_read(stream, size, path)
        return data.decode() if self.text else data

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            self._write_length(None, stream, context, path)
            return obj
        data = obj.encode() if self.text else bytes(obj)
        if self.text and len(data) > MAX_STRING_BYTES:
            raise c.RangeError(f"a string of {len(data)} bytes", path=path)
        self._write_length(len(data), stream, context, path)
        c.stream_write(stream, data, len(data), path)
        return obj


class SizedArray(_Sized):
    """A count, followed by that number of elements."""

    def __init__(self, length: Any, compact: bool, nullable: bool, element: Any) -> None:
        super().__init__(length, compact, nullable)
        self.element = element

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        count = self._read_length(stream, context, path)
        if count is None:
            return None
        if count > MAX_ARRAY_ELEMENTS:
            raise c.RangeError(f"an array of {count} elements", path=path)
        return [self.element._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self._write_length(None if obj is None else len(obj), stream, context, path)
        for element in obj or ():
            self.element._build(element, stream, context, path)
        return obj


class NullableStruct(c.Construct):  # type: ignore[misc]
    """A struct that may be null: a byte -1 for null, or 1 and the struct."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        if c.Int8sb._parsereport(stream, context, path) < 0:
            return None
        return self.inner._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        c.Int8sb._build(-1 if obj is None else 1, stream, context, path)
        if obj is not None:
            self.inner._build(obj, stream, context, path)
        return obj


UVARINT = UnsignedVarint()
Uuid = c.Bytes(16)


@dataclass(frozen=True)
class WireType:
    """A primitive: its name, default value, and, if its size is fixed, its struct format."""

    name: str
    default: Any
    format: str = ""
    size_bytes: int = 0
    fixed: Any = None

    def layout(self, flexible: bool, nullable: bool) -> Any:
        """The construct of this type in one encoding."""
        if self.fixed is not None:
            return self.fixed
        text = self.name == "string"
        length = UVARINT if flexible else c.Int16sb if text else c.Int32sb
        return SizedBytes(length, flexible, nullable, text)

    def min_bytes(self, flexible: bool) -> int:
        """The minimum size of a value in bytes. With this size a reader checks an array's number of
        elements against the available bytes."""
        if self.size_bytes:
            return self.size_bytes
        if flexible:
            return 1
        return 2 if self.name == "string" else 4


BOOL = WireType("bool", False, "?", 1, c.Flag)
INT8 = WireType("int8", 0, "b", 1, c.Int8sb)
INT16 = WireType("int16", 0, "h", 2, c.Int16sb)
UINT16 = WireType("uint16", 0, "H", 2, c.Int16ub)
INT32 = WireType("int32", 0, "i", 4, c.Int32sb)
UINT32 = WireType("uint32", 0, "I", 4, c.Int32ub)
INT64 = WireType("int64", 0, "q", 8, c.Int64sb)
FLOAT64 = WireType("float64", 0.0, "d", 8, c.Float64b)
UUID = WireType("uuid", ZERO_UUID, "16s", 16, Uuid)
STRING = WireType("string", "")
BYTES = WireType("bytes", b"")
#: A sequence of record batches, decoded as a memoryview of the frame, without a copy.
RECORDS = WireType("records", None)
