"""Our declarations equal Kafka's own message definitions, field by field (D7)."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

from tests.golden.kafka_schemas import schemas

import odradek_protocol.stored
from many_cases import looped
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


#: Messages without a definition of Kafka's.
KAFKAS = [api for api in APIS.values() if api.key not in PRIVATE_KEYS]
WIRE = [cls for api in KAFKAS for cls in (api.request, api.response)]
STORED = _stored_messages()
#: Stored records whose name differs from Kafka's definition.
STORED_NAMES = {
    "ConsumerAssignment": "ConsumerProtocolAssignment",
    "ConsumerSubscription": "ConsumerProtocolSubscription",
}
#: Messages that Kafka's client writes by hand.
NOT_DEFINED_THERE = {"CooperativeStickyUserData", "StickyUserData"}
#: Messages with fewer versions than Kafka's: later versions place replicas on several nodes.
FEWER_VERSIONS = {"PartitionRecord": "0"}
#: Undeclared tagged fields: nothing here needs them, and readers skip unknown tags.
LEFT_OUT = {
    ("ConsumerGroupCurrentMemberAssignmentValue", "AssignmentEpochs"),
    ("ConsumerGroupMetadataValue", "MetadataHash"),
    ("ConsumerGroupTargetAssignmentMetadataValue", "AssignmentTimestamp"),
    ("OffsetCommitValue", "topicId"),
    # Ours is `NEXT_EPOCH_TAG`, written when there is one.
    ("TransactionLogValue", "NextProducerEpoch"),
}
#: Tagged fields of ours, with tags far from Kafka's; its readers skip unknown tags.
ADDED = {
    ("ShareSnapshotValue", "dead_letters_from"),
    ("ShareUpdateValue", "dead_letters_from"),
}
_ADDED_TAG_MIN = 10_000


def _snake(name: str) -> str:
    """Kafka's name in the form of our declarations."""
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
    definition: dict[str, Any],
    valid: Versions,
) -> None:
    """Compare every field of a valid version, in order, with everything inside it."""
    theirs = []
    for field in fields:
        if (definition["name"], field["name"]) in LEFT_OUT:
            assert "tag" in field, f"{field['name']} is in the bytes and must be declared"
        elif _theirs(field, valid)["versions"]:
            theirs.append(field)
    ours = []
    for spec in cls.fields:
        if (cls.__name__, spec.name) in ADDED:
            assert spec.tag >= _ADDED_TAG_MIN and list(spec.tagged) == list(spec.versions)
        elif _ours(spec, valid)["versions"]:
            ours.append(spec)
    assert [_ours(spec, valid) for spec in ours] == [_theirs(field, valid) for field in theirs]
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    for spec, field in zip(ours, theirs, strict=True):
        element = spec.type.element if isinstance(spec.type, ArrayOf) else spec.type
        if not isinstance(element, WireType):
            inner = field.get("fields") or common[field["type"].removeprefix("[]")]
            _compare(element, inner, definition, valid)


def _compare_message(cls: type[Message], definition: dict[str, Any]) -> None:
    valid = Versions.parse(FEWER_VERSIONS.get(cls.__name__, definition["validVersions"]))
    assert list(cls.versions) == list(valid)
    assert [v for v in valid if v in cls.flexible] == _versions(
        definition.get("flexibleVersions"), valid
    )
    assert cls.api_key == definition.get("apiKey", -1)
    _compare(cls, definition["fields"], definition, valid)


@looped("cls", WIRE, ids=lambda cls: cls.__name__)
def test_d07_messages_are_declared_as_kafka_defines_them(cls: type[Message]) -> None:
    _compare_message(cls, schemas()[cls.__name__])


@looped(
    "cls",
    [cls for cls in STORED if cls.__name__ not in NOT_DEFINED_THERE],
    ids=lambda cls: cls.__name__,
)
def test_d07_stored_records_are_declared_as_kafka_defines_them(cls: type[Message]) -> None:
    _compare_message(cls, schemas()[STORED_NAMES.get(cls.__name__, cls.__name__)])


def test_the_stored_records_without_a_definition_have_none_in_kafka() -> None:
    assert {cls.__name__ for cls in STORED} >= NOT_DEFINED_THERE
    assert NOT_DEFINED_THERE.isdisjoint(schemas())


def _field_names(definition: dict[str, Any]) -> Iterator[str]:
    """The names of all fields, nested ones included."""
    for each in [*definition.get("fields", []), *definition.get("commonStructs", [])]:
        yield each["name"]
        yield from _field_names(each)


def test_the_fields_left_out_are_defined_by_kafka() -> None:
    stored = {STORED_NAMES.get(cls.__name__, cls.__name__) for cls in STORED}
    for message, name in LEFT_OUT:
        assert message in stored and name in _field_names(schemas()[message])
    assert set(FEWER_VERSIONS) <= stored


def test_the_private_messages_are_not_defined_by_kafka() -> None:
    kafkas = {each["apiKey"] for each in schemas().values() if each["type"] == "request"}
    for key in PRIVATE_KEYS:
        assert key not in kafkas
        assert not [name for name in schemas() if name.startswith(APIS[key].name)]


@looped("api", KAFKAS, ids=lambda api: api.name)
def test_only_init_producer_id_serves_a_version_that_kafka_calls_unstable(api: Any) -> None:
    unstable = schemas()[f"{api.name}Request"].get("latestVersionUnstable", False)
    if api.key is ApiKey.INIT_PRODUCER_ID:
        assert unstable, "stable by now: our exception is none any more"
        unstable = False  # prepared transactions need it (KIP-939)
    assert api.versions.first == api.request.versions.first
    assert api.versions.last == api.request.versions.last - (1 if unstable else 0)
    first = 0 if api.key is ApiKey.PRODUCE else api.versions.first
    assert (api.advertised.first, api.advertised.last) == (first, api.versions.last)


def test_header_versions_follow_the_flexible_versions() -> None:
    request, response = schemas()["RequestHeader"], schemas()["ResponseHeader"]
    assert (request["validVersions"], request["flexibleVersions"]) == ("1-2", "2+")
    assert (response["validVersions"], response["flexibleVersions"]) == ("0-1", "1+")
