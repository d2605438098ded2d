"""Protobuf messages. With descriptors, fields are shown by name; without descriptors, the wire
format has only their numbers."""

from __future__ import annotations

import base64
import struct
from typing import Any

from odradek_records.decoders.plain import CannotDecode, Found, Limits, as_text, json_float

_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_VARINT_BYTES_MAX = 10
_U64 = (1 << 64) - 1
_FIELD_NUMBER_MAX = (1 << 29) - 1
#: Larger field numbers are rare in messages, and common in bytes that are no message.
_LIKELY_FIELD_NUMBER_MAX = 10_000
#: Characters with which texts seldom begin. As bytes, they are keys of field 1, so messages often
#: begin with them.
_BEGINS_A_MESSAGE = ("\t", "\n", "\r")


def raw(data: bytes, limits: Limits, *, likely: bool = False) -> Found:
    """The fields of a message, by number. A field that occurs several times is a list.

    A field of bytes is shown as text, a message or base64, whichever fits first. Numbers of fixed
    size are shown as integer and as floating point. `likely`: refuse bytes that are unlikely to be
    a message. CannotDecode for bytes that are no message.
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
        """The fields up to `end`, and the position after them. In a group, the fields end at the
        group's end tag."""
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

    def zigzag(self, at: int) -> tuple[int, int]:
        value, at = self._varint(at, len(self._data))
        return (value >> 1) ^ -(value & 1), at

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
            # The fields of a failed attempt count against the limit, because reading them took
            # time.
            if self._left < 0:
                raise
        return text if text is not None else {"base64": base64.b64encode(data).decode()}


def _collected(found: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: each if len(each) > 1 else each[0] for name, each in found.items()}


# --- With a schema --------------------------------------------------------------------------------

_NEEDS_PACKAGE = "the package protobuf is missing: pip install 'odradek[schemas]'"
#: The files that every compiler includes.
_WELL_KNOWN = "google/protobuf/"
_INDEXES_MAX = 64
_IMPORTS_DEPTH_MAX = 64
_NAMES_SHOWN = 20
_NOBODY_IMPORTS = "schema of the record.proto"


class DescriptorError(ValueError):
    """The error of unusable descriptors, with the reason."""


class ProtobufSchema:
    """Descriptors of messages, and the message in the records.

    `files`: serialized FileDescriptorProtos. `message`: the full name of the message; None: each
    record contains the indexes of its message in the last file. Raises SchemaError.
    """

    def __init__(self, files: list[bytes], message: str | None) -> None:
        self._pool, self._last = _pool_of(files)
        self._message = None
        if message is not None:
            try:
                self._message = self._pool.FindMessageTypeByName(message)
            except KeyError:
                raise DescriptorError(
                    f"there is no message {message!r} in the descriptors; there are "
                    + ", ".join(_names_of(self._pool, files)[:_NAMES_SHOWN])
                ) from None

    @classmethod
    def from_set(cls, data: bytes, message: str) -> ProtobufSchema:
        """The schema in a FileDescriptorSet, as `protoc --include_imports -o FILE` writes it."""
        descriptors = _import_descriptors()
        try:
            files = descriptors.FileDescriptorSet.FromString(data).file
        except _decode_error():
            raise DescriptorError(
                "no set of descriptors; write it with protoc --include_imports --descriptor_set_out"
            ) from None
        if not files:
            raise DescriptorError("the set of descriptors is empty")
        return cls([each.SerializeToString() for each in files], message)

    def decode(self, data: bytes, *, indexes: tuple[int, ...] = ()) -> Found:
        """The message's fields by name. CannotDecode for bytes that are no such message."""
        from google.protobuf import json_format, message_factory

        kind = self._message or self._at(indexes)
        try:
            message = message_factory.GetMessageClass(kind).FromString(data)
            value = json_format.MessageToDict(
                message, preserving_proto_field_name=True, descriptor_pool=self._pool
            )
        except _decode_error():
            raise CannotDecode(f"no message {kind.full_name}") from None
        except (json_format.Error, TypeError, ValueError, RecursionError) as error:
            raise CannotDecode(f"no message {kind.full_name}: {error}") from None
        if data and not message.ListFields():
            raise CannotDecode(f"none of its fields is in the message {kind.full_name}")
        return Found(value)

    def _at(self, indexes: tuple[int, ...]) -> Any:
        """The message that the indexes select: the first index selects a message of the file, each
        further index a message nested in the last one."""
        messages = list(self._last.message_types_by_name.values())
        kind = None
        for index in indexes or (0,):
            if not 0 <= index < len(messages):
                raise CannotDecode(f"the schema has no message with the index {list(indexes)}")
            kind = messages[index]
            messages = list(kind.nested_types)
        return kind


def read_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The message indexes that follow a schema id, and the message after them.

    In Confluent's format, the number of indexes and each index are zigzag encoded; a single 0
    stands for [0].
    """
    reader = _Reader(data, Limits(), likely=False)
    count, at = reader.zigzag(0)
    if count == 0:
        return (0,), data[at:]
    if not 0 < count <= _INDEXES_MAX:
        raise CannotDecode(f"{count} indexes of a message")
    indexes = []
    for _ in range(count):
        index, at = reader.zigzag(at)
        indexes.append(index)
    return tuple(indexes), data[at:]


def renamed(file: bytes, name: str | None) -> bytes:
    """A serialized descriptor under the name by which other files import it. None: no file imports
    it."""
    proto = _import_descriptors().FileDescriptorProto.FromString(file)
    proto.name = name or _NOBODY_IMPORTS
    serialized: bytes = proto.SerializeToString()
    return serialized


def _import_descriptors() -> Any:
    try:
        from google.protobuf import descriptor_pb2
    except ImportError:
        raise DescriptorError(_NEEDS_PACKAGE) from None
    return descriptor_pb2


def _decode_error() -> type[Exception]:
    from google.protobuf.message import DecodeError

    error: type[Exception] = DecodeError
    return error


def _pool_of(files: list[bytes]) -> tuple[Any, Any]:
    """A pool of the files, and the descriptor of the last file."""
    descriptors = _import_descriptors()
    from google.protobuf import descriptor_pool

    try:
        protos = {
            each.name: each for each in map(descriptors.FileDescriptorProto.FromString, files)
        }
        last = list(protos)[-1]
        for name in {each for proto in protos.values() for each in proto.dependency} - set(protos):
            if name.startswith(_WELL_KNOWN):
                protos[name] = _well_known(name)
        pool = descriptor_pool.DescriptorPool()
        added: set[str] = set()
        for name in list(protos):
            _add(pool, protos, name, added, 0)
        return pool, pool.FindFileByName(last)
    except DescriptorError:
        raise
    except (_decode_error(), TypeError, ValueError, KeyError) as error:
        raise DescriptorError(f"the descriptors cannot be used: {error}") from None


def _add(pool: Any, protos: dict[str, Any], name: str, added: set[str], depth: int) -> None:
    """Add a file after those that it imports."""
    if name in added:
        return
    if depth > _IMPORTS_DEPTH_MAX:
        raise DescriptorError(f"files import each other more than {_IMPORTS_DEPTH_MAX} deep")
    added.add(name)
    for imported in protos[name].dependency:
        if imported not in protos:
            raise DescriptorError(
                f"{name} imports {imported}, which is missing; protoc has --include_imports"
            )
        _add(pool, protos, imported, added, depth + 1)
    pool.Add(protos[name])


def _well_known(name: str) -> Any:
    from importlib import import_module

    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        descriptor = import_module(module).DESCRIPTOR
    except ImportError:
        raise DescriptorError(
            f"{name} is imported, and the package protobuf does not have it"
        ) from None
    return _import_descriptors().FileDescriptorProto.FromString(descriptor.serialized_pb)


def _names_of(pool: Any, files: list[bytes]) -> list[str]:
    descriptors = _import_descriptors()
    return sorted(
        kind.full_name
        for each in files
        for kind in pool.FindFileByName(
            descriptors.FileDescriptorProto.FromString(each).name
        ).message_types_by_name.values()
    )
