"""The administration of groups: list, describe, delete, delete offsets (O-14).

The functions change no state: they return answers and records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from odradek_broker.coordinator.groups.classic.group import ClassicGroup, GroupState, Member
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.consumer.reconciliation import choose_assignor
from odradek_broker.coordinator.groups.events import Observer, OffsetDeletion
from odradek_broker.coordinator.groups.modern.group import ModernGroup
from odradek_broker.coordinator.groups.offset_expiration import (
    remove_group,
    remove_offsets,
    subscribed_topics,
)
from odradek_broker.coordinator.groups.offsets import OffsetStore
from odradek_broker.coordinator.groups.partitions import Partitions, by_name, union
from odradek_broker.coordinator.groups.refusals import missing_group
from odradek_broker.coordinator.groups.settings import ConsumerGroupSettings, CoordinatorMetadata
from odradek_broker.coordinator.groups.share.group import ShareGroup
from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import in_pieces
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.common_structs import DescribedAssignment, TopicPartitionsInfo
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.schemas.consumer_group_describe import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from odradek_protocol.schemas.describe_groups import DescribedGroup, DescribedGroupMember
from odradek_protocol.stored.subscription import PROTOCOL_TYPE

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


async def consumer_described(
    group: ConsumerGroup, config: ConsumerGroupSettings, topics: CoordinatorMetadata
) -> DescribedConsumerGroup:
    """The group and its members, in the form of ConsumerGroupDescribe."""
    return DescribedConsumerGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=choose_assignor(group.members, config),
        members=[
            _consumer_member(group, member, topics)
            async for some in in_pieces(group.members.values())
            for member in some
        ],
    )


def _consumer_member(
    group: ConsumerGroup, member: ConsumerMember, topics: CoordinatorMetadata
) -> DescribedConsumerMember:
    return DescribedConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern or "",
        assignment=_assignment(union(member.assigned, member.pending), topics),
        target_assignment=_assignment(group.target(member.member_id), topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Partitions, topics: CoordinatorMetadata) -> DescribedAssignment:
    return DescribedAssignment(
        topic_partitions=[
            TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=indexes)
            for name, topic_id, indexes in by_name(partitions, topics)
        ]
    )


def consumer_not_described(
    group_id: str, error: ErrorCode, message: str | None = None
) -> DescribedConsumerGroup:
    """The answer for a group that cannot be described."""
    return DescribedConsumerGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        assignor_name="",
    )


#: The type that ListGroups shows for classic groups, the only groups that DescribeGroups describes
#: (KIP-848).
CLASSIC_TYPE = "classic"


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group as ListGroups shows it. `protocol_type` is empty if the group never had a member."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class DeletedOffsets:
    """The answer to an OffsetDelete: `error` for the whole request, or `codes` for each
    partition."""

    error: ErrorCode
    codes: list[ErrorCode]


AnyGroup = ClassicGroup | ModernGroup[Any, Any]

GroupsByType = Sequence[Mapping[str, AnyGroup]]
"""The groups of each type, by id."""


def summary(group: AnyGroup) -> GroupSummary:
    """The entry of the group in ListGroups."""
    group_type = group.protocol_type if isinstance(group, ModernGroup) else CLASSIC_TYPE
    return GroupSummary(group.group_id, group.protocol_type, group.state.value, group_type)


# --- Describe -------------------------------------------------------------------------------------


async def described(group: ClassicGroup) -> DescribedGroup:
    """The group in its current state. As in Kafka, only a stable group shows its protocol and the
    metadata of its members; the last assignments are shown until there are new ones."""
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            _described_member(group, member, stable)
            async for some in in_pieces(group.members.values())
            for member in some
        ],
    )


def _described_member(group: ClassicGroup, member: Member, stable: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol) if stable else b"",
        member_assignment=group.last_assignments.get(member.member_id, b""),
    )


def not_described(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """The answer for a group that cannot be described. A group that does not exist gets the state
    Dead (KIP-1043)."""
    missing = error is ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=GroupState.DEAD.value if missing else "",
        protocol_type="",
        protocol_data="",
    )


# --- Delete ---------------------------------------------------------------------------------------


def deletion_error(group: AnyGroup | None) -> ErrorCode:
    """The error that forbids the deletion of the group, because it does not exist or has members;
    NONE if it may be deleted (O-14)."""
    if isinstance(group, ModernGroup):
        return ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def offset_deletion_error(group: AnyGroup | None) -> ErrorCode:
    """The error that forbids every deletion of the group's offsets; NONE if deletions are possible.
    In a group with members, they are possible only if the members are consumers or streams clients,
    because the topics that other clients use are unknown (O-14)."""
    if isinstance(group, ShareGroup):
        return ErrorCode.GROUP_ID_NOT_FOUND
    error = deletion_error(group)
    if isinstance(group, ModernGroup):
        return ErrorCode.NONE
    if error is ErrorCode.NON_EMPTY_GROUP and group is not None:
        return ErrorCode.NONE if group.protocol_type == PROTOCOL_TYPE else error
    return error


async def topics_in_use(group: AnyGroup) -> frozenset[str] | None:
    """The topics that members use; None if a classic group has an unreadable subscription, which
    could name any topic."""
    if isinstance(group, ModernGroup):
        return group.subscribed_names
    if group.protocol_type != PROTOCOL_TYPE:
        return frozenset()
    return await subscribed_topics(group)


# --- The groups of a shard ------------------------------------------------------------------------


class GroupAdministration:
    """The requests of administrators about the groups and offsets of one shard."""

    def __init__(
        self,
        config: ConsumerGroupSettings,
        topics: CoordinatorMetadata,
        groups: Mapping[str, ClassicGroup],
        consumers: Mapping[str, ConsumerGroup],
        by_type: GroupsByType,
        offsets: OffsetStore,
        observer: Observer,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._by_type = by_type
        self._offsets = offsets
        self._observer = observer

    def groups(self) -> Iterable[AnyGroup]:
        return chain.from_iterable(groups.values() for groups in self._by_type)

    async def describe(self, group_id: str) -> DescribedGroup:
        """The description of a classic group; GROUP_ID_NOT_FOUND with a message if there is no
        classic group of this id."""
        group = self._groups.get(group_id)
        if group is None:
            message = self._missing(group_id, CLASSIC_TYPE)
            return not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        return await described(group)

    async def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        """The description of a consumer group; GROUP_ID_NOT_FOUND with a message if there is no
        consumer group of this id."""
        group = self._consumers.get(group_id)
        if group is None:
            message = self._missing(group_id, ConsumerGroup.protocol_type)
            return consumer_not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        return await consumer_described(group, self._config, self._topics)

    def _missing(self, group_id: str, group_type: str) -> str:
        return missing_group(group_id, group_type, exists=self._find(group_id) is not None)

    async def deletion(self, group_id: str, origin: str | None) -> tuple[ErrorCode, list[Record]]:
        """The error that forbids the deletion of a group, or the tombstones of all its records. The
        group's own tombstone comes last, so that the deletion can be requested again after a crash
        has interrupted it."""
        group = self._find(group_id)
        error = deletion_error(group)
        if group is None or error is not ErrorCode.NONE:
            return error, []
        partitions = self._offsets.partitions_of_group(group_id)
        records = await remove_offsets(
            ((group_id, partition) for partition in partitions),
            OffsetDeletion.GROUP_DELETED,
            self._observer,
            origin,
        )
        return error, records + await remove_group(group)

    async def offset_deletion(
        self, group_id: str, partitions: list[TopicPartition], origin: str | None
    ) -> tuple[DeletedOffsets, list[Record]]:
        """The error code of each partition, and the tombstones of the deleted offsets. A partition
        without a committed offset is no error. An offset that is pending in an open transaction is
        also deleted."""
        group = self._find(group_id)
        error = offset_deletion_error(group)
        if group is None or error is not ErrorCode.NONE:
            return DeletedOffsets(error, []), []
        used = await topics_in_use(group)
        codes = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if used is None or name in used else ErrorCode.NONE
            for name, _ in partitions
        ]
        removed = dict.fromkeys(
            [
                (group_id, partition)
                async for some in in_pieces(zip(partitions, codes, strict=True))
                for partition, code in some
                if code is ErrorCode.NONE and self._offsets.holds(group_id, partition)
            ]
        )
        records = await remove_offsets(removed, OffsetDeletion.REQUESTED, self._observer, origin)
        return DeletedOffsets(error, codes), records

    def _find(self, group_id: str) -> AnyGroup | None:
        """The group with this id; during a conversion, the group of the newer protocol."""
        found = (each[group_id] for each in reversed(self._by_type) if group_id in each)
        return next(found, None)
