"""Decoders of keys and values, and filters of records: any bytes are shown; a filter is refused, or
answers true or false.

The first byte chooses the kind of the rest: the bytes of a record for one of the formats, an Avro
schema and a record (separated by a zero byte), or a filter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

from tests.adversity.fuzz.target import Broken, Target

from odradek.decoders import CannotDecode, Decoders, Limits, decode
from odradek_records.decoders.avro import AvroSchemaError, parse_schema
from odradek_records.record_filter import FilterError, parse_filter

_LIMITS = Limits(items_max=10_000)
_SCHEMA, _FILTER = 254, 255
_NODE = b'{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}'
_MANY = (
    b'{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"null"}},'
    b'{"name":"m","type":{"type":"map","values":"bytes"}},'
    b'{"name":"d","type":{"type":"fixed","name":"F","size":4,"logicalType":"decimal","scale":2}},'
    b'{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}},'
    b'{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}}]}'
)
_CONTAINER = (
    b'Obj\x01\x04\x14avro.codec\x0edeflate\x16avro.schema\x0c"long"\x00' + b"s" * 16
    + b"\x02\x06\x63\x01\x00" + b"s" * 16
)  # fmt: skip


@dataclass
class _Record:
    value: bytes
    key: bytes | None = b"key"
    headers: list[tuple[str, bytes | None]] = field(default_factory=lambda: [("h", b"v")])
    topic: str = "t"
    partition: int = 0
    offset: int = 7
    timestamp: int = 1_700_000_000_000


@cache
def _decoders() -> Decoders:
    return Decoders(plugins={}, limits=_LIMITS)


def _seeds() -> Iterator[bytes]:
    for which in range(len(_decoders().formats)):
        for data in (
            b"", b'{"a":[1,2.50,"\\ud800"]}', b"text\tand\r\n", b"\x08\x96\x01\x1a\x03\x08\x96\x01",
            b"\x0b\x10\x01\x0c", b"\0\0\0\0\7\0\x08\x01", b"\xff\xfe", b"[" * 200, _CONTAINER,
        ):  # fmt: skip
            yield bytes([which]) + data
    yield bytes([_SCHEMA]) + _NODE + b"\0" + b"\x02" * 50 + b"\0"
    yield bytes([_SCHEMA]) + _MANY + b"\0" + b"\x04\0\x02\x02k\x02x\0\0\0\0\x01\x02\x02"
    for text in (
        "key=a !header.h $.a[*].b>=3 time<2024-05-01", "text~x 'two words' $['odd name']!=1",
        'value~"a \\" b" partition=0 offset>6', "$.*[-1]~1 $=null",
    ):  # fmt: skip
        yield bytes([_FILTER]) + text.encode()


def _check(data: bytes) -> None:
    if not data:
        return
    rest = data[1:]
    if data[0] == _FILTER:
        _check_filter(rest)
    elif data[0] == _SCHEMA:
        schema, _, record = rest.partition(b"\0")
        with suppress(AvroSchemaError, CannotDecode, UnicodeDecodeError):
            _writable(parse_schema(schema.decode()).decode(record, _LIMITS))
    else:
        formats = _decoders().formats
        which = formats[data[0] % len(formats)]
        found = decode(rest, which=which, topic="t", is_key=False, registry=_decoders())
        _writable(found.value)
        found.text.encode()
        if which not in ("guess", found.format) and which not in {
            each.format for each in found.attempts
        }:
            raise Broken(f"{which} was not tried, and {found.format} is shown")


def _check_filter(text: bytes) -> None:
    with suppress(FilterError, UnicodeDecodeError):
        chosen = parse_filter(text.decode(), expressions=False)
        for value in (b'{"a":[{"b":3}],"odd name":null}', b"\xff", b""):
            if not isinstance(chosen(_Record(value)), bool):
                raise Broken("a filter answers neither true nor false")


def _writable(value: object) -> None:
    """Check that the value can be written as JSON in UTF-8."""
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


TARGET = Target(_check, _seeds)
