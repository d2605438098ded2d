"""The exceptions of a consumer, in addition to those for the error codes of brokers.

::

    OdradekError
    ├── Refused
    │   ├── OffsetOutOfRange
    │   │   └── PositionOutOfRange   the position is not in the log, and auto_offset_reset is "none"
    │   │       └── LogTruncated     records that were read are no longer in the log
    │   └── CommitFailed             the group has other owners for the partitions
    └── LocalError
        ├── NoOffset                 nothing committed, and auto_offset_reset is "none"
        ├── IllegalState
        │   └── NotAssigned          the partition is not this consumer's (any more)
        └── RecordError              a fetched record cannot be returned: the position stays
            ├── CorruptRecord        damaged, or in an unsupported format
            ├── OversizedRecord      the broker sent less than one batch
            └── DeserializationFailed  a deserializer raised
"""

from __future__ import annotations

from odradek_client.errors import (
    IllegalState,
    LocalError,
    OdradekError,
    OffsetOutOfRange,
    Refused,
    error_for,
)
from odradek_client.structs import TopicPartition
from odradek_protocol.errors import ErrorCode

__all__ = [
    "CommitFailed",
    "CorruptRecord",
    "DeserializationFailed",
    "IllegalState",
    "LogTruncated",
    "NoOffset",
    "NotAssigned",
    "OversizedRecord",
    "PositionOutOfRange",
    "RecordError",
]


#: The error codes of a partition for which the request is sent again after a backoff (K-14). For
#: the codes in this set, metadata is requested first; for the codes in `RETRY`, it is not. Other
#: codes are raised.
RETRY_WITH_NEW_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
RETRY = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})


def describe(partition: TopicPartition) -> str:
    """A partition as it is written in messages."""
    return f"{partition.topic}-{partition.partition}"


class PositionOutOfRange(OffsetOutOfRange):
    """The position is not in the log. `partition`, `offset`: the position of the consumer."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"{describe(partition)}: offset {offset} is not in the log, and auto_offset_reset is "
            f'"none"; seek to an offset between beginning_offsets and end_offsets',
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
        )
        self.partition, self.offset = partition, offset


class LogTruncated(PositionOutOfRange):
    """A new leader does not have all the records that were read (K-26). `divergent_offset`: the
    first offset with another record, None if it is unknown. Call `seek` to continue."""

    def __init__(
        self, partition: TopicPartition, offset: int, divergent_offset: int | None
    ) -> None:
        where = "an unknown offset" if divergent_offset is None else f"offset {divergent_offset}"
        OffsetOutOfRange.__init__(
            self,
            f"{describe(partition)}: the log was truncated; records from {where} on, which were read "
            f"up to {offset}, are gone; undo what they did, and seek to go on",
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
        )
        self.partition, self.offset = partition, offset
        self.divergent_offset = divergent_offset


class CommitFailed(Refused):
    """Offsets were not committed, because the group has assigned the partitions to other members.
    The new owners will read the records again."""


class NoOffset(LocalError):
    """`partitions` have no committed offset to start from."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        names = ", ".join(map(describe, partitions))
        super().__init__(
            f'{names}: no offset is committed, and auto_offset_reset is "none"; seek to one, or '
            f'set auto_offset_reset to "earliest" or "latest"'
        )
        self.partitions = partitions


class NotAssigned(IllegalState):
    """`partition` is not assigned to this consumer."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{describe(partition)} is not assigned to this consumer")
        self.partition = partition


class RecordError(LocalError):
    """The record at `offset` of `partition` cannot be returned. Call `seek` to skip it.

    `refetch`: true if the record may become readable when its data is fetched again.
    """

    refetch = True

    def __init__(self, partition: TopicPartition, offset: int, trouble: str) -> None:
        super().__init__(f"{describe(partition)}, offset {offset}: {trouble}")
        self.partition, self.offset = partition, offset


class CorruptRecord(RecordError):
    """The batch is damaged or in an unsupported format (K-16). Such a batch is never skipped
    silently.

    `first_offset` and `last_offset` are those of the batch; `seek` to `next_offset` to skip the
    batch. All three are None if the batch's header is damaged, too. `what`: the problem, without
    the name of the partition.
    """

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        trouble: str,
        span: tuple[int, int] | None = None,
    ) -> None:
        self.first_offset = None if span is None else span[0]
        self.last_offset = None if span is None else span[1]
        self.next_offset = None if span is None else span[1] + 1
        self.what = f"a batch that cannot be read: {trouble}"
        if span is not None:
            self.what = f"the batch of offsets {span[0]} to {span[1]} cannot be read: {trouble}"
        topic, number = partition
        behind = "a later offset" if span is None else self.next_offset
        super().__init__(
            partition,
            offset,
            f"{self.what}; to go on behind it: consumer.seek(({topic!r}, {number}), {behind})",
        )


class OversizedRecord(RecordError):
    """The broker's answer contains no complete batch (K-17). `batch_bytes`: the minimum fetch size
    that is needed."""

    def __init__(self, partition: TopicPartition, offset: int, batch_bytes: int) -> None:
        super().__init__(
            partition,
            offset,
            f"the broker sent less than the {batch_bytes} bytes of one batch; raise "
            f"max_partition_fetch_bytes and fetch_max_bytes",
        )
        self.batch_bytes = batch_bytes


class DeserializationFailed(RecordError):
    """The key or value deserializer raised (K-15); `what` is "key" or "value", `__cause__` is the
    exception of the deserializer."""

    refetch = False

    def __init__(self, partition: TopicPartition, offset: int, what: str, cause: Exception) -> None:
        super().__init__(
            partition, offset, f"the {what} does not deserialize: {cause!r}; seek past it to go on"
        )
        self.what = what
        self.__cause__ = cause

    def again(self) -> DeserializationFailed:
        """An equal exception without a traceback, because this one may have been raised before."""
        assert isinstance(self.__cause__, Exception)
        return DeserializationFailed(self.partition, self.offset, self.what, self.__cause__)


def partition_error(code: ErrorCode, partition: TopicPartition) -> OdradekError:
    """The exception for a broker's error code of one partition."""
    return error_for(code, about=describe(partition))
