"""The limits of a micro-batch, and the part of the available offsets that it reads.

There are Spark's own limits (`maxOffsetsPerTrigger`, `minOffsetsPerTrigger` with
`maxTriggerDelay`), and a limit in bytes (`maxBytesPerTrigger`). A limit is divided among the
partitions in proportion to their available offsets. Every partition with available offsets gets at
least one offset, so that no partition starves. Therefore a micro-batch exceeds a limit that is
below the number of these partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_odradek.planning import Partition

MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000


@dataclass(frozen=True)
class BatchLimits:
    """The limits of one micro-batch. `max_bytes` limits the size of record batches as they are in
    the log, compressed or not."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = MAX_TRIGGER_DELAY_MS


@dataclass
class MinimumGate:
    """Delays a batch until there are enough offsets, or `max_delay_ms` have passed since the last
    batch.

    As in Spark, the first batch of a run is not delayed.
    """

    limits: BatchLimits
    last_batch_ms: float = field(default=float("-inf"))

    def holds(self, waiting_offsets: int, now_ms: float) -> bool:
        """True if the batch must wait. If the batch need not wait and offsets are available, note
        its time."""
        enough = self.limits.min_offsets is None or waiting_offsets >= self.limits.min_offsets
        overdue = now_ms - self.last_batch_ms >= self.limits.max_delay_ms
        if not enough and not overdue:
            return True
        if waiting_offsets:
            self.last_batch_ms = now_ms
        return False


def grant(
    backlog: Mapping[Partition, int],
    limits: BatchLimits,
    bytes_per_offset: Mapping[Partition, float] | None = None,
) -> dict[Partition, int]:
    """The number of offsets to read from each partition. `backlog`: the numbers of available
    offsets, 0 or more.

    `bytes_per_offset`: estimates; the offsets of a partition without an estimate count as 0 bytes.
    """
    granted = dict(backlog)
    if limits.max_bytes is not None:
        granted = _within_bytes(granted, limits.max_bytes, bytes_per_offset or {})
    if limits.max_offsets is not None:
        granted = split(granted, limits.max_offsets)
    return granted


def split(backlog: Mapping[Partition, int], limit: int) -> dict[Partition, int]:
    """Divide `limit` offsets in proportion to the backlog. Shares are rounded down, and the
    partitions with the largest fractions get the rest."""
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    shares = {}
    fractions = []
    for partition, waiting in backlog.items():
        whole, rest = divmod(waiting * limit, total)
        shares[partition] = max(whole, min(waiting, 1))
        if shares[partition] == whole and whole < waiting:
            fractions.append((-rest, partition))
    left = limit - sum(shares.values())
    for _, partition in sorted(fractions)[: max(left, 0)]:
        shares[partition] += 1
    return shares


def _within_bytes(
    backlog: Mapping[Partition, int], max_bytes: int, each: Mapping[Partition, float]
) -> dict[Partition, int]:
    total = sum(waiting * each.get(partition, 0.0) for partition, waiting in backlog.items())
    if total <= max_bytes:
        return dict(backlog)
    share = max_bytes / total
    return {
        partition: min(waiting, max(1, int(waiting * share))) if partition in each else waiting
        for partition, waiting in backlog.items()
    }
