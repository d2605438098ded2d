"""`odradek mirror offsets` and `checkpoint`: translation of positions at the source to positions at
the target.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, client_settings, connected, print_table, run, tell
from odradek_cli.options import argument, option
from odradek_cli.say import say
from odradek_mirror.commands.options import Name, To, ToConfig

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_mirror.map_topic import MirrorMap

_POSITION = re.compile(r"(.+)-(\d+):(\d+)")


def offsets(
    positions: Annotated[
        list[str], argument("TOPIC-PARTITION:OFFSET...", "Offsets at the source.")
    ],
    target: To,
    name: Name = "default",
    to_config: ToConfig = None,
    as_json: AsJson = False,
) -> None:
    """Translate offsets of the source into those of the target, exactly.

    For mirrors of the mode exactly-once. In the mode same-offsets there is nothing to translate.
    """
    from odradek_mirror.checkpoint import NotTranslatable

    wanted = []
    for text in positions:
        found = _POSITION.fullmatch(text)
        if found is None:
            fail(f"{text!r} must be TOPIC-PARTITION:OFFSET, like flights-0:120", 2)
        wanted.append((found[1], int(found[2]), int(found[3])))
    mirrored = _map_of(target, to_config, name)
    rows, errors = [], []
    for topic, partition, offset in wanted:
        try:
            there = _translate(mirrored, topic, partition, offset)
        except NotTranslatable as problem:
            errors.append(f"{topic}-{partition}: {problem}")
            continue
        rows.append({"topic": topic, "partition": partition, "source": offset, "target": there})
    if as_json:
        for row in rows:
            say(json.dumps(row))
    elif rows:
        columns = ["TOPIC", "PARTITION", "SOURCE", "TARGET"]
        print_table(columns, [[str(value) for value in row.values()] for row in rows])
    if errors:
        fail("; ".join(errors))


def checkpoint(
    source: Annotated[Path, argument("CHECKPOINT", "The checkpoint of the stopped query.")],
    made: Annotated[Path, argument("NEW_FOLDER", "The translated copy, which must not exist yet.")],
    target: To,
    name: Name = "default",
    keep_others: Annotated[
        bool, option("--keep-others", "Keep offsets of topics that are not mirrored.")
    ] = False,
    unfinished: Annotated[
        bool, option("--unfinished", "The last batch may be repeated at the new cluster.")
    ] = False,
    to_config: ToConfig = None,
) -> None:
    """Copy the checkpoint of a Spark query, with the offsets of the target.

    For mirrors of the mode exactly-once. In the mode same-offsets the checkpoint needs no change.
    """
    from odradek_mirror.checkpoint import CheckpointError, translate_checkpoint

    mirrored = _map_of(target, to_config, name)
    try:
        found = translate_checkpoint(
            source,
            made,
            mirrored.topics(),
            lambda *position: _translate(mirrored, *position),
            keep_others=keep_others,
            unfinished=unfinished,
        )
    except (CheckpointError, OSError) as problem:
        fail(str(problem))
    rows = [
        [f"{topic}-{partition}", str(before), str(after)]
        for (topic, partition), (before, after) in sorted(found.ends.items())
    ]
    if rows:
        print_table(["PARTITION", "SOURCE", "TARGET"], rows)
    if found.kept:
        tell(f"offsets of {', '.join(sorted(found.kept))} were kept as they are")
    tell(f"{made} continues after batch {found.batch} at {target}; {source} is unchanged")


def _map_of(target: str, given: list[str] | None, name: str) -> MirrorMap:
    return run(_read(client_settings(target, given), name), bootstrap="--to")


async def _read(settings: dict[str, Any], name: str) -> MirrorMap:
    from odradek_client.admin import Admin

    async with connected(Admin, settings) as admin:
        return await read_mirror_map(admin, name)


async def read_mirror_map(target: Admin, name: str) -> MirrorMap:
    """The content of a mirror's map topic. Ends the program if there is none."""
    from odradek_client.errors import UnknownTopicOrPartition
    from odradek_mirror.map_topic import map_topic, read_map

    try:
        return await read_map(target, name)
    except UnknownTopicOrPartition:
        fail(
            f"the target has no topic {map_topic(name)}: no mirror with the name {name!r} has"
            " copied into it exactly once. Mirrors with the same offsets have no such topic: `odradek"
            " explain mirror TOPIC` describes them, and their offsets need no translation"
        )


def _translate(mirrored: MirrorMap, topic: str, partition: int, offset: int) -> int:
    """The offset at the target. NotTranslatable if the record is not copied yet."""
    from odradek_client.structs import TopicPartition
    from odradek_mirror.checkpoint import NotTranslatable
    from odradek_mirror.offset_map import NotCopied

    found = mirrored.partitions.get(TopicPartition(topic, partition))
    if found is None:
        raise NotTranslatable("the partition is not mirrored")
    try:
        return found.translate(offset)
    except NotCopied as problem:
        raise NotTranslatable(str(problem)) from problem
