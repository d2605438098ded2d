"""A streams group and its members, built from their records (rules J-01 to J-05).

All state is durable and only the `replay_*` functions change it, except the deadlines and what is
listed under "soft", which start anew after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import Enum, IntEnum
from typing import NamedTuple

from odradek_broker.coordinator.groups.partitions import each_partition
from odradek_broker.coordinator.groups.streams.tasks import (
    NO_TASK_SET,
    NOTHING_HELD,
    HeldTasks,
    Task,
    TaskSet,
    held_tasks,
    tasks_of,
)
from odradek_broker.coordinator.groups.streams.topology import (
    ConfiguredTopology,
    Topology,
    topology_of,
)
from odradek_protocol.constants import LEAVE_EPOCH
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.stored.streams_group import (
    StoredTasks,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)

#: The group epoch before any member joined, and the epoch of the assignment before the first.
FIRST_EPOCH = 1

#: The epoch of the assignment of a group that is being deleted.
_DELETED_ASSIGNMENT = -1


class StreamsGroupState(Enum):
    """The states of a streams group, with the names that Kafka's tools show (J-05)."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsMemberState(IntEnum):
    """The progress of a member towards its target, with the numbers of its records (J-30)."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


class Endpoint(NamedTuple):
    """The address at which a client answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """A member of a streams group: a thread of a client. Members of one client have the same
    `process_id`. `previous_epoch` is still accepted, since the answer with the present epoch may be
    lost (J-14)."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    state: StreamsMemberState = StreamsMemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: HeldTasks = NOTHING_HELD
    pending: HeldTasks = NOTHING_HELD

    def is_reconciled(self, epoch: int) -> bool:
        """True if the member has exactly the tasks of the target of this epoch."""
        return self.state is StreamsMemberState.STABLE and self.epoch == epoch


class Holders(NamedTuple):
    """The processes that have a task, or have yet to give it back: the one with the active task,
    and all with a standby or warm-up task."""

    active: Mapping[Task, str]
    copies: Mapping[Task, frozenset[str]]


@dataclass(slots=True)
class StreamsGroup:
    """A group of the streams protocol.

    `epoch` grows with every change that requires a new assignment; `assignment_epoch` is the epoch
    that `targets` were computed for, at the time `assignment_ms`, 0 if that is not known. The epoch
    belongs to the hash of the topics `hashed`, the topology epoch whose topics were all there,
    `validated_epoch`, and the settings of the assignor `assignor_settings`.
    """

    group_id: str
    epoch: int = FIRST_EPOCH
    hashed: int = 0
    validated_epoch: int = 0
    assignor_settings: Mapping[str, str] = field(default_factory=dict)
    assignment_epoch: int = FIRST_EPOCH
    assignment_ms: int = 0
    topology: Topology | None = None
    members: dict[str, StreamsMember] = field(default_factory=dict)
    targets: dict[str, TaskSet] = field(default_factory=dict)
    # --- soft ---
    #: The topology with what follows from the topics of the cluster; None: not since the start.
    configured: ConfiguredTopology | None = None
    #: The version of the cluster's topics that was hashed last; None: not since the start.
    topics_version: int | None = None
    #: The number of changes of the addresses and their tasks.
    endpoint_epoch: int = 0
    #: The member that has requested the end of the application.
    shutdown_by: str | None = None

    # --- Questions ---

    @property
    def state(self) -> StreamsGroupState:
        """The state of the group, from its epochs and its members (J-05)."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled(epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def target(self, member_id: str) -> TaskSet:
        """The target of a member; empty before the member was part of an assignment."""
        return self.targets.get(member_id, NO_TASK_SET)

    @property
    def holders(self) -> Holders:
        """The processes that have each task."""
        active: dict[Task, str] = {}
        copies: dict[Task, set[str]] = {}
        for member in self.members.values():
            for held in (member.assigned.tasks, member.pending.tasks):
                for task in each_partition(held.active):
                    active[task] = member.process_id
                for tasks in (held.standby, held.warmup):
                    for task in each_partition(tasks):
                        copies.setdefault(task, set()).add(member.process_id)
        return Holders(active, {task: frozenset(ids) for task, ids in copies.items()})

    @property
    def subscribed_names(self) -> frozenset[str]:
        """Every topic that a member may read."""
        if not self.members or self.topology is None:
            return frozenset()
        return self.topology.input_topics

    # --- Replay ---

    def replay_group(self, value: StreamsGroupMetadataValue | None) -> None:
        """Apply the group epoch, and what it belongs to."""
        if value is None:
            value = StreamsGroupMetadataValue(epoch=FIRST_EPOCH, validated_topology_epoch=0)
        self.epoch = value.epoch
        self.hashed = value.metadata_hash
        self.validated_epoch = value.validated_topology_epoch
        self.assignor_settings = {
            each.key: each.value for each in value.last_assignment_configs or ()
        }

    def replay_topology(self, value: StreamsGroupTopologyValue | None) -> None:
        """Apply the topology."""
        self.topology = None if value is None else topology_of(value)

    def replay_member(self, member_id: str, value: StreamsGroupMemberMetadataValue | None) -> None:
        """Apply a member's own record; None removes the member."""
        if value is None:
            self.members.pop(member_id, None)
            if not self.members:
                self.shutdown_by = None
            return
        endpoint = value.user_endpoint
        self.members[member_id] = replace(
            self.members.get(member_id) or StreamsMember(member_id=member_id),
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

    def replay_current(
        self, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """Apply the tasks of a member. None comes before the tombstone of its own record."""
        before = self.members.get(member_id)
        if before is None:
            if value is None:
                return
            before = StreamsMember(member_id=member_id)
        if value is None:
            after = replace(
                before,
                epoch=LEAVE_EPOCH,
                previous_epoch=LEAVE_EPOCH,
                assigned=NOTHING_HELD,
                pending=NOTHING_HELD,
            )
        else:
            after = replace(
                before,
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
        self.members[member_id] = after

    def replay_target_epoch(self, value: StreamsGroupTargetAssignmentMetadataValue | None) -> None:
        """Apply the epoch of the target assignment, and its time."""
        self.assignment_epoch = _DELETED_ASSIGNMENT if value is None else value.assignment_epoch
        self.assignment_ms = 0 if value is None else value.assignment_timestamp

    def replay_target(
        self, member_id: str, value: StreamsGroupTargetAssignmentMemberValue | None
    ) -> None:
        """Apply a member's target; None removes the target."""
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = TaskSet(
                tasks_of(value.active_tasks),
                tasks_of(value.standby_tasks),
                tasks_of(value.warmup_tasks),
            )


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
    """The tasks in a record. Records of older brokers have no epochs for active tasks: then
    `default_epoch` is that of each."""
    epochs: dict[Task, int] = {}
    for each in active:
        known = each.assignment_epochs
        if known is None or len(known) != len(each.partitions):
            known = [default_epoch] * len(each.partitions)
        for index, epoch in zip(each.partitions, known, strict=True):
            epochs[each.subtopology_id, index] = epoch
    return held_tasks(tasks_of(active), tasks_of(standby), tasks_of(warmup), epochs)
