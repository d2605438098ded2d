"""A reader of stored records by Kafka's own definitions (tests/golden/kafka_schemas.jsonl).

The reader shares no code with the product, so that it can disagree. Names are Kafka's; UUIDs, byte
strings and unknown tagged fields are bytes.
"""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).resolve().parents[1] / "golden" / "kafka_schemas.jsonl"
_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}

Definition = dict[str, Any]


@cache
def definitions() -> tuple[Definition, ...]:
    """The definitions of all messages of the recorded release of Kafka."""
    return tuple(json.loads(line) for line in _FILE.read_text().splitlines()[1:])


@cache
def _named(name: str) -> Definition:
    (found,) = (each for each in definitions() if each["name"] == name)
    return found


@cache
def _of_kind(kind: str, number: int, *prefixes: str) -> Definition | None:
    found = [
        each
        for each in definitions()
        if each["type"] == kind
        and each.get("apiKey") == number
        and each["name"].startswith(prefixes or "")
        # Record types of tiered storage have a separate numbering.
        and not each["name"].startswith("Remote")
    ]
    return found[0] if found else None


class Bytes:
    """A position in a byte string."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise ValueError(f"{count} bytes at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def unsigned_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def varint(self) -> int:
        """Read a zigzag-encoded integer."""
        value = self.unsigned_varint()
        return (value >> 1) ^ -(value & 1)


def _within(version: int, versions: str | None) -> bool:
    if not versions or versions == "none":
        return False
    first, _, last = versions.removesuffix("+").partition("-")
    if versions.endswith("+"):
        return version >= int(first)
    return int(first) <= version <= int(last or first)


class _Decoder:
    def __init__(self, definition: Definition, version: int, data: Bytes) -> None:
        self._version, self._data = version, data
        self._flexible = _within(version, definition.get("flexibleVersions"))
        self._common = {
            each["name"]: each["fields"] for each in definition.get("commonStructs", ())
        }

    def struct(self, fields: list[Definition]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        tagged = {}
        for field in fields:
            if not _within(self._version, field.get("versions", "0+")):
                continue
            if _within(self._version, field.get("taggedVersions")):
                tagged[field["tag"]] = field
            else:
                found[field["name"]] = self._field(field)
        for _ in range(self._data.unsigned_varint() if self._flexible else 0):
            tag, size = self._data.unsigned_varint(), self._data.unsigned_varint()
            end = self._data.at + size
            if tag in tagged:
                found[tagged[tag]["name"]] = self._field(tagged[tag])
                assert self._data.at == end
            else:
                found.setdefault("unknown tags", {})[tag] = self._data.take(size)
        return found

    def _field(self, field: Definition) -> Any:
        kind: str = field["type"]
        nullable = _within(self._version, field.get("nullableVersions"))
        if not kind.startswith("[]"):
            return self._value(kind, field, nullable)
        count = self._length(4)
        if count < 0:
            return None
        return [self._value(kind[2:], field, False) for _ in range(count)]

    def _length(self, size_bytes: int) -> int:
        if self._flexible:
            return self._data.unsigned_varint() - 1
        return int(self._data.number({2: ">h", 4: ">i"}[size_bytes]))

    def _value(self, kind: str, field: Definition, nullable: bool) -> Any:
        if kind in _NUMBERS:
            return self._data.number(_NUMBERS[kind])
        if kind == "bool":
            return self._data.take(1) != b"\0"
        if kind == "uuid":
            return self._data.take(16)
        if kind in ("string", "bytes"):
            length = self._length(2 if kind == "string" else 4)
            if length < 0:
                return None
            taken = self._data.take(length)
            return taken.decode() if kind == "string" else taken
        if nullable and self._data.number(">b") < 0:
            return None
        return self.struct(field.get("fields") or self._common[kind])


def decode(name: str, version: int, data: Bytes) -> dict[str, Any]:
    """Decode the message `name` of a version. Raises ValueError, and AssertionError if bytes are
    left over."""
    definition = _named(name)
    if not _within(version, definition["validVersions"]):
        raise ValueError(f"{name} has no version {version}")
    found = _Decoder(definition, version, data).struct(definition["fields"])
    assert data.at == len(data.data), f"{len(data.data) - data.at} bytes behind {name}"
    return found


def _coordinator_record(prefixes: tuple[str, ...], key: bytes, value: bytes | None) -> Any:
    keyed = Bytes(key)
    kind = keyed.number(">h")
    of_key = _of_kind("coordinator-key", kind, *prefixes)
    of_value = _of_kind("coordinator-value", kind, *prefixes)
    assert of_key is not None and of_value is not None, kind
    decoded = (of_key["name"], None, decode(of_key["name"], 0, keyed))
    if value is None:
        return decoded, None
    valued = Bytes(value)
    version = valued.number(">h")
    return decoded, (of_value["name"], version, decode(of_value["name"], version, valued))


_GROUPS = (
    "Group",
    "ConsumerGroup",
    "ShareGroup",
    "StreamsGroup",
    "OffsetCommit",
    "LegacyOffsetCommit",
)


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> Any:
    """Decode a record. Returns two tuples (name, version, fields): one for the key, and one for
    the value. A missing key or value is None instead."""
    if topic == "__consumer_offsets":
        return _coordinator_record(_GROUPS, key or b"", value)
    if topic == "__transaction_state":
        return _coordinator_record(("TransactionLog",), key or b"", value)
    if topic == "__share_group_state":
        return _coordinator_record(("ShareSnapshot", "ShareUpdate"), key or b"", value)
    assert topic == "__cluster_metadata" and key is None and value is not None
    data = Bytes(value)
    assert data.unsigned_varint() == 1
    kind, version = data.unsigned_varint(), data.unsigned_varint()
    definition = _of_kind("metadata", kind)
    assert definition is not None, kind
    return None, (definition["name"], version, decode(definition["name"], version, data))
