"""Conversion between messages and plain values, and placeholders for values that differ from run to
run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import ArrayOf, Message, Struct
from odradek_protocol.primitives import WireType
from odradek_protocol.records.batch import BatchHeader, CorruptBatch, iter_batches
from odradek_protocol.records.record import read_records

Resolve = Callable[[Any], Any]

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_KAFKA_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
#: Fields whose values a broker chooses, and the names of the placeholders for them.
_IDS = {
    "topic_id": "topic id",
    "client_instance_id": "client instance",
    "producer_id": "producer id",
    "next_producer_id": "producer id",
    "ongoing_txn_producer_id": "producer id",
    "session_id": "session",
    "cluster_id": "cluster",
    "incarnation_id": "incarnation",
}
_ADDRESSES = {"host", "port", "client_host"}
_HEADER_FIELDS = (
    *("base_offset", "leader_epoch", "attributes", "last_offset_delta", "base_timestamp"),
    *("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count"),
)
#: A time within a day of the present is taken for a broker's current time; timestamps in scenarios
#: are much older.
_NOW_MS = 86_400_000
#: The fields that identify the elements of lists whose order is arbitrary.
_KEYS = (
    *("name", "topic", "topic_name", "resource_type", "resource_name", "key", "api_key"),
    *("group_id", "group", "transactional_id", "member_id", "group_instance_id", "partition_index"),
    *("partition", "index", "node_id", "broker_id", "producer_id", "config_name"),
    *("topic_id", "entity_type", "entity"),
)


def from_plain(cls: type[Struct], values: Mapping[str, Any], version: int, resolve: Resolve) -> Any:
    """A struct of `cls` for one version, from plain values. Raises KeyError for a field that no
    version has."""
    specs = {spec.name: spec for spec in cls.fields}
    made = cls()
    for name, value in values.items():
        if name == "unknown_tags":
            made.unknown_tags = value
            continue
        spec = specs[name]
        if version in spec.versions:
            setattr(made, name, _from_plain(spec.type, resolve(value), version, resolve))
    return made


def _from_plain(type_: Any, value: Any, version: int, resolve: Resolve) -> Any:
    if value is None or isinstance(type_, WireType):
        return resolve(value)
    if isinstance(type_, ArrayOf):
        return [_from_plain(type_.element, resolve(item), version, resolve) for item in value]
    return from_plain(type_, value, version, resolve)


def to_plain(value: Struct) -> dict[str, Any]:
    """Convert a decoded message to lists, texts and numbers; fields with their default are left
    out."""
    shown: dict[str, Any] = {}
    for spec in value.fields:
        found = getattr(value, spec.name)
        is_error = spec.name.endswith("error_code")
        if found == spec.fresh_default() and not is_error:
            continue
        if is_error:
            shown[spec.name] = ErrorCode.of(found).name if found in _CODES else found
        else:
            shown[spec.name] = _to_plain(found, spec.type)
    if value.unknown_tags:
        shown["unknown_tags"] = {str(k): v.hex() for k, v in value.unknown_tags.items()}
    return shown


_CODES = {int(code) for code in ErrorCode}


def _to_plain(value: Any, type_: Any) -> Any:
    if value is None:
        return None
    if isinstance(type_, ArrayOf):
        return [_to_plain(item, type_.element) for item in value]
    if isinstance(value, Struct):
        return to_plain(value)
    if isinstance(type_, WireType) and type_.name == "records":
        return _batches(bytes(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value


def _batches(data: bytes) -> list[dict[str, Any]]:
    shown = []
    for start, header in iter_batches(data):
        fields = {name: getattr(header, name) for name in _HEADER_FIELDS}
        shown.append({**fields, "records": _records(data, start, header)})
    return shown


def _records(data: bytes, start: int, header: BatchHeader) -> list[list[Any]] | str:
    try:
        records = read_records(data, start, header)
    except CorruptBatch:
        return "<unreadable>"
    return [
        [
            each.offset,
            each.timestamp,
            _text(each.key),
            "<marker>" if header.is_control else _text(each.value),
        ]
        for each in records
    ]


def _text(value: Any) -> str | None:
    return None if value is None else bytes(value).decode("latin-1")


class Normaliser:
    """Replaces those values in the answers of a run that would be different in another run.

    Within a run, the same value always gets the same placeholder, such as `<producer id 1>`.
    """

    def __init__(self, prefix: str, now_ms: int) -> None:
        self._prefix, self._now_ms = prefix, now_ms
        self._numbers: dict[str, dict[Any, int]] = {}
        self._called: dict[str, str] = {}

    def call(self, name: str, placeholder: str) -> None:
        """Replace each text equal to `name` with `placeholder`."""
        self._called[name] = placeholder

    def answer(self, value: Any) -> Any:
        """Convert an answer's plain value to a comparable form."""
        return self._value(value, "")

    def _value(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            if "partitions" in value and value.get("topic") == "__consumer_offsets":
                # The partition of a single group depends on its name, which differs between runs.
                # Scenarios with several groups give them fixed names, so the partitions are
                # compared.
                found = sorted(value["partitions"])
                value = {**value, "partitions": found if len(found) > 1 else ["<of the group>"]}
            return {k: self._value(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return self._sorted([self._value(item, name) for item in value], name)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return self._number(value, name)
        return self._text(value, name) if isinstance(value, str) else value

    def _number(self, value: int, name: str) -> Any:
        if name in _IDS:
            return (
                value
                if value < 0 or (name == "session_id" and not value)
                else self._id(value, name)
            )
        if name in _ADDRESSES:
            return f"<{name}>"
        if name == "throttle_time_ms" and value > 0:
            # The quota is in bytes, and requests contain names of varying length, so the throttle
            # time varies.
            return "<throttled>"
        return "<now>" if abs(value - self._now_ms) < _NOW_MS else value

    def _text(self, value: str, name: str) -> str:
        if name in _ADDRESSES:
            return f"<{name}>"
        if value in self._called:
            return self._called[value]
        if self._prefix.encode().hex() in value:
            return "<bytes with names>"
        if name in ("error_message", "message", "batch_index_error_message") and value:
            return "<text>"
        if name in _IDS:
            return self._id(value, name) if value.strip("0") else value
        if name in ("member_id", "leader") and _KAFKA_UUID.fullmatch(value):
            return self._numbered("uuid", value)
        value = _UUID.sub(lambda found: self._numbered("uuid", found[0]), value)
        return value.replace(self._prefix, "@")

    def _id(self, value: Any, name: str) -> str:
        return self._numbered(_IDS[name], value)

    def _numbered(self, kind: str, value: Any) -> str:
        seen = self._numbers.setdefault(kind, {})
        return f"<{kind} {seen.setdefault(value, len(seen) + 1)}>"

    @staticmethod
    def _sorted(items: list[Any], name: str) -> list[Any]:
        if name == "subscribed_topic_names":
            return sorted(items)
        if name == "records" or not all(isinstance(item, dict) for item in items):
            return items

        def key(item: dict[str, Any]) -> list[tuple[str, str]]:
            return [(k, str(item[k]).rjust(12)) for k in _KEYS if k in item]

        return sorted(items, key=key)


def only_mine(value: Any, prefix: str) -> Any:
    """Remove the elements of lists that belong to other runs (see `Ask.mine`)."""
    if isinstance(value, dict):
        shown = {k: only_mine(v, prefix) for k, v in value.items()}
        return {k: v for k, v in shown.items() if v != []}
    if not isinstance(value, list):
        return value
    return [only_mine(item, prefix) for item in value if not _is_foreign(item, prefix)]


def _is_foreign(item: Any, prefix: str) -> bool:
    if not isinstance(item, dict):
        return False
    keys = ("group_id", "transactional_id", "name", "topic", "resource_name")
    names = [item[k] for k in keys if item.get(k)]
    return any(not str(name).startswith(prefix) for name in names)


def at_paths(value: Any, path: str) -> Iterable[tuple[Any, Any]]:
    """Yield (container, key) of all places that a dotted path selects; `*` is any element."""
    head, _, rest = path.partition(".")
    if isinstance(value, dict):
        keys: Iterable[Any] = list(value) if head == "*" else [head]
    elif isinstance(value, list):
        keys = range(len(value)) if head == "*" else [int(head)] if head.isdigit() else []
    else:
        return
    for key in keys:
        if not rest:
            yield value, key
        elif (isinstance(value, list) and key < len(value)) or (
            isinstance(value, dict) and key in value
        ):
            yield from at_paths(value[key], rest)


def saved_value(message: Message, path: str) -> Any:
    """The value at a dotted path of a message."""
    value: Any = message
    for part in path.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value
