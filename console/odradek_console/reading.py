"""Scans of a topic, which read the requested records in steps with a budget.

A step reads until it has its rows, or until its time, bytes or records are used up, and returns the
offsets that it has read, with their content.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from odradek_client.admin import Admin
from odradek_client.errors import OffsetOutOfRange
from odradek_client.structs import TopicPartition
from odradek_client.timestamps import Time
from odradek_console.answers import HttpProblem, Json, PageQuery
from odradek_console.partition_log import LogRecord, Marker, Piece, fetch, pieces_of
from odradek_console.scan import PARTITIONS_MAX, Scan, last_records
from odradek_console.shown import Formats, json_or_decoded_value, marker_row, row_of
from odradek_protocol.schemas.fetch import PartitionData
from odradek_records.offset_grammar import OffsetError, parse_time
from odradek_records.partition_fetch import FetchLimits
from odradek_records.record_filter import FilterError, RecordFilter, parse_filter

COUNT_DEFAULT = 500
COUNT_MAX = 1_000
OFFSET_MAX = (1 << 63) - 1
#: The budget of one step. A page requests further steps until its own budget is used up.
_STEP_S = 0.7
_STEP_BYTES = 8 * 1024 * 1024
_STEP_RECORDS = 20_000
_PARTITIONS_OF_FETCH = 64
_FETCH = FetchLimits()
#: The number of empty answers in a row after which a broker is assumed to have no more data.
_EMPTY_ROUNDS_MAX = 3
_TIME_MS_MAX = 10**15
_NOTES_MAX = 50
_SCANS_MAX = 16


# --- The choice of records ------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The records that a page requests."""

    topic: str
    partitions: tuple[int, ...]
    partition_count: int
    matches: RecordFilter
    is_filtered: bool
    read_committed: bool
    markers: bool
    newest_first: bool


def is_committed(query: PageQuery) -> bool:
    """True if records of transactions are shown only after their commit ("read_committed")."""
    wanted = query.text("isolation", "read_uncommitted")
    if wanted not in ("read_committed", "read_uncommitted"):
        raise HttpProblem(
            400, "The parameter isolation is wrong", "read_committed or read_uncommitted"
        )
    return wanted == "read_committed"


def filter_of(query: PageQuery) -> RecordFilter:
    """The filter in the parameters. Refusal with the error in the filter."""
    try:
        return parse_filter(
            query.text("filter", ""),
            expressions=False,
            value_of=json_or_decoded_value,
            zone=zone_of(query),
        )
    except FilterError as error:
        raise HttpProblem(400, "The filter cannot be used", str(error)) from None


async def choice_of(admin: Admin, query: PageQuery) -> Choice:
    """The choice in the parameters. Refusal for an impossible choice."""
    topic = query.text("topic")
    order = query.text("order", "newest")
    if order not in ("newest", "oldest"):
        raise HttpProblem(400, "The parameter order is wrong", "newest or oldest")
    there = (await admin.describe_topics([topic]))[topic].partitions
    numbers = sorted(part.partition for part in there)
    return Choice(
        topic,
        chosen_partitions(query.text("partitions", ""), numbers),
        len(numbers),
        filter_of(query),
        bool(query.text("filter", "").strip()),
        is_committed(query),
        query.flag("markers"),
        order == "newest",
    )


def chosen_partitions(text: str, there: list[int]) -> tuple[int, ...]:
    """The partitions that a text such as `0,4-7` names; an empty text means the first 256.
    Refusal for any other text."""
    if not text.strip():
        return tuple(there[:PARTITIONS_MAX])
    wanted: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part)
        if found is None:
            raise HttpProblem(
                400, "The parameter partitions is wrong", f"{part[:50]!r}", "Write 0 or 0,4-7."
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if last - first >= PARTITIONS_MAX:
            raise _too_many()
        wanted |= set(range(first, last + 1))
    if len(wanted) > PARTITIONS_MAX:
        raise _too_many()
    missing = sorted(wanted - set(there))
    if missing:
        raise HttpProblem(
            404, "There is no such partition", f"{missing[0]}; there are {len(there):,}"
        )
    return tuple(sorted(wanted))


def _too_many() -> HttpProblem:
    return HttpProblem(400, "Too many partitions", f"a scan reads {PARTITIONS_MAX} at most")


@dataclass(frozen=True)
class Bounds:
    """The log start of each partition, its end, and the end of its readable offsets."""

    first: dict[int, int]
    end: dict[int, int]
    readable: dict[int, int]

    def ranges(self) -> dict[int, tuple[int, int]]:
        """The offsets of each partition that the reader is allowed to see."""
        return {part: (self.first[part], self.readable[part]) for part in self.first}

    def held(self) -> list[Json]:
        """The offsets that open transactions hide from the reader."""
        return [
            {"partition": part, "from": self.readable[part], "to": end}
            for part, end in sorted(self.end.items())
            if self.readable[part] < end
        ]


async def bounds_of(admin: Admin, choice: Choice) -> Bounds:
    """The bounds of the chosen partitions."""
    wanted = [TopicPartition(choice.topic, part) for part in choice.partitions]

    async def ask(place: Any, read_committed: bool = False) -> dict[int, int]:
        found = await admin.list_offsets(
            dict.fromkeys(wanted, place), read_committed=read_committed
        )
        return {tp.partition: 0 if at is None else at.offset for tp, at in found.items()}

    first, end = await ask("earliest"), await ask("latest")
    readable = await ask("latest", True) if choice.read_committed else end
    # The log start may move between the two requests.
    return Bounds(first, end, {part: max(at, first[part]) for part, at in readable.items()})


def zone_of(query: PageQuery) -> Callable[[], tzinfo]:
    """The zone of times without one: that in which the page shows times, by default UTC. The
    function raises Refusal for a zone that this machine does not know."""
    name = query.text("zone", "UTC")

    def zone() -> tzinfo:
        if name.upper() == "UTC":
            return UTC
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise HttpProblem(
                400,
                "The console does not know the time zone",
                f"{name[:100]!r}",
                "Write times with their zone: 2024-05-01T12:30:00Z.",
            ) from None

    return zone


def moment(text: str, zone: Callable[[], tzinfo]) -> int:
    """The time in milliseconds since 1970. Refusal for a text that is no time."""
    try:
        found = parse_time(text, zone)
    except OffsetError:
        found = _TIME_MS_MAX
    if found >= _TIME_MS_MAX:
        raise HttpProblem(400, "This is no time", f"{text[:100]!r}", "Write 2024-05-01T12:30:00Z.")
    return max(found, 0)


@dataclass(frozen=True)
class Ranges:
    """The offsets to read, and the offsets before them, which a page may request later."""

    ranges: dict[int, tuple[int, int]]
    before: dict[int, tuple[int, int]] = field(default_factory=dict)


async def ranges_of(admin: Admin, choice: Choice, query: PageQuery, bounds: Bounds) -> Ranges:
    """The offsets that the scope in the parameters names."""
    scope = query.text("scope", "last")
    count = query.whole("count", COUNT_DEFAULT, least=1, most=COUNT_MAX)
    ranges = bounds.ranges()
    if scope == "last":
        last = last_records(ranges, count)
        return Ranges(last, {part: (first, last[part][0]) for part, (first, _) in ranges.items()})
    if scope == "offset":
        start = query.whole("at", 0, most=OFFSET_MAX)
        starts = dict.fromkeys(ranges, start)
    elif scope == "time":
        at_ms = moment(query.text("at"), zone_of(query))
        wanted: dict[tuple[str, int], Time] = {(choice.topic, part): at_ms for part in ranges}
        found = await admin.list_offsets(wanted)
        starts = {tp.partition: OFFSET_MAX if at is None else at.offset for tp, at in found.items()}
    elif scope == "all":
        starts = {}
    else:
        raise HttpProblem(400, "The parameter scope is wrong", "last, offset, time or all")
    return Ranges(
        {
            part: (max(first, min(starts.get(part, first), end)), end)
            for part, (first, end) in ranges.items()
        }
    )


# --- A step ---------------------------------------------------------------------------------------


@dataclass
class ScanStep:
    """The results of one step of a scan. `read`: the ranges of offsets that were read, by
    partition."""

    rows: list[Json] = field(default_factory=list)
    read: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    records: int = 0
    hits: int = 0
    hidden: int = 0
    markers: int = 0
    missing: int = 0
    size_bytes: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a note for the page about the offsets that were read."""
        if len(self.notes) < _NOTES_MAX:
            self.notes.append(text)

    def count(self, partition: int, piece: Piece) -> None:
        """Add the figures of a piece."""
        self.size_bytes += piece.size_bytes
        if piece.next_offset <= piece.first:
            return
        self.records += len(piece.records)
        self.hidden += len(piece.hidden)
        self.markers += len(piece.markers)
        self.missing += piece.missing
        ranges = self.read.setdefault(partition, [])
        ranges.append((piece.first, piece.next_offset))
        self.read[partition] = merged(ranges)


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets in as few ranges as possible, the lowest range first."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((first, end))
    return found


class Reader:
    """The reader of the pieces of a topic for a scan, which handles errors and truncations."""

    def __init__(self, admin: Admin, topic: str, read_committed: bool, scan: Scan) -> None:
        self._admin = admin
        self._topic = topic
        self._committed = read_committed
        self._scan = scan
        self._empty_rounds = 0

    async def pieces(self, step: ScanStep) -> list[tuple[TopicPartition, Piece]]:
        """The next pieces. Offsets that were deleted or lost are skipped, and noted in `step`."""
        some = list(self._scan.wanted().items())[:_PARTITIONS_OF_FETCH]
        wanted = {TopicPartition(self._topic, part): span for part, span in some}
        fetched = await fetch(
            self._admin,
            {tp: first for tp, (first, _) in wanted.items()},
            _FETCH,
            read_committed=self._committed,
        )
        for tp, error in fetched.errors.items():
            if not isinstance(error, OffsetOutOfRange):
                raise error
            await self._skip_deleted(tp, wanted[tp], step)
        pieces = await asyncio.to_thread(self._decoded, fetched, wanted)
        self._note_progress(pieces, wanted, step, bool(fetched.errors))
        return pieces

    def _decoded(
        self,
        fetched: Mapping[TopicPartition, PartitionData],
        wanted: Mapping[TopicPartition, tuple[int, int]],
    ) -> list[tuple[TopicPartition, Piece]]:
        return list(pieces_of(fetched, wanted, read_committed=self._committed))

    async def _skip_deleted(
        self, tp: TopicPartition, span: tuple[int, int], step: ScanStep
    ) -> None:
        first, until = span
        start = (await self._admin.list_offsets({tp: "earliest"}))[tp]
        at = until if start is None else start.offset
        if at > first:
            step.note(
                f"Records of partition {tp.partition} before offset {at:,} were deleted while they "
                "were read."
            )
            self._scan.took(tp.partition, min(at, until))
        else:
            step.note(f"Partition {tp.partition} does not reach offset {first:,} any more.")
            self._scan.give_up(tp.partition)

    def _note_progress(
        self,
        pieces: list[tuple[TopicPartition, Piece]],
        wanted: Mapping[TopicPartition, tuple[int, int]],
        step: ScanStep,
        excused: bool,
    ) -> None:
        for tp, piece in pieces:
            if piece.damage is not None:
                step.note(
                    f"Partition {tp.partition} cannot be read from offset {piece.next_offset:,} on: "
                    f"{piece.damage}"
                )
        moved = excused or any(
            piece.next_offset > piece.first or piece.damage for _, piece in pieces
        )
        self._empty_rounds = 0 if moved else self._empty_rounds + 1
        if self._empty_rounds >= _EMPTY_ROUNDS_MAX:
            for tp, (first, _) in wanted.items():
                step.note(
                    f"The broker sends nothing of partition {tp.partition} from {first:,} on."
                )
                self._scan.give_up(tp.partition)


async def take_step(
    admin: Admin, choice: Choice, formats: Formats, scan: Scan, count: int
) -> ScanStep:
    """Continue until there are `count` rows, or until the step's budget is used up."""
    step = ScanStep()
    reader = Reader(admin, choice.topic, choice.read_committed, scan)
    deadline = time.monotonic() + _STEP_S
    while (
        not scan.done
        and len(step.rows) < count
        and time.monotonic() < deadline
        and step.size_bytes < _STEP_BYTES
        and step.records < _STEP_RECORDS
    ):
        rows_before = len(step.rows)
        for tp, piece in await reader.pieces(step):
            if len(step.rows) >= count:
                break
            await asyncio.to_thread(_take, step, choice, formats, piece, count)
            step.count(tp.partition, piece)
            if piece.damage is None:
                scan.took(tp.partition, piece.next_offset)
            else:
                scan.give_up(tp.partition)
        if len(step.rows) - rows_before < count // 4:
            scan.widen(2)
    step.rows.sort(
        key=lambda row: (row["timestamp"], row["partition"], row["offset"]),
        reverse=choice.newest_first,
    )
    return step


def _take(step: ScanStep, choice: Choice, formats: Formats, piece: Piece, count: int) -> None:
    """Add the rows of a piece. If there are more than `count` in total, the piece is cut after the
    last row that fits."""
    found: list[LogRecord | Marker] = [record for record in piece.records if choice.matches(record)]
    step.hits += len(found)
    if choice.markers:
        found = sorted([*found, *piece.markers], key=lambda each: each.offset)
    room = count - len(step.rows)
    if len(found) > room:
        over = found[room:]
        step.hits -= sum(isinstance(each, LogRecord) for each in over)
        piece.cut(found[room - 1].offset + 1)
    step.rows += [
        row_of(each, formats) if isinstance(each, LogRecord) else marker_row(each)
        for each in found[:room]
    ]


_scans = 0


@contextmanager
def scanning() -> Iterator[None]:
    """A context that counts a running scan. Refusal if there are too many at a time."""
    global _scans
    if _scans >= _SCANS_MAX:
        raise HttpProblem(429, "Too many scans at a time", "", "Try again in a moment.")
    _scans += 1
    try:
        yield
    finally:
        _scans -= 1
