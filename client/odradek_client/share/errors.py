"""The exceptions of a share consumer, in addition to those for the error codes of brokers, and the
two exceptions that an application raises in `async with record`.

::

    LocalError
    ├── LockExpired           the record's lock expired before the acknowledgement
    └── RecordError
        └── UnreadableRecord  acquired records cannot be returned

    Reject                    raised by the application: never deliver the record again
    Release                   raised by the application: deliver the record again
"""

from __future__ import annotations

from odradek_client.consumer.errors import RecordError, describe
from odradek_client.errors import LocalError
from odradek_client.structs import TopicPartition

__all__ = ["LockExpired", "Reject", "Release", "UnreadableRecord"]


class Reject(Exception):
    """The exception by which a handler rejects a record: the group never delivers the record again.
    The `async with record` in which it is raised does not pass it on."""


class Release(Exception):
    """The exception by which a handler releases a record: the group delivers the record again. The
    `async with record` in which it is raised does not pass it on."""


class LockExpired(LocalError):
    """The record's lock expired before the record was acknowledged: the group delivers the record
    again.
    """

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"{describe(partition)}, offset {offset}: the lock expired before the record was "
            f"acknowledged, so the group delivers it again; handle records faster, use "
            f'"async with record", which renews locks, or raise share.record.lock.duration.ms of '
            f"the group"
        )
        self.partition, self.offset = partition, offset


class UnreadableRecord(RecordError):
    """Acquired records that cannot be returned: a batch is damaged, or a deserializer raised (the
    exception is the cause).

    `offsets`: the offsets of these records. `outcome`: "released" or "rejected", which the consumer
    has already done. The next poll continues after these records.
    """

    def __init__(
        self, partition: TopicPartition, offsets: list[int], trouble: str, outcome: str
    ) -> None:
        super().__init__(
            partition,
            offsets[0] if offsets else -1,
            f"{trouble}; {len(offsets)} record{'s' if len(offsets) != 1 else ''} {outcome}, poll "
            f"again to go on behind",
        )
        self.offsets, self.outcome = offsets, outcome
