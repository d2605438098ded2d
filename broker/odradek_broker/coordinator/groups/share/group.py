"""A share group and its members, built from their records (rules H-01 to H-05).

All state is durable and only the `replay_*` functions change it, except the session deadlines,
which start anew after a restart, `topics_version`, the version of the topics that was hashed last,
`states_changed_ms`, `changes` and `steady_at`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import NamedTuple

from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    partitions_of,
)
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.stored.share_group import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    StatePartitionsInfo,
)

#: The group epoch before any member subscribed, and the epoch of the assignment before the first.
FIRST_EPOCH = 1

#: The number of the only state that members of share groups have in their records.
MEMBER_STABLE = 1


class ShareGroupState(Enum):
    """The states of a share group, with the names that Kafka's tools show (H-05)."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """A member of a share group. `previous_epoch` is still accepted, since the answer with the
    present epoch may be lost (H-13)."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = field(default_factory=dict)

    def at_epoch(self, epoch: int, assigned: Partitions) -> ShareMember:
        """The member at another epoch, with the present epoch as the previous one."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, assigned=assigned)


class StateTopic(NamedTuple):
    """A topic with partitions that have a state in the group, or shall have one."""

    name: str
    partitions: frozenset[int]


StateTopics = Mapping[bytes, StateTopic]
"""By topic id."""


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The share partitions of a group, by their progress (H-20): their states are being made,
    exist, or are being deleted (then by topic, with its name)."""

    initializing: StateTopics = field(default_factory=dict)
    initialized: StateTopics = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)

    @property
    def topic_ids(self) -> set[bytes]:
        """The topics of all partitions."""
        return {*self.initializing, *self.initialized, *self.deleting}


@dataclass(slots=True)
class ShareGroup:
    """A group of the share protocol.

    `epoch` grows with every change that requires a new assignment; `assignment_epoch` is the epoch
    that `targets` were computed for, at the time `assignment_ms`, 0 if that is not known. `hashed`:
    the hash of the subscribed topics that the epoch belongs to. `states` None: no share partition
    ever had a state.
    """

    group_id: str
    epoch: int = FIRST_EPOCH
    hashed: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assignment_ms: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    states: StatePartitions | None = None
    # --- soft ---
    #: The version of the cluster's topics that `hashed` was made from; None: not since the start.
    topics_version: int | None = None
    #: The monotonic time of the last change of `states`, or of the load.
    states_changed_ms: int = 0
    #: The number of records that were applied.
    changes: int = 0
    #: `changes`, and the version of the cluster's topics, when nothing was left to be done for the
    #: group: while both are the same, heartbeats of members need not look.
    steady_at: tuple[int, int] | None = None

    @property
    def state(self) -> ShareGroupState:
        """The state of the group (H-05)."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def subscribed_names(self) -> frozenset[str]:
        """Every topic that any member is subscribed to, whether it exists or not."""
        return names_of(self.members.values())

    def target(self, member_id: str) -> Partitions:
        """The target of a member; empty before the member was part of an assignment."""
        return self.targets.get(member_id, NO_PARTITIONS)

    # --- Replay ---

    def replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        """Apply a member's own record; None removes the member."""
        if value is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = replace(
            self.members.get(member_id) or ShareMember(member_id=member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
        )

    def replay_current(
        self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """Apply a member's current assignment. None comes before the tombstone of its own
        record."""
        before = self.members.get(member_id)
        if before is None:
            if value is None:
                return
            before = ShareMember(member_id=member_id)
        if value is None:
            after = replace(before, epoch=-1, previous_epoch=-1, assigned=NO_PARTITIONS)
        else:
            after = replace(
                before,
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=partitions_of(
                    (part.topic_id, part.partitions) for part in value.assigned_partitions
                ),
            )
        self.members[member_id] = after

    def replay_group(self, value: ShareGroupMetadataValue | None) -> None:
        """Apply the group epoch and the hash of its topics."""
        self.epoch = FIRST_EPOCH if value is None else value.epoch
        self.hashed = 0 if value is None else value.metadata_hash

    def replay_target_epoch(self, value: ShareGroupTargetAssignmentMetadataValue | None) -> None:
        """Apply the epoch of the target assignment, and its time."""
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.assignment_ms = 0 if value is None else value.assignment_timestamp

    def replay_target(
        self, member_id: str, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        """Apply a member's target; None removes the target."""
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = partitions_of(
                (part.topic_id, part.partitions) for part in value.topic_partitions
            )

    def replay_states(self, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        """Apply the share partitions that have a state; None: there are none any more."""
        if value is None:
            self.states = None
        else:
            self.states = StatePartitions(
                _state_topics(value.initializing_topics),
                _state_topics(value.initialized_topics),
                {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
            )


def _state_topics(infos: list[StatePartitionsInfo]) -> StateTopics:
    return {
        info.topic_id: StateTopic(info.topic_name, frozenset(info.partitions)) for info in infos
    }


def names_of(members: Collection[ShareMember]) -> frozenset[str]:
    """Every topic that one of the members is subscribed to."""
    return frozenset[str]().union(*(member.topics for member in members))
