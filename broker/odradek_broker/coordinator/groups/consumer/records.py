"""The records of a consumer group: made from its state, and replayed into it (rule O-02)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek_broker.coordinator.groups.consumer.group import (
    FIRST_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    TopicMetadata,
)
from odradek_broker.coordinator.groups.partitions import Partitions
from odradek_broker.coordinator.runtime import Record
from odradek_protocol.stored.consumer_group import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    RecordType,
    StoredClassicProtocol,
    StoredTopicPartitions,
    SubscribedTopic,
    TargetTopicPartitions,
)
from odradek_protocol.stored.typed_records import encode_key, encode_value

# --- From the state to records ---


def group_record(group_id: str, epoch: int) -> Record:
    """A record of the group epoch."""
    key = ConsumerGroupMetadataKey(group_id=group_id)
    return encode_key(key), encode_value(ConsumerGroupMetadataValue(epoch=epoch))


def topics_record(group_id: str, topics: Mapping[str, TopicMetadata]) -> Record:
    """A record of the subscribed topics."""
    value = ConsumerGroupPartitionMetadataValue(
        topics=[
            SubscribedTopic(
                topic_id=topic.topic_id, topic_name=name, num_partitions=topic.partitions
            )
            for name, topic in sorted(topics.items())
        ]
    )
    return encode_key(ConsumerGroupPartitionMetadataKey(group_id=group_id)), encode_value(value)


def pattern_record(
    group_id: str, pattern: str, names: Iterable[str], version: int, wall_ms: int
) -> Record:
    """A record of the names that a regular expression matches."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(names), version=version, timestamp=wall_ms
    )
    return encode_key(key), encode_value(value)


def pattern_tombstone(group_id: str, pattern: str) -> Record:
    """The tombstone of a regular expression that no member uses any more."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    return encode_key(key), None


def member_record(group_id: str, member: ConsumerMember) -> Record:
    """A record of a member's metadata and subscription."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                StoredClassicProtocol(name=name, metadata=data) for name, data in classic.protocols
            ],
        ),
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return encode_key(key), encode_value(value)


def current_record(group_id: str, member: ConsumerMember) -> Record:
    """A record of a member's current assignment, epoch and state."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_stored(member.assigned),
        partitions_pending_revocation=_stored(member.pending),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return encode_key(key), encode_value(value)


def _stored(partitions: Partitions) -> list[StoredTopicPartitions]:
    return [
        StoredTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in sorted(partitions.items())
    ]


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """A record of a member's target."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(partitions.items())
        ]
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode_key(key), encode_value(value)


def target_epoch_record(group_id: str, epoch: int) -> Record:
    """A record of the group epoch that the target assignment belongs to."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return encode_key(key), encode_value(value)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """The tombstones of a member. The member's own one comes last, so that no load finds half a
    member."""
    return [
        (encode_key(cls(group_id=group_id, member_id=member_id)), None)
        for cls in (
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupMemberMetadataKey,
        )
    ]


def group_tombstones(group: ConsumerGroup) -> list[Record]:
    """The tombstones of a group and its members."""
    group_id = group.group_id
    records: list[Record] = []
    for member_id in group.members:
        records += member_tombstones(group_id, member_id)
    for member_id in group.targets.keys() - group.members.keys():
        key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
        records.append((encode_key(key), None))
    records += [pattern_tombstone(group_id, pattern) for pattern in group.patterns]
    records += [
        (encode_key(cls(group_id=group_id)), None)
        for cls in (
            ConsumerGroupTargetAssignmentMetadataKey,
            ConsumerGroupPartitionMetadataKey,
            ConsumerGroupMetadataKey,
        )
    ]
    return records


# --- From records to the state ---


def replay(group: ConsumerGroup, kind: RecordType, key: Any, value: Any) -> None:
    """Apply one record to a group; `key` and `value` are decoded, None is a tombstone."""
    if kind is RecordType.GROUP:
        group.epoch = FIRST_EPOCH if value is None else value.epoch
    elif kind is RecordType.TARGET_EPOCH:
        group.assignment_epoch = 0 if value is None else value.assignment_epoch
    elif kind is RecordType.TOPICS:
        group.replay_topics(value)
    elif kind is RecordType.MEMBER:
        group.replay_member(key.member_id, value)
    elif kind is RecordType.TARGET:
        group.replay_target(key.member_id, value)
    elif kind is RecordType.CURRENT:
        group.replay_current(key.member_id, value)
    else:
        group.replay_pattern(key.regular_expression, value)
