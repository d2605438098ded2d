"""The streams groups of a shard: replay, deadlines and descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek_broker.coordinator.groups.deadlines import Deadline, StreamsDeadlines, TimerName
from odradek_broker.coordinator.groups.events import (
    Observer,
    Removal,
    RemovalReason,
    StreamsRecordReplayed,
)
from odradek_broker.coordinator.groups.partitions import Tasks, in_order
from odradek_broker.coordinator.groups.settings import StreamsGroupSettings, Topics
from odradek_broker.coordinator.groups.streams.group import (
    StreamsGroup,
    StreamsMember,
    StreamsMemberState,
)
from odradek_broker.coordinator.groups.streams.heartbeat import (
    StreamsHeartbeatCall,
    StreamsProtocol,
)
from odradek_broker.coordinator.groups.streams.tasks import TaskSet
from odradek_broker.coordinator.groups.streams.topology import InternalTopic, Topology
from odradek_broker.coordinator.runtime import Instant, Outcome, Record
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.streams_group_describe import (
    DescribedEndpoint,
    DescribedInternalTopic,
    DescribedProperty,
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTaskIds,
    DescribedTasks,
    DescribedTopology,
)
from odradek_protocol.stored.streams_group import (
    StoredInternalTopic,
    StreamsRecordType,
    decode_key,
    decode_value,
)


class StreamsGroups:
    """The streams groups of a shard. `groups`, by id, and the deadlines are the shard's.

    `is_other` is true for the id of a group of another type; `retire` gives the records that end
    it, None if it must stay.
    """

    def __init__(
        self,
        config: StreamsGroupSettings,
        topics: Topics,
        observer: Observer,
        groups: dict[str, StreamsGroup],
        deadlines: StreamsDeadlines,
        is_other: Callable[[str], bool],
        retire: Callable[[str], list[Record] | None],
    ) -> None:
        self.groups = groups
        self._observer = observer
        self._active = False
        self._deadlines = deadlines
        self._is_other = is_other
        self._protocol = StreamsProtocol(
            config, groups, topics, deadlines, observer, is_other, retire
        )

    # --- Replay ---

    def replay(self, kind: StreamsRecordType, key: bytes, value: bytes | None) -> str:
        """Apply one record; returns the id of its group. A group exists from its first record to
        the tombstone of its own record (J-02)."""
        named = decode_key(kind, key)
        group_id: str = named.group_id  # type: ignore[attr-defined]
        group = self.groups.get(group_id)
        if group is None:
            if value is None:
                return group_id
            group = self.groups[group_id] = StreamsGroup(group_id)
        member_id = str(getattr(named, "member_id", ""))
        before = group.members.get(member_id)
        group.replay(kind, named, None if value is None else decode_value(kind, value))
        if self._active and value is not None:
            after = group.members.get(member_id)
            self._observer(StreamsRecordReplayed(kind, group, before, after))
        if kind is StreamsRecordType.GROUP and value is None:
            del self.groups[group_id]
            self._deadlines.forget_all(group)
        return group_id

    def restored(self, now: Instant) -> None:
        """Begin all deadlines after a load."""
        self._active = True
        for group in self.groups.values():
            self._deadlines.restored(group, now)

    # --- Members ---

    def heartbeat(self, call: StreamsHeartbeatCall, now: Instant) -> Outcome:
        """Answer a heartbeat."""
        return self._protocol.heartbeat(call, now)

    def on_timer(self, name: TimerName, out: Outcome, now: Instant) -> None:
        """Assign after the initial rebalance delay; remove a member that was silent, or did not
        give its tasks back in time (J-06, J-19)."""
        group = self.groups.get(name.group_id)
        if group is None:
            return
        if name.kind is Deadline.STREAMS_DELAY:
            self._protocol.assign_delayed(group, out, now)
            return
        member = group.members.get(name.member_id)
        if member is None:
            return
        reason = RemovalReason.SESSION_TIMEOUT
        if name.kind is Deadline.STREAMS_REVOCATION:
            if member.state is not StreamsMemberState.UNREVOKED_TASKS:
                return
            reason = RemovalReason.REVOCATION_TIMEOUT
        self._protocol.remove(group, name.member_id, Removal(reason), out, now)

    # --- Descriptions ---

    def describe(self, group_id: str) -> DescribedStreamsGroup:
        """A streams group; GROUP_ID_NOT_FOUND with a message if there is none of this id."""
        group = self.groups.get(group_id)
        if group is None:
            message = f"Group {group_id} not found."
            if self._is_other(group_id):
                message = f"Group {group_id} is not a streams group."
            return streams_not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        return described(group)


def streams_not_described(
    group_id: str, error: ErrorCode, message: str | None = None
) -> DescribedStreamsGroup:
    """The answer for a group that cannot be described."""
    return DescribedStreamsGroup(
        error_code=error, error_message=message, group_id=group_id, group_state=""
    )


def described(group: StreamsGroup) -> DescribedStreamsGroup:
    """The group with its topology and members, in the form of StreamsGroupDescribe (J-50)."""
    return DescribedStreamsGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
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


def _plain(topic: StoredInternalTopic) -> InternalTopic:
    settings = {each.key: each.value for each in topic.topic_configs}
    return InternalTopic(topic.name, topic.partitions, topic.replication_factor, settings)


def _internal_topics(topics: Iterable[InternalTopic]) -> list[DescribedInternalTopic]:
    return [
        DescribedInternalTopic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replicas,
            topic_configs=_properties(topic.settings.items()),
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _properties(pairs: Iterable[tuple[str, str]]) -> list[DescribedProperty]:
    return [DescribedProperty(key=key, value=value) for key, value in pairs]


def _member(group: StreamsGroup, member: StreamsMember) -> DescribedStreamsMember:
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
        else DescribedEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_properties(sorted(member.tags.items())),
        assignment=_tasks(member.assigned.tasks),
        target_assignment=_tasks(group.target(member.member_id)),
    )


def _tasks(tasks: TaskSet) -> DescribedTasks:
    return DescribedTasks(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Tasks) -> list[DescribedTaskIds]:
    return [
        DescribedTaskIds(subtopology_id=each_id, partitions=indexes)
        for each_id, indexes in in_order(tasks)
    ]
