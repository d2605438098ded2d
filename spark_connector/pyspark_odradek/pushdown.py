"""Filters that Spark pushes down, and the offsets that they exclude from a read.

Filters on `topic` and `partition` exclude partitions, filters on `offset` cut ranges at both ends,
and a lower limit of `timestamp` cuts the beginnings: all records before the first record at or
after a time are older than the time. An upper limit of `timestamp` cuts nothing, because records
are not sorted by time. Spark also applies every filter to the rows, so pushdown only saves reading.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeGuard

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from odradek_protocol.settings import INT64_MAX
from pyspark_odradek.planning import OffsetRange, Partition

_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def is_offered() -> bool:
    """True if Spark will push filters down to this reader
    (`spark.sql.python.filterPushdown.enabled`).

    If the setting is off, Spark refuses a reader that accepts filters. A planning process cannot
    see the setting, but it can see whether it runs Spark's program for pushdown. In any other
    process the reader accepts no filters.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or getattr(main, "name", "") == _WORKER


@dataclass(frozen=True)
class Restriction:
    """The partitions and offsets that the filters leave; None where there is no restriction.
    `time_ms`: only records at or after this time are needed."""

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = INT64_MAX
    time_ms: int | None = None

    def admits(self, partition: Partition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.numbers is None or partition.number in self.numbers
        )

    def cut(
        self, ranges: Iterable[OffsetRange], found: Mapping[Partition, int | None]
    ) -> list[OffsetRange]:
        """The remaining part of each range. `found`: the first offset at or after `time_ms` in each
        partition, None if there is none."""
        rest = []
        for partition, first, end in ranges:
            if not self.admits(partition):
                continue
            if self.time_ms is not None:
                at_time = found.get(partition)
                first = max(first, end if at_time is None else at_time)
            first = max(first, self.first_offset)
            end = min(end, self.end_offset)
            if first < end:
                rest.append(OffsetRange(partition, first, end))
        return rest


def restriction_of(filters: Iterable[Filter]) -> Restriction:
    """The restriction that follows from all filters together. Filters that are unknown or cannot be
    used are ignored."""
    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    first, end, time_ms = 0, INT64_MAX, None
    for each in filters:
        values = _choices(each)
        column = getattr(each, "attribute", ())
        if column == ("topic",) and values is not None:
            named = frozenset(value for value in values if isinstance(value, str))
            topics = named if topics is None else topics & named
        elif column == ("partition",) and values is not None:
            chosen = frozenset(value for value in values if _is_number(value))
            numbers = chosen if numbers is None else numbers & chosen
        elif column == ("offset",):
            low, high = _interval(each, values)
            first, end = max(first, low), min(end, high)
        elif column == ("timestamp",):
            at_ms = _not_before_ms(each, values)
            # Brokers look up only times from 0 on, and a record without a timestamp has -1.
            if at_ms is not None and at_ms >= 0:
                time_ms = at_ms if time_ms is None else max(time_ms, at_ms)
    return Restriction(topics, numbers, first, end, time_ms)


def _choices(each: Filter) -> tuple[object, ...] | None:
    """The values of a column that the filter lists; None if the filter is of another kind."""
    if isinstance(each, (EqualTo, EqualNullSafe)):
        return (each.value,)
    return tuple(each.value) if isinstance(each, In) else None


def _interval(each: Filter, values: tuple[object, ...] | None) -> tuple[int, int]:
    """(first, end) of the interval of whole numbers that the filter allows; `end` is not
    included."""
    if values is not None:
        numbers = [value for value in values if _is_number(value)]
        return (min(numbers), max(numbers) + 1) if numbers else (0, 0)
    value = getattr(each, "value", None)
    if not _is_number(value):
        return 0, INT64_MAX
    if isinstance(each, GreaterThan):
        return value + 1, INT64_MAX
    if isinstance(each, GreaterThanOrEqual):
        return value, INT64_MAX
    if isinstance(each, LessThan):
        return 0, value
    if isinstance(each, LessThanOrEqual):
        return 0, value + 1
    return 0, INT64_MAX


def _not_before_ms(each: Filter, values: tuple[object, ...] | None) -> int | None:
    if values is not None:
        times = [value for value in values if isinstance(value, datetime)]
        return min(map(_milliseconds, times)) if times and len(times) == len(values) else None
    value = getattr(each, "value", None)
    if isinstance(each, (GreaterThan, GreaterThanOrEqual)) and isinstance(value, datetime):
        return _milliseconds(value)
    return None


def _milliseconds(time: datetime) -> int:
    """The time in ms, rounded down, so that no record is missed."""
    return math.floor(time.timestamp() * 1000) - 1


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
