"""The levels of a broker's loggers, as a configured resource whose settings are not recorded
(A-79).

A restart resets the levels, as in Kafka.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from odradek_broker.metadata.config_changes import (
    ChangeResult,
    ResourceChanges,
    SettingChange,
)
from odradek_broker.metadata.errors import AdminError
from odradek_broker.platform.loggers import LEVELS, ROOT, LogLevels
from odradek_protocol.constants import RESOURCE_BROKER_LOGGER
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.incremental_alter_configs import ConfigOperation

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


def describe_loggers(
    levels: LogLevels, node_id: int, name: str, keys: Collection[str] | None
) -> dict[str, str]:
    """The level of each logger, or only of the loggers in `keys`; unknown names are left out.
    Raises AdminError if `name` is another broker."""
    _check_broker(levels, node_id, name)
    present = levels.levels()
    return present if keys is None else {key: present[key] for key in present if key in keys}


def is_of_loggers(changes: ResourceChanges) -> bool:
    """True for a change of single levels of loggers. AlterConfigs, which replaces all levels, is
    refused elsewhere, as in Kafka."""
    return changes.resource_type == RESOURCE_BROKER_LOGGER and not changes.replaces


def alter_loggers(
    levels: LogLevels, node_id: int, wanted: Sequence[ResourceChanges], *, validate_only: bool
) -> list[ChangeResult]:
    """Change the levels. Either all changes of a resource are made or none. Returns the answer for
    each resource."""
    times = Counter(changes.resource_name for changes in wanted)
    results = []
    for changes in wanted:
        result = ChangeResult(changes.resource_type, changes.resource_name)
        results.append(result)
        try:
            if times[changes.resource_name] > 1:
                _refuse(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            after = _levels_after(levels, node_id, changes)
        except AdminError as error:
            result.error, result.message = error.error, error.message
            continue
        if not validate_only:
            for name, level in after.items():
                levels.set_level(name, level)
    return results


def _levels_after(
    levels: LogLevels, node_id: int, wanted: ResourceChanges
) -> dict[str, str | None]:
    _check_broker(levels, node_id, wanted.resource_name)
    present = levels.levels()
    after: dict[str, str | None] = {}
    for change in wanted.changes:
        if change.name in after:
            _refuse(ErrorCode.INVALID_REQUEST, f"The logger {change.name!r} is named twice.")
        after[change.name] = _level(present, change)
    return after


def _check_broker(levels: LogLevels, node_id: int, name: str) -> None:
    if not name:
        _refuse(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not _INTEGER.fullmatch(name):
        _refuse(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        _refuse(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id} but received {name}",
        )
    if not levels.changeable:
        _refuse(
            ErrorCode.INVALID_REQUEST,
            "The log lines of this broker belong to the program that it runs in, which has to change its levels itself.",
        )


def _level(present: Mapping[str, str], change: SettingChange) -> str | None:
    """The requested level; None for the level of the parent logger. Raises AdminError if the level
    is not possible."""
    name = change.name
    try:
        operation = ConfigOperation(change.operation)
    except ValueError:
        _refuse(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation} for {name}.")
    if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        _refuse(ErrorCode.INVALID_REQUEST, f"{name} has one level: {operation.name} means nothing.")
    if operation is ConfigOperation.SET and change.value is None:
        _refuse(ErrorCode.INVALID_REQUEST, f"Null value not supported for {name}.")
    if name not in present:
        _refuse(ErrorCode.INVALID_CONFIG, f"There is no logger {name!r}.")
    if operation is ConfigOperation.DELETE:
        if name == ROOT:
            _refuse(ErrorCode.INVALID_REQUEST, "The root logger must have a level.")
        return None
    if change.value not in LEVELS:
        _refuse(
            ErrorCode.INVALID_CONFIG,
            f"{change.value!r} is no level for {name}: it must be one of {', '.join(LEVELS)}.",
        )
    return change.value


def _refuse(error: ErrorCode, text: str) -> NoReturn:
    raise AdminError(error, text)
