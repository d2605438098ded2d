"""`odradek mirror status`: the progress of a mirror of the mode exactly-once, from its map
topic."""

from __future__ import annotations

import json
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.common import AsJson, cell, client_settings, connected, print_table, run, tell
from odradek_cli.options import option
from odradek_cli.say import say
from odradek_mirror.commands.map import read_mirror_map
from odradek_mirror.commands.options import SIDES, FromConfig, Name, To, ToConfig

if TYPE_CHECKING:
    from odradek_client.structs import TopicPartition
    from odradek_mirror.map_topic import MirrorMap


def status(
    target: To,
    source: Annotated[
        str, option("--from HOST:PORT,...", "Brokers of the source, to show the lag.")
    ] = "",
    name: Name = "default",
    from_config: FromConfig = None,
    to_config: ToConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a mirror of the mode exactly-once has come.

    The state is read from the target, so the mirror need not run. For a mirror of the mode
    same-offsets, use `odradek explain mirror`.
    """
    sides = client_settings(target, to_config), client_settings(source, from_config)
    mirrored, ends = run(_status(*sides, name, with_ends=bool(source)), bootstrap=SIDES)
    rows = [_row(tp, mirrored, ends) for tp in sorted(mirrored.partitions)]
    if as_json:
        for row in rows:
            say(json.dumps({"type": "partition", **row}))
        writer = None if mirrored.owner is None else mirrored.owner._asdict()
        last = {"name": name, "owner": writer, "last_written_ms": mirrored.last_written_ms}
        say(json.dumps({"type": "mirror", **last}))
        return
    if rows:
        columns = ["TOPIC", "PARTITION", "NEXT", "TARGET-END", "RECORDS", "LAG"]
        cells = [[cell(value) for value in row.values()] for row in rows]
        print_table(columns, cells, drop="RECORDS TARGET-END")
    if (owner := mirrored.owner) is not None:
        tell(
            f"mirror {name!r}: written by process {owner.pid} on {owner.host}, which began at"
            f" {_time(owner.since_ms)}"
        )
    if mirrored.last_written_ms >= 0:
        tell(f"last write: {_time(mirrored.last_written_ms)}")
    if not rows:
        tell("no partition was copied yet")


def _row(
    tp: TopicPartition, mirrored: MirrorMap, ends: dict[TopicPartition, tuple[int, int]]
) -> dict[str, Any]:
    """The state of a partition; `lag` is None if the end at the source is not known."""
    found = mirrored.partitions[tp]
    end = ends.get(tp)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "next": found.position.next,
        "target_end": None if found.position.target_end < 0 else found.position.target_end,
        "records": found.record_count,
        "lag": None if end is None else max(end[1] - found.position.next, 0),
    }


async def _status(
    target_settings: dict[str, Any], source_settings: dict[str, Any], name: str, *, with_ends: bool
) -> tuple[MirrorMap, dict[TopicPartition, tuple[int, int]]]:
    """The map, and the ends of its partitions at the source."""
    from odradek_client.admin import Admin
    from odradek_mirror.plan import ends_of, leaders_of

    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(connected(Admin, target_settings))
        mirrored = await read_mirror_map(target, name)
        if not with_ends:
            return mirrored, {}
        source = await stack.enter_async_context(connected(Admin, source_settings))
        described = await source.describe_topics(sorted(mirrored.topics()), raise_errors=False)
        led = leaders_of(described.values())
        return mirrored, await ends_of(source, [tp for tp in mirrored.partitions if tp in led])


def _time(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))
