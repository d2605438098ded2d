"""Consumer groups as ConsumerGroupDescribe and ListGroups show them (G-160, G-161)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.consumer.partitions import Partitions, by_name, union
from odradek_broker.coordinator.groups.consumer.settings import ConsumerGroupSettings, Topics
from odradek_broker.coordinator.groups.consumer.target_assignment import choose_assignor
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_describe import (
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def described(
    group: ConsumerGroup, config: ConsumerGroupSettings, topics: Topics
) -> DescribedConsumerGroup:
    """The group and its members, as ConsumerGroupDescribe answers."""
    return DescribedConsumerGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=choose_assignor(group.members, config),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(
    group: ConsumerGroup, member: ConsumerMember, topics: Topics
) -> DescribedConsumerMember:
    return DescribedConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern or "",
        assignment=_assignment(union(member.assigned, member.pending), topics),
        target_assignment=_assignment(group.target(member.member_id), topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Partitions, topics: Topics) -> DescribedAssignment:
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for name, topic_id, indexes in by_name(partitions, topics)
        ]
    )


def consumer_not_described(
    group_id: str, error: ErrorCode, message: str | None = None
) -> DescribedConsumerGroup:
    """The answer for a group that cannot be described."""
    return DescribedConsumerGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        assignor_name="",
    )
