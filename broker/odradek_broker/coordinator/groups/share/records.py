"""The records of a share group: made from its state, and replayed into it (rule H-04)."""

from __future__ import annotations

from typing import Any

from odradek_broker.coordinator.groups.partitions import Partitions
from odradek_broker.coordinator.groups.share.group import (
    MEMBER_STABLE,
    ShareGroup,
    ShareMember,
    StatePartitions,
    StateTopics,
)
from odradek_broker.coordinator.runtime import Record
from odradek_protocol.stored.share_group import (
    ShareAssignedPartitions,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareRecordType,
    ShareTargetPartition,
    StatePartitionsInfo,
    StateTopicInfo,
)
from odradek_protocol.stored.typed_records import encode_key, encode_value

# --- From the state to records ---


def group_record(group_id: str, epoch: int, hashed: int) -> Record:
    """A record of the group epoch, and of the hash of the subscribed topics."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=hashed)
    return encode_key(ShareGroupMetadataKey(group_id=group_id)), encode_value(value)


def member_record(group_id: str, member: ShareMember) -> Record:
    """A record of a member's metadata and subscription."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    key = ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return encode_key(key), encode_value(value)


def current_record(group_id: str, member: ShareMember) -> Record:
    """A record of a member's current assignment and epoch."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=MEMBER_STABLE,
        assigned_partitions=[
            ShareAssignedPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(member.assigned.items())
        ],
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return encode_key(key), encode_value(value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """A record of a member's target."""
    value = ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ShareTargetPartition(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(partitions.items())
        ]
    )
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode_key(key), encode_value(value)


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> Record:
    """A record of the group epoch that the target assignment belongs to, and of its time."""
    key = ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=wall_ms
    )
    return encode_key(key), encode_value(value)


def states_record(group_id: str, states: StatePartitions) -> Record:
    """A record of the share partitions that have a state."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_infos(states.initializing),
        initialized_topics=_infos(states.initialized),
        deleting_topics=[
            StateTopicInfo(topic_id=topic_id, topic_name=name)
            for topic_id, name in sorted(states.deleting.items())
        ],
    )
    key = ShareGroupStatePartitionMetadataKey(group_id=group_id)
    return encode_key(key), encode_value(value)


def _infos(topics: StateTopics) -> list[StatePartitionsInfo]:
    return [
        StatePartitionsInfo(
            topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
        )
        for topic_id, topic in sorted(topics.items())
    ]


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """The tombstones of a member. The member's own one comes last, so that no load finds half a
    member."""
    return [
        (encode_key(cls(group_id=group_id, member_id=member_id)), None)
        for cls in (
            ShareGroupCurrentMemberAssignmentKey,
            ShareGroupTargetAssignmentMemberKey,
            ShareGroupMemberMetadataKey,
        )
    ]


def group_tombstones(group: ShareGroup) -> list[Record]:
    """The tombstones of a group and its members."""
    group_id = group.group_id
    records: list[Record] = []
    for member_id in group.members:
        records += member_tombstones(group_id, member_id)
    for member_id in group.targets.keys() - group.members.keys():
        key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
        records.append((encode_key(key), None))
    records += [
        (encode_key(cls(group_id=group_id)), None)
        for cls in (
            ShareGroupTargetAssignmentMetadataKey,
            ShareGroupStatePartitionMetadataKey,
            ShareGroupMetadataKey,
        )
    ]
    return records


# --- From records to the state ---


def replay(group: ShareGroup, kind: ShareRecordType, key: Any, value: Any) -> None:
    """Apply one record to a group; `key` and `value` are decoded, None is a tombstone."""
    group.changes += 1
    if kind is ShareRecordType.GROUP:
        group.replay_group(value)
    elif kind is ShareRecordType.TARGET_EPOCH:
        group.replay_target_epoch(value)
    elif kind is ShareRecordType.MEMBER:
        group.replay_member(key.member_id, value)
    elif kind is ShareRecordType.TARGET:
        group.replay_target(key.member_id, value)
    elif kind is ShareRecordType.CURRENT:
        group.replay_current(key.member_id, value)
    else:
        group.replay_states(value)
