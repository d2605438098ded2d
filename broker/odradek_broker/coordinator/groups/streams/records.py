"""The records of a streams group, made from its state (rule J-02)."""

from __future__ import annotations

from collections.abc import Mapping, Sized

from odradek_broker.coordinator.groups.modern.records import encoded
from odradek_broker.coordinator.groups.partitions import Tasks, in_order
from odradek_broker.coordinator.groups.streams.group import StreamsGroupMember
from odradek_broker.coordinator.groups.streams.tasks import HeldTasks, TaskSet, task_ids
from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import paced, pause
from odradek_protocol.common_structs import (
    StreamsProperty,
    StreamsSubtopology,
    UserEndpoint,
)
from odradek_protocol.schemas.streams_group_heartbeat import StreamsTopology
from odradek_protocol.stored.modern_groups import encode_record
from odradek_protocol.stored.streams_group import (
    StoredTasks,
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
            StreamsProperty(key=key, value=setting) for key, setting in sorted(settings.items())
        ],
    )
    return encode_record(value, group_id=group_id)


async def topology_record(group_id: str, topology: StreamsTopology) -> Record:
    """A record of the topology in a request."""
    elements = sum([_elements(each) async for each in paced(topology.subtopologies)])
    value = StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=topology.subtopologies)
    return await encoded(value, elements, group_id=group_id)


def _elements(stored: StreamsSubtopology) -> int:
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
        else UserEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[
            StreamsProperty(key=key, value=tag) for key, tag in sorted(member.tags.items())
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
        active_tasks=task_ids(target.active),
        standby_tasks=task_ids(target.standby),
        warmup_tasks=task_ids(target.warmup),
    )
    elements = len(target.active) + len(target.standby) + len(target.warmup)
    return await encoded(value, elements, group_id=group_id, member_id=member_id)


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> Record:
    """A record of the group epoch and the time of the target assignment."""
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=wall_ms
    )
    return encode_record(value, group_id=group_id)
