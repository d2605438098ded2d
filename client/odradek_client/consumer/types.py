"""What consumers hand out and take."""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek_protocol.records.record import Headers, TimestampType

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
"""The timestamps of ListOffsets that mean a place rather than a time."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read (K-40), and the committer's note."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """Who a consumer is in its group (KIP-447); generation -1 and no member id outside of it."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or behind a time, and that record's timestamp in ms."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerRecord(NamedTuple):
    """One record as it was read.

    `timestamp` in ms, -1 for none; `key` and `value` are bytes or None, or what the deserializers
    made of the bytes; `headers` in the order they were written; `leader_epoch` -1 if unknown.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: Headers
    leader_epoch: int
