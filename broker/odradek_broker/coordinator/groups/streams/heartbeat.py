"""StreamsGroupHeartbeat: its checks; members join, stay alive, report their tasks and leave (rules
J-10 to J-19, KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from odradek_broker.coordinator.groups.deadlines import StreamsDeadlines
from odradek_broker.coordinator.groups.events import (
    MemberRemoved,
    Observer,
    Removal,
    RemovalReason,
    RequestRefused,
)
from odradek_broker.coordinator.groups.partitions import Tasks, in_order
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.settings import (
    StreamsGroupSettings,
    Topics,
    may_assign_again,
    streams_assignment_interval_ms,
    streams_heartbeat_interval_ms,
    streams_initial_delay_ms,
    streams_standby_replicas,
)
from odradek_broker.coordinator.groups.streams import records as make
from odradek_broker.coordinator.groups.streams.assignor import AssignmentMember, assign_sticky
from odradek_broker.coordinator.groups.streams.group import Endpoint, StreamsGroup, StreamsMember
from odradek_broker.coordinator.groups.streams.reconciliation import reconcile
from odradek_broker.coordinator.groups.streams.tasks import (
    NO_TASK_SET,
    TaskSet,
    tasks_of,
)
from odradek_broker.coordinator.groups.streams.topology import (
    ConfiguredTopology,
    InternalTopic,
    StreamsStatusCode,
    Topology,
    configure,
    invalid_topology,
    topology_of,
)
from odradek_broker.coordinator.groups.topics_hash import topics_hash
from odradek_broker.coordinator.runtime import Instant, Outcome, Record, Reply
from odradek_broker.deferred import Deferred
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.schemas.streams_group_heartbeat import (
    EndpointToPartitions,
    EndpointTopicPartitions,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    StreamsTaskIds,
    StreamsTopology,
    UserEndpoint,
)

_E = ErrorCode

#: The setting of the assignor, under the name that it has in records.
STANDBY_REPLICAS = "num.standby.replicas"

# --- Checks -------------------------------------------------------------------------------------


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Refusal of a request that is not valid from any member (J-10, J-11)."""
    _check_unsupported(request)
    for value, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    epoch = request.member_epoch
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        for given, name in zip(tasks, ("ActiveTasks", "StandbyTasks", "WarmupTasks"), strict=True):
            if given is None or given:
                raise _invalid(f"{name} must be empty when (re-)joining.")
        if request.topology is None:
            raise _invalid("Topology must be non-null when (re-)joining.")
        _check_topology(request.topology)
    elif epoch == LEAVE_STATIC_EPOCH:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if any(given is None for given in tasks) and any(given is not None for given in tasks):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != JOIN_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _check_unsupported(request: StreamsGroupHeartbeatRequest) -> None:
    """Refusal of what Kafka 4.3 has in the message and does not serve."""
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    subtopologies = request.topology.subtopologies if request.topology else ()
    if any(each.source_topic_regex for each in subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")


def _check_topology(topology: StreamsTopology) -> None:
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


def _invalid(message: str) -> Refusal:
    return Refusal(_E.INVALID_REQUEST, message)


def not_a_streams_group(group_id: str) -> Refusal:
    """The refusal for a group of another type (J-16)."""
    return Refusal(_E.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")


def unknown_streams_member(member_id: str, group_id: str) -> Refusal:
    """The refusal of a member that the group does not have (J-13)."""
    return Refusal(_E.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def check_epoch(member: StreamsMember, epoch: int, owned: TaskSet | None) -> None:
    """Refusal unless the epoch is the member's, or its last one after a lost answer (J-14)."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    lost_answer = epoch == member.previous_epoch and epoch < member.epoch
    if lost_answer and owned is not None and owned.is_subset(member.assigned.tasks):
        return
    compared = "greater" if epoch > member.epoch else "smaller"
    raise Refusal(
        _E.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {compared} member epoch ({epoch}) than the one known by"
        f" the group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _check_tasks(configured: ConfiguredTopology, owned: TaskSet) -> None:
    """Refusal of tasks that the topology does not have."""
    for tasks in (owned.active, owned.standby):
        for each_id, indexes in tasks.items():
            subtopology = configured.subtopologies.get(each_id)
            if subtopology is None:
                raise _invalid(f"Subtopology {each_id} does not exist in the topology.")
            for index in sorted(indexes):
                if not 0 <= index < subtopology.tasks:
                    raise _invalid(
                        f"Task {index} for subtopology {each_id} is invalid. Number of tasks for"
                        f" this subtopology: {subtopology.tasks}"
                    )


# --- Calls --------------------------------------------------------------------------------------


class StreamsAnswer(NamedTuple):
    """The answer to a heartbeat, and the internal topics that are to be created after it."""

    response: StreamsGroupHeartbeatResponse
    missing: Mapping[str, InternalTopic] = {}


@dataclass(frozen=True, slots=True)
class StreamsHeartbeatCall:
    """A StreamsGroupHeartbeat, with the data of its connection."""

    request: StreamsGroupHeartbeatRequest
    deferred: Deferred[StreamsAnswer]
    client_id: str
    client_host: str


def streams_heartbeat_error(error: ErrorCode, message: str | None = None) -> StreamsAnswer:
    """The answer that refuses a request."""
    return StreamsAnswer(StreamsGroupHeartbeatResponse(error_code=error, error_message=message))


class OpenedStreamsGroup(NamedTuple):
    """The group to which a member sends its heartbeat. `ending`: the tombstone of the empty classic
    group that had the id."""

    group: StreamsGroup
    ending: Sequence[Record] = ()


class GroupChange(NamedTuple):
    """A heartbeat in the making: the group, its next epoch and topology, and the states to tell."""

    group: StreamsGroup
    epoch: int
    configured: ConfiguredTopology
    settings: Mapping[str, str]
    statuses: list[StreamsStatus]


class StreamsProtocol:
    """The requests of members of streams groups. `groups`: those of the shard.

    `is_other` is true for the id of a group of another type; `retire` gives the records that end
    it, None if it must stay.
    """

    def __init__(
        self,
        config: StreamsGroupSettings,
        groups: dict[str, StreamsGroup],
        topics: Topics,
        deadlines: StreamsDeadlines,
        observer: Observer,
        is_other: Callable[[str], bool],
        retire: Callable[[str], list[Record] | None],
    ) -> None:
        self._config = config
        self._groups = groups
        self._topics = topics
        self._deadlines = deadlines
        self._observer = observer
        self._is_other = is_other
        self._retire = retire

    def heartbeat(self, call: StreamsHeartbeatCall, now: Instant) -> Outcome:
        """Answer a heartbeat; a refusal writes nothing."""
        out = Outcome()
        try:
            check_request(call.request)
            if call.request.member_epoch == LEAVE_EPOCH:
                answer = self._leave(call.request, out, now)
            else:
                answer = self._heartbeat(call, out, now)
        except Refusal as refusal:
            out.records.clear()
            answer = streams_heartbeat_error(refusal.error, refusal.message)
            self._observe_refusal(call, refusal)
        out.replies.append(Reply(call.deferred, answer, streams_heartbeat_error))
        return out

    def _observe_refusal(self, call: StreamsHeartbeatCall, refusal: Refusal) -> None:
        self._observer(
            RequestRefused(
                call.request.group_id,
                "StreamsGroupHeartbeat",
                refusal.error,
                call.request.member_id,
                None,
                client=(call.client_id, call.client_host),
                message=refusal.message,
            )
        )

    # --- Heartbeat ---

    def _heartbeat(self, call: StreamsHeartbeatCall, out: Outcome, now: Instant) -> StreamsAnswer:
        request = call.request
        group, ending = self._open(request)
        out.records += ending
        owned = owned_tasks(request)
        before = group.members.get(request.member_id)
        if before is None:
            if request.member_epoch != JOIN_EPOCH:
                raise unknown_streams_member(request.member_id, group.group_id)
            before = StreamsMember(member_id=request.member_id)
        check_epoch(before, request.member_epoch, owned)
        updated = _updated(before, call)
        if updated != before:
            out.records.append(make.member_record(group.group_id, updated))
        change = self._change(group, before, updated, request, owned, out)
        if not group.members:
            delay_ms = streams_initial_delay_ms(self._config, self._topics, group.group_id)
            self._deadlines.delay_assignment(group, delay_ms, now)
        epoch, target = self._target(change, updated, out.records, now)
        member = reconcile(updated, epoch, target, owned, lambda: group.holders)
        if member != updated:
            out.records.append(make.current_record(group.group_id, member))
            self._deadlines.update_revocation(group, member, now)
        self._deadlines.restart_session(group, member.member_id, now)
        self._undo_if_refused(group, member.member_id, out)
        if request.shutdown_application:
            group.shutdown_by = group.shutdown_by or member.member_id
        return self._answer(change, before, member, request)

    def _open(self, request: StreamsGroupHeartbeatRequest) -> OpenedStreamsGroup:
        """The group of a heartbeat; only a member that joins opens a new one (J-12, J-16)."""
        group_id = request.group_id
        joins = request.member_epoch == JOIN_EPOCH
        group = self._groups.get(group_id)
        if group is None:
            if not joins:
                raise self._missing(group_id, f"Streams group {group_id} not found.")
            ending = self._retire(group_id) if self._is_other(group_id) else []
            if ending is None:
                raise not_a_streams_group(group_id)
            return OpenedStreamsGroup(StreamsGroup(group_id), ending)
        size_max = self._config.group_streams_max_size
        if joins and len(group.members) >= size_max:
            raise Refusal(
                _E.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {size_max} members.",
            )
        return OpenedStreamsGroup(group)

    def _missing(self, group_id: str, message: str) -> Refusal:
        if self._is_other(group_id):
            return not_a_streams_group(group_id)
        return Refusal(_E.GROUP_ID_NOT_FOUND, message)

    def _change(
        self,
        group: StreamsGroup,
        before: StreamsMember,
        updated: StreamsMember,
        request: StreamsGroupHeartbeatRequest,
        owned: TaskSet | None,
        out: Outcome,
    ) -> GroupChange:
        """The group epoch and topology after the heartbeat: the epoch grows with a change of the
        member, the topology, the topics or the settings of the assignor (J-03)."""
        grows = updated != before
        topology = self._topology(group, request, out.records)
        statuses: list[StreamsStatus] = []
        if group.topology is not None and updated.topology_epoch < group.topology.epoch:
            detail = (
                f"The member's topology epoch {updated.topology_epoch} is behind the group's"
                f" topology epoch {group.topology.epoch}."
            )
            statuses.append(_status(StreamsStatusCode.STALE_TOPOLOGY, detail))
        hashed, configured = self._configure(group, topology)
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

    def _topology(
        self,
        group: StreamsGroup,
        request: StreamsGroupHeartbeatRequest,
        records: list[Record],
    ) -> Topology:
        """The topology of the group: that of the first member (J-20)."""
        if request.topology is None:
            if group.topology is None:
                raise _invalid("The group has no topology. The member must join anew.")
            return group.topology
        stored = make.stored_topology(request.topology)
        asked = topology_of(stored)
        if group.topology is None:
            records.append(make.topology_record(group.group_id, stored))
            return asked
        if group.topology.epoch <= asked.epoch and group.topology != asked:
            raise _invalid("Topology updates are not supported yet.")
        return group.topology

    def _configure(self, group: StreamsGroup, topology: Topology) -> tuple[int, ConfiguredTopology]:
        """The hash of the topics, and the topology with what follows from them. Computed again
        when the topics have changed."""
        fresh = group.topology is not None and group.topics_version == self._topics.topics_version
        if fresh and group.configured is not None:
            return group.hashed, group.configured
        hashed = topics_hash(topology.required_topics, self._topics)
        if group.topology is None or group.configured is None or hashed != group.hashed:
            group.configured = configure(topology, self._topics.partition_count)
        group.topics_version = self._topics.topics_version
        return hashed, group.configured

    def _assignor_settings(self, group_id: str) -> dict[str, str]:
        replicas = streams_standby_replicas(self._config, self._topics, group_id)
        return {STANDBY_REPLICAS: str(replicas)}

    # --- Assignment ---

    def _target(
        self, change: GroupChange, member: StreamsMember, records: list[Record], now: Instant
    ) -> tuple[int, TaskSet]:
        """The epoch of the target assignment, and the target of the member (J-06, J-07)."""
        group, member_id = change.group, member.member_id
        if self._deadlines.is_delayed(group):
            detail = "Assignment delayed due to the configured initial rebalance delay."
            change.statuses.append(_status(StreamsStatusCode.ASSIGNMENT_DELAYED, detail))
            return group.assignment_epoch, NO_TASK_SET
        if group.assignment_epoch >= change.epoch:
            return group.assignment_epoch, group.target(member_id)
        interval_ms = streams_assignment_interval_ms(self._topics, group.group_id)
        if not may_assign_again(group.assignment_ms, interval_ms, now.wall_ms):
            detail = "Assignment delayed due to the configured assignment interval."
            change.statuses.append(_status(StreamsStatusCode.ASSIGNMENT_DELAYED, detail))
            return group.assignment_epoch, group.target(member_id)
        members = {**group.members, member_id: member}
        targets = new_targets(group, members, change.configured, change.settings)
        records += _target_records(group, targets, change.epoch, now)
        return change.epoch, targets[member_id]

    def assign_delayed(self, group: StreamsGroup, out: Outcome, now: Instant) -> None:
        """Assign when the initial rebalance delay has passed (J-06)."""
        due = group.members and group.epoch > group.assignment_epoch
        if due and group.configured is not None:
            settings = group.assignor_settings
            targets = new_targets(group, group.members, group.configured, settings)
            out.records += _target_records(group, targets, group.epoch, now)

    # --- The answer ---

    def _answer(
        self,
        change: GroupChange,
        before: StreamsMember,
        member: StreamsMember,
        request: StreamsGroupHeartbeatRequest,
    ) -> StreamsAnswer:
        group, configured = change.group, change.configured
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=streams_heartbeat_interval_ms(
                self._config, self._topics, group.group_id
            ),
            status=change.statuses,
        )
        if request.member_epoch == JOIN_EPOCH or member.assigned != before.assigned:
            tasks = member.assigned.tasks
            response.active_tasks = _task_ids(tasks.active)
            response.standby_tasks = _task_ids(tasks.standby)
            response.warmup_tasks = _task_ids(tasks.warmup)
            if member.endpoint is not None:
                group.endpoint_epoch += 1
        if group.endpoint_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = self._endpoints(group, member, configured)
        if group.group_id in self._groups:
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

    def _endpoints(
        self, group: StreamsGroup, member: StreamsMember, configured: ConfiguredTopology
    ) -> list[EndpointToPartitions]:
        """The addresses of all members with the source partitions of their tasks; the member itself
        comes last (J-18)."""
        others = [each for each_id, each in group.members.items() if each_id != member.member_id]
        return [
            EndpointToPartitions(
                user_endpoint=UserEndpoint(host=each.endpoint.host, port=each.endpoint.port),
                active_partitions=self._inputs(each.assigned.tasks.active, configured),
                standby_partitions=self._inputs(each.assigned.tasks.standby, configured),
            )
            for each in (*others, member)
            if each.endpoint is not None
        ]

    def _inputs(
        self, tasks: Tasks, configured: ConfiguredTopology
    ) -> list[EndpointTopicPartitions]:
        """The partitions of source topics that the tasks read."""
        return [
            EndpointTopicPartitions(
                topic=name,
                partitions=[
                    index for index in indexes if index < self._topics.partition_count(name)
                ],
            )
            for each_id, indexes in in_order(tasks)
            if each_id in configured.subtopologies
            for name in configured.subtopologies[each_id].inputs
        ]

    # --- Leave ---

    def _leave(
        self, request: StreamsGroupHeartbeatRequest, out: Outcome, now: Instant
    ) -> StreamsAnswer:
        """Remove the member (J-17)."""
        group_id, member_id = request.group_id, request.member_id
        group = self._groups.get(group_id)
        if group is None:
            raise self._missing(group_id, f"Group {group_id} not found.")
        if request.shutdown_application:
            group.shutdown_by = group.shutdown_by or member_id
        if member_id not in group.members:
            raise unknown_streams_member(member_id, group_id)
        self.remove(group, member_id, Removal(RemovalReason.LEFT_BY_HEARTBEAT), out, now)
        return StreamsAnswer(
            StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
        )

    def remove(
        self, group: StreamsGroup, member_id: str, removal: Removal, out: Outcome, now: Instant
    ) -> None:
        """Remove a member: its tasks become free, and the group epoch grows (J-03)."""
        self._observer(MemberRemoved(group.group_id, group.members[member_id], removal))
        self._deadlines.forget(group, member_id)
        out.records += group.member_tombstones(member_id)
        out.records.append(
            make.group_record(
                group.group_id,
                group.epoch + 1,
                group.hashed,
                group.validated_epoch,
                group.assignor_settings,
            )
        )
        self._undo_if_refused(group, member_id, out)

    def _undo_if_refused(self, group: StreamsGroup, member_id: str, out: Outcome) -> None:
        """Undo the changes of soft state if the records are refused: then nothing has changed."""

        def after_append(error: ErrorCode, then: Instant) -> Outcome:
            if error is not _E.NONE:
                group.topics_version = group.configured = None
                if member_id not in group.members:
                    self._deadlines.forget(group, member_id)
                if self._groups.get(group.group_id) is group:
                    self._deadlines.restored(group, then)
            return Outcome()

        if out.records:
            out.after_append = after_append


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> TaskSet | None:
    """The tasks that the member reports as owned; None if the heartbeat does not report them."""
    if request.active_tasks is None or request.standby_tasks is None:
        return None
    return TaskSet(
        tasks_of(request.active_tasks),
        tasks_of(request.standby_tasks),
        tasks_of(request.warmup_tasks),
    )


def _updated(member: StreamsMember, call: StreamsHeartbeatCall) -> StreamsMember:
    """The member with what its heartbeat says; null means: as before."""
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


def new_targets(
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    settings: Mapping[str, str],
) -> dict[str, TaskSet]:
    """The new targets of these members; nothing while the topology cannot run."""
    if not configured.is_ready:
        return dict.fromkeys(members, NO_TASK_SET)
    return assign_sticky(
        configured.subtopologies,
        {
            member_id: AssignmentMember(member.process_id, group.target(member_id))
            for member_id, member in members.items()
        },
        int(settings.get(STANDBY_REPLICAS, "0")),
    )


def _target_records(
    group: StreamsGroup, targets: Mapping[str, TaskSet], epoch: int, now: Instant
) -> list[Record]:
    changed = [
        make.target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
    return [*changed, make.target_epoch_record(group.group_id, epoch, now.wall_ms)]


def _status(code: StreamsStatusCode, detail: str) -> StreamsStatus:
    return StreamsStatus(status_code=code, status_detail=detail)


def _task_ids(tasks: Tasks) -> list[StreamsTaskIds]:
    return [
        StreamsTaskIds(subtopology_id=each_id, partitions=indexes)
        for each_id, indexes in in_order(tasks)
    ]
