"""Our declarations are equal to Kafka's own message definitions, field by field (D7)."""

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
from odradek_protocol.stored import modern_groups


def _stored_messages() -> list[type[Message]]:
    found = {}
    for info in pkgutil.iter_modules(odradek_protocol.stored.__path__):
        module = importlib.import_module(f"odradek_protocol.stored.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found[value.__name__] = value
    del found["GroupKey"], found["GroupMemberKey"]  # the keys of many records
    return list(found.values())


#: All APIs except our own, for which Kafka has no definition.
KAFKAS = [api for api in APIS.values() if api.key not in PRIVATE_KEYS]
WIRE = [cls for api in KAFKAS for cls in (api.request, api.response)]
STORED = _stored_messages()
#: Our name of a stored record -> Kafka's name, where they differ.
STORED_NAMES = {
    "ConsumerAssignment": "ConsumerProtocolAssignment",
    "ConsumerSubscription": "ConsumerProtocolSubscription",
}
#: Messages that have no definition in Kafka: its client encodes them by hand.
NOT_DEFINED_THERE = {"CooperativeStickyUserData", "StickyUserData"}
#: Message -> our versions. Kafka also has later versions, whose fields are about replicas on
#: several nodes.
FEWER_VERSIONS = {"PartitionRecord": "0"}
#: Tagged fields of Kafka that we do not declare: nothing here needs them, and readers skip unknown
#: tags.
LEFT_OUT = {
    ("ConsumerGroupMetadataValue", "MetadataHash"),
    # The tag of this field is `NEXT_EPOCH_TAG`: our code writes the tag itself, and only if there
    # is a next epoch.
    ("TransactionLogValue", "NextProducerEpoch"),
}
#: Our own tagged fields. Their tags are far from Kafka's, and Kafka's readers skip unknown tags.
ADDED = {
    ("ShareSnapshotValue", "dead_letters_from"),
    ("ShareUpdateValue", "dead_letters_from"),
}
_ADDED_TAG_MIN = 10_000


def _snake(name: str) -> str:
    """Convert Kafka's name of a field to ours."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _versions(text: str | None, valid: Versions) -> list[int]:
    """The versions in a range that are valid for the message."""
    held = Versions.parse(text or "none")
    return [version for version in valid if version in held]


def _default(field: dict[str, Any]) -> Any:
    """The default value in a definition, as Kafka's generator understands it."""
    kind, text = field["type"], field.get("default")
    if "default" in field and text is None:
        # The definition has JSON's null instead of the text "null".
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
    """Compare every field of a version, in order, including nested fields."""
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


@looped("kind", modern_groups.KEYS)
def test_d07_keys_of_groups_are_declared_as_kafka_defines_them(kind: int) -> None:
    definition = schemas()[modern_groups.key_name(kind)]
    assert (definition["apiKey"], definition["validVersions"]) == (kind, "0")
    assert definition["flexibleVersions"] == "none"
    assert list(modern_groups.KEYS[kind].versions) == [0]
    assert 0 not in modern_groups.KEYS[kind].flexible
    _compare(modern_groups.KEYS[kind], definition["fields"], definition, Versions.parse("0"))


def test_the_stored_records_without_a_definition_have_none_in_kafka() -> None:
    assert {cls.__name__ for cls in STORED} >= NOT_DEFINED_THERE
    assert NOT_DEFINED_THERE.isdisjoint(schemas())


def _field_names(definition: dict[str, Any]) -> Iterator[str]:
    """The names of all fields, including nested ones."""
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
        unstable = False  # Prepared transactions need this version (KIP-939).
    assert api.versions.first == api.request.versions.first
    assert api.versions.last == api.request.versions.last - (1 if unstable else 0)
    first = 0 if api.key is ApiKey.PRODUCE else api.versions.first
    assert (api.advertised.first, api.advertised.last) == (first, api.versions.last)


def test_header_versions_follow_the_flexible_versions() -> None:
    request, response = schemas()["RequestHeader"], schemas()["ResponseHeader"]
    assert (request["validVersions"], request["flexibleVersions"]) == ("1-2", "2+")
    assert (response["validVersions"], response["flexibleVersions"]) == ("0-1", "1+")
