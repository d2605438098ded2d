"""`odradek share reset-offsets`: set the offsets at which share groups continue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, Execute, end_plan, print_rows, tell
from odradek_cli.completion import group_names, topic_names
from odradek_cli.groups.group_reset import ToDatetime, offsets_at, ranges_of
from odradek_cli.options import argument, option
from odradek_records.offset_grammar import OffsetError
from odradek_records.reset_plan import Partition, ResetTarget, parse_target, plan

if TYPE_CHECKING:
    from odradek_client.admin import Admin


def reset_offsets(
    group: Annotated[str, argument("GROUP", "Group id.", group_names)],
    topic: Annotated[
        list[str] | None,
        option("--topic -t TOPIC", "A topic with all of its partitions; repeatable.", topic_names),
    ] = None,
    *,
    brokers: BrokerOptions,
    to_earliest: Annotated[bool, option("--to-earliest", "The first record.")] = False,
    to_latest: Annotated[bool, option("--to-latest", "After the last record.")] = False,
    to_offset: Annotated[int | None, option("--to-offset N", "This offset.", min=0)] = None,
    to_datetime: ToDatetime = None,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Set the offsets at which a share group continues; its members must have stopped.

    The group forgets which records it has delivered, and how often. Nothing is changed without
    --execute. An offset outside of the log becomes the nearest one inside.
    """
    if not topic:
        fail("say what to reset: --topic TOPIC", 2)
    try:
        target = parse_target(
            to_earliest=to_earliest,
            to_latest=to_latest,
            to_offset=to_offset,
            to_datetime=to_datetime,
            now_ms=int(time.time() * 1000),
        )
    except OffsetError as error:
        fail(str(error), 2)
    rows, errors = brokers.ask(lambda admin: _reset(admin, group, topic, target, execute))
    headings = "GROUP TOPIC PARTITION START-OFFSET NEW-OFFSET"
    print_rows(headings, rows, as_json=as_json)
    end_plan(rows, errors, "nothing was changed", execute=execute)


async def _reset(
    admin: Admin, group: str, topics: list[str], target: ResetTarget, execute: bool
) -> tuple[list[dict[str, Any]], list[Exception]]:
    """A row for each partition that has, or would get, a new offset; and the errors."""
    errors: list[Exception] = []
    partitions = [
        (topic, each.partition)
        for topic, described in (await admin.describe_topics(topics)).items()
        for each in described.partitions
    ]
    held = await admin.list_share_group_offsets(group, partitions)
    before: dict[Partition, int | None] = {
        tp: None if at is None else at.start_offset for tp, at in held.items()
    }
    ranges = await ranges_of(admin, partitions, errors)
    made = plan(target, ranges, {}, await offsets_at(admin, ranges, target), {})
    for note in made.notes:
        tell(note)
    done = set(made.offsets)
    if execute:
        altered = await admin.alter_share_group_offsets(group, made.offsets, raise_errors=False)
        errors += altered.errors.values()
        done = {(topic, number) for topic, number in altered}
    return [
        {
            "group": group,
            "topic": topic,
            "partition": number,
            "start_offset": before.get((topic, number)),
            "new_offset": made.offsets[topic, number],
        }
        for topic, number in sorted(done)
    ], errors
