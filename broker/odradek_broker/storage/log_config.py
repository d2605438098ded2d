"""The settings of one partition log, with Kafka's defaults.

The caller resolves broker defaults and topic overrides; a log may get another `LogConfig` at any
time."""

from __future__ import annotations

import enum

from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import INT32_MAX, INT64_MAX


class AppendOrigin(enum.Enum):
    """The origin of an append; decides how strictly producer state is checked (P-17)."""

    CLIENT = "client"
    """A Produce request: epoch and sequence are checked, and duplicates are answered."""
    COORDINATOR = "coordinator"
    """A group or transaction coordinator, including its markers: only the epoch is checked."""
    REPLAY = "replay"
    """Batches with offsets, whose bytes were checked when first written: nothing is checked."""
    MIRROR = "mirror"
    """A mirror of another cluster: like REPLAY, but structure and records are checked (I-03)."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Topic-level settings (Kafka's names with `.` as `_`; `log.` settings where there is no
    topic-level one). -1 in `retention_ms` and `retention_bytes` means unlimited."""

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 1024**2
    max_message_bytes: int = 1_048_588
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    record_validation: str = "full"
    """`full`: every record is checked as Kafka does (R-04..R-08); `header`: records are read only
    if another setting requires it, and the header of a batch is trusted (D6)."""
    durability: str = "fsync"
    """`fsync`: nothing is readable or acknowledged before it is on disk (D5); `page-cache`:
    Kafka's own default."""

    def __post_init__(self) -> None:
        _one_of("message.timestamp.type", self.message_timestamp_type, _TIMESTAMP_TYPES)
        _one_of("record.validation", self.record_validation, ("header", "full"))
        _one_of("log.durability", self.durability, ("fsync", "page-cache"))
        _one_of("compression.type", self.compression_type, _COMPRESSION_TYPES)
        if unknown := self.cleanup_policy - {"delete", "compact"}:
            raise ValueError(f"cleanup.policy does not know {', '.join(sorted(unknown))}")
        if not 14 <= self.segment_bytes <= INT32_MAX:
            raise ValueError("segment.bytes must lie between 14 and 2147483647")

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def longest_segment_ms(self) -> int:
        """The time after which a segment is rolled at the latest (L-06); in a compacted log, at
        most max.compaction.lag.ms."""
        if self.compacted and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def opens_records(self) -> bool:
        """True if an append must read the records, not only the header."""
        return self.record_validation == "full" or "compact" in self.cleanup_policy


_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


def _one_of(name: str, value: str, legal: tuple[str, ...]) -> None:
    if value not in legal:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(legal)}")
