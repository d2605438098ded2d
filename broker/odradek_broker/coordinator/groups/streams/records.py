"""The records of a streams group, made from its state (rule J-02)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized

from odradek_broker.coordinator.groups.modern.records import encoded
from odradek_broker.coordinator.groups.partitions import Tasks, in_order
from odradek_broker.coordinator.groups.streams.group import StreamsGroupMember
from odradek_broker.coordinator.groups.streams.tasks import HeldTasks, TaskSet
from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import in_pieces, paced, pause
from odradek_protocol.schemas.streams_group_heartbeat import InternalTopicInfo, StreamsTopology
from odradek_protocol.stored.modern_groups import encode_record
from odradek_protocol.stored.streams_group import (
    StoredAssignmentConfig,
    StoredClientTag,
    StoredCopartitionGroup,
    StoredEndpoint,
    StoredInternalTopic,
    StoredSubtopology,
    StoredTargetTasks,
    StoredTasks,
    StoredTopicConfig,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)


def group_record(
    group_id: str, epoch: int, hashed: int, validated_epoch: int, settings: Mapping[str, str]
) -> Record:
    """A record of the group epoch, with the hashes and settings for which it was computed."""
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=hashed,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=[
            StoredAssignmentConfig(key=key, value=setting)
            for key, setting in sorted(settings.items())
        ],
    )
    return encode_record(value, group_id=group_id)


async def stored_topology(topology: StreamsTopology) -> StreamsGroupTopologyValue:
    """The topology of a request, as it is stored."""
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            StoredSubtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=each.source_topic_regex,
                state_changelog_topics=await _stored_topics(each.state_changelog_topics),
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=await _stored_topics(each.repartition_source_topics),
                copartition_groups=[
                    StoredCopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in each.copartition_groups
                ],
            )
            async for some in in_pieces(topology.subtopologies)
            for each in some
        ],
    )


async def _stored_topics(topics: Iterable[InternalTopicInfo]) -> list[StoredInternalTopic]:
    return [
        StoredInternalTopic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[
                StoredTopicConfig(key=each.key, value=each.value)
                async for configs in in_pieces(topic.topic_configs)
                for each in configs
            ],
        )
        async for some in in_pieces(topics)
        for topic in some
    ]


async def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> Record:
    """A record of the topology."""
    elements = sum([_elements(each) async for each in paced(value.subtopologies)])
    return await encoded(value, elements, group_id=group_id)


def _elements(stored: StoredSubtopology) -> int:
    topics = stored.state_changelog_topics + stored.repartition_source_topics
    lists: list[Sized] = [
        *(stored.source_topics, stored.repartition_sink_topics, stored.copartition_groups, topics),
        *[topic.topic_configs for topic in topics],
    ]
    return 1 + sum(map(len, lists))


def member_record(group_id: str, member: StreamsGroupMember) -> Record:
    """A record of a member's metadata."""
    endpoint = member.endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else StoredEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[
            StoredClientTag(key=key, value=tag) for key, tag in sorted(member.tags.items())
        ],
    )
    return encode_record(value, group_id=group_id, member_id=member.member_id)


async def current_record(group_id: str, member: StreamsGroupMember) -> Record:
    """A record of the tasks of a member, its epoch and state."""
    assigned, pending = member.assigned.tasks, member.pending.tasks
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_stored_active(member.assigned),
        standby_tasks=_stored(assigned.standby),
        warmup_tasks=_stored(assigned.warmup),
        active_tasks_pending_revocation=_stored_active(member.pending),
        standby_tasks_pending_revocation=_stored(pending.standby),
        warmup_tasks_pending_revocation=_stored(pending.warmup),
    )
    await pause()
    elements = len(assigned.active) + len(assigned.standby) + len(pending.active)
    return await encoded(value, elements, group_id=group_id, member_id=member.member_id)


def _stored_active(held: HeldTasks) -> list[StoredTasks]:
    return [
        StoredTasks(
            subtopology_id=each_id,
            partitions=indexes,
            assignment_epochs=[*map(held.epochs[each_id].__getitem__, indexes)],
        )
        for each_id, indexes in in_order(held.tasks.active)
    ]


def _stored(tasks: Tasks) -> list[StoredTasks]:
    return [
        StoredTasks(subtopology_id=each_id, partitions=indexes)
        for each_id, indexes in in_order(tasks)
    ]


async def target_record(group_id: str, member_id: str, target: TaskSet) -> Record:
    """A record of a member's target."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_stored_target(target.active),
        standby_tasks=_stored_target(target.standby),
        warmup_tasks=_stored_target(target.warmup),
    )
    elements = len(target.active) + len(target.standby) + len(target.warmup)
    return await encoded(value, elements, group_id=group_id, member_id=member_id)


def _stored_target(tasks: Tasks) -> list[StoredTargetTasks]:
    return [
        StoredTargetTasks(subtopology_id=each_id, partitions=indexes)
        for each_id, indexes in in_order(tasks)
    ]


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> Record:
    """A record of the group epoch and the time of the target assignment."""
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=wall_ms
    )
    return encode_record(value, group_id=group_id)
