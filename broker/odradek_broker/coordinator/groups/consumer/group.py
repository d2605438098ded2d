"""A consumer group and its members, built from their records, with the states and the steps of a
reconciliation as tables (rules G-100 to G-104, G-120 to G-123)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum, IntEnum
from typing import Any

from odradek_broker.coordinator.groups.modern.group import ModernGroup, ModernMember
from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    each_partition,
    is_subset,
    partitions_from,
    union,
)
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.uses import Uses
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    GroupRecordType,
    StoredTopicPartitions,
)
from odradek_protocol.stored.modern_groups import encode_key
from odradek_protocol.stored.subscription import PROTOCOL_TYPE


class MemberState(IntEnum):
    """The progress of a member towards its target; the numbers are those in the records."""

    STABLE = 1
    """The member has the partitions that its epoch gave it."""

    UNREVOKED_PARTITIONS = 2
    """The member was asked to revoke partitions and has not confirmed the revocation."""

    UNRELEASED_PARTITIONS = 3
    """The member is at the target's epoch, but others still have some partitions of its target."""


class RevocationReport(Enum):
    """The report of a heartbeat about the partitions that the member has to give back."""

    SILENT = "it does not say what it owns"
    OWNING = "it owns some of them"
    RELEASED = "it owns none of them"


class ReportReaction(Enum):
    """The reaction to a report."""

    STAY = "nothing is left to be done"
    WAIT = "wait for the revocation"
    RECONCILE = "compute what it may have now, from its own epoch on"


_M, _R, _S = MemberState, RevocationReport, ReportReaction

#: (state, report, true if the target is newer than the member's epoch) -> step.
STEPS: dict[tuple[MemberState, RevocationReport, bool], ReportReaction] = {
    **{(_M.STABLE, report, False): _S.STAY for report in RevocationReport},
    **{(_M.STABLE, report, True): _S.RECONCILE for report in RevocationReport},
    **{(_M.UNREVOKED_PARTITIONS, _R.SILENT, newer): _S.WAIT for newer in (False, True)},
    **{(_M.UNREVOKED_PARTITIONS, _R.OWNING, newer): _S.WAIT for newer in (False, True)},
    **{(_M.UNREVOKED_PARTITIONS, _R.RELEASED, newer): _S.RECONCILE for newer in (False, True)},
    **{
        (_M.UNRELEASED_PARTITIONS, report, newer): _S.RECONCILE
        for report in RevocationReport
        for newer in (False, True)
    },
}


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
class ConsumerMember(ModernMember):
    """A member of a consumer group. No other member owns a partition of `assigned`, or of `pending`
    (the partitions that this member has to revoke). `epochs`: the epoch in which the member got
    each of these partitions."""

    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    pending: Partitions = field(default_factory=dict)
    epochs: Mapping[tuple[bytes, int], int] = field(default_factory=dict)

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    @property
    def revocation_timeout_ms(self) -> int | None:
        """The time for giving partitions back; None if there is nothing to give back, and for a
        member that uses the classic protocol, which has deadlines for rejoining and syncing
        instead."""
        revokes = self.state is MemberState.UNREVOKED_PARTITIONS and self.epoch >= 0
        return self.rebalance_timeout_ms if revokes and self.classic is None else None

    @property
    def own_session_timeout_ms(self) -> int | None:
        return None if self.classic is None else self.classic.session_timeout_ms

    def may_own(self, owned: Partitions | None) -> bool:
        return owned is not None and is_subset(owned, union(self.assigned, self.pending))

    @property
    def stale_epoch_error(self) -> ErrorCode:
        """The error for an OffsetCommit or OffsetFetch whose epoch is not the member's. The epoch
        of a member that speaks the classic protocol is a generation."""
        classic = self.classic is not None
        return ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH

    def at_epoch(self, epoch: int) -> ConsumerMember:
        """The member with an epoch; its present epoch becomes the previous epoch, even if it is the
        same, as in Kafka."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch)

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        stored = value.classic_member_metadata
        return replace(
            self,
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

    def with_assignment(
        self, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> ConsumerMember:
        if value is None:
            return replace(
                self,
                epoch=0,
                previous_epoch=0,
                state=MemberState.STABLE,
                assigned=NO_PARTITIONS,
                pending=NO_PARTITIONS,
                epochs={},
            )
        assigned, pending = value.assigned_partitions, value.partitions_pending_revocation
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_state(value.state),
            assigned=partitions_from(assigned),
            pending=partitions_from(pending),
            epochs=_epochs((*assigned, *pending), max(value.member_epoch, 0)),
        )


def _epochs(
    parts: Iterable[StoredTopicPartitions], default_epoch: int
) -> dict[tuple[bytes, int], int]:
    """The epochs in a record; a partition without one has `default_epoch`."""
    epochs = {}
    for part in parts:
        known = part.assignment_epochs
        if known is None or len(known) != len(part.partitions):
            known = [default_epoch] * len(part.partitions)
        for index, epoch in zip(part.partitions, known, strict=True):
            epochs[part.topic_id, index] = epoch
    return epochs


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """The id that a subscribed topic had, and the number of its partitions, when the subscriptions
    were last resolved."""

    topic_id: bytes
    partitions: int


def _state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        raise DecodeError(f"{number} is no state of a member") from None


@dataclass(slots=True)
class ConsumerGroup(ModernGroup[ConsumerMember, Partitions]):
    """A group of the consumer protocol.

    `assignment_epoch` is 0 before the first assignment; `patterns` maps a regular expression to the
    names that it matched.
    """

    protocol_type = PROTOCOL_TYPE
    member_class = ConsumerMember
    record_types = GroupRecordType
    other_type = GroupRecordType.TOPICS
    no_target = NO_PARTITIONS
    unassigned_epoch = 0

    assignment_epoch: int = 0
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    patterns: dict[str, frozenset[str]] = field(default_factory=dict)
    # --- derived from the fields above ---
    #: The members that subscribe to each topic by its name, and to each regular expression.
    subscribers: Uses[str] = field(default_factory=Uses)
    pattern_uses: Uses[str] = field(default_factory=Uses)
    static_ids: dict[str, str] = field(default_factory=dict)
    owners: dict[tuple[bytes, int], str] = field(default_factory=dict)

    # --- Questions ---

    @property
    def is_new(self) -> bool:
        """True if the group has no record yet."""
        return self.assignment_epoch == 0

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member with this instance id; None if there is no such member."""
        return self.members.get(self.static_ids.get(instance_id, ""))

    def find_member(self, member_id: str, instance_id: str | None) -> ConsumerMember | None:
        """The member with an id; None if it is unknown. Raises Refusal if another member has its
        instance id.
        """
        if instance_id is None:
            return self.members.get(member_id)
        member = self.static_member(instance_id)
        if member is not None and member.member_id != member_id:
            raise self.fenced_instance(member_id, instance_id)
        return member

    def fenced_instance(self, member_id: str, instance_id: str) -> Refusal:
        """The refusal of a member whose instance id another member has taken (G-133)."""
        return Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced in group"
            f" {self.group_id}: another member has replaced it.",
        )

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """The id of the member to which a partition is assigned, or that has to revoke the
        partition and perhaps owns it still; None if there is no such member."""
        return self.owners.get((topic_id, partition))

    def patterns_after(self, before: ConsumerMember | None, after: ConsumerMember) -> list[str]:
        """The regular expressions of the members, if a member changes from `before` (None: it is
        new) to `after`."""
        return sorted(self.pattern_uses.keys_after(_patterns(before), _patterns(after)))

    @property
    def subscribed_names(self) -> frozenset[str]:
        """Every topic to which any member is subscribed, existing or not."""
        matched = (self.patterns.get(pattern, frozenset()) for pattern in self.pattern_uses)
        return frozenset(self.subscribers).union(*matched)

    def names_of(
        self, member: ConsumerMember, patterns: Mapping[str, frozenset[str]] | None = None
    ) -> frozenset[str]:
        """The subscription of one member, by name and by regular expression."""
        if not member.pattern:
            return member.topics
        resolved = self.patterns if patterns is None else patterns
        return member.topics | resolved.get(member.pattern, frozenset())

    def own_keys(self) -> list[bytes]:
        return [
            *(pattern_key(self.group_id, pattern) for pattern in self.patterns),
            *ModernGroup.own_keys(self),
        ]

    # --- Replay ---

    def replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        before = self.members.get(member_id)
        if before is not None and self.static_ids.get(before.instance_id or "") == member_id:
            del self.static_ids[before.instance_id or ""]
        if value is None and before is not None:
            self._disown(before)
        ModernGroup.replay_member(self, member_id, value)
        after = self.members.get(member_id)
        self.subscribers.change(*(each.topics if each else () for each in (before, after)))
        self.pattern_uses.change(*(_patterns(each) for each in (before, after)))
        if value is not None and value.instance_id is not None:
            self.static_ids[value.instance_id] = member_id

    def replay_current(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._disown(before)
        ModernGroup.replay_current(self, member_id, value)
        after = self.members.get(member_id)
        if after is not None:
            for partition in (*each_partition(after.assigned), *each_partition(after.pending)):
                self.owners[partition] = member_id

    def _disown(self, member: ConsumerMember) -> None:
        for partition in (*each_partition(member.assigned), *each_partition(member.pending)):
            # Compaction keeps only the latest record of each member. So during a load, a newer
            # record may already have given this partition to another member.
            if partition in self.owners and self.owners[partition] == member.member_id:
                del self.owners[partition]

    def stored_target(self, value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
        return partitions_from(value.topic_partitions)

    def replay_other(self, key: Any, value: Any) -> None:
        """Apply the record of a regular expression, with the names that it matched, or the record
        of the subscribed topics."""
        if isinstance(key, ConsumerGroupRegularExpressionKey):
            self._replay_pattern(key.regular_expression, value)
        else:
            self._replay_topics(value)

    def _replay_topics(self, value: ConsumerGroupPartitionMetadataValue | None) -> None:
        self.topics = {
            topic.topic_name: TopicMetadata(topic.topic_id, topic.num_partitions)
            for topic in (value.topics if value is not None else ())
        }

    def _replay_pattern(
        self, pattern: str, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        """Apply the record of the names that a regular expression matched. The record is a
        tombstone if no member uses the expression any more."""
        if value is None:
            self.patterns.pop(pattern, None)
        else:
            self.patterns[pattern] = frozenset(value.topics)


def _patterns(member: ConsumerMember | None) -> list[str]:
    return [member.pattern] if member is not None and member.pattern else []


def pattern_key(group_id: str, pattern: str) -> bytes:
    """The key of the record of a regular expression."""
    kind = GroupRecordType.REGULAR_EXPRESSION
    return encode_key(kind, group_id=group_id, regular_expression=pattern)
