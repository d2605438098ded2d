"""The part of a log that may be cleaned, and the decision that it is due (L-25). The module
corresponds to Kafka's LogCleanerManager and LogToClean.

A file is opened only if min.compaction.lag.ms or max.compaction.lag.ms is set, to read the
timestamps of segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.reading import with_rebuild
from odradek_broker.storage.segment import Segment
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import INT64_MAX


@dataclass(frozen=True, slots=True)
class LogToClean:
    """The part of a log that may be cleaned. `sources` are whole closed segments from the start of
    the log; records from `first_dirty_offset` on have not been cleaned, and `upper_bound` is the
    first offset after `sources`.

    `delay_ms`: the time since a dirty record became older than max.compaction.lag.ms; 0 if no dirty
    record is older.
    """

    log: PartitionLog
    sources: Sequence[Segment]
    first_dirty_offset: int
    upper_bound: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int

    @property
    def ratio(self) -> float:
        """The fraction of the bytes in `sources` that have not been cleaned, 0 to 1."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    @property
    def due(self) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.delay_ms > 0 or self.ratio > self.log.config.min_cleanable_dirty_ratio


def log_to_clean(log: PartitionLog, cleaned_to: int | None, now_ms: int) -> LogToClean:
    """The part of a log that may be cleaned. Records below `cleaned_to` were cleaned already;
    `cleaned_to` is None if no record was cleaned.

    Raises LogCorrupt, IndexesBeingRebuilt, PartitionOffline, OSError.
    """
    segments = log.segments
    first_dirty = log.log_start_offset if cleaned_to is None else cleaned_to
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        # DeleteRecords has moved the log start past the cleaned part, or the end of the log was
        # lost: the whole log is dirty.
        first_dirty = log.log_start_offset
    bound = min(log.last_stable_offset, segments[-1].base_offset)
    dirty = _overlapping(segments[:-1], first_dirty)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (each.base_offset for each in dirty if _largest_timestamp(each) > now_ms - lag_ms)
        bound = min(bound, next(young, bound))
    sources = [
        segment for segment, following in pairwise(segments) if following.base_offset <= bound
    ]
    upper_bound = segments[len(sources)].base_offset
    to_clean = _overlapping(sources, first_dirty)
    return LogToClean(
        log,
        sources,
        first_dirty,
        upper_bound,
        sum(segment.size_bytes for segment in sources if segment.base_offset < first_dirty),
        sum(segment.size_bytes for segment in to_clean),
        _delay_ms(dirty, log.config.max_compaction_lag_ms, now_ms),
    )


def _overlapping(segments: Sequence[Segment], offset: int) -> list[Segment]:
    return [segment for segment in segments if segment.next_offset > offset]


def _largest_timestamp(segment: Segment) -> int:
    timestamp, _ = with_rebuild(segment, lambda: segment.indexes.largest_timestamp)
    return timestamp


def _first_timestamp(segment: Segment) -> int:
    return with_rebuild(segment, lambda: segment.indexes.first_timestamp)


def _delay_ms(dirty: Sequence[Segment], most_ms: int, now_ms: int) -> int:
    if most_ms == INT64_MAX:
        return 0
    times = [time for time in map(_first_timestamp, dirty) if time > 0]
    return max(0, now_ms - most_ms - min(times, default=INT64_MAX))
