"""Which whole segments go, oldest first (L-20..L-22). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from odradek_broker.storage.log_config import LogConfig


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What retention asks of a segment.

    `newest_ms()`: its largest record timestamp, or the file's modification time when no record has
    one (L-21); a function, because knowing it may open the segment's index.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    active: bool
    newest_ms: Callable[[], int]


def segments_to_delete(
    segments: Iterable[SegmentFacts],
    *,
    total_bytes: int,
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many of the oldest segments qualify; it stops at the first that does not (L-20).

    A segment goes when it lies below the log start; and, where the policy says delete, when it is
    too old, or when the log without it still reaches `retention.bytes`. Never one that holds
    anything at or above the high watermark, and never an empty active one. The active segment can
    be among those counted: roll first.
    """
    count = 0
    for segment in segments:
        if segment.next_offset > high_watermark:
            break
        if segment.active and segment.size_bytes == 0:
            break
        if not (
            segment.next_offset <= log_start_offset
            or (
                "delete" in config.cleanup_policy and _expired(segment, total_bytes, config, now_ms)
            )
        ):
            break
        total_bytes -= segment.size_bytes
        count += 1
    return count


def _expired(segment: SegmentFacts, total_bytes: int, config: LogConfig, now_ms: int) -> bool:
    if 0 <= config.retention_bytes <= total_bytes - segment.size_bytes:
        return True
    return config.retention_ms >= 0 and now_ms - segment.newest_ms() > config.retention_ms
