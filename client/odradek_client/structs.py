"""The partitions, offsets and records of all clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.record import Headers, TimestampType


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions by topic. The topics are in the order of their first partition in the
    input."""
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, both in ascending order."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the offset of the next record to read (K-40), and the metadata of the
    committer.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """The identity of a consumer in its group (KIP-447). A consumer outside of a group has
    generation -1 and no member id."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time, and the timestamp in ms of the record there."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class PreparedTransaction(NamedTuple):
    """Everything that another process needs to end a prepared transaction (KIP-939)."""

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int


class ConsumerRecord(NamedTuple):
    """A record as a consumer read it.

    `timestamp`: in ms, -1 for none. `key`, `value`: bytes or None, or the results of the
    deserializers. `headers`: in the order in which they were written. `leader_epoch`: -1 if
    unknown.
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
