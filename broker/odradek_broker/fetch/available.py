"""The bytes that a fetch which waits for `min_bytes` could be answered with (rule F-04)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.fetch.sessions import RequestedPartition
from odradek_broker.storage.log import PartitionLog


def answer_bytes(
    reads: Iterable[tuple[RequestedPartition, PartitionLog, int]], max_bytes: int
) -> int:
    """Bytes of records in an answer of at most `max_bytes`, if it were given at once.

    `reads`: partitions in reading order, each with its log and with the offset that it may be read
    up to. The first batch of the first partition that has any counts whole (F-06).
    """
    total_bytes = 0
    for requested, log, bound in reads:
        offset = requested.fetch_offset
        available_bytes = log.readable_bytes(offset, bound)
        limit_bytes = min(requested.max_bytes, max_bytes - total_bytes)
        if available_bytes > limit_bytes:
            first_bytes = log.first_batch_bytes(offset, bound)
            if first_bytes <= limit_bytes:
                available_bytes = limit_bytes
            else:
                available_bytes = 0 if total_bytes else first_bytes
        total_bytes += available_bytes
    return total_bytes
