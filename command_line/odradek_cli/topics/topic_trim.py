"""`odradek topic trim`: delete the oldest records of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.broker.disk_room import full_disks
from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, Execute, end_plan, offset_of, print_rows
from odradek_cli.completion import topic_names
from odradek_cli.options import argument, option
from odradek_client.words import counted
from odradek_records.offset_grammar import OffsetError, parse_time
from odradek_records.reset_plan import parse_topics

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.errors import OdradekError
    from odradek_client.structs import TopicPartition


def trim(
    topic: Annotated[
        str,
        argument(
            "TOPIC[:P,...]",
            "A topic with all of its partitions, or only these partitions.",
            topic_names,
        ),
    ],
    brokers: BrokerOptions,
    to_offset: Annotated[
        int | None, option("--to-offset N", "Delete all records before this offset.", min=0)
    ] = None,
    before: Annotated[
        str | None,
        option(
            "--before TIME",
            "Delete all records before the first one at TIME or later: ISO 8601 (local time "
            "without a zone), or ms since 1970.",
        ),
    ] = None,
    everything: Annotated[bool, option("--all", "Delete all records; the topic stays.")] = False,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest records of a topic, for good.

    \b
    odradek topic trim orders --before 2024-05-01T00:00:00Z
    odradek topic trim orders:0 --to-offset 1500 --execute
    """
    try:
        ((name, partitions),) = parse_topics([topic]).items()
        until_ms = None if before is None else parse_time(before)
    except OffsetError as error:
        fail(str(error), 2)
    if (to_offset is not None) + (until_ms is not None) + everything != 1:
        fail("say up to where, once: --to-offset, --before or --all", 2)
    job = Trim(name, partitions, to_offset, until_ms, execute)
    rows, errors = brokers.ask(lambda admin: _trim(admin, job))
    headings = "TOPIC PARTITION LOG-START-OFFSET NEW-START-OFFSET LOG-END-OFFSET GONE"
    print_rows(headings, rows, as_json=as_json, drop="LOG-START-OFFSET LOG-END-OFFSET")
    end_plan(rows, errors, "nothing was deleted", execute=execute)


@dataclass(frozen=True)
class Trim:
    """The records to delete: those before an offset or before a time, or all if both are None."""

    topic: str
    partitions: list[int] | None
    to_offset: int | None
    until_ms: int | None
    execute: bool


async def _trim(admin: Admin, job: Trim) -> tuple[list[dict[str, Any]], list[OdradekError]]:
    """A row for each partition, with its new start, or the start that it would get."""
    from odradek_client.admin import EARLIEST, LATEST
    from odradek_client.errors import OffsetOutOfRange, StorageFailed

    errors: list[OdradekError] = []
    partitions = await _partitions(admin, job)
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    wanted: dict[tuple[str, int], int] = {}
    for tp, offset in (await _first_offsets(admin, partitions, job)).items():
        end = offset_of(ends[tp])
        if offset is not None and offset > end:
            name = f"{tp.topic}-{tp.partition}"
            errors.append(OffsetOutOfRange(f"{name} ends at {end}: there is no offset {offset}"))
        else:
            wanted[tp] = end if offset is None else offset
    firsts: Mapping[Any, int] = wanted
    if job.execute:
        done = await admin.delete_records(wanted, raise_errors=False)
        firsts = done
        unwritten = [e for e in done.errors.values() if isinstance(e, StorageFailed)]
        errors += [e for e in done.errors.values() if e not in unwritten]
        if unwritten:
            full = await full_disks(admin)
            errors.append(
                StorageFailed(
                    f"where {counted(len(unwritten), 'partition')} would begin cannot be written"
                    f" down: {full or unwritten[0]}"
                )
            )
    return [
        _row(tp, offset_of(starts[tp]), first, offset_of(ends[tp])) for tp, first in firsts.items()
    ], errors


async def _partitions(admin: Admin, job: Trim) -> list[TopicPartition]:
    from odradek_client.errors import Refused
    from odradek_client.structs import TopicPartition

    described = (await admin.describe_topics(job.topic))[job.topic]
    if described.is_internal:
        raise Refused(
            f"topic {job.topic!r} is the brokers' own; clients may not delete its records"
        )
    there = [each.partition for each in described.partitions]
    missing = [index for index in job.partitions or () if index not in there]
    if missing:
        raise Refused(f"topic {job.topic!r} has no partition {missing[0]}; it has {len(there)}")
    return [TopicPartition(job.topic, index) for index in sorted(job.partitions or there)]


async def _first_offsets(
    admin: Admin, partitions: list[TopicPartition], job: Trim
) -> dict[TopicPartition, int | None]:
    """The first offset to keep in each partition; None if every record is older."""
    if job.until_ms is None:
        return dict.fromkeys(partitions, job.to_offset)
    found = await admin.list_offsets(dict.fromkeys(partitions, job.until_ms))
    return {tp: None if at is None else at.offset for tp, at in found.items()}


def _row(tp: TopicPartition, start: int, first: int, end: int) -> dict[str, Any]:
    first = max(start, first)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "log_start_offset": start,
        "new_start_offset": first,
        "log_end_offset": end,
        "gone": first - start,
    }
