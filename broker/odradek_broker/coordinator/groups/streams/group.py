"""A streams group and its members, built from their records (rules J-01 to J-05)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import IntEnum
from typing import Any

from odradek_broker.coordinator.groups.modern.group import (
    FIRST_EPOCH,
    ModernGroup,
    ModernGroupState,
    ModernMember,
)
from odradek_broker.coordinator.groups.streams.tasks import (
    NO_TASK_SET,
    NOTHING_HELD,
    HeldTasks,
    TaskSet,
    tasks_of,
)
from odradek_broker.coordinator.groups.streams.topology import (
    ConfiguredTopology,
    Topology,
    topology_of,
)
from odradek_broker.coordinator.groups.uses import Uses
from odradek_protocol.constants import LEAVE_EPOCH
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.stored.streams_group import (
    StoredTasks,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTopologyValue,
    StreamsRecordType,
)

#: The type of streams groups in ListGroups, and their protocol type.
STREAMS_TYPE = "streams"


class StreamsMemberState(IntEnum):
    """The progress of a member towards its target; the numbers are those in the records (J-30)."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


class Endpoint(NamedTuple):
    """The address at which a client answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupMember(ModernMember):
    """A member of a streams group: a thread of a client. Members of one client have the same
    `process_id`."""

    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    pending: HeldTasks = NOTHING_HELD

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is StreamsMemberState.STABLE and self.epoch == target_epoch

    @property
    def revocation_timeout_ms(self) -> int | None:
        revokes = self.state is StreamsMemberState.UNREVOKED_TASKS
        return self.rebalance_timeout_ms if revokes else None

    @property
    def active_tasks(self) -> list[tuple[str, frozenset[int]]]:
        """The active tasks that the member has or has not revoked yet."""
        both = (self.assigned.tasks, self.pending.tasks)
        return [each for held in both for each in held.active.items()]

    @property
    def copied_tasks(self) -> list[tuple[str, frozenset[int]]]:
        """The standby and warm-up tasks that the member has or has not revoked yet."""
        both = (self.assigned.tasks, self.pending.tasks)
        kinds = (tasks for held in both for tasks in (held.standby, held.warmup))
        return [each for tasks in kinds for each in tasks.items()]

    def may_own(self, owned: TaskSet | None) -> bool:
        return owned is not None and owned.is_subset(self.assigned.tasks)

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsGroupMember:
        endpoint = value.user_endpoint
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            tags={tag.key: tag.value for tag in value.client_tags},
        )

    def with_assignment(
        self, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> StreamsGroupMember:
        if value is None:
            return replace(
                self,
                epoch=LEAVE_EPOCH,
                previous_epoch=LEAVE_EPOCH,
                assigned=NOTHING_HELD,
                pending=NOTHING_HELD,
            )
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_state(value.state),
            assigned=_held(
                value.active_tasks, value.standby_tasks, value.warmup_tasks, value.member_epoch
            ),
            pending=_held(
                value.active_tasks_pending_revocation,
                value.standby_tasks_pending_revocation,
                value.warmup_tasks_pending_revocation,
                value.member_epoch,
            ),
        )


class Holders(NamedTuple):
    """The processes that have tasks, or have not revoked them yet. `active`: for each subtopology,
    the process with each active task; `copies`: for each process and subtopology, the standby and
    warm-up tasks."""

    active: dict[str, dict[int, str]]
    copies: dict[tuple[str, str], Uses[int]]


@dataclass(slots=True)
class StreamsGroup(ModernGroup[StreamsGroupMember, TaskSet]):
    """A group of the streams protocol.

    The fields `hashed` (the hash of the topics), `validated_epoch` (the epoch of a topology whose
    topics all existed) and `assignor_settings` (the settings of the assignor) are the inputs for
    which the group epoch was computed.
    """

    protocol_type = STREAMS_TYPE
    member_class = StreamsGroupMember
    record_types = StreamsRecordType
    other_type = StreamsRecordType.TOPOLOGY
    no_target = NO_TASK_SET
    unassigned_epoch = -1

    hashed: int = 0
    validated_epoch: int = 0
    assignor_settings: Mapping[str, str] = field(default_factory=dict)
    topology: Topology | None = None
    # --- derived ---
    #: For each task, the processes that have it or have not revoked it yet.
    holders: Holders = field(default_factory=lambda: Holders({}, {}))
    #: For each subtopology, the member that has each active task or has not revoked it yet.
    owners: dict[str, dict[int, str]] = field(default_factory=dict)
    # --- soft ---
    #: The topology, configured for the topics of the cluster; None before it was configured.
    configured: ConfiguredTopology | None = None
    #: The number of changes of the endpoints and their tasks.
    endpoint_epoch: int = 0
    #: The member that has requested the end of the application.
    shutdown_by: str | None = None

    # --- Questions ---

    @property
    def state(self) -> ModernGroupState:
        """The state of the group, from its epochs, its members and its topology (J-05)."""
        is_ready = self.topology is not None and self.topology.epoch == self.validated_epoch
        return self.progress if is_ready or not self.members else ModernGroupState.NOT_READY

    @property
    def subscribed_names(self) -> frozenset[str]:
        """Every topic that a member may read."""
        if not self.members or self.topology is None:
            return frozenset()
        return self.topology.input_topics

    def forget_topics(self) -> None:
        self.topics_version = self.configured = None

    # --- Replay ---

    def replay_group(self, value: StreamsGroupMetadataValue | None) -> None:
        if value is None:
            value = StreamsGroupMetadataValue(epoch=FIRST_EPOCH, validated_topology_epoch=0)
        ModernGroup.replay_group(self, value)
        self.hashed = value.metadata_hash
        self.validated_epoch = value.validated_topology_epoch
        self.assignor_settings = {
            each.key: each.value for each in value.last_assignment_configs or ()
        }

    def replay_member(self, member_id: str, value: StreamsGroupMemberMetadataValue | None) -> None:
        before = self.members.get(member_id)
        ModernGroup.replay_member(self, member_id, value)
        self._follow_tasks(before, self.members.get(member_id))
        if not self.members:
            self.shutdown_by = None

    def replay_current(
        self, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> None:
        before = self.members.get(member_id)
        ModernGroup.replay_current(self, member_id, value)
        self._follow_tasks(before, self.members.get(member_id))

    def _follow_tasks(
        self, before: StreamsGroupMember | None, after: StreamsGroupMember | None
    ) -> None:
        """Note the tasks that a member has, in place of those that it had."""
        active, copies = self.holders
        if before is not None:
            for each_id, indexes in before.active_tasks:
                owners = self.owners.get(each_id, {})
                # Compaction keeps only the latest record of each member. So during a load, a newer
                # record may already have given this task to another member.
                for index in [each for each in indexes if owners.get(each) == before.member_id]:
                    del owners[index], active[each_id][index]
            for each_id, indexes in before.copied_tasks:
                held = copies[before.process_id, each_id]
                held.change(indexes, ())
                if not held:
                    del copies[before.process_id, each_id]
        if after is not None:
            for each_id, indexes in after.copied_tasks:
                copies.setdefault((after.process_id, each_id), Uses()).change((), indexes)
            for each_id, indexes in after.active_tasks:
                self.owners.setdefault(each_id, {}).update(dict.fromkeys(indexes, after.member_id))
                active.setdefault(each_id, {}).update(dict.fromkeys(indexes, after.process_id))

    def stored_target(self, value: StreamsGroupTargetAssignmentMemberValue) -> TaskSet:
        return TaskSet(
            tasks_of(value.active_tasks),
            tasks_of(value.standby_tasks),
            tasks_of(value.warmup_tasks),
        )

    def replay_other(self, key: Any, value: StreamsGroupTopologyValue | None) -> None:
        """Apply the topology."""
        self.topology = None if value is None else topology_of(value)


def _state(number: int) -> StreamsMemberState:
    try:
        return StreamsMemberState(number)
    except ValueError:
        return StreamsMemberState.UNKNOWN


def _held(
    active: Sequence[StoredTasks],
    standby: Sequence[StoredTasks],
    warmup: Sequence[StoredTasks],
    default_epoch: int,
) -> HeldTasks:
    """The tasks in a record. If the record has no epochs for active tasks, because an older
    broker wrote it, every active task gets `default_epoch`."""
    epochs: dict[str, dict[int, int]] = {}
    for each in active:
        known = each.assignment_epochs
        if known is None or len(known) != len(each.partitions):
            known = [default_epoch] * len(each.partitions)
        of_topology = epochs.setdefault(each.subtopology_id, {})
        of_topology.update(zip(each.partitions, known, strict=True))
    return HeldTasks(TaskSet(tasks_of(active), tasks_of(standby), tasks_of(warmup)), epochs)
