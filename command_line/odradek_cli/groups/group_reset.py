"""`odradek group reset-offsets`: move the positions of groups. `offset_reset` has the rules."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, Execute, end_plan, print_rows, tell
from odradek_cli.completion import group_names, topic_names
from odradek_cli.options import argument, option
from odradek_cli.say import say
from odradek_records.offset_grammar import OffsetError, utc_time
from odradek_records.reset_plan import (
    Partition,
    Range,
    ResetPlan,
    ResetTarget,
    Where,
    parse_target,
    parse_topics,
    plan,
    read_csv,
    write_csv,
)

if TYPE_CHECKING:
    from odradek_client.admin import Admin

Groups = Annotated[list[str], argument("GROUP", "Group ids.", group_names)]
TopicSpecs = Annotated[
    list[str] | None,
    option(
        "--topic -t TOPIC[:P,...]",
        "A topic with all of its partitions, or only these partitions; repeatable.",
        topic_names,
    ),
]
AllTopics = Annotated[
    bool, option("--all-topics", "All partitions for which the group has a committed offset.")
]


ToDatetime = Annotated[
    str | None,
    option(
        "--to-datetime TIME",
        "The first record at TIME or later: ms since 1970, or 2024-05-01T12:30 (local "
        "time unless a zone is given).",
    ),
]
ByDuration = Annotated[
    str | None,
    option("--by-duration TIME", "The first record of the last 90m, 12h, 7d or PT1H30M."),
]
ShiftBy = Annotated[
    int | None, option("--shift-by N", "N offsets forward; backward if N is negative.")
]
FromFile = Annotated[
    Path | None, option("--from-file CSV", "A file that --export wrote; - for standard input.")
]


def reset_offsets(
    groups: Groups,
    brokers: BrokerOptions,
    topic: TopicSpecs = None,
    all_topics: AllTopics = False,
    to_earliest: Annotated[bool, option("--to-earliest", "The first record.")] = False,
    to_latest: Annotated[bool, option("--to-latest", "After the last record.")] = False,
    to_current: Annotated[
        bool,
        option(
            "--to-current", "The committed offset, moved to the nearest offset that the log has."
        ),
    ] = False,
    to_offset: Annotated[int | None, option("--to-offset N", "This offset.", min=0)] = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    shift_by: ShiftBy = None,
    from_file: FromFile = None,
    execute: Execute = False,
    export: Annotated[
        bool, option("--export", "Print CSV for --from-file instead of a table.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Move the positions of groups; their members must have stopped.

    Nothing is changed without --execute. An offset outside of the log becomes the nearest one
    inside.
    """
    try:
        topics = parse_topics(topic or [])
        target = parse_target(
            to_earliest=to_earliest,
            to_latest=to_latest,
            to_current=to_current,
            to_offset=to_offset,
            to_datetime=to_datetime,
            by_duration=by_duration,
            shift_by=shift_by,
            from_file=from_file is not None,
            now_ms=int(time.time() * 1000),
        )
        listed = {} if from_file is None else read_csv(_read(from_file), groups)
    except OffsetError as error:
        fail(str(error), 2)
    if sum([bool(topics), all_topics, from_file is not None]) != 1:
        fail("say what to reset: --topic TOPIC[:P,...], --all-topics or --from-file", 2)
    if as_json and export:
        fail("--json and --export are two formats; choose one", 2)
    if target.where is Where.TIME:
        tell(f"to the first record at {utc_time(target.value)} or later")
    unlisted = [group for group in groups if group not in listed]
    if from_file is not None and unlisted:
        fail(f"{from_file} has no offsets of group {unlisted[0]!r}")
    reset = Reset(groups, topics, target, listed, execute)
    rows, errors = brokers.ask(lambda admin: _reset(admin, reset))
    if export:
        cells = [(row["group"], row["topic"], row["partition"], row["new_offset"]) for row in rows]
        say(*write_csv(cells, with_group=len(groups) > 1).splitlines())
    else:
        headings = "GROUP TOPIC PARTITION CURRENT-OFFSET NEW-OFFSET"
        print_rows(headings, rows, as_json=as_json)
    if not rows and not errors:
        fail("there is nothing to reset: the groups have no position anywhere")
    end_plan(rows, errors, "nothing was changed", execute=execute)


@dataclass(frozen=True)
class Reset:
    """A reset. `topics`: see `parse_topics`; empty for all. `listed`: offsets from a file."""

    groups: list[str]
    topics: dict[str, list[int] | None]
    target: ResetTarget
    listed: dict[str, dict[Partition, int]]
    execute: bool


async def _reset(admin: Admin, reset: Reset) -> tuple[list[dict[str, Any]], list[Exception]]:
    """A row for each partition that has, or would get, a new offset; and the errors of other
    partitions and groups."""
    from odradek_client.errors import OdradekError

    rows: list[dict[str, Any]] = []
    errors: list[Exception] = []
    for group in dict.fromkeys(reset.groups):
        try:
            await _reset_group(admin, group, reset, rows, errors)
        except (OdradekError, OffsetError) as error:
            errors.append(error)
    return rows, errors


async def _reset_group(
    admin: Admin, group: str, reset: Reset, rows: list[dict[str, Any]], errors: list[Exception]
) -> None:
    made, committed = await plan_of_group(admin, group, reset, errors)
    for note in made.notes:
        tell(f"group {group!r}, {note}")
    done: Iterable[Partition] = made.offsets
    if reset.execute:
        altered = await admin.alter_group_offsets(group, made.offsets, raise_errors=False)
        errors += altered.errors.values()
        done = altered
    rows += rows_of_plan(group, made, committed, done)


async def plan_of_group(
    admin: Admin, group: str, reset: Reset, errors: list[Exception]
) -> tuple[ResetPlan, dict[Partition, int]]:
    """The plan with the new offsets of a group, and the committed offsets. Changes nothing."""
    missing = await _require_inactive(admin, group)
    held = await admin.list_group_offsets(group)
    committed: dict[Partition, int] = {
        place: found.offset for place, found in held.items() if found is not None
    }
    partitions = await _partitions(admin, group, reset, committed)
    ranges = await ranges_of(admin, partitions, errors)
    at_time = await offsets_at(admin, ranges, reset.target)
    made = plan(reset.target, ranges, committed, at_time, reset.listed.get(group, {}))
    return ResetPlan(made.offsets, [*missing, *made.notes]), committed


async def offsets_at(
    admin: Admin, partitions: Iterable[Partition], target: ResetTarget
) -> dict[Partition, int | None]:
    """The offset of each partition at the target's time; empty if the target is no time."""
    if target.where is not Where.TIME:
        return {}
    found = await admin.list_offsets(dict.fromkeys(partitions, target.value))
    return {tp: None if at is None else at.offset for tp, at in found.items()}


def rows_of_plan(
    group: str, made: ResetPlan, committed: Mapping[Partition, int], which: Iterable[Partition]
) -> list[dict[str, Any]]:
    """A row with the old and the new offset for each partition of `which`."""
    return [
        {
            "group": group,
            "topic": topic,
            "partition": partition,
            "current_offset": committed.get((topic, partition)),
            "new_offset": made.offsets[topic, partition],
        }
        for topic, partition in sorted(which)
    ]


async def _require_inactive(admin: Admin, group: str) -> list[str]:
    """Refuse a group with members, because the members would not notice the new positions, and
    would overwrite them with their next commits.

    Returns a note if there is no such group.
    """
    from odradek_client.errors import InvalidGroup, Refused

    try:
        described = (await admin.describe_groups(group))[group]
    except InvalidGroup:
        return ["it does not exist so far"]
    if described.is_active:
        count = len(described.members)
        members = "1 member" if count == 1 else f"{count} members"
        raise Refused(
            f"group {group!r} is in use (state {described.state}, {members}); its offsets can be "
            f"reset when its consumers have stopped"
        )
    return []


async def _partitions(
    admin: Admin, group: str, reset: Reset, committed: Mapping[Partition, int]
) -> list[Partition]:
    from odradek_client.errors import Refused

    if reset.target.where is Where.FILE:
        return sorted(reset.listed.get(group, {}))
    if not reset.topics:
        return sorted(committed)
    described = await admin.describe_topics(list(reset.topics))
    found: list[Partition] = []
    for topic, wanted in reset.topics.items():
        there = [each.partition for each in described[topic].partitions]
        missing = [index for index in wanted or () if index not in there]
        if missing:
            raise Refused(f"topic {topic!r} has no partition {missing[0]}; it has {len(there)}")
        found += [(topic, index) for index in wanted or there]
    return sorted(found)


async def ranges_of(
    admin: Admin, partitions: Sequence[Partition], errors: list[Exception]
) -> dict[Partition, Range]:
    """The offsets of each partition; partitions without an answer are left out and reported."""
    from odradek_client.admin import EARLIEST, LATEST

    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST), raise_errors=False)
    ends = await admin.list_offsets(dict.fromkeys(starts, LATEST), raise_errors=False)
    errors += [*starts.errors.values(), *ends.errors.values()]
    found = {}
    for place, end in ends.items():
        start = starts[place]
        if start is not None and end is not None:
            found[place[0], place[1]] = Range(start.offset, end.offset)
    return found


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path} cannot be read: {error}")
