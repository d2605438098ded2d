"""The job of a cleaner and its answers: values that are sent between processes as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import field, fields
from itertools import islice
from typing import Any

from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

_PRODUCERS = "last_records"
_PRODUCER_LINES = "producer_lines"
_PRODUCERS_A_LINE = 1_000


class LastRecord(NamedTuple):
    """The last record of an unexpired producer. `data_offset`: the last offset of its last data
    batch; -1 if the producer state has only a marker."""

    data_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """A log to clean.

    `segments`: (base offset, bytes) of the segments to clean, oldest first, whole and closed;
    `later_bases`: base offsets of the segments after `segments`; their transaction indexes may name
    transactions that began in the cleaned part. Records from `first_dirty_offset` on have not been
    cleaned; `upper_bound` is the first offset after `segments`. `producers_known_from`: the offset,
    not below `upper_bound`, of the producer snapshot that a start would use. Times are of the wall
    clock.
    """

    directory: str
    segments: tuple[tuple[int, int], ...]
    later_bases: tuple[int, ...]
    first_dirty_offset: int
    upper_bound: int
    producers_known_from: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    dedupe_load_factor: float
    io_bytes_per_second: float
    last_records: dict[int, LastRecord] = field(default_factory=dict)

    def to_lines(self) -> Iterator[str]:
        """Lines of JSON: first all but the producers, then the producers, a few per line, so that
        each line is made quickly."""
        head = {each.name: getattr(self, each.name) for each in fields(self)}
        del head[_PRODUCERS]
        producers = iter(self.last_records.items())
        head[_PRODUCER_LINES] = -(-len(self.last_records) // _PRODUCERS_A_LINE)
        yield json.dumps(head)
        for _ in range(head[_PRODUCER_LINES]):
            yield json.dumps([(key, *last) for key, last in islice(producers, _PRODUCERS_A_LINE)])

    @classmethod
    def from_lines(cls, lines: Iterator[str]) -> CleaningJob:
        """The job in the lines that `to_lines` made. Raises ValueError, KeyError, TypeError."""
        head: dict[str, Any] = json.loads(next(lines))
        head["segments"] = tuple((base, size) for base, size in head["segments"])
        head["later_bases"] = tuple(head["later_bases"])
        head[_PRODUCERS] = {
            producer_id: LastRecord(offset, epoch)
            for _ in range(head.pop(_PRODUCER_LINES))
            for producer_id, offset, epoch in json.loads(next(lines))
        }
        return cls(**head)


@dataclass(frozen=True, slots=True)
class GroupCleaned:
    """The step in which the segments at `sources` were cleaned into one segment. Its base offset is
    the first of `sources`, and its files end in `.cleaned`. The cleaning continues after the
    segment was swapped in or given up."""

    sources: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleaningFinished:
    """Everything below `end_offset` is clean. The numbers of bytes and records are those of the
    second pass, which copies the kept records; `map_used` is the part of the map that was filled, 0
    to 1."""

    end_offset: int
    bytes_read: int
    bytes_kept: int
    records_read: int
    records_kept: int
    keyless_records: int
    map_used: float


CleaningStep = GroupCleaned | CleaningFinished
Throttle = Callable[[int], None]
"""Called with the bytes that were read or written; may wait."""

Cleaning = Iterator[CleaningStep]
"""Clean group after group: yields a `GroupCleaned` for each, and a `CleaningFinished` at the
end."""


def unthrottled(size_bytes: int) -> None:
    """A throttle that never waits, for a cleaning without a limit of its rate."""
