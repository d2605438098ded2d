"""The changes that pages can order: production of a record, deletion of records, changes of a
group's offsets.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any

from odradek_client.admin import Admin
from odradek_client.errors import InvalidGroup
from odradek_client.producer.producer import Producer
from odradek_client.words import counted
from odradek_console.answers import HttpProblem, Json
from odradek_console.changes import PageChange, text_of, whole_of
from odradek_console.sessions import ConsoleSession
from odradek_records.offset_grammar import OffsetError
from odradek_records.reset_plan import Partition, Range, ResetTarget, Where, plan

_VALUE_CHARACTERS_MAX = 1_500_000
_HEADERS_MAX = 100
_PARTITIONS_MAX = 10_000
_OFFSET_MAX = 2**63 - 1


# --- A record -------------------------------------------------------------------------------------


def _bytes_of(sent: Json, name: str) -> bytes | None:
    """The bytes that a page has sent as a text; None without a text. The text is base64 if the
    field `encoding` says so; otherwise the bytes are its UTF-8."""
    text = sent.get(name)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > _VALUE_CHARACTERS_MAX:
        most = f"{_VALUE_CHARACTERS_MAX:,}"
        raise HttpProblem(400, f"The field {name} must be a text of at most {most} characters")
    if sent.get("encoding", "text") == "text":
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise HttpProblem(400, f"The field {name} is no base64") from None


def _headers_of(sent: Json) -> list[tuple[str, bytes | None]]:
    headers = sent.get("headers", [])
    if not isinstance(headers, list) or len(headers) > _HEADERS_MAX:
        raise HttpProblem(400, f"The field headers must be a list of at most {_HEADERS_MAX}")
    found: list[tuple[str, bytes | None]] = []
    for each in headers:
        if not (
            isinstance(each, list) and len(each) == 2 and all(isinstance(x, str) for x in each)
        ):
            raise HttpProblem(400, "A header is a pair of texts: name and value")
        found.append((each[0], each[1].encode("utf-8", "surrogatepass")))
    return found


async def _plan_record(session: ConsoleSession, sent: Json) -> Json:
    topic = text_of(sent, "topic", most=249)
    key, value, headers = _bytes_of(sent, "key"), _bytes_of(sent, "value"), _headers_of(sent)
    partition = whole_of(sent, "partition", most=2**31 - 1)
    partitions = await _partitions(await session.admin(), topic)
    if partition is not None and partition not in partitions:
        raise HttpProblem(404, f"The topic has no partition {partition}")
    return {
        "topic": topic,
        "partition": partition,
        "key_bytes": None if key is None else len(key),
        "value_bytes": None if value is None else len(value),
        "headers": len(headers),
    }


async def _act_record(session: ConsoleSession, sent: Json, _plan: Json) -> Json:
    async with Producer(**session.settings["producer"]) as producer:
        written = await producer.send_and_wait(
            text_of(sent, "topic", most=249),
            _bytes_of(sent, "value"),
            _bytes_of(sent, "key"),
            headers=_headers_of(sent),
            partition=whole_of(sent, "partition", most=2**31 - 1),
        )
    return {
        "text": f"Written to partition {written.partition}, offset {written.offset:,}",
        "partition": written.partition,
        "offset": written.offset,
    }


async def _partitions(admin: Admin, topic: str) -> list[int]:
    return [each.partition for each in (await admin.describe_topics(topic))[topic].partitions]


# --- Places in partitions -------------------------------------------------------------------------

_WHERE = {
    "start": Where.EARLIEST,
    "end": Where.LATEST,
    "offset": Where.OFFSET,
    "time": Where.TIME,
    "shift": Where.SHIFT,
    "offsets": Where.FILE,
}


def _target_of(sent: Json, allowed: Sequence[str]) -> ResetTarget:
    to = text_of(sent, "to")
    if to not in allowed:
        raise HttpProblem(400, f"The field to must be one of {', '.join(allowed)}")
    value: Any = sent.get("value", 0)
    needs = to in ("offset", "time", "shift")
    if needs and (isinstance(value, bool) or not isinstance(value, int)):
        raise HttpProblem(400, "The field value must be a whole number")
    if not -_OFFSET_MAX <= value <= _OFFSET_MAX or (value < 0 and to != "shift"):
        raise HttpProblem(400, "The field value must not be negative, and fit into 64 bits")
    return ResetTarget(_WHERE[to], value if needs else 0)


def _offsets_of(sent: Json) -> dict[Partition, int]:
    """The new offsets by partition. The page sends them as the plan contained them, in rows of
    topic, partition and offset."""
    rows = sent.get("offsets", [])
    if not isinstance(rows, list) or len(rows) > _PARTITIONS_MAX:
        raise HttpProblem(400, f"The field offsets must be a list of at most {_PARTITIONS_MAX:,}")
    found = {}
    for row in rows:
        if not (
            isinstance(row, list)
            and len(row) == 3
            and isinstance(row[0], str)
            and all(isinstance(x, int) and not isinstance(x, bool) and x >= 0 for x in row[1:])
        ):
            raise HttpProblem(400, "A row of offsets is a topic, a partition and an offset")
        found[row[0], row[1]] = row[2]
    return found


async def _ranges(admin: Admin, partitions: Iterable[Partition]) -> dict[Partition, Range]:
    places = list(partitions)
    if len(places) > _PARTITIONS_MAX:
        raise HttpProblem(
            422,
            "These are too many partitions at once",
            f"{len(places):,}, and {_PARTITIONS_MAX:,} can be done",
        )
    first = await admin.list_offsets(dict.fromkeys(places, "earliest"))
    last = await admin.list_offsets(dict.fromkeys(places, "latest"))
    return {
        (tp.topic, tp.partition): Range(start.offset, end.offset)
        for tp, start in first.items()
        if start is not None and (end := last.get(tp)) is not None
    }


async def _at_time(
    admin: Admin, target: ResetTarget, ranges: Iterable[Partition]
) -> dict[Partition, int | None]:
    if target.where is not Where.TIME:
        return {}
    found = await admin.list_offsets(dict.fromkeys(ranges, target.value))
    return {(tp.topic, tp.partition): None if at is None else at.offset for tp, at in found.items()}


# --- Records deleted ------------------------------------------------------------------------------


async def _plan_deletion(session: ConsoleSession, sent: Json) -> Json:
    topic = text_of(sent, "topic", most=249)
    target = _target_of(sent, ("end", "offset", "time", "offsets"))
    admin = await session.admin()
    named = _offsets_of(sent)
    if any(name != topic for name, _ in named):
        raise HttpProblem(400, "The field offsets names another topic")
    one = whole_of(sent, "partition", most=2**31 - 1)
    wanted = [(topic, one)] if one is not None else None
    if target.where is Where.FILE:
        wanted = list(named)
    if wanted is None:
        wanted = [(topic, each) for each in await _partitions(admin, topic)]
    ranges = await _ranges(admin, wanted)
    made = plan(target, ranges, {}, await _at_time(admin, target, ranges), named)
    rows = [
        {
            "partition": place[1],
            "start": ranges[place].start,
            "new_start": offset,
            "records": offset - ranges[place].start,
        }
        for place, offset in sorted(made.offsets.items())
        if offset > ranges[place].start
    ]
    if not rows:
        raise HttpProblem(422, "There is nothing to delete", "No record is before that offset.")
    return {
        "topic": topic,
        "rows": rows,
        "records": sum(row["records"] for row in rows),
        "send": {
            "topic": topic,
            "to": "offsets",
            "offsets": [[topic, row["partition"], row["new_start"]] for row in rows],
        },
    }


async def _act_deletion(session: ConsoleSession, _sent: Json, planned: Json) -> Json:
    before = {(planned["topic"], row["partition"]): row["new_start"] for row in planned["rows"]}
    await (await session.admin()).delete_records(before)
    return {"text": f"Deleted up to {counted(planned['records'], 'offset')}"}


# --- Offsets of a group ---------------------------------------------------------------------------


async def _plan_reset(session: ConsoleSession, sent: Json) -> Json:
    group = text_of(sent, "group")
    target, named = _target_of(sent, tuple(_WHERE)), _offsets_of(sent)
    admin = await session.admin()
    described = (await admin.describe_groups(group))[group]
    if described.members:
        raise HttpProblem(
            409,
            "The group has members",
            f"{counted(len(described.members), 'member')} would overwrite the offsets.",
            "Stop them first.",
        )
    committed = {
        (tp.topic, tp.partition): found.offset
        for tp, found in (await admin.list_group_offsets(group)).items()
        if found is not None
    }
    wanted: list[Partition] = list(named) if target.where is Where.FILE else list(committed)
    topic = sent.get("topic")
    if topic and target.where is not Where.FILE:
        topic = text_of(sent, "topic", most=249)
        wanted = [(topic, each) for each in await _partitions(admin, topic)]
    ranges = await _ranges(admin, wanted)
    try:
        made = plan(target, ranges, committed, await _at_time(admin, target, ranges), named)
    except OffsetError as error:
        raise HttpProblem(422, "This cannot be done", str(error)) from None
    rows = [
        {"topic": place[0], "partition": place[1], "from": committed.get(place), "to": offset}
        for place, offset in sorted(made.offsets.items())
    ]
    if not rows:
        raise HttpProblem(
            422, "There is nothing to move", "The group has no offsets.", "Name a topic."
        )
    return {
        "group": group,
        "rows": rows,
        "notes": made.notes,
        "send": {
            "group": group,
            "to": "offsets",
            "offsets": [[row["topic"], row["partition"], row["to"]] for row in rows],
        },
    }


async def _act_reset(session: ConsoleSession, _sent: Json, planned: Json) -> Json:
    offsets = {(row["topic"], row["partition"]): row["to"] for row in planned["rows"]}
    try:
        await (await session.admin()).alter_group_offsets(planned["group"], offsets)
    except InvalidGroup as error:
        raise HttpProblem(409, "The group has members", str(error), "Stop them first.") from None
    return {"text": f"Moved in {counted(len(offsets), 'partition')}"}


CHANGES = {
    "/change/record": PageChange(_plan_record, _act_record, frozenset({"key", "value", "headers"})),
    "/change/deletion": PageChange(_plan_deletion, _act_deletion),
    "/change/offsets": PageChange(_plan_reset, _act_reset),
}
