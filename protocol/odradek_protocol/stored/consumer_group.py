"""A consumer group as `__consumer_offsets` keeps it (KIP-848; Kafka's ConsumerGroup*Key and
-Value).

The bytes are those of `typed_records`. The records of a group:

====  ==============================  =========================================================
type  key                             value
====  ==============================  =========================================================
3     group                           the group epoch
4     group                           the subscribed topics as they were last seen
5     group, member                   the member's own metadata
6     group                           the group epoch of the target assignment
7     group, member                   the member's target assignment
8     group, member                   the member's assignment, partitions to revoke, epoch, state
16    group, regular expression       the topics that it matched
====  ==============================  =========================================================

Type 4 is written by Kafka up to 4.0; later releases store a hash instead, and still read type 4.
"""

from __future__ import annotations

from enum import IntEnum

from odradek_protocol.common_structs import PartitionsOfTopicId
from odradek_protocol.message import Message, Struct, array, field, message
from odradek_protocol.primitives import BYTES, INT8, INT32, INT64, STRING, UUID
from odradek_protocol.stored.typed_records import GroupKey, GroupMemberKey


class GroupRecordType(IntEnum):
    """The type of a record: the int16 at the start of its key."""

    GROUP = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGULAR_EXPRESSION = 16


# --- The group ---


@message(key=GroupRecordType.GROUP, versions="0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    """The group epoch."""

    epoch: int = field(INT32)


class PartitionRacks(Struct):
    partition: int = field(INT32)
    racks: list[str] = field(array(STRING))


class SubscribedTopic(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: list[PartitionRacks] = field(array(PartitionRacks))


@message(key=GroupRecordType.TOPICS, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Message):
    """The existing topics to which members are subscribed. Racks of partitions are not written."""

    topics: list[SubscribedTopic] = field(array(SubscribedTopic))


@message(key=GroupRecordType.REGULAR_EXPRESSION, versions="0")
class ConsumerGroupRegularExpressionKey(Message):
    """The key: group id and regular expression."""

    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


@message(key=GroupRecordType.REGULAR_EXPRESSION, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue(Message):
    """The topics that an expression matched. `timestamp` is in ms since the epoch."""

    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)


# --- A member ---


class StoredClassicProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32)
    supported_protocols: list[StoredClassicProtocol] = field(array(StoredClassicProtocol))


@message(key=GroupRecordType.MEMBER, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    """A member's own metadata. `classic_member_metadata` is null for a member that uses the
    consumer protocol."""

    instance_id: str | None = field(STRING, nullable="0+")
    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+")
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, nullable="0+", tag=0, tagged="0+", default=None
    )


class StoredTopicPartitions(Struct):
    """Partitions of one topic. `assignment_epochs`: the epoch in which the member got each
    partition; None in the records of Kafka before 4.3 (KIP-1251)."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))
    assignment_epochs: list[int] | None = field(
        array(INT32), nullable="0+", tag=0, tagged="0+", default=None
    )


@message(key=GroupRecordType.CURRENT, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The current assignment of a member. `state` is a number of Kafka's MemberState."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[StoredTopicPartitions] = field(array(StoredTopicPartitions))
    partitions_pending_revocation: list[StoredTopicPartitions] = field(array(StoredTopicPartitions))


# --- The target assignment ---


@message(key=GroupRecordType.TARGET_EPOCH, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The group epoch that the target assignment belongs to, and the time of its computation in
    milliseconds since the epoch, 0 if it is not known."""

    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0, tagged="0+", default=0, ignorable=True)


@message(key=GroupRecordType.TARGET, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[PartitionsOfTopicId] = field(array(PartitionsOfTopicId))


# --- Types ---

KEYS: dict[int, type[Message]] = {
    GroupRecordType.GROUP: GroupKey,
    GroupRecordType.TOPICS: GroupKey,
    GroupRecordType.MEMBER: GroupMemberKey,
    GroupRecordType.TARGET_EPOCH: GroupKey,
    GroupRecordType.TARGET: GroupMemberKey,
    GroupRecordType.CURRENT: GroupMemberKey,
    GroupRecordType.REGULAR_EXPRESSION: ConsumerGroupRegularExpressionKey,
}

VALUES: dict[int, type[Message]] = {
    GroupRecordType.GROUP: ConsumerGroupMetadataValue,
    GroupRecordType.TOPICS: ConsumerGroupPartitionMetadataValue,
    GroupRecordType.MEMBER: ConsumerGroupMemberMetadataValue,
    GroupRecordType.TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecordType.TARGET: ConsumerGroupTargetAssignmentMemberValue,
    GroupRecordType.CURRENT: ConsumerGroupCurrentMemberAssignmentValue,
    GroupRecordType.REGULAR_EXPRESSION: ConsumerGroupRegularExpressionValue,
}
