"""The records of a consumer group, made from its state (rule O-02)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek_broker.coordinator.groups.consumer.group import (
    ConsumerMember,
    TopicMetadata,
    pattern_key,
)
from odradek_broker.coordinator.groups.modern.records import encoded
from odradek_broker.coordinator.groups.partitions import Partitions, in_order, listed
from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import in_pieces, in_sorted_order
from odradek_protocol.stored.consumer_group import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    StoredClassicProtocol,
    StoredTopicPartitions,
    SubscribedTopic,
)
from odradek_protocol.stored.modern_groups import encode_record


def group_record(group_id: str, epoch: int) -> Record:
    """A record of the group epoch."""
    return encode_record(ConsumerGroupMetadataValue(epoch=epoch), group_id=group_id)


async def topics_record(group_id: str, topics: Mapping[str, TopicMetadata]) -> Record:
    """A record of the subscribed topics."""
    value = ConsumerGroupPartitionMetadataValue(
        topics=[
            SubscribedTopic(
                topic_id=topic.topic_id, topic_name=name, num_partitions=topic.partitions
            )
            async for some in in_pieces(sorted(topics))
            for name in some
            for topic in (topics[name],)
        ]
    )
    return await encoded(value, len(topics), group_id=group_id)


async def pattern_record(
    group_id: str, pattern: str, names: Collection[str], version: int, wall_ms: int
) -> Record:
    """A record of the names that a regular expression matches."""
    value = ConsumerGroupRegularExpressionValue(
        topics=await in_sorted_order(names), version=version, timestamp=wall_ms
    )
    return await encoded(value, len(names), group_id=group_id, regular_expression=pattern)


def pattern_tombstone(group_id: str, pattern: str) -> Record:
    """The tombstone of a regular expression that no member uses any more."""
    return pattern_key(group_id, pattern), None


async def member_record(group_id: str, member: ConsumerMember) -> Record:
    """A record of a member's metadata and subscription."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=await in_sorted_order(member.topics),
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
    elements = len(member.topics)
    return await encoded(value, elements, group_id=group_id, member_id=member.member_id)


async def current_record(group_id: str, member: ConsumerMember) -> Record:
    """A record of a member's current assignment, epoch and state."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=await _stored(member, member.assigned),
        partitions_pending_revocation=await _stored(member, member.pending),
    )
    elements = len(member.assigned) + len(member.pending)
    return await encoded(value, elements, group_id=group_id, member_id=member.member_id)


async def _stored(member: ConsumerMember, partitions: Partitions) -> list[StoredTopicPartitions]:
    return [
        StoredTopicPartitions(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=[member.epochs[topic_id, index] for index in indexes],
        )
        async for some in in_pieces(in_order(partitions))
        for topic_id, indexes in some
    ]


async def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """A record of a member's target."""
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=await listed(partitions))
    return await encoded(value, len(partitions), group_id=group_id, member_id=member_id)


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> Record:
    """A record of the group epoch and the time of the target assignment; 0: unknown."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=wall_ms
    )
    return encode_record(value, group_id=group_id)
