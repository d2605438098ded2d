"""Where the readers of a log stop (rules L-10, L-12, T-45).

Log start <= last stable offset <= high watermark <= log end, always. With `fsync` durability the
high watermark is what a finished flush has covered, with `page-cache` it is the log end (D5).
"""

from __future__ import annotations


def last_stable_offset(
    high_watermark: int, log_start_offset: int, first_unstable_offset: int | None
) -> int:
    """Where read_committed stops: the high watermark, or the first offset of a transaction that is
    not decided below it. That transaction may have begun below the log start (DeleteRecords)."""
    if first_unstable_offset is None or first_unstable_offset >= high_watermark:
        return high_watermark
    return max(first_unstable_offset, log_start_offset)
