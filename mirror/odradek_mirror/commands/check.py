"""`odradek mirror check`: both sides of a mirror compared."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import typer

from odradek_cli.common import AsJson, client_settings, connected, print_table, run, tell
from odradek_cli.say import say
from odradek_mirror.commands.options import (
    SIDES,
    Exclude,
    From,
    FromConfig,
    Groups,
    ModeName,
    Name,
    To,
    ToConfig,
    Topics,
    mode_of,
    selection_of,
)

if TYPE_CHECKING:
    from odradek_mirror.check import Checker, GroupResult, PartitionCheckResult, SettingResult
    from odradek_mirror.plan import Mode, TopicSelection

_DIFFERENT, _NOT_COMPARED = 1, 2


def check(
    source: From,
    target: To,
    topics: Topics = None,
    exclude: Exclude = None,
    groups: Groups = None,
    mode: ModeName = "",
    name: Name = "default",
    from_config: FromConfig = None,
    to_config: ToConfig = None,
    as_json: AsJson = False,
) -> None:
    """Compare both sides: the records, and the offsets and settings of groups.

    Ends with 0 if they are equal, with 1 if they differ, and with 2 if something could not be
    compared.
    """
    selection = selection_of(topics, exclude, groups)
    sides = (client_settings(source, from_config), client_settings(target, to_config))
    code = run(
        _check(*sides, selection, mode_of(mode), name, as_json),
        fast=True,
        close_on_sigterm=True,
    )
    if code:
        raise typer.Exit(code)


async def _check(
    source_settings: dict[str, Any],
    target_settings: dict[str, Any],
    selection: TopicSelection,
    mode: Mode | None,
    name: str,
    as_json: bool,
) -> int:
    """Compare both sides, and print the results; returns the exit code."""
    from odradek_client.admin import Admin
    from odradek_client.errors import ConfigError, OdradekError
    from odradek_mirror.check import Checker

    try:
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(connected(Admin, source_settings))
            target = await stack.enter_async_context(connected(Admin, target_settings))
            checker = Checker(source, target, selection, mode, name)
            stack.push_async_callback(checker.close)
            return await _compare(checker, as_json)
    except ConfigError:
        raise
    except OdradekError as error:
        cause = str(error).replace("bootstrap_servers", SIDES)
        tell(f"odradek: could not compare: {cause}")
        return _NOT_COMPARED


async def _compare(checker: Checker, as_json: bool) -> int:
    codes = {0}
    for topic in await checker.prepare():
        results = await checker.check_topic(topic)
        for each in results:
            codes.add(_NOT_COMPARED if each.error else _DIFFERENT if each.differences else 0)
        if as_json:
            for each in results:
                say(json.dumps(_partition_row(each)))
        else:
            _print_topic(topic, results)
    offsets, notes = await checker.check_groups()
    different = [each for each in offsets if each.differs]
    if different:
        codes.add(_DIFFERENT)
    if as_json:
        for offset in offsets:
            say(json.dumps(_group_row(offset)))
    else:
        for offset in different:
            say(_group_line(offset))
    settings = await checker.check_group_settings()
    for setting in settings.results:
        if setting.differs:
            codes.add(_DIFFERENT)
        if as_json:
            say(json.dumps(_setting_row(setting)))
        elif setting.differs:
            say(_setting_line(setting))
    for note in [*notes, *settings.notes]:
        tell(note)
    for error in settings.errors:
        codes.add(_NOT_COMPARED)
        tell(f"odradek: could not compare {error}")
    code = max(codes)
    if not as_json:
        compared = len({each.group for each in offsets})
        verdict = {0: "equal", _DIFFERENT: "different", _NOT_COMPARED: "not all compared"}[code]
        tell(f"{verdict} ({checker.mode}; offsets of {compared} groups compared)")
    return code


def _result(each: PartitionCheckResult) -> str:
    return "not compared" if each.error else "different" if each.differences else "equal"


def _print_topic(topic: str, results: list[PartitionCheckResult]) -> None:
    say(topic)
    rows = []
    for each in results:
        records = str(each.source_records)
        if each.target_records != each.source_records:
            records += f" (target {each.target_records})"
        rows.append([str(each.tp.partition), records, _result(each)])
    print_table(["PARTITION", "RECORDS", "RESULT"], rows)
    for each in results:
        name = f"{each.tp.topic}-{each.tp.partition}"
        for difference in each.differences:
            say(f"{name}: {difference}")
        for note in each.notes:
            tell(f"{name}: {note}")
        if each.error:
            tell(f"odradek: {name} could not be compared: {each.error}")


def _partition_row(each: PartitionCheckResult) -> dict[str, Any]:
    return {
        "type": "partition",
        "topic": each.tp.topic,
        "partition": each.tp.partition,
        "source_records": each.source_records,
        "target_records": each.target_records,
        "result": _result(each),
        "differences": [difference._asdict() for difference in each.differences],
        "notes": each.notes,
        "error": each.error or None,
    }


def _group_row(each: GroupResult) -> dict[str, Any]:
    return {
        "type": "group",
        "group": each.group,
        "topic": each.tp.topic,
        "partition": each.tp.partition,
        "source_offset": each.source_offset,
        "expected_offset": each.expected,
        "target_offset": each.target_offset,
        "result": "different" if each.differs else "ahead" if each.is_ahead else "equal",
    }


def _setting_row(each: SettingResult) -> dict[str, Any]:
    return {
        "type": "group setting",
        "group": each.group,
        "name": each.name,
        "source_value": each.source_value,
        "target_value": each.target_value,
        "result": "different" if each.differs else "equal",
    }


def _setting_line(each: SettingResult) -> str:
    found = "has no such setting" if each.target_value is None else f"has {each.target_value}"
    return (
        f"group {each.group!r}: the setting {each.name} is {each.source_value} at the source, and"
        f" the target {found}"
    )


def _group_line(each: GroupResult) -> str:
    expected = "no offset (not copied yet)" if each.expected is None else each.expected
    found = "none" if each.target_offset is None else each.target_offset
    return (
        f"group {each.group!r}, {each.tp.topic}-{each.tp.partition}: committed offset"
        f" {each.source_offset} of the source should be {expected} at the target, and is {found}"
    )
