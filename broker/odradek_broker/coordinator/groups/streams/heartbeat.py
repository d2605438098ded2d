"""StreamsGroupHeartbeat: the checks of the request, and members that join, stay alive, report their
tasks and leave (rules J-10 to J-19, KIP-1071)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import replace

from odradek_broker.coordinator.groups.deadlines import GroupTimer, GroupTimerName
from odradek_broker.coordinator.groups.events import ConversionReason, GroupConverted, Observer
from odradek_broker.coordinator.groups.modern.groups import HeartbeatCall, ModernGroups
from odradek_broker.coordinator.groups.partitions import Tasks, in_order, partitions_of_many
from odradek_broker.coordinator.groups.refusals import (
    check_not_empty,
    invalid_request,
    unknown_member,
)
from odradek_broker.coordinator.groups.settings import (
    CoordinatorMetadata,
    GroupSettings,
    assignment_interval_ms,
    group_setting,
    may_assign_again,
)
from odradek_broker.coordinator.groups.streams import records as make
from odradek_broker.coordinator.groups.streams.assignor import AssignmentMember, assign_sticky
from odradek_broker.coordinator.groups.streams.group import (
    Endpoint,
    StreamsGroup,
    StreamsGroupMember,
)
from odradek_broker.coordinator.groups.streams.reconciliation import reconcile
from odradek_broker.coordinator.groups.streams.tasks import (
    NO_TASK_SET,
    TaskSet,
    task_ids,
)
from odradek_broker.coordinator.groups.streams.topology import (
    ConfiguredTopology,
    InternalTopic,
    StreamsStatusCode,
    Topology,
    configure,
    drop_undeclared,
    invalid_topology,
    topology_of,
)
from odradek_broker.coordinator.groups.topics_hash import topics_hash
from odradek_broker.coordinator.runtime import CoreOutcome, Instant, Record
from odradek_broker.coordinator.timers import Timers
from odradek_broker.slices import in_pieces, pause
from odradek_protocol.common_structs import PartitionsOfTopic, UserEndpoint
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.schemas.streams_group_heartbeat import (
    EndpointToPartitions,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    StreamsTopology,
)

_E = ErrorCode

#: The setting of the assignor, under the name that it has in records.
STANDBY_REPLICAS = "num.standby.replicas"

# --- Checks -------------------------------------------------------------------------------------


def _check_unsupported(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse fields of the message that Kafka 4.3 does not support."""
    if request.instance_id is not None:
        raise invalid_request("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise invalid_request("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise invalid_request("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise invalid_request("WarmupTasks are not supported yet.")
    subtopologies = request.topology.subtopologies if request.topology else ()
    if any(each.source_topic_regex for each in subtopologies):
        raise invalid_request("Regular expressions for source topics are not supported yet.")


def _check_topology(topology: StreamsTopology) -> None:
    if topology.epoch < 0:
        raise invalid_topology(f"The topology has the epoch {topology.epoch}, which is below 0.")
    ids = [each.subtopology_id for each in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise invalid_topology(f"Two subtopologies have the same id, of {', '.join(ids)}.")
    for each in topology.subtopologies:
        for topic in each.state_changelog_topics:
            if topic.partitions:
                raise invalid_topology(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it"
                    f" is set to {topic.partitions}."
                )


def _check_tasks(configured: ConfiguredTopology, owned: TaskSet) -> None:
    """Refuse tasks that are not in the topology."""
    for tasks in (owned.active, owned.standby):
        for each_id, indexes in tasks.items():
            subtopology = configured.subtopologies.get(each_id)
            if subtopology is None:
                raise invalid_request(f"Subtopology {each_id} does not exist in the topology.")
            wrong = [index for index in indexes if not 0 <= index < subtopology.tasks]
            if wrong:
                raise invalid_request(
                    f"Task {min(wrong)} for subtopology {each_id} is invalid. Number of tasks for"
                    f" this subtopology: {subtopology.tasks}"
                )


# --- Calls --------------------------------------------------------------------------------------


class StreamsAnswer(NamedTuple):
    """The answer to a heartbeat, and the internal topics that the broker creates after the
    answer."""

    response: StreamsGroupHeartbeatResponse
    missing: Mapping[str, InternalTopic] = {}


StreamsHeartbeatCall = HeartbeatCall[StreamsGroupHeartbeatRequest, StreamsAnswer]


def streams_heartbeat_error(error: ErrorCode, message: str | None = None) -> StreamsAnswer:
    """The answer that refuses a request."""
    return StreamsAnswer(StreamsGroupHeartbeatResponse(error_code=error, error_message=message))


class OpenedStreamsGroup(NamedTuple):
    """The group to which a member sends its heartbeat. `converts`: an empty classic group has had
    the id; `ending`: the tombstone of that group."""

    group: StreamsGroup
    ending: Sequence[Record] = ()
    converts: bool = False


class GroupChange(NamedTuple):
    """The effects of a heartbeat: the group, its next epoch and topology, and the statuses to
    answer.
    """

    group: StreamsGroup
    epoch: int
    configured: ConfiguredTopology
    settings: Mapping[str, str]
    statuses: list[StreamsStatus]


class StreamsProtocol(ModernGroups[StreamsGroup, StreamsGroupHeartbeatRequest, StreamsAnswer]):
    """The requests of members of streams groups. `retire` returns the records that end a group of
    another type, or None if that group must stay."""

    group_class = StreamsGroup
    refused = staticmethod(streams_heartbeat_error)

    def __init__(
        self,
        config: GroupSettings,
        topics: CoordinatorMetadata,
        observer: Observer,
        groups: dict[str, StreamsGroup],
        timers: Timers[GroupTimerName],
        others: Container[str],
        retire: Callable[[str], list[Record] | None],
    ) -> None:
        super().__init__(config, topics, observer, groups, timers, others)
        self._retire = retire

    def check_request(self, call: StreamsHeartbeatCall) -> None:
        """Refuse a request that no member may send (J-10, J-11)."""
        request = call.request
        _check_unsupported(request)
        check_not_empty(
            ("MemberId", request.member_id),
            ("GroupId", request.group_id),
            ("RackId", request.rack_id),
        )
        epoch = request.member_epoch
        tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
        if epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
            for given, name in zip(
                tasks, ("ActiveTasks", "StandbyTasks", "WarmupTasks"), strict=True
            ):
                if given is None or given:
                    raise invalid_request(f"{name} must be empty when (re-)joining.")
            if request.topology is None:
                raise invalid_request("Topology must be non-null when (re-)joining.")
            _check_topology(request.topology)
        elif epoch == LEAVE_STATIC_EPOCH:
            raise invalid_request("InstanceId can't be null.")
        elif epoch < LEAVE_STATIC_EPOCH:
            raise invalid_request(
                f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
            )
        if any(given is None for given in tasks) and any(given is not None for given in tasks):
            raise invalid_request("If one task-type is non-null, all must be non-null.")
        if epoch != JOIN_EPOCH and request.topology is not None:
            raise invalid_request("Topology can only be provided when (re-)joining.")

    # --- Heartbeat ---

    async def _heartbeat(
        self, call: StreamsHeartbeatCall, out: CoreOutcome, now: Instant
    ) -> StreamsAnswer:
        request = call.request
        group, ending, converts = self._open(request)
        out.records += ending
        owned = await owned_tasks(request)
        before = group.members.get(request.member_id)
        if before is None:
            if request.member_epoch != JOIN_EPOCH:
                raise unknown_member(request.member_id, group.group_id)
            before = StreamsGroupMember(member_id=request.member_id)
        self.check_epoch(before, request.member_epoch, owned)
        updated = _updated(before, call)
        if updated != before:
            out.records.append(make.member_record(group.group_id, updated))
        change = await self._change(group, before, updated, request, owned, out)
        if converts:
            reason = ConversionReason.GROUP_EMPTY
            self._observer(GroupConverted(group.group_id, "streams", reason))
        if not group.members:
            self._delay_assignment(group, now)
        epoch, target = await self._target(change, updated, out.records, now)
        await pause()
        member = reconcile(updated, epoch, target, owned, lambda: group.holders)
        await pause()
        if member != updated:
            out.records.append(await make.current_record(group.group_id, member))
            await pause()
            self.deadlines.update_revocation(group, member, now)
        self.deadlines.restart_session(group, member, now)
        self.undo_if_refused(group, out, member.member_id)
        if request.shutdown_application:
            group.shutdown_by = group.shutdown_by or member.member_id
        return await self._answer(change, before, member, request)

    def _open(self, request: StreamsGroupHeartbeatRequest) -> OpenedStreamsGroup:
        """The group of a heartbeat. A missing group is created only for a member that joins (J-12,
        J-16)."""
        group_id = request.group_id
        joins = request.member_epoch == JOIN_EPOCH
        group = self.groups.get(group_id)
        if group is None:
            if not joins:
                raise self.missing(group_id, "Streams group")
            ending = self._retire(group_id) if group_id in self._others else []
            if ending is None:
                raise self.missing(group_id)
            return OpenedStreamsGroup(StreamsGroup(group_id), ending, group_id in self._others)
        if joins:
            self.check_size(group)
        return OpenedStreamsGroup(group)

    async def _change(
        self,
        group: StreamsGroup,
        before: StreamsGroupMember,
        updated: StreamsGroupMember,
        request: StreamsGroupHeartbeatRequest,
        owned: TaskSet | None,
        out: CoreOutcome,
    ) -> GroupChange:
        """The group epoch and topology after the heartbeat: the epoch grows with a change of the
        member, the topology, the topics or the settings of the assignor (J-03)."""
        grows = updated != before
        topology = await self._topology(group, request, out.records)
        statuses: list[StreamsStatus] = []
        if group.topology is not None and updated.topology_epoch < group.topology.epoch:
            detail = (
                f"The member's topology epoch {updated.topology_epoch} is behind the group's"
                f" topology epoch {group.topology.epoch}."
            )
            statuses.append(_status(StreamsStatusCode.STALE_TOPOLOGY, detail))
        hashed, configured = await self._configure(group, topology)
        grows = grows or hashed != group.hashed
        validated_epoch = topology.epoch if configured.is_ready else -1
        if configured.is_ready and owned is not None:
            _check_tasks(configured, owned)
        grows = grows or validated_epoch != group.validated_epoch
        settings = self._assignor_settings(group.group_id)
        epoch = group.epoch
        if grows or settings != group.assignor_settings:
            epoch += 1
            out.records.append(
                make.group_record(group.group_id, epoch, hashed, validated_epoch, settings)
            )
        return GroupChange(group, epoch, configured, settings, statuses)

    async def _topology(
        self,
        group: StreamsGroup,
        request: StreamsGroupHeartbeatRequest,
        records: list[Record],
    ) -> Topology:
        """The topology of the group, which its first member has sent (J-20)."""
        if request.topology is None:
            if group.topology is None:
                raise invalid_request("The group has no topology. The member must join again.")
            return group.topology
        await drop_undeclared(request.topology)
        asked = topology_of(request.topology)
        if group.topology is None:
            records.append(await make.topology_record(group.group_id, request.topology))
            return asked
        if group.topology.epoch <= asked.epoch and not await group.topology.is_same(asked):
            raise invalid_request("Topology updates are not supported yet.")
        return group.topology

    async def _configure(
        self, group: StreamsGroup, topology: Topology
    ) -> tuple[int, ConfiguredTopology]:
        """The hash of the topics, and the topology configured for these topics. Both are computed
        again when the topics have changed."""
        fresh = group.topology is not None and group.topics_version == self._topics.topics_version
        if fresh and group.configured is not None:
            return group.hashed, group.configured
        hashed = await topics_hash(topology.required_topics, self._topics)
        if group.topology is None or group.configured is None or hashed != group.hashed:
            group.configured = await configure(topology, self._topics.partition_count)
        group.topics_version = self._topics.topics_version
        return hashed, group.configured

    def _assignor_settings(self, group_id: str) -> dict[str, str]:
        name = f"streams.{STANDBY_REPLICAS}"
        return {STANDBY_REPLICAS: str(group_setting(self._config, self._topics, group_id, name))}

    # --- Assignment ---

    def _delay_assignment(self, group: StreamsGroup, now: Instant) -> None:
        """Begin the initial rebalance delay, if it has not begun (J-06)."""
        name = "streams.initial.rebalance.delay.ms"
        delay_ms = group_setting(self._config, self._topics, group.group_id, name)
        if delay_ms > 0 and not self._is_delayed(group):
            self.deadlines.set(group, "", GroupTimer.STREAMS_DELAY, delay_ms, now)

    def _is_delayed(self, group: StreamsGroup) -> bool:
        return self.deadlines.is_set(group, "", GroupTimer.STREAMS_DELAY)

    async def _target(
        self, change: GroupChange, member: StreamsGroupMember, records: list[Record], now: Instant
    ) -> tuple[int, TaskSet]:
        """The epoch of the target assignment, and the target of the member (J-06, J-07)."""
        group, member_id = change.group, member.member_id
        if self._is_delayed(group):
            detail = "Assignment delayed due to the configured initial rebalance delay."
            change.statuses.append(_status(StreamsStatusCode.ASSIGNMENT_DELAYED, detail))
            return group.assignment_epoch, NO_TASK_SET
        if group.assignment_epoch >= change.epoch:
            return group.assignment_epoch, group.target(member_id)
        interval_ms = assignment_interval_ms(self._topics, group.group_id, self.group_type)
        if not may_assign_again(group.assignment_ms, interval_ms, now.wall_ms):
            detail = "Assignment delayed due to the configured assignment interval."
            change.statuses.append(_status(StreamsStatusCode.ASSIGNMENT_DELAYED, detail))
            return group.assignment_epoch, group.target(member_id)
        members = {**group.members, member_id: member}
        targets = await new_targets(group, members, change.configured, change.settings)
        records += await _target_records(group, targets, change.epoch, now)
        return change.epoch, targets[member_id]

    async def on_timer(self, name: GroupTimerName, out: CoreOutcome, now: Instant) -> None:
        """Assign the tasks, if the initial rebalance delay has passed (J-06), or remove a member
        whose deadline has passed."""
        if name.kind is not GroupTimer.STREAMS_DELAY:
            await super().on_timer(name, out, now)
            return
        group = self.groups.get(name.group_id)
        due = group is not None and group.members and group.epoch > group.assignment_epoch
        if group is not None and due and group.configured is not None:
            settings = group.assignor_settings
            targets = await new_targets(group, group.members, group.configured, settings)
            out.records += await _target_records(group, targets, group.epoch, now)

    # --- The answer ---

    async def _answer(
        self,
        change: GroupChange,
        before: StreamsGroupMember,
        member: StreamsGroupMember,
        request: StreamsGroupHeartbeatRequest,
    ) -> StreamsAnswer:
        group, configured = change.group, change.configured
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.heartbeat_interval_ms(group),
            status=change.statuses,
        )
        if request.member_epoch == JOIN_EPOCH or member.assigned != before.assigned:
            tasks = member.assigned.tasks
            response.active_tasks = task_ids(tasks.active)
            response.standby_tasks = task_ids(tasks.standby)
            response.warmup_tasks = task_ids(tasks.warmup)
            if member.endpoint is not None:
                group.endpoint_epoch += 1
        if group.endpoint_epoch != request.endpoint_information_epoch:
            endpoints = await self._endpoints(group, member, configured)
            response.partitions_by_user_endpoint = endpoints
        if group.group_id in self.groups:
            response.endpoint_information_epoch = group.endpoint_epoch
        if configured.problem is not None:
            change.statuses.append(_status(*configured.problem))
        if group.shutdown_by is not None:
            detail = (
                f"Streams group member {group.shutdown_by} encountered a fatal error and requested"
                " a shutdown for the entire application."
            )
            change.statuses.append(_status(StreamsStatusCode.SHUTDOWN_APPLICATION, detail))
        return StreamsAnswer(response, configured.missing)

    async def _endpoints(
        self, group: StreamsGroup, member: StreamsGroupMember, configured: ConfiguredTopology
    ) -> list[EndpointToPartitions]:
        """The address of every member, and the source partitions of its tasks; `member` comes last
        (J-18)."""
        others = [each for each_id, each in group.members.items() if each_id != member.member_id]
        return [
            EndpointToPartitions(
                user_endpoint=UserEndpoint(host=each.endpoint.host, port=each.endpoint.port),
                active_partitions=self._inputs(each.assigned.tasks.active, configured),
                standby_partitions=self._inputs(each.assigned.tasks.standby, configured),
            )
            async for some in in_pieces((*others, member))
            for each in some
            if each.endpoint is not None
        ]

    def _inputs(self, tasks: Tasks, configured: ConfiguredTopology) -> list[PartitionsOfTopic]:
        return [
            PartitionsOfTopic(
                topic=name,
                # The indexes are sorted.
                partitions=indexes[: bisect_left(indexes, self._topics.partition_count(name))],
            )
            for each_id, indexes in in_order(tasks)
            if each_id in configured.subtopologies
            for name in configured.subtopologies[each_id].inputs
        ]

    # --- Leave ---

    async def _leave(
        self, request: StreamsGroupHeartbeatRequest, out: CoreOutcome, now: Instant
    ) -> StreamsAnswer:
        """Remove the member. Its request may also ask for the end of the application (J-17)."""
        group = self.groups.get(request.group_id)
        if group is not None and request.shutdown_application:
            group.shutdown_by = group.shutdown_by or request.member_id
        return await super()._leave(request, out, now)

    @staticmethod
    def _left(member_id: str, epoch: int) -> StreamsAnswer:
        return StreamsAnswer(StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch))

    async def _records_without(self, group: StreamsGroup, gone: Collection[str]) -> list[Record]:
        epoch, settings = group.epoch + 1, group.assignor_settings
        return [
            make.group_record(group.group_id, epoch, group.hashed, group.validated_epoch, settings)
        ]


async def owned_tasks(request: StreamsGroupHeartbeatRequest) -> TaskSet | None:
    """The tasks that the member reports as owned; None if the heartbeat does not report them."""
    if request.active_tasks is None or request.standby_tasks is None:
        return None
    kinds = [
        await partitions_of_many([(each.subtopology_id, each.partitions) for each in tasks or ()])
        for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    ]
    return TaskSet(*kinds)


def _updated(member: StreamsGroupMember, call: StreamsHeartbeatCall) -> StreamsGroupMember:
    """The member with the fields of its heartbeat; null fields are unchanged."""
    request = call.request
    endpoint, topology = request.user_endpoint, request.topology
    updated = replace(member, client_id=call.client_id, client_host=call.client_host)
    if request.rack_id is not None:
        updated = replace(updated, rack_id=request.rack_id)
    if request.rebalance_timeout_ms != -1:
        updated = replace(updated, rebalance_timeout_ms=request.rebalance_timeout_ms)
    if topology is not None:
        updated = replace(updated, topology_epoch=topology.epoch)
    if request.process_id is not None:
        updated = replace(updated, process_id=request.process_id)
    if request.client_tags is not None:
        updated = replace(updated, tags={tag.key: tag.value for tag in request.client_tags})
    if endpoint is not None:
        updated = replace(updated, endpoint=Endpoint(endpoint.host, endpoint.port))
    return updated


async def new_targets(
    group: StreamsGroup,
    members: Mapping[str, StreamsGroupMember],
    configured: ConfiguredTopology,
    settings: Mapping[str, str],
) -> dict[str, TaskSet]:
    """The new targets of these members; empty while the topology cannot run."""
    if not configured.is_ready:
        return dict.fromkeys(members, NO_TASK_SET)
    return await assign_sticky(
        configured.subtopologies,
        {
            member_id: AssignmentMember(member.process_id, group.target(member_id))
            async for some in in_pieces(members.items())
            for member_id, member in some
        },
        int(settings.get(STANDBY_REPLICAS, "0")),
    )


async def _target_records(
    group: StreamsGroup, targets: Mapping[str, TaskSet], epoch: int, now: Instant
) -> list[Record]:
    changed = await group.target_records(targets, make.target_record)
    return [*changed, make.target_epoch_record(group.group_id, epoch, now.wall_ms)]


def _status(code: StreamsStatusCode, detail: str) -> StreamsStatus:
    return StreamsStatus(status_code=code, status_detail=detail)
