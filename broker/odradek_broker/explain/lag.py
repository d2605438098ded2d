"""The lag of a consumer group, as the age of the oldest record that the group has not read.

The header of one batch is read for each partition in which the group is behind, and no record is
decoded. If the group has read a part of the batch, the result is the age of the batch's newest
record, which is a lower bound. Only metrics decode such batches, in a worker thread
(`metrics/lag.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest

from odradek_broker.explain.history import SubjectState
from odradek_broker.explain.sentences import EventKind, duration_text
from odradek_broker.slices import paced, pause
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import NO_TIMESTAMP
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchHeader

#: The limit of the partitions that are examined for one answer. Partitions with more unread records
#: come first.
PARTITIONS_MAX = 64


class Unread(NamedTuple):
    """The oldest record that a group has not read. `at_least`: true if `age_ms` is only a lower
    bound."""

    partition: TopicPartition
    age_ms: int
    at_least: bool


def timestamp_in_header(header: BatchHeader, offset: int) -> int | None:
    """The timestamp of the batch's first record at or after `offset`; None if the header does not
    have it."""
    if header.is_log_append_time:
        return header.max_timestamp
    if header.base_offset >= offset and header.delete_horizon_ms is None:
        return header.base_timestamp
    return None


async def oldest_unread(
    committed: Iterable[tuple[TopicPartition, int]],
    log_of: Callable[[TopicPartition], PartitionLog | None],
    now_ms: int,
) -> Unread | None:
    """The oldest unread record; None if everything has been read, or if no age is known."""
    behind: list[tuple[int, TopicPartition, int, PartitionLog]] = []
    for partition, offset in committed:
        await pause()
        log = log_of(partition)
        if log is not None and offset < log.high_watermark:
            behind.append((offset - log.high_watermark, partition, offset, log))
    unknown = len(behind) > PARTITIONS_MAX
    oldest: Unread | None = None
    async for _, partition, offset, log in paced(nsmallest(PARTITIONS_MAX, behind)):
        try:
            log.ensure_loaded(now_ms)
            batch = log.unread_batch(offset)
        except StorageError:
            unknown = True
            continue
        if batch is None:
            continue
        exact = timestamp_in_header(batch.header, offset)
        timestamp = batch.header.max_timestamp if exact is None else exact
        if timestamp == NO_TIMESTAMP:
            unknown = True
            continue
        found = Unread(partition, max(now_ms - timestamp, 0), exact is None)
        if oldest is None or found.age_ms > oldest.age_ms:
            oldest = found
        unknown = unknown or found.at_least
    return oldest and oldest._replace(at_least=unknown)


def state_of_lag(unread: Unread) -> SubjectState:
    """The age of the oldest unread record, as a sentence for people and in milliseconds for
    programs."""
    return SubjectState.of(
        EventKind.NOW_LAG,
        partitions=[unread.partition],
        age=duration_text(unread.age_ms),
        age_ms=unread.age_ms,
        bound="or older" if unread.at_least else None,
    )
