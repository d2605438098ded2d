"""Changes of settings by AlterConfigs and IncrementalAlterConfigs (KIP-339): pure functions from
the state to records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from odradek_broker.config.types import (
    BrokerConfigError,
    ConfigType,
    UnknownSettingError,
    read_value,
)
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.config_resources import ResourceKind, check_name_limit, resource_kind
from odradek_broker.metadata.errors import AdminError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.schemas.incremental_alter_configs import ConfigOperation
from odradek_protocol.settings import trim
from odradek_protocol.stored.cluster_metadata import ConfigRecord, MetadataRecord

#: A separate constant, because a request may have very many changes.
_DELETE = int(ConfigOperation.DELETE)


@dataclass(frozen=True)
class SettingChange:
    """A requested change of one setting."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True)
class ResourceChanges:
    """The changes of one resource: a topic or a group by name, a broker by id, "" for all brokers.

    `replaces`: true if settings that are not named return to their defaults.
    """

    resource_type: int
    resource_name: str
    changes: Sequence[SettingChange]
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
    """The records of the valid changes, and an answer for each resource.

    All changes of a resource are made, or none. A change to the present value needs no record.
    """
    times = Counter((changes.resource_type, changes.resource_name) for changes in wanted)
    records: list[MetadataRecord] = []
    results = []
    added: Counter[int] = Counter()
    for changes in wanted:
        result = ChangeResult(changes.resource_type, changes.resource_name)
        results.append(result)
        try:
            if times[changes.resource_type, changes.resource_name] > 1:
                raise AdminError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            kind, name = changes.resource_type, changes.resource_name
            made = _alter_one(metadata, changes, added[kind])
            added[kind] += bool(made) and name not in metadata.configured(kind)
            records += made
        except AdminError as error:
            result.error, result.message = error.error, error.message
    return records, results


def _alter_one(
    metadata: ClusterMetadata, changes: ResourceChanges, added: int
) -> list[MetadataRecord]:
    """The records of the changes of one resource. Raises AdminError. `added`: resources of this
    type that get their first settings earlier in the request."""
    kind = resource_kind(changes.resource_type)
    name = changes.resource_name
    keys = Counter([change.name for change in changes.changes])
    twice = sorted([key for key, times in keys.items() if times > 1])
    if twice:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}"
        )
    null = sorted(
        c.name for c in changes.changes if c.value is None and c.operation != ConfigOperation.DELETE
    )
    if null:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for {', '.join(null)}."
        )
    kind.check_node(metadata, name)
    before = metadata.overrides(changes.resource_type, name)
    after: dict[str, str | None] = {} if changes.replaces else dict(before)
    try:
        for change in changes.changes:
            # As in Kafka, a change may also remove a setting that is unknown or not set.
            if change.operation == _DELETE:
                after.pop(change.name, None)
            else:
                after[change.name] = _apply(metadata, kind, name, change)
        # In Kafka the controller decides about operations before it looks at the name.
        kind.check_name(name)
        for change in changes.changes:
            if change.name in after:
                kind.check_key(change.name)
        checked = kind.check(metadata, name, after)
        kind.check_named(name, keys, checked)
    except UnknownSettingError as error:
        raise AdminError(ErrorCode.INVALID_CONFIG, str(error)) from error
    except BrokerConfigError as error:
        raise AdminError(kind.bad_value, str(error)) from error
    check_name_limit(metadata, changes.resource_type, name, added)
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


def _apply(metadata: ClusterMetadata, kind: ResourceKind, name: str, change: SettingChange) -> str:
    """The setting's text after a change that does not remove it."""
    try:
        operation = ConfigOperation(change.operation)
    except ValueError:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation} for {change.name}."
        ) from None
    assert change.value is not None
    if operation is ConfigOperation.SET:
        return change.value
    present = kind.present_list(metadata, name, change.name)
    if present is None:
        raise AdminError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {change.name} because its type is not LIST.",
        )
    items = read_value(change.name, present, ConfigType.LIST)
    assert isinstance(items, tuple)
    given = _parts(change.value)
    if operation is ConfigOperation.SUBTRACT:
        gone = frozenset(given)
        return ",".join([item for item in items if item not in gone])
    return ",".join(dict.fromkeys((*items, *given)))


def _parts(text: str) -> list[str]:
    """The parts of a list without the empty parts at its end, as Java's `String.split` returns
    them.
    """
    if not text:
        return [""]
    parts = text.split(",")
    while parts and not parts[-1]:
        del parts[-1]
    return [trim(part) for part in parts]
