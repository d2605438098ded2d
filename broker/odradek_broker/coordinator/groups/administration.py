"""What administrators ask of groups: what there is, who is in it, away with it (O-14).

Nothing here changes anything. What is decided is returned as answers and records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup
from odradek_broker.coordinator.groups.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.offsets import subscribed_topics
from odradek_broker.coordinator.groups.states import GroupState
from odradek_broker.coordinator.runtime import Record
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_groups import DescribedGroup, DescribedGroupMember
from odradek_protocol.stored.subscription import PROTOCOL_TYPE

#: The kind of group that DescribeGroups knows, as ListGroups calls it (KIP-848).
CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"

#: How much goes into one batch. The bytes are well below the smallest sensible max.message.bytes.
BATCH_RECORDS_MAX = 1_000
BATCH_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group as ListGroups shows it. `protocol_type` is empty where nobody ever joined."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC_TYPE


@dataclass(frozen=True, slots=True)
class DeletedOffsets:
    """The answer to an OffsetDelete: `error` speaks for all, `codes` for each place by itself."""

    error: ErrorCode
    codes: list[ErrorCode]


def summary(group: ClassicGroup | ConsumerGroup) -> GroupSummary:
    """What ListGroups says of the group."""
    if isinstance(group, ConsumerGroup):
        return GroupSummary(group.group_id, PROTOCOL_TYPE, group.state.value, CONSUMER_TYPE)
    return GroupSummary(group.group_id, group.protocol_type, group.state.value)


# --- Describe -------------------------------------------------------------------------------------


def described(group: ClassicGroup) -> DescribedGroup:
    """The group as it is now. As in Kafka only a stable one shows its protocol and what its members
    want; what they have is shown until they have something else."""
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol or "") if stable else "",
        members=[_described_member(group, member, stable) for member in group.members.values()],
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
    """A group that cannot be shown; one that does not exist is Dead (KIP-1043)."""
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


def deletion_error(group: ClassicGroup | ConsumerGroup | None) -> ErrorCode:
    """May the group be deleted? Only one that exists and has no members (O-14)."""
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def offset_deletion_error(group: ClassicGroup | ConsumerGroup | None) -> ErrorCode:
    """May offsets of the group be deleted at all? While it has members, only a consumer group's:
    of others nobody can tell which ones are in use (O-14)."""
    error = deletion_error(group)
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
    if error is ErrorCode.NON_EMPTY_GROUP and group is not None:
        return ErrorCode.NONE if group.protocol_type == PROTOCOL_TYPE else error
    return error


def is_subscribed(group: ClassicGroup | ConsumerGroup, topic: str) -> bool:
    """Is the topic in use? A classic group whose subscriptions cannot be read may use any."""
    if isinstance(group, ConsumerGroup):
        return topic in group.subscribed_names
    if group.protocol_type != PROTOCOL_TYPE:
        return False
    topics = subscribed_topics(group)
    return topics is None or topic in topics


def in_batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The records in their order, in pieces that fit into a batch each."""
    batch: list[Record] = []
    held_bytes = 0
    for key, value in records:
        size_bytes = len(key) + len(value or b"")
        if batch and (len(batch) == BATCH_RECORDS_MAX or held_bytes + size_bytes > BATCH_BYTES_MAX):
            yield batch
            batch, held_bytes = [], 0
        batch.append((key, value))
        held_bytes += size_bytes
    if batch:
        yield batch
