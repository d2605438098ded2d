"""A share group as `__consumer_offsets` keeps it (KIP-932; Kafka's ShareGroup*Key and -Value).

The bytes are those of `typed_records`. The records of a group:

====  =============  =====================================================================
type  key            value
====  =============  =====================================================================
10    group, member  the member's own metadata
11    group          the group epoch, and a hash of the subscribed topics as last seen
12    group          the group epoch and the time of the target assignment
13    group, member  the member's target assignment
14    group, member  the member's current assignment, and its epoch
15    group          the topics whose states are being made, exist, or are being deleted
====  =============  =====================================================================

The states of the share-partitions themselves are in `__share_group_state`.
"""

from __future__ import annotations

from enum import IntEnum

from odradek_protocol.common_structs import PartitionsOfTopicId, TopicPartitionsInfo
from odradek_protocol.message import Message, Struct, array, field, message
from odradek_protocol.primitives import INT8, INT32, INT64, STRING, UUID
from odradek_protocol.stored.typed_records import GroupKey, GroupMemberKey


class ShareRecordType(IntEnum):
    """The type of a record: the int16 at the start of its key."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATE_PARTITIONS = 15


# --- A member ---


@message(key=ShareRecordType.MEMBER, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue(Message):
    """A member's own metadata."""

    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))


@message(key=ShareRecordType.CURRENT, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue(Message):
    """The current assignment of a member. `state` is a number of Kafka's MemberState, always
    Stable."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[PartitionsOfTopicId] = field(array(PartitionsOfTopicId))


# --- The group ---


@message(key=ShareRecordType.GROUP, versions="0", flexible="0+")
class ShareGroupMetadataValue(Message):
    """The group epoch, and the hash of the subscribed topics for which the epoch was computed. The
    hash is 0 if there are no topics."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64)


# --- The target assignment ---


@message(key=ShareRecordType.TARGET_EPOCH, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue(Message):
    """The group epoch that the target assignment belongs to, and the time of its computation in
    milliseconds since the epoch, 0 if it is not known."""

    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0, tagged="0+", default=0, ignorable=True)


@message(key=ShareRecordType.TARGET, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[PartitionsOfTopicId] = field(array(PartitionsOfTopicId))


# --- The states of share-partitions ---


class StateTopicInfo(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)


@message(key=ShareRecordType.STATE_PARTITIONS, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue(Message):
    """Three lists of topics: their states are being made, exist, or are being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))
    initialized_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))
    deleting_topics: list[StateTopicInfo] = field(array(StateTopicInfo))


# --- Types ---

KEYS: dict[int, type[Message]] = {
    ShareRecordType.MEMBER: GroupMemberKey,
    ShareRecordType.GROUP: GroupKey,
    ShareRecordType.TARGET_EPOCH: GroupKey,
    ShareRecordType.TARGET: GroupMemberKey,
    ShareRecordType.CURRENT: GroupMemberKey,
    ShareRecordType.STATE_PARTITIONS: GroupKey,
}

VALUES: dict[int, type[Message]] = {
    ShareRecordType.MEMBER: ShareGroupMemberMetadataValue,
    ShareRecordType.GROUP: ShareGroupMetadataValue,
    ShareRecordType.TARGET_EPOCH: ShareGroupTargetAssignmentMetadataValue,
    ShareRecordType.TARGET: ShareGroupTargetAssignmentMemberValue,
    ShareRecordType.CURRENT: ShareGroupCurrentMemberAssignmentValue,
    ShareRecordType.STATE_PARTITIONS: ShareGroupStatePartitionMetadataValue,
}
