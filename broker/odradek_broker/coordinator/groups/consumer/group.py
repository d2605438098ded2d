"""A consumer group and its members, built from their records, with the states and the steps of a
reconciliation as tables (rules G-100 to G-104, G-120 to G-123).

All state is durable and only the `replay_*` functions change it, except the session and revocation
deadlines, which start anew after a restart, and `topics_version`, the version of the topics that
was resolved last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum, IntEnum

from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    each_partition,
    partitions_of,
)
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
)


class MemberState(IntEnum):
    """The progress of a member towards its target; the numbers are those in the records."""

    STABLE = 1
    """The member has the partitions that its epoch gave it."""

    UNREVOKED_PARTITIONS = 2
    """The member was told to revoke partitions and has not confirmed it."""

    UNRELEASED_PARTITIONS = 3
    """The member is at the target's epoch, but others still have some partitions of its target."""


class ConsumerGroupState(Enum):
    """The states of a consumer group, with the names that Kafka's tools show (G-104)."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Report(Enum):
    """The partitions that the member has to give back, in its heartbeat."""

    SILENT = "it does not say what it owns"
    OWNING = "it owns some of them"
    RELEASED = "it owns none of them"


class Step(Enum):
    """The reaction to a report."""

    STAY = "nothing is left to be done"
    WAIT = "wait for the revocation"
    RECONCILE = "compute what it may have now, from its own epoch on"
    ADVANCE = "the revocation is done: the next epoch, and compute what it may have now"


_M, _R, _S = MemberState, Report, Step

#: (state, report, true if the target is newer than the member's epoch) -> step.
STEPS: dict[tuple[MemberState, Report, bool], Step] = {
    **{(_M.STABLE, report, False): _S.STAY for report in Report},
    **{(_M.STABLE, report, True): _S.RECONCILE for report in Report},
    **{(_M.UNREVOKED_PARTITIONS, _R.SILENT, newer): _S.WAIT for newer in (False, True)},
    **{(_M.UNREVOKED_PARTITIONS, _R.OWNING, newer): _S.WAIT for newer in (False, True)},
    **{(_M.UNREVOKED_PARTITIONS, _R.RELEASED, newer): _S.ADVANCE for newer in (False, True)},
    **{
        (_M.UNRELEASED_PARTITIONS, report, newer): _S.RECONCILE
        for report in Report
        for newer in (False, True)
    },
}


#: The epoch of a group before any member subscribed to a topic.
FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The session timeout and the protocols of a member that uses the classic protocol (G-150).

    `protocols`: (name, metadata), in order of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for a protocol; empty if the member does not offer the protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member of a consumer group.

    `previous_epoch` is still accepted, since the answer with the present epoch may be lost (G-114).
    The member may own `assigned` and `pending` (partitions that it was told to give back); no other
    member owns any of them.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    pending: Partitions = field(default_factory=dict)

    def is_reconciled(self, target_epoch: int) -> bool:
        """True if the member has all of its target."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def at_epoch(self, epoch: int) -> ConsumerMember:
        """The member at another epoch, with the present epoch as the previous one."""
        return (
            self if epoch == self.epoch else replace(self, epoch=epoch, previous_epoch=self.epoch)
        )


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """The id and the number of partitions of a subscribed topic, as they were resolved last."""

    topic_id: bytes
    partitions: int


def _state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        raise DecodeError(f"{number} is no state of a member") from None


@dataclass(slots=True)
class ConsumerGroup:
    """A group of the consumer protocol.

    `epoch` grows with every change that requires a new assignment; `assignment_epoch` is the epoch
    that `targets` were computed for, 0 before the first; `patterns` maps a regular expression to
    the names that it matched.
    """

    group_id: str
    epoch: int = FIRST_EPOCH
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    patterns: dict[str, frozenset[str]] = field(default_factory=dict)
    # --- made from the above ---
    static_ids: dict[str, str] = field(default_factory=dict)
    owners: dict[tuple[bytes, int], str] = field(default_factory=dict)
    # --- soft ---
    #: The version of the cluster's topics from which `topics` was made; None: not since the start.
    topics_version: int | None = None

    # --- Questions ---

    @property
    def is_new(self) -> bool:
        """True if nothing was ever assigned in the group, so that it has no record yet."""
        return self.assignment_epoch == 0

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group, from its epochs and its members (G-104)."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled(epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def target(self, member_id: str) -> Partitions:
        """The target of a member; empty before the member was part of an assignment."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member with an instance id."""
        return self.members.get(self.static_ids.get(instance_id, ""))

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """The member that may own a partition, also if it has to give the partition back."""
        return self.owners.get((topic_id, partition))

    def subscribers_of(self, pattern: str) -> list[str]:
        """The members that subscribe by a regular expression."""
        return [each for each, member in self.members.items() if member.pattern == pattern]

    @property
    def subscribed_names(self) -> frozenset[str]:
        """Every topic that any member is subscribed to, whether it exists or not."""
        names: set[str] = set()
        for member in self.members.values():
            names |= self.names_of(member)
        return frozenset(names)

    def names_of(
        self, member: ConsumerMember, patterns: Mapping[str, frozenset[str]] | None = None
    ) -> frozenset[str]:
        """The subscription of one member, by name and by regular expression."""
        if not member.pattern:
            return member.topics
        resolved = self.patterns if patterns is None else patterns
        return member.topics | resolved.get(member.pattern, frozenset())

    # --- Replay ---

    def replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        """Apply a member's own record; None removes the member."""
        before = self.members.get(member_id)
        if before is not None and self.static_ids.get(before.instance_id or "") == member_id:
            del self.static_ids[before.instance_id or ""]
        if value is None:
            if before is not None:
                self._disown(before)
                del self.members[member_id]
            return
        stored = value.classic_member_metadata
        self.members[member_id] = replace(
            before or ConsumerMember(member_id=member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topics=frozenset(value.subscribed_topic_names),
            pattern=value.subscribed_topic_regex,
            assignor=value.server_assignor,
            classic=None
            if stored is None
            else ClassicMetadata(
                stored.session_timeout_ms,
                tuple(
                    (protocol.name, protocol.metadata) for protocol in stored.supported_protocols
                ),
            ),
        )
        if value.instance_id is not None:
            self.static_ids[value.instance_id] = member_id

    def replay_current(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """Apply a member's current assignment. None comes before the tombstone of its own record,
        or before the member returns."""
        before = self.members.get(member_id)
        if before is None:
            if value is None:
                return
            before = ConsumerMember(member_id=member_id)
        self._disown(before)
        if value is None:
            after = replace(
                before,
                epoch=0,
                previous_epoch=0,
                state=MemberState.STABLE,
                assigned=NO_PARTITIONS,
                pending=NO_PARTITIONS,
            )
        else:
            after = replace(
                before,
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=_state(value.state),
                assigned=partitions_of(
                    (part.topic_id, part.partitions) for part in value.assigned_partitions
                ),
                pending=partitions_of(
                    (part.topic_id, part.partitions) for part in value.partitions_pending_revocation
                ),
            )
        self.members[member_id] = after
        for partition in (*each_partition(after.assigned), *each_partition(after.pending)):
            self.owners[partition] = member_id

    def _disown(self, member: ConsumerMember) -> None:
        for partition in (*each_partition(member.assigned), *each_partition(member.pending)):
            # Compaction keeps the latest record of each member, so during a load a newer record of
            # another member that owns the partition may have been applied already.
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]

    def replay_target(
        self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        """Apply a member's target; None removes the target."""
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = partitions_of(
                (part.topic_id, part.partitions) for part in value.topic_partitions
            )

    def replay_topics(self, value: ConsumerGroupPartitionMetadataValue | None) -> None:
        """Apply the subscribed topics, as they were resolved last."""
        self.topics = {
            topic.topic_name: TopicMetadata(topic.topic_id, topic.num_partitions)
            for topic in (value.topics if value is not None else ())
        }

    def replay_pattern(
        self, pattern: str, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        """Apply the names that a regular expression matched; None: no member uses it any more."""
        if value is None:
            self.patterns.pop(pattern, None)
        else:
            self.patterns[pattern] = frozenset(value.topics)
