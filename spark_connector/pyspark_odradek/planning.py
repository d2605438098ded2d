"""The division of offset ranges into Spark's input partitions.

The splits are those of Spark's own `kafka` format: first, ranges above `maxRecordsPerPartition` are
divided; then, if there are fewer ranges than `minPartitions`, large ranges are divided in
proportion to their size.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_protocol.lazy_tuple import NamedTuple


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class OffsetRange(NamedTuple):
    """The offsets from `start` up to, not including, `end`. Some of these offsets may have no
    record."""

    partition: Partition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; an upper bound of the number of records."""
        return self.end - self.start


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """The ranges to read, one for each task, without empty ranges.

    `min_partitions` is only a target: because of rounding there may be a few more or fewer ranges.
    """
    parts = [each for each in ranges if each.size > 0]
    if max_records is not None:
        parts = [piece for each in parts for piece in divide(each, -(-each.size // max_records))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    return _spread(parts, min_partitions)


def divide(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Divide a range into `count` ranges of nearly equal size; the larger ranges come last."""
    pieces = []
    start = whole.start
    for index in range(count):
        size = (whole.end - start) // (count - index)
        pieces.append(OffsetRange(whole.partition, start, start + size))
        start += size
    return pieces


def _spread(parts: list[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """Divide the large ranges. Small ranges stay whole, and the proportions are computed without
    them, so that large ranges get enough tasks."""
    total = sum(each.size for each in parts)
    is_small = [_share(each.size, total, min_partitions) == 1 for each in parts]
    large_total = sum(each.size for each, small in zip(parts, is_small, strict=True) if not small)
    for_large = max(min_partitions - sum(is_small), 1)
    spread: list[OffsetRange] = []
    for each, small in zip(parts, is_small, strict=True):
        if small:
            spread.append(each)
        else:
            # A range is divided into at most as many parts as it has offsets, because empty ranges
            # are left out.
            count = min(_share(each.size, large_total, for_large), each.size)
            spread += divide(each, count)
    return spread


def _share(size: int, total: int, partitions: int) -> int:
    """The number of tasks for a range, in proportion to the size of the range. The number is
    rounded (halves are rounded up), and at least 1.
    """
    return max((2 * size * partitions + total) // (2 * total), 1)
