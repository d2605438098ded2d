"""The decisions of retention, which deletes the oldest segments (L-20..L-22), and of DeleteRecords
(L-10..L-12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from odradek_broker.platform.seams import Files
from odradek_broker.storage.errors import DeleteRecordsRejected
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.reading import with_rebuild
from odradek_broker.storage.segment import Segment, SegmentList
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass

HIGH_WATERMARK = -1
"""DeleteRecords' name for "up to the high watermark" (L-11)."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment, as retention sees it.

    `newest_ms()`: its largest record timestamp, or the file's modification time when no record has
    one (L-21); a function, because the answer may need the segment's index.
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
    """The number of the oldest segments that are to be deleted, up to the first that is not (L-20).

    A segment below the log start is deleted. If cleanup.policy contains delete, a segment is also
    deleted when it is too old, or when the log without it still reaches `retention.bytes`. A
    segment with records at or above the high watermark stays, and so does an empty active segment.
    If the active segment is among the deleted segments, the caller rolls first.
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


def segment_facts(
    segments: SegmentList, log_end_offset: int, files: Files
) -> Iterator[SegmentFacts]:
    """A log's segments for `segments_to_delete`, oldest first. `newest_ms` raises LogCorrupt,
    OSError."""
    ends = [*segments.bases[1:], log_end_offset]
    for segment, end in zip(segments, ends, strict=True):
        yield SegmentFacts(
            segment.base_offset,
            end,
            segment.size_bytes,
            segment is segments.active,
            lambda segment=segment: _newest_ms(segment, files),  # type: ignore[misc]
        )


def _newest_ms(segment: Segment, files: Files) -> int:
    """The largest timestamp of a segment; without timestamps, the modification time of the
    segment's file (L-21)."""
    timestamp, _ = with_rebuild(segment, lambda: segment.indexes.largest_timestamp)
    return timestamp if timestamp >= 0 else files.modified_ms(segment.path)


def delete_records_target(name: str, config: LogConfig, offset: int, high_watermark: int) -> int:
    """The log start that a DeleteRecords request with this offset asks for (L-11); the offset -1
    stands for the high watermark. Raises DeleteRecordsRejected."""
    if "delete" not in config.cleanup_policy:
        raise DeleteRecordsRejected(
            ErrorCode.POLICY_VIOLATION,
            f"{name} is compacted only; records of it cannot be deleted by offset",
        )
    target = high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= high_watermark:
        raise DeleteRecordsRejected(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"records of {name} can be deleted up to the high watermark"
            f" {high_watermark}, not to {offset}",
        )
    return target
