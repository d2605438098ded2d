"""The records of a share group, made from its state (rule H-04)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.modern.records import encoded
from odradek_broker.coordinator.groups.partitions import Partitions, listed
from odradek_broker.coordinator.groups.share.group import (
    MEMBER_STABLE,
    ShareMember,
    StatePartitions,
    StateTopics,
)
from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import in_sorted_order
from odradek_protocol.common_structs import TopicPartitionsInfo
from odradek_protocol.stored.modern_groups import encode_record
from odradek_protocol.stored.share_group import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    StateTopicInfo,
)


def group_record(group_id: str, epoch: int, hashed: int) -> Record:
    """A record of the group epoch, and of the hash of the subscribed topics."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=hashed)
    return encode_record(value, group_id=group_id)


async def member_record(group_id: str, member: ShareMember) -> Record:
    """A record of a member's metadata and subscription."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=await in_sorted_order(member.topics),
    )
    elements = len(member.topics)
    return await encoded(value, elements, group_id=group_id, member_id=member.member_id)


async def current_record(group_id: str, member: ShareMember) -> Record:
    """A record of a member's current assignment and epoch."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=MEMBER_STABLE,
        assigned_partitions=await listed(member.assigned),
    )
    elements = len(member.assigned)
    return await encoded(value, elements, group_id=group_id, member_id=member.member_id)


async def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """A record of a member's target."""
    value = ShareGroupTargetAssignmentMemberValue(topic_partitions=await listed(partitions))
    return await encoded(value, len(partitions), group_id=group_id, member_id=member_id)


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> Record:
    """A record of the group epoch and the time of the target assignment."""
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=wall_ms
    )
    return encode_record(value, group_id=group_id)


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
    return encode_record(value, group_id=group_id)


def _infos(topics: StateTopics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
        )
        for topic_id, topic in sorted(topics.items())
    ]
