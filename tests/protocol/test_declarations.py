"""Our declarations say what Kafka's own message definitions say, field by field.

Runs where those definitions are kept beside the checkout (architecture, D7).
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import odradek_protocol.stored
from odradek_protocol.keys import APIS, PRIVATE_KEYS, ApiKey
from odradek_protocol.message import ArrayOf, FieldSpec, Message, Struct, Versions
from odradek_protocol.primitives import ZERO_UUID, WireType


def _stored_messages() -> list[type[Message]]:
    found = {}
    for info in pkgutil.iter_modules(odradek_protocol.stored.__path__):
        module = importlib.import_module(f"odradek_protocol.stored.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found[value.__name__] = value
    return list(found.values())


#: What Kafka has no definition of is left out by name.
KAFKAS = [api for api in APIS.values() if api.key not in PRIVATE_KEYS]
WIRE = [cls for api in KAFKAS for cls in (api.request, api.response)]
STORED = _stored_messages()
#: Where a stored record has another name than Kafka's definition of it.
STORED_NAMES = {
    "ConsumerAssignment": "ConsumerProtocolAssignment",
    "ConsumerSubscription": "ConsumerProtocolSubscription",
}
#: Records of the cluster metadata log: the controller's, whose definitions are not in the folder.
NOT_DEFINED_THERE = {
    "ConfigRecord",
    "CooperativeStickyUserData",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RemoveTopicRecord",
    "StickyUserData",
    "TopicRecord",
}


def _read(path: Path) -> dict[str, Any]:
    """Kafka's JSON has comments, on lines of their own."""
    text = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    definition: dict[str, Any] = json.loads(text)
    return definition


def _snake(name: str) -> str:
    """As our declarations write Kafka's names."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _versions(text: str | None, valid: Versions) -> list[int]:
    """The versions of a range that the message has."""
    held = Versions.parse(text or "none")
    return [version for version in valid if version in held]


def _default(field: dict[str, Any]) -> Any:
    """The default of a definition, as Kafka's generator reads it."""
    kind, text = field["type"], field.get("default")
    if "default" in field and text is None:
        # Written as JSON's null rather than the text "null".
        return None
    if text == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "string":
        return text or ""
    if kind == "bytes":
        return b""
    if kind == "uuid":
        return ZERO_UUID
    if kind == "float64":
        return float(text or 0)
    if re.fullmatch(r"u?int\d+", kind):
        return int(str(text or 0), 0)
    return "a struct"


def _theirs(field: dict[str, Any], valid: Versions) -> dict[str, Any]:
    kind = field["type"]
    element = kind.removeprefix("[]")
    return {
        "name": _snake(field["name"]),
        "array": kind.startswith("[]"),
        "type": element if element[0].islower() else "a struct",
        "versions": _versions(field.get("versions", field.get("taggedVersions")), valid),
        "nullable": _versions(field.get("nullableVersions"), valid),
        "tagged": _versions(field.get("taggedVersions"), valid),
        "tag": field.get("tag", -1),
        "default": _default(field),
        "ignorable": bool(field.get("ignorable", False)),
    }


def _ours(spec: FieldSpec, valid: Versions) -> dict[str, Any]:
    element = spec.type.element if isinstance(spec.type, ArrayOf) else spec.type
    return {
        "name": spec.name,
        "array": isinstance(spec.type, ArrayOf),
        "type": element.name if isinstance(element, WireType) else "a struct",
        "versions": [version for version in valid if version in spec.versions],
        "nullable": [version for version in valid if version in spec.nullable],
        "tagged": [version for version in valid if version in spec.tagged],
        "tag": spec.tag,
        "default": "a struct" if isinstance(spec.default, type) else spec.default,
        "ignorable": spec.ignorable,
    }


def _compare(
    cls: type[Struct],
    fields: list[dict[str, Any]],
    common: dict[str, list[dict[str, Any]]],
    valid: Versions,
) -> None:
    """Every field, in order, and what is inside of it; also those that no valid version has."""
    assert [_ours(spec, valid) for spec in cls.fields] == [
        _theirs(field, valid) for field in fields
    ]
    for spec, field in zip(cls.fields, fields, strict=True):
        element = spec.type.element if isinstance(spec.type, ArrayOf) else spec.type
        if not isinstance(element, WireType):
            inner = field.get("fields") or common[field["type"].removeprefix("[]")]
            _compare(element, inner, common, valid)


def _compare_message(cls: type[Message], definition: dict[str, Any]) -> None:
    valid = Versions.parse(definition["validVersions"])
    flexible = definition.get("flexibleVersions")
    assert list(cls.versions) == list(valid)
    assert [v for v in valid if v in cls.flexible] == _versions(flexible, valid)
    assert cls.api_key == definition.get("apiKey", -1)
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    _compare(cls, definition["fields"], common, valid)


@pytest.mark.parametrize("cls", WIRE, ids=lambda cls: cls.__name__)
def test_d07_messages_are_declared_as_kafka_defines_them(
    cls: type[Message], kafka_messages: Path
) -> None:
    _compare_message(cls, _read(kafka_messages / "wire" / f"{cls.__name__}.json"))


@pytest.mark.parametrize(
    "cls",
    [cls for cls in STORED if cls.__name__ not in NOT_DEFINED_THERE],
    ids=lambda cls: cls.__name__,
)
def test_d07_stored_records_are_declared_as_kafka_defines_them(
    cls: type[Message], kafka_messages: Path
) -> None:
    name = STORED_NAMES.get(cls.__name__, cls.__name__)
    _compare_message(cls, _read(kafka_messages / "records" / f"{name}.json"))


def test_records_without_a_definition_are_ours_and_have_none(kafka_messages: Path) -> None:
    assert {cls.__name__ for cls in STORED} >= NOT_DEFINED_THERE
    for name in NOT_DEFINED_THERE:
        assert not (kafka_messages / "records" / f"{name}.json").exists()


def test_private_messages_are_not_kafkas(kafka_messages: Path) -> None:
    for key in PRIVATE_KEYS:
        assert not list((kafka_messages / "wire").glob(f"{APIS[key].name}*.json"))
        for path in (kafka_messages / "wire").glob("*Request.json"):
            assert _read(path).get("apiKey") != key


@pytest.mark.parametrize("api", KAFKAS, ids=lambda api: api.name)
def test_served_versions_leave_out_what_kafka_calls_unstable_but_for_one(
    api: Any, kafka_messages: Path
) -> None:
    definition = _read(kafka_messages / "wire" / f"{api.name}Request.json")
    unstable = definition.get("latestVersionUnstable", False)
    if api.key is ApiKey.INIT_PRODUCER_ID:
        assert unstable, "stable by now: our exception is none any more"
        unstable = False  # prepared transactions need it (KIP-939)
    assert api.versions.first == api.request.versions.first
    assert api.versions.last == api.request.versions.last - (1 if unstable else 0)
    first = 0 if api.key is ApiKey.PRODUCE else api.versions.first
    assert (api.advertised.first, api.advertised.last) == (first, api.versions.last)


def test_header_versions_follow_the_flexible_versions(kafka_messages: Path) -> None:
    request = _read(kafka_messages / "wire" / "RequestHeader.json")
    response = _read(kafka_messages / "wire" / "ResponseHeader.json")
    assert (request["validVersions"], request["flexibleVersions"]) == ("1-2", "2+")
    assert (response["validVersions"], response["flexibleVersions"]) == ("0-1", "1+")
