"""The beginning and the end of a read: Spark's options for them, and the resulting offsets.

Offsets are given as "earliest", "latest" or JSON. Times are in milliseconds since 1970, either one
time for all partitions or JSON. JSON always has the form {"topic": {"partition": number}}, with
every partition.

There are three steps, of which only the second needs a cluster: parse (to a `Bound`), request
offsets (`times_to_ask`), `resolve` the answers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek_protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from odradek_protocol.lazy_tuple import NamedTuple
from pyspark_odradek.errors import DataLoss, OptionsError
from pyspark_odradek.planning import OffsetRange, Partition

#: For "earliest" and "latest" Spark uses Kafka's numbers.
EARLIEST = EARLIEST_TIMESTAMP
LATEST = LATEST_TIMESTAMP
_MAX_NUMBER = 2**63 - 1
_SHOWN = 5


@dataclass(frozen=True)
class AtEdge:
    """ "earliest" or "latest" for every partition; `edge` is EARLIEST or LATEST."""

    edge: int


@dataclass(frozen=True)
class AtOffsets:
    """An offset for each partition; EARLIEST and LATEST are allowed as offsets."""

    offsets: Mapping[Partition, int]


@dataclass(frozen=True)
class AtTime:
    """The first record at or after a time in ms. There is one time for all partitions, or one for
    each."""

    time_ms: int | None = None
    times_ms: Mapping[Partition, int] | None = None

    def of(self, partition: Partition) -> int | None:
        return self.time_ms if self.times_ms is None else self.times_ms.get(partition)


Bound = AtEdge | AtOffsets | AtTime


# --- parsing --------------------------------------------------------------------------------------


def parse_offsets(text: str, option: str) -> Bound:
    """Parse "earliest", "latest" or JSON of offsets. ValueError with the problem."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return AtEdge(EARLIEST if word == "earliest" else LATEST)
    example = '"earliest", "latest" or JSON such as {"topic": {"0": 23, "1": -2}}'
    offsets = _parse_numbers(text, option, example)
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise ValueError(
                f"{option}: offset {offset} of {partition} is impossible; it must be 0 or more, "
                f"{EARLIEST} for earliest or {LATEST} for latest"
            )
    return AtOffsets(offsets)


def parse_times(text: str, option: str) -> AtTime:
    """Parse JSON of a time in ms for each partition. ValueError with the problem."""
    times = _parse_numbers(text, option, 'JSON such as {"topic": {"0": 1700000000000}}')
    for partition, time_ms in times.items():
        if time_ms < 0:
            raise ValueError(f"{option}: time {time_ms} of {partition} is before 1970")
    return AtTime(times_ms=times)


def parse_time(text: str, option: str) -> AtTime:
    """Parse one time in ms for all partitions. ValueError with the problem."""
    try:
        time_ms = int(text.strip())
    except ValueError:
        time_ms = -1
    if not 0 <= time_ms <= _MAX_NUMBER:
        raise ValueError(
            f"{option}={text!r} must be milliseconds since 1970, such as 1700000000000"
        )
    return AtTime(time_ms=time_ms)


def parse_assignment(text: str, option: str) -> tuple[Partition, ...]:
    """Parse the option `assign`, such as {"topic": [0, 1]}. ValueError with the problem."""
    example = 'JSON such as {"topic": [0, 1]}'
    found: dict[Partition, None] = {}
    for topic, numbers in _parse_object(text, option, example).items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(f"{option}: {topic!r} needs a list of partitions: write {example}")
        for number in numbers:
            found[Partition(topic, _partition_number(number, topic, option))] = None
    if not found:
        raise ValueError(f"{option} names no partition: write {example}")
    return tuple(sorted(found))


def _parse_numbers(text: str, option: str, example: str) -> dict[Partition, int]:
    numbers: dict[Partition, int] = {}
    for topic, inner in _parse_object(text, option, example).items():
        if not isinstance(inner, dict):
            raise ValueError(f"{option}: {topic!r} needs an object of partitions: write {example}")  # noqa: TRY004
        for key, number in inner.items():
            partition = Partition(topic, _partition_number(key, topic, option))
            if not isinstance(number, int) or isinstance(number, bool) or abs(number) > _MAX_NUMBER:
                raise ValueError(f"{option}: {number!r} of {partition} is no whole number")
            numbers[partition] = number
    if not numbers:
        raise ValueError(f"{option} names no partition: write {example}")
    return numbers


def _parse_object(text: str, option: str, example: str) -> dict[str, Any]:
    def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError(f"{option}: a name is there twice in {text!r}")
        return found

    try:
        value = json.loads(text, object_pairs_hook=without_repetition)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{option}={text!r} is not understood ({error}): write {example}"
        ) from None
    if not isinstance(value, dict):
        raise ValueError(f"{option}={text!r} is no object: write {example}")  # noqa: TRY004
    return value


def _partition_number(value: Any, topic: str, option: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError(f"{option}: {value!r} is no partition of {topic!r}")
    return value


# --- from bounds to ranges ------------------------------------------------------------------------


class LogBounds(NamedTuple):
    """The offsets of a partition, from `start` (inclusive) to `end` (exclusive).

    `end` is the high watermark, or the last stable offset under read_committed.
    """

    start: int
    end: int


def check_named(
    bound: Bound, partitions: Collection[Partition], option: str, problems: list[str]
) -> None:
    """Check that a bound in JSON names exactly the partitions that are read, as Spark requires."""
    named = bound.offsets if isinstance(bound, AtOffsets) else None
    if isinstance(bound, AtTime):
        named = bound.times_ms
    if named is None:
        return
    missing = sorted(set(partitions) - set(named))
    surplus = sorted(set(named) - set(partitions))
    if missing:
        problems.append(f"{option} does not name {_some(missing)}, which would be read; name all")
    if surplus:
        problems.append(
            f"{option} names {_some(surplus)}, which would not be read or does not exist"
        )


def times_to_ask(bound: Bound, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The times to request from the brokers; an empty dict unless the bound is a time."""
    if not isinstance(bound, AtTime):
        return {}
    return {each: time for each in partitions if (time := bound.of(each)) is not None}


@dataclass(frozen=True)
class Resolution:
    """The input of `resolve`. `start_found`, `end_found`: the offsets for the times of
    `times_to_ask`, None if there is no record at or after the time."""

    start: Bound
    end: Bound
    logs: Mapping[Partition, LogBounds]
    start_found: Mapping[Partition, int | None]
    end_found: Mapping[Partition, int | None]
    latest_if_no_record: bool
    fail_on_data_loss: bool


def resolve(case: Resolution) -> tuple[list[OffsetRange], list[str]]:
    """Returns (one range for each partition, sorted by partition; warnings). A range can be empty.

    Raises DataLoss if a requested offset is below the start or above the end of the log. Gaps
    inside the log do not count as loss, because transactions and compaction leave gaps. With
    `fail_on_data_loss` off, the range is cut to the log instead. Raises OptionsError for a start
    time after the last record, and for a start after the end.
    """
    ranges: list[OffsetRange] = []
    lost: list[str] = []
    problems: list[str] = []
    for partition in sorted(case.logs):
        log = case.logs[partition]
        start = _start(case, partition, log, problems)
        end = _end(case, partition, log)
        if start > end and _is_named(case, partition):
            problems.append(f"{partition}: it would start at {start}, behind its end at {end}")
        if start < log.start:
            lost.append(f"{partition}: offset {start} is asked for, the log starts at {log.start}")
            start = log.start
        for which, offset in (("start", start), ("end", end)):
            if offset > log.end:
                lost.append(
                    f"{partition}: {which} {offset} is asked for, the log ends at {log.end}"
                )
        start, end = min(start, log.end), min(end, log.end)
        ranges.append(OffsetRange(partition, start, max(start, end)))
    if problems:
        raise OptionsError(problems)
    if lost and case.fail_on_data_loss:
        raise DataLoss(
            f"{'; '.join(lost[:_SHOWN])}. Records may have been deleted by retention, or the topic was "
            "created again. Correct the offsets, or set failOnDataLoss to false to read what is there"
        )
    return ranges, lost


def _is_named(case: Resolution, partition: Partition) -> bool:
    """True if both ends of the range come from the options, and not from the log."""
    if isinstance(case.start, AtEdge) or isinstance(case.end, AtEdge):
        return False
    return not isinstance(case.start, AtTime) or case.start_found.get(partition) is not None


def _start(case: Resolution, partition: Partition, log: LogBounds, problems: list[str]) -> int:
    if isinstance(case.start, AtEdge):
        return log.start if case.start.edge == EARLIEST else log.end
    if isinstance(case.start, AtOffsets):
        offset = case.start.offsets[partition]
        return {EARLIEST: log.start, LATEST: log.end}.get(offset, offset)
    found = case.start_found.get(partition)
    if found is None and not case.latest_if_no_record:
        problems.append(
            f"{partition}: no record is at or behind time {case.start.of(partition)}; set "
            "startingOffsetsByTimestampStrategy to latest to begin at the end there"
        )
    return log.end if found is None else found


def _end(case: Resolution, partition: Partition, log: LogBounds) -> int:
    if isinstance(case.end, AtEdge):
        return log.end
    if isinstance(case.end, AtOffsets):
        offset = case.end.offsets[partition]
        return log.end if offset == LATEST else offset
    found = case.end_found.get(partition)
    return log.end if found is None else found


def _some(partitions: list[Partition]) -> str:
    shown = ", ".join(map(str, partitions[:_SHOWN]))
    more = len(partitions) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
