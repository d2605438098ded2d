"""The streams groups of a shard, and their descriptions."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.streams.group import (
    StreamsGroup,
    StreamsGroupMember,
)
from odradek_broker.coordinator.groups.streams.heartbeat import (
    StreamsProtocol,
)
from odradek_broker.coordinator.groups.streams.tasks import TaskSet, task_ids
from odradek_broker.coordinator.groups.streams.topology import InternalTopic, Topology
from odradek_broker.slices import in_pieces
from odradek_protocol.common_structs import (
    InternalTopicInfo,
    StreamsProperty,
    UserEndpoint,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.streams_group_describe import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTasks,
    DescribedTopology,
)


class StreamsGroups(StreamsProtocol):
    """The streams groups of a shard."""

    async def describe(self, group_id: str) -> DescribedStreamsGroup:
        """The description of a streams group; GROUP_ID_NOT_FOUND with a message if there is no
        streams group of this id."""
        try:
            return await described(self.find(group_id))
        except Refusal as refusal:
            return streams_not_described(group_id, refusal.error, refusal.message)


def streams_not_described(
    group_id: str, error: ErrorCode, message: str | None = None
) -> DescribedStreamsGroup:
    """The answer for a group that cannot be described."""
    return DescribedStreamsGroup(
        error_code=error, error_message=message, group_id=group_id, group_state=""
    )


async def described(group: StreamsGroup) -> DescribedStreamsGroup:
    """The group with its topology and members, in the form of StreamsGroupDescribe (J-50)."""
    return DescribedStreamsGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[
            _member(group, member)
            async for some in in_pieces(group.members.values())
            for member in some
        ],
    )


def _topology(group: StreamsGroup) -> DescribedTopology | None:
    """The topology with the numbers of partitions, as far as they are known."""
    configured = group.configured
    if configured is None or not configured.is_ready:
        return None if group.topology is None else _plain_topology(group.topology)
    return DescribedTopology(
        epoch=configured.epoch,
        subtopologies=[
            DescribedSubtopology(
                subtopology_id=each_id,
                source_topics=sorted(each.sources),
                repartition_sink_topics=sorted(each.repartition_sinks),
                state_changelog_topics=_internal_topics(each.changelogs.values()),
                repartition_source_topics=_internal_topics(each.repartition_sources.values()),
            )
            for each_id, each in sorted(configured.subtopologies.items())
        ],
    )


def _plain_topology(topology: Topology) -> DescribedTopology:
    return DescribedTopology(
        epoch=topology.epoch,
        subtopologies=[
            DescribedSubtopology(
                subtopology_id=each_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                state_changelog_topics=_internal_topics(map(_plain, each.state_changelog_topics)),
                repartition_source_topics=_internal_topics(
                    map(_plain, each.repartition_source_topics)
                ),
            )
            for each_id, each in sorted(topology.subtopologies.items())
        ],
    )


def _plain(topic: InternalTopicInfo) -> InternalTopic:
    settings = {each.key: each.value for each in topic.topic_configs}
    return InternalTopic(topic.name, topic.partitions, topic.replication_factor, settings)


def _internal_topics(topics: Iterable[InternalTopic]) -> list[InternalTopicInfo]:
    return [
        InternalTopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replicas,
            topic_configs=_properties(topic.settings.items()),
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _properties(pairs: Iterable[tuple[str, str]]) -> list[StreamsProperty]:
    return [StreamsProperty(key=key, value=value) for key, value in pairs]


def _member(group: StreamsGroup, member: StreamsGroupMember) -> DescribedStreamsMember:
    endpoint = member.endpoint
    return DescribedStreamsMember(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else UserEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_properties(sorted(member.tags.items())),
        assignment=_tasks(member.assigned.tasks),
        target_assignment=_tasks(group.target(member.member_id)),
    )


def _tasks(tasks: TaskSet) -> DescribedTasks:
    return DescribedTasks(
        active_tasks=task_ids(tasks.active),
        standby_tasks=task_ids(tasks.standby),
        warmup_tasks=task_ids(tasks.warmup),
    )
