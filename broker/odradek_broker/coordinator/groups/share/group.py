"""A share group and its members, built from their records (rules H-01 to H-05)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import IntEnum
from typing import Any

from odradek_broker.coordinator.groups.modern.group import (
    ModernGroup,
    ModernGroupState,
    ModernMember,
)
from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    intersection,
    partitions_from,
    partitions_of,
)
from odradek_broker.coordinator.groups.uses import Uses
from odradek_protocol.common_structs import TopicPartitionsInfo
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.stored.share_group import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareRecordType,
)

#: The code of a member's state in the records of share groups, which have no other state.
MEMBER_STABLE = 1


#: The type of share groups in ListGroups, and their protocol type.
SHARE_TYPE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember(ModernMember):
    """A member of a share group."""

    topics: frozenset[str] = frozenset()
    previous_epoch: int = -1
    assigned: Partitions = field(default_factory=dict)

    @property
    def epoch_detail(self) -> str:
        return f", and it does not match the previous member epoch ({self.previous_epoch})"

    def at_epoch(self, epoch: int, assigned: Partitions) -> ShareMember:
        """The member with another epoch; its present epoch becomes the previous epoch."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, assigned=assigned)

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue | None) -> ShareMember:
        if value is None:
            return replace(self, epoch=-1, previous_epoch=-1, assigned=NO_PARTITIONS)
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=partitions_from(value.assigned_partitions),
        )


class StateTopic(NamedTuple):
    """A topic with the partitions whose states in the group exist or are being initialized."""

    name: str
    partitions: frozenset[int]


StateTopics = Mapping[bytes, StateTopic]
"""Topic id -> topic."""


def partitions_in(topics: StateTopics) -> Partitions:
    """The partitions of these topics."""
    return partitions_of((topic_id, topic.partitions) for topic_id, topic in topics.items())


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The share partitions of a group, by the progress of their states (H-20). `initializing`: the
    states are being made. `initialized`: the states exist. `deleting`: topic id -> name of the
    topics whose states are being deleted."""

    initializing: StateTopics = field(default_factory=dict)
    initialized: StateTopics = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)

    @property
    def topic_ids(self) -> set[bytes]:
        return {*self.initializing, *self.initialized, *self.deleting}


@dataclass(slots=True)
class ShareGroup(ModernGroup[ShareMember, Partitions]):
    """A group of the share protocol.

    `hashed`: the hash of the subscribed topics for which `epoch` was computed. `states` None: no
    share partition ever had a state.
    """

    protocol_type = SHARE_TYPE
    member_class = ShareMember
    record_types = ShareRecordType
    other_type = ShareRecordType.STATE_PARTITIONS
    no_target = NO_PARTITIONS

    hashed: int = 0
    states: StatePartitions | None = None
    # --- derived ---
    #: The members that subscribe to each topic.
    subscribers: Uses[str] = field(default_factory=Uses)
    #: By topic id: the members that have each partition as their target.
    assigned: dict[bytes, Uses[int]] = field(default_factory=dict)
    # --- soft ---
    #: The monotonic time of the last change of `states`, or of the load.
    states_changed_ms: int = 0
    #: The number of records of the group that were applied.
    changes: int = 0
    #: Topic id -> the value of `changes` when the deletion of the topic's states was recorded. The
    #: answers to older requests about the topic are ignored.
    deleted_at: dict[bytes, int] = field(default_factory=dict)
    #: The partitions of `states.initializing` for which the last request returned an error. Their
    #: states may exist nevertheless.
    unmade: Partitions = field(default_factory=dict)
    #: The values of `changes` and of the version of the cluster's topics when the group had no work
    #: left. While both values are unchanged, heartbeats need not search for work.
    steady_at: tuple[int, int] | None = None

    @property
    def state(self) -> ModernGroupState:
        """The state of the group (H-05). There is no state for a rebalance: partitions are shared,
        so no member waits until another member has revoked a partition."""
        return ModernGroupState.STABLE if self.members else ModernGroupState.EMPTY

    @property
    def subscribed_names(self) -> frozenset[str]:
        """Every topic that any member is subscribed to, whether it exists or not."""
        return frozenset(self.subscribers)

    # --- Replay ---

    def replay(self, kind: IntEnum, key: Any, value: Any) -> None:
        self.changes += 1
        ModernGroup.replay(self, kind, key, value)

    def replay_group(self, value: ShareGroupMetadataValue | None) -> None:
        ModernGroup.replay_group(self, value)
        self.hashed = 0 if value is None else value.metadata_hash

    def replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        before = self.members.get(member_id)
        ModernGroup.replay_member(self, member_id, value)
        after = self.members.get(member_id)
        self.subscribers.change(*(each.topics if each else () for each in (before, after)))

    def replay_target(
        self, member_id: str, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        before = self.target(member_id)
        ModernGroup.replay_target(self, member_id, value)
        after = self.target(member_id)
        for topic_id in before.keys() | after.keys():
            held = self.assigned.setdefault(topic_id, Uses())
            held.change(before.get(topic_id, ()), after.get(topic_id, ()))
            if not held:
                del self.assigned[topic_id]

    def stored_target(self, value: ShareGroupTargetAssignmentMemberValue) -> Partitions:
        return partitions_from(value.topic_partitions)

    def replay_other(self, key: Any, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        """Apply the record of the share partitions that have a state; None is a tombstone."""
        if value is None:
            self.states, self.deleted_at, self.unmade = None, {}, NO_PARTITIONS
            return
        before = self.states or StatePartitions()
        self.states = StatePartitions(
            _state_topics(value.initializing_topics),
            _state_topics(value.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )
        begun = self.states.deleting.keys() - before.deleting.keys()
        marks = {**self.deleted_at, **dict.fromkeys(begun, self.changes)}
        known = self.states.topic_ids
        self.deleted_at = {each: mark for each, mark in marks.items() if each in known}
        self.unmade = intersection(self.unmade, partitions_in(self.states.initializing))

    def is_without_states(self, noted_at: int) -> bool:
        """True if no state is left, except states whose deletion was recorded when `changes` was at
        most `noted_at`."""
        noted = self.states or StatePartitions()
        return (
            not noted.initializing
            and not noted.initialized
            and all(self.deleted_at[each] <= noted_at for each in noted.deleting)
        )


def _state_topics(infos: list[TopicPartitionsInfo]) -> StateTopics:
    return {
        info.topic_id: StateTopic(info.topic_name, frozenset(info.partitions)) for info in infos
    }
