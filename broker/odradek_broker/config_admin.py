"""Decisions on settings: IncrementalAlterConfigs (KIP-339) and AlterConfigs. State is read, records are
returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from odradek_broker.config import with_dynamic
from odradek_broker.config_keys import SETTING_OF_KEY
from odradek_broker.config_types import (
    ConfigError,
    Kind,
    UnknownSettingError,
    read_value,
    write_value,
)
from odradek_broker.metadata import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterMetadata
from odradek_broker.topic_admin import AdminError
from odradek_broker.topic_config import topic_setting, validate_dynamic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import ConfigRecord, MetadataRecord


class Operation(IntEnum):
    """What is done with a value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True)
class Change:
    """One change of one setting, as it was asked for."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True)
class ResourceChanges:
    """The changes of one resource: a topic by name, a broker by id, "" for all brokers.

    `replaces`: settings that are not named go back to what they were before anybody set them.
    """

    resource_type: int
    resource_name: str
    changes: Sequence[Change]
    replaces: bool = False


@dataclass
class ChangeResult:
    """The answer for one resource."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_configs(
    metadata: ClusterMetadata, wanted: Sequence[ResourceChanges]
) -> tuple[list[MetadataRecord], list[ChangeResult]]:
    """The records of the changes that can be made, and an answer for each resource.

    All changes of a resource are made or none. A change to the value that is there makes no record.
    """
    times = Counter((changes.resource_type, changes.resource_name) for changes in wanted)
    records: list[MetadataRecord] = []
    results = []
    for changes in wanted:
        result = ChangeResult(changes.resource_type, changes.resource_name)
        results.append(result)
        try:
            if times[changes.resource_type, changes.resource_name] > 1:
                raise AdminError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            records += _alter_one(metadata, changes)
        except AdminError as error:
            result.error, result.message = error.error, error.message
    return records, results


def check_resource(metadata: ClusterMetadata, resource_type: int, resource_name: str) -> None:
    """AdminError unless it has settings here."""
    if resource_type == RESOURCE_TOPIC:
        if resource_name not in metadata.topics:
            raise AdminError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"The topic '{resource_name}' does not exist.",
            )
    elif resource_type == RESOURCE_BROKER:
        if resource_name not in ("", str(metadata.node_id)):
            raise AdminError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {metadata.node_id} or empty string,"
                f" but received {resource_name}",
            )
    else:
        raise AdminError(
            ErrorCode.INVALID_REQUEST,
            f"Resources of type {resource_type} have no settings on this broker.",
        )


def _alter_one(metadata: ClusterMetadata, changes: ResourceChanges) -> list[MetadataRecord]:
    check_resource(metadata, changes.resource_type, changes.resource_name)
    keys = Counter(change.name for change in changes.changes)
    twice = sorted(name for name, times in keys.items() if times > 1)
    if twice:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}"
        )
    of_topic = changes.resource_type == RESOURCE_TOPIC
    name = changes.resource_name
    before = metadata.topic_overrides(name) if of_topic else metadata.broker_overrides(name)
    after: dict[str, str | None] = {} if changes.replaces else dict(before)
    try:
        for change in changes.changes:
            present = _present_topic if of_topic else _present_broker
            text = _apply(change, partial(present, metadata, name))
            if text is None:
                after.pop(change.name, None)
            else:
                after[change.name] = text
        checked = (
            _check_topic(metadata, after) if of_topic else _check_broker(metadata, name, after)
        )
    except ConfigError as error:
        raise AdminError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return [
        ConfigRecord(
            resource_type=changes.resource_type,
            resource_name=name,
            name=key,
            value=checked.get(key),
        )
        for key in sorted(before.keys() | checked.keys())
        if before.get(key) != checked.get(key)
    ]


def _apply(change: Change, present: Callable[[str], tuple[Kind, str]]) -> str | None:
    """The setting's text after the change; None for removed. `present` gives kind and text."""
    try:
        operation = Operation(change.operation)
    except ValueError:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation} for {change.name}."
        ) from None
    kind, text = present(change.name)
    if operation is Operation.DELETE:
        return None
    if change.value is None:
        raise AdminError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {change.name}.")
    if operation is Operation.SET:
        return change.value
    if kind is not Kind.LIST:
        raise AdminError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {change.name} because its type is not LIST.",
        )
    held = _items(change.name, text)
    given = _items(change.name, change.value)
    if operation is Operation.APPEND:
        return ",".join(dict.fromkeys(held + given))
    return ",".join(item for item in held if item not in given)


def _items(key: str, text: str) -> tuple[str, ...]:
    items = read_value(key, text, Kind.LIST)
    assert isinstance(items, tuple)
    return items


def _present_topic(metadata: ClusterMetadata, name: str, key: str) -> tuple[Kind, str]:
    row = topic_setting(key)
    overrides = metadata.topic_overrides(name)
    return row.kind, write_value(metadata.topic_configs.value(key, overrides))


def _present_broker(metadata: ClusterMetadata, name: str, key: str) -> tuple[Kind, str]:
    row = SETTING_OF_KEY.get(key)
    if row is None:
        raise UnknownSettingError(key, "is no broker setting")
    if not row.dynamic:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {key}"
        )
    return row.kind, write_value(getattr(metadata.config, row.attribute))


def _check_topic(metadata: ClusterMetadata, after: dict[str, str | None]) -> dict[str, str]:
    return metadata.topic_configs.validate(after)


def _check_broker(
    metadata: ClusterMetadata, name: str, after: dict[str, str | None]
) -> dict[str, str]:
    checked = {key: validate_dynamic(key, text) for key, text in after.items()}
    of_this = checked if name else metadata.broker_overrides(str(metadata.node_id))
    of_all = metadata.broker_overrides("") if name else checked
    with_dynamic(metadata.config, of_this, of_all)
    return checked
