"""New positions of a group: the options, and the resulting offsets.

The rules are those of Kafka's own tool. An offset outside of the log becomes the nearest one
inside. A time after the last record means the end. A partition without a position gets the end, as
with Kafka's `--to-current`. The module sends no requests.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.settings import parse_iso_duration_ms
from odradek_protocol.visible import visible
from odradek_records.offset_grammar import OffsetError, parse_time

Partition = tuple[str, int]


class Where(Enum):
    """The base of a new offset."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    CURRENT = "--to-current"
    OFFSET = "--to-offset"
    TIME = "--to-datetime"
    SHIFT = "--shift-by"
    FILE = "--from-file"


@dataclass(frozen=True)
class ResetTarget:
    """A base and a distance from it. `value`: an offset, a number of records, or milliseconds since
    the epoch."""

    where: Where
    value: int = 0


class Range(NamedTuple):
    """The range of a partition: its first offset, and its end offset."""

    start: int
    end: int


@dataclass
class ResetPlan:
    """New offsets, and notes about them for the user."""

    offsets: dict[Partition, int]
    notes: list[str]


# --- Options --------------------------------------------------------------------------------------


def parse_topics(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Parse `T` (None: all partitions) or `T:0,3`; a topic given twice gets the partitions of both.
    Raises OffsetError."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic or (colon and not re.fullmatch(r"\d+(,\d+)*", numbers)):
            raise OffsetError(f"{text!r} names no partitions; write TOPIC or TOPIC:0,1,2")
        held = found.get(topic, [])
        if not colon or held is None:
            found[topic] = None
        else:
            wanted = [int(number) for number in numbers.split(",")]
            found[topic] = list(dict.fromkeys(held + wanted))
    return found


_SHORT_DURATION = re.compile(r"([0-9]{1,19})(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration, as in Kafka's tool (PT1H30M, P2D), or a number and a unit (90m,
    2d). Raises OffsetError."""
    short = _SHORT_DURATION.fullmatch(text)
    if short is not None:
        return int(short[1]) * _UNIT_MS[short[2]]
    duration_ms = parse_iso_duration_ms(text)
    if duration_ms is None:
        raise OffsetError(f"{text!r} is no duration; write 90m, 12h, 7d, PT1H30M or P2D")
    return duration_ms


def parse_target(
    *,
    now_ms: int,
    to_earliest: bool = False,
    to_latest: bool = False,
    to_current: bool = False,
    to_offset: int | None = None,
    to_datetime: str | None = None,
    by_duration: str | None = None,
    shift_by: int | None = None,
    from_file: bool = False,
) -> ResetTarget:
    """The one target that the options name. Raises OffsetError if they name none or several."""
    given: list[ResetTarget] = []
    if to_earliest:
        given.append(ResetTarget(Where.EARLIEST))
    if to_latest:
        given.append(ResetTarget(Where.LATEST))
    if to_current:
        given.append(ResetTarget(Where.CURRENT))
    if to_offset is not None:
        given.append(ResetTarget(Where.OFFSET, to_offset))
    if to_datetime is not None:
        given.append(ResetTarget(Where.TIME, parse_time(to_datetime)))
    if by_duration is not None:
        # Negative timestamps have special meanings.
        given.append(ResetTarget(Where.TIME, max(now_ms - parse_duration_ms(by_duration), 0)))
    if shift_by is not None:
        given.append(ResetTarget(Where.SHIFT, shift_by))
    if from_file:
        given.append(ResetTarget(Where.FILE))
    if len(given) != 1:
        raise OffsetError(
            "say where to, once: --to-earliest, --to-latest, --to-current, --to-offset, "
            "--to-datetime, --by-duration, --shift-by or --from-file"
        )
    return given[0]


# --- The offsets ----------------------------------------------------------------------------------


def plan(
    target: ResetTarget,
    ranges: Mapping[Partition, Range],
    committed: Mapping[Partition, int],
    at_time: Mapping[Partition, int | None],
    from_file: Mapping[Partition, int],
) -> ResetPlan:
    """The new offset of each partition in `ranges`.

    `committed`: the group's committed offsets. `at_time`: for Where.TIME, the offset of the first
    record at that time or later; None if there is none. Raises OffsetError for a shift if the group
    has no position to shift."""
    made = ResetPlan({}, [])
    for partition, held in ranges.items():
        name = f"{partition[0]}-{partition[1]}"
        current = committed.get(partition)
        if target.where is Where.EARLIEST:
            wanted = held.start
        elif target.where is Where.LATEST:
            wanted = held.end
        elif target.where is Where.OFFSET:
            wanted = target.value
        elif target.where is Where.FILE:
            wanted = from_file[partition]
        elif target.where is Where.TIME:
            found = at_time.get(partition)
            if found is None and held.end > held.start:
                made.notes.append(f"{name}: no record at that time or later; the end is taken")
            wanted = held.end if found is None else found
        elif current is None:
            if target.where is Where.SHIFT:
                raise OffsetError(
                    f"{name}: the group has no position there to shift from; leave it out with "
                    f"--topic, or choose another target"
                )
            made.notes.append(f"{name}: the group has no position there; the end is taken")
            wanted = held.end
        else:
            wanted = current + (target.value if target.where is Where.SHIFT else 0)
        made.offsets[partition] = _inside(name, wanted, held, made.notes)
    return made


def _inside(name: str, wanted: int, held: Range, notes: list[str]) -> int:
    if wanted < held.start:
        notes.append(f"{name}: {wanted} is below the first offset; {held.start} is taken")
        return held.start
    if wanted > held.end:
        notes.append(f"{name}: {wanted} is above the last offset; {held.end} is taken")
        return held.end
    return wanted


# --- Files ----------------------------------------------------------------------------------------


def write_csv(rows: Iterable[tuple[str, str, int, int]], *, with_group: bool) -> str:
    """Write (group, topic, partition, offset) as Kafka's tool exports them. The group is included
    only if there are several groups."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, *rest in rows:
        writer.writerow([visible(group), *rest] if with_group else rest)
    return out.getvalue()


def read_csv(text: str, groups: list[str]) -> dict[str, dict[Partition, int]]:
    """The offsets by group. Lines without a group are for the only group. Raises OffsetError.

    Both of Kafka's forms are read: `topic,partition,offset` and `group,topic,partition,offset`.
    """
    found: dict[str, dict[Partition, int]] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) == 3 and len(groups) == 1:
            cells = [groups[0], *cells]
        if len(cells) != 4 or not all(re.fullmatch(r"\d+", cell) for cell in cells[2:]):
            form = "TOPIC,PARTITION,OFFSET" if len(groups) == 1 else "GROUP,TOPIC,PARTITION,OFFSET"
            raise OffsetError(f"line {number}: {','.join(row)!r} is not {form}")
        group, topic, partition, offset = cells
        if group in groups:
            found.setdefault(group, {})[topic, int(partition)] = int(offset)
    return found
