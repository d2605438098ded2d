"""Avro: schemas, records in the binary encoding, and object containers.

The reader limits the numbers of values and nested calls, because a schema may contain itself, and
items may have no bytes: a few bytes could otherwise cause any number of values and any depth.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from odradek_records.decoders.plain import CannotDecode, Limits, json_float

_SCHEMA_CHARACTERS_MAX = 1_000_000
_NAMED_MAX = 10_000
_VARINT_BYTES_MAX = 10
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_EPOCH = dt.datetime(1970, 1, 1)


class AvroSchemaError(ValueError):
    """The error of an unusable schema, with the position of the fault."""


@dataclass(slots=True)
class _Input:
    data: bytes
    limits: Limits
    at: int = 0
    values: int = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            left = len(self.data) - self.at
            raise CannotDecode(f"{size} bytes are wanted at {self.at}, and {left} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self) -> int:
        value = shift = 0
        start = self.at
        for byte in self.data[start : start + _VARINT_BYTES_MAX]:
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                return (value >> 1) ^ -(value & 1)
        raise CannotDecode(f"no integer at {start}")

    def count_value(self, depth: int) -> None:
        self.values += 1
        if self.values > self.limits.items_max:
            raise CannotDecode(f"more than {self.limits.items_max} values")
        if depth > self.limits.depth_max:
            raise CannotDecode(f"nested more than {self.limits.depth_max} deep")


#: A function that reads a value at a depth of nesting.
_Read = Callable[[_Input, int], Any]


# --- Values ---------------------------------------------------------------------------------------


def _boolean(source: _Input) -> bool:
    (byte,) = source.take(1)
    if byte > 1:
        raise CannotDecode(f"byte {byte} at {source.at - 1} is no boolean")
    return byte == 1


def _real(layout: str, source: _Input) -> float | str:
    (value,) = struct.unpack(layout, source.take(struct.calcsize(layout)))
    return json_float(value)


def _string(source: _Input) -> str:
    start = source.at
    try:
        return source.take(source.long()).decode()
    except UnicodeDecodeError:
        raise CannotDecode(f"the string at {start} is no UTF-8") from None


def _in_base64(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


_READ_PRIMITIVE: dict[str, Callable[[_Input], Any]] = {
    "null": lambda source: None,
    "boolean": _boolean,
    "int": _Input.long,
    "long": _Input.long,
    "float": partial(_real, "<f"),
    "double": partial(_real, "<d"),
    "bytes": lambda source: source.take(source.long()),
    "string": _string,
}


def _array(item: _Read, source: _Input, depth: int) -> list[Any]:
    found: list[Any] = []
    while count := _block(source):
        for _ in range(count):
            found.append(item(source, depth + 1))
    return found


def _map(value: _Read, source: _Input, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while count := _block(source):
        for _ in range(count):
            name = _string(source)
            found[name] = value(source, depth + 1)
    return found


def _block(source: _Input) -> int:
    """The number of items in the next block. A negative number in the data means that the size of
    the block in bytes follows."""
    count = source.long()
    if count < 0:
        source.long()
        count = -count
    return count


def _union(branches: list[_Read], source: _Input, depth: int) -> Any:
    start = source.at
    branch = source.long()
    if not 0 <= branch < len(branches):
        raise CannotDecode(f"branch {branch} at {start} of a union of {len(branches)}")
    return branches[branch](source, depth)


def _enum(symbols: list[str], source: _Input, _depth: int) -> str:
    start = source.at
    symbol = source.long()
    if not 0 <= symbol < len(symbols):
        raise CannotDecode(f"symbol {symbol} at {start} of an enum of {len(symbols)}")
    return symbols[symbol]


# --- Logical types --------------------------------------------------------------------------------


def _decimal(data: bytes, scale: int) -> str:
    unscaled = int.from_bytes(data, "big", signed=True)
    # The tuple keeps every digit, while arithmetic would round to the context's precision.
    digits = tuple(map(int, str(abs(unscaled))))
    return format(Decimal((int(unscaled < 0), digits, -scale)), "f")


def _moment(per_second: int, zone: str, value: int) -> str | int:
    seconds, part = divmod(value, per_second)
    try:
        whole = (_EPOCH + dt.timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return value
    return f"{whole}.{part:0{len(str(per_second)) - 1}d}{zone}"


def _date(value: int) -> str | int:
    try:
        return (_EPOCH + dt.timedelta(days=value)).date().isoformat()
    except OverflowError:
        return value


def _time_of_day(per_second: int, value: int) -> str | int:
    if not 0 <= value < 86_400 * per_second:
        return value
    return str(_moment(per_second, "", value)).partition("T")[2]


def _duration(data: bytes) -> dict[str, int]:
    months, days, milliseconds = struct.unpack("<III", data)
    return {"months": months, "days": days, "milliseconds": milliseconds}


#: The function that makes the shown value, by (logical type, underlying type).
_LOGICAL: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("date", "int"): _date,
    ("time-millis", "int"): partial(_time_of_day, 1_000),
    ("time-micros", "long"): partial(_time_of_day, 1_000_000),
    **{
        (f"{prefix}timestamp-{unit}", "long"): partial(_moment, per_second, zone)
        for prefix, zone in (("", "Z"), ("local-", ""))
        for unit, per_second in (("millis", 1_000), ("micros", 1_000_000), ("nanos", 10**9))
    },
}


# --- Schemas --------------------------------------------------------------------------------------


@dataclass(slots=True)
class AvroSchema:
    """A schema, as a function that reads a value. `named`: the named types of the schema, by full
    name, for schemas that refer to them."""

    read: _Read
    named: dict[str, _Read]

    def decode(self, data: bytes, limits: Limits) -> Any:
        """The value of one record. CannotDecode for other bytes, and if bytes follow the value."""
        source = _Input(data, limits)
        value = self.read(source, 0)
        if source.at != len(data):
            raise CannotDecode(f"{len(data) - source.at} bytes are left behind the record")
        return value


def parse_schema(text: str, known: dict[str, _Read] | None = None) -> AvroSchema:
    """The schema in a text of JSON. `known`: named types of other schemas. Raises SchemaError."""
    if len(text) > _SCHEMA_CHARACTERS_MAX:
        raise AvroSchemaError(f"an Avro schema has at most {_SCHEMA_CHARACTERS_MAX} characters")
    try:
        declared = json.loads(text)
        compiler = _Compiler(dict(known or {}))
        return AvroSchema(compiler.compile(declared, ""), compiler.named)
    except RecursionError:
        raise AvroSchemaError("the Avro schema is nested too deeply") from None
    except AvroSchemaError:
        raise
    except ValueError as error:
        raise AvroSchemaError(f"the Avro schema is no JSON: {error}") from None


@dataclass(slots=True)
class _Compiler:
    named: dict[str, _Read] = field(default_factory=dict)

    def compile(self, schema: Any, namespace: str) -> _Read:
        read = self._compile(schema, namespace)

        def counted(source: _Input, depth: int) -> Any:
            source.count_value(depth)
            return read(source, depth)

        return counted

    def _compile(self, schema: Any, namespace: str) -> _Read:
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return self._primitive(schema, {})
            return self._reference(schema, namespace)
        if isinstance(schema, list):
            return partial(_union, [self.compile(each, namespace) for each in schema])
        if not isinstance(schema, dict) or "type" not in schema:
            raise AvroSchemaError(f"no Avro type: {_shown(schema)}")
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._compile(kind, namespace)
        if kind in _PRIMITIVES:
            return self._primitive(kind, schema)
        if kind == "array":
            return partial(_array, self.compile(_part(schema, "items"), namespace))
        if kind == "map":
            return partial(_map, self.compile(_part(schema, "values"), namespace))
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(kind, schema, namespace)
        return self._reference(kind, namespace)

    def _primitive(self, kind: str, schema: dict[str, Any]) -> _Read:
        read = _READ_PRIMITIVE[kind]
        logical = str(schema.get("logicalType", ""))
        if kind == "bytes":
            shown = _of_bytes(schema)
            return lambda source, depth: shown(source.take(source.long()))
        convert = _LOGICAL.get((logical, kind))
        if convert is None:
            return lambda source, depth: read(source)
        return lambda source, depth: convert(read(source))

    def _reference(self, name: Any, namespace: str) -> _Read:
        full = _full_name(name, namespace)
        found = full if full in self.named else name
        if found not in self.named:
            raise AvroSchemaError(f"there is no Avro type {_shown(name)}")
        # The type is looked up when it is read, because a type may contain itself.
        return lambda source, depth: self.named[found](source, depth)

    def _named(self, kind: str, schema: dict[str, Any], namespace: str) -> _Read:
        name = _full_name(_part(schema, "name"), schema.get("namespace", namespace))
        if len(self.named) >= _NAMED_MAX:
            raise AvroSchemaError(f"an Avro schema has at most {_NAMED_MAX} named types")
        inner = name.rpartition(".")[0]
        if kind == "enum":
            symbols = _part(schema, "symbols")
            if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
                raise AvroSchemaError(f"the symbols of enum {name} are no list of names")
            self.named[name] = partial(_enum, symbols)
        elif kind == "fixed":
            size = _part(schema, "size")
            if not isinstance(size, int) or size < 0:
                raise AvroSchemaError(f"the size of fixed {name} is no number")
            shown = _of_bytes(schema)
            self.named[name] = lambda source, depth: shown(source.take(size))
        else:
            fields: list[tuple[str, _Read]] = []
            self.named[name] = partial(_record, fields)
            declared = _part(schema, "fields")
            if not isinstance(declared, list):
                raise AvroSchemaError(f"the fields of record {name} are no list")
            fields += [
                (str(_part(each, "name")), self.compile(_part(each, "type"), inner))
                for each in declared
            ]
        return self.named[name]


def _record(fields: list[tuple[str, _Read]], source: _Input, depth: int) -> dict[str, Any]:
    return {name: read(source, depth + 1) for name, read in fields}


def _of_bytes(schema: dict[str, Any]) -> Callable[[bytes], Any]:
    """The function that makes the shown form of bytes."""
    logical, scale, size = schema.get("logicalType"), schema.get("scale", 0), schema.get("size")
    if logical == "decimal" and isinstance(scale, int) and 0 <= scale <= 10_000:
        return partial(_decimal, scale=scale)
    if logical == "duration" and size == 12:
        return _duration
    if logical == "uuid" and size == 16:
        return lambda data: str(uuid.UUID(bytes=data))
    return _in_base64


def _part(schema: Any, name: str) -> Any:
    if not isinstance(schema, dict) or name not in schema:
        raise AvroSchemaError(f"{name!r} is missing in {_shown(schema)}")
    return schema[name]


def _full_name(name: Any, namespace: Any) -> str:
    if not isinstance(name, str) or not name:
        raise AvroSchemaError(f"{_shown(name)} is no name of an Avro type")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _shown(schema: Any) -> str:
    text = json.dumps(schema)
    return text if len(text) <= 80 else f"{text[:80]}..."


# --- Object containers ----------------------------------------------------------------------------

CONTAINER = b"Obj\x01"
_SYNC_BYTES = 16
_RAW_DEFLATE = -15


def read_container(data: bytes, limits: Limits) -> list[Any]:
    """The records of an object container. CannotDecode."""
    source = _Input(data, limits)
    if source.take(len(CONTAINER)) != CONTAINER:
        raise CannotDecode("no object container: it does not begin with Obj")
    about: dict[str, bytes] = {}
    while count := _block(source):
        for _ in range(count):
            source.count_value(0)
            name = _string(source)
            about[name] = source.take(source.long())
    sync = source.take(_SYNC_BYTES)
    codec = about.get("avro.codec", b"null").decode("utf-8", "replace")
    if codec not in ("null", "deflate"):
        raise CannotDecode(f"object containers are read with codec null or deflate, not {codec}")
    try:
        schema = parse_schema(about.get("avro.schema", b"").decode())
    except ValueError as error:
        raise CannotDecode(f"object container: {error}") from None
    records: list[Any] = []
    while source.at < len(data):
        count = source.long()
        block = source.take(source.long())
        inner = _Input(_inflated(block, limits) if codec == "deflate" else block, limits)
        inner.values = source.values
        for _ in range(count):
            records.append(schema.read(inner, 1))
        source.values = inner.values
        if source.take(_SYNC_BYTES) != sync:
            raise CannotDecode(f"no end of a block at {source.at - _SYNC_BYTES}")
    return records


def _inflated(block: bytes, limits: Limits) -> bytes:
    try:
        data = zlib.decompressobj(_RAW_DEFLATE).decompress(block, limits.data_bytes_max + 1)
    except zlib.error as error:
        raise CannotDecode(f"a block cannot be decompressed: {error}") from None
    if len(data) > limits.data_bytes_max:
        raise CannotDecode(f"a block has more than {limits.data_bytes_max} bytes")
    return data
