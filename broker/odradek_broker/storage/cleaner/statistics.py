"""Statistics of the cleaner, for metrics and log lines. Names and meanings are Kafka's."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from odradek_broker.storage.cleaner.job import CleaningFinished
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LogCleaned:
    """A cleaning of a log."""

    name: str
    end_offset: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    keyless_records: int
    took_ms: int


@dataclass(slots=True)
class CleanerStatistics:
    """`uncleanable`: logs that are not cleaned until the next start, with the reasons, and their
    bytes by directory. For the last cleaning: the part of the map that was full, the part of the
    bytes that was kept, the duration. For the last search through all logs: the dirtiest ratio, the
    bytes to be cleaned, the longest delay beyond max.compaction.lag.ms, and the monotonic time of
    the search."""

    uncleanable: dict[TopicPartition, str] = field(default_factory=dict)
    uncleanable_bytes: dict[str, int] = field(default_factory=dict)
    map_used: float = 0.0
    kept: float = 0.0
    took_ms: int = 0
    dirtiest: float = 0.0
    delay_ms: int = 0
    looked_at_ms: int = 0
    deaths: int = 0
    dirty_bytes: int = 0
    cleanings: int = 0
    failures: int = 0

    def finished(self, step: CleaningFinished, took_ms: int) -> None:
        self.map_used = step.map_used
        self.kept = step.bytes_kept / step.bytes_read if step.bytes_read else 0.0
        self.took_ms = took_ms
        self.cleanings += 1


class CleanerWatch(Protocol):
    """An observer of the cleaner's work on single logs."""

    def cleaned(self, where: TopicPartition, cleaned: LogCleaned, *, whole: bool) -> None:
        """Called when a cleaning is over. `whole`: the cleaning reached the end of the records to
        clean."""
        ...

    def failed(self, where: TopicPartition, problem: str) -> None:
        """Called when a cleaning was given up."""
        ...

    def left_alone(self, where: TopicPartition, problem: str) -> None:
        """Called when a log will not be cleaned again before the next start of the broker."""
        ...
