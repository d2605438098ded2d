"""Who may commit and fetch offsets of a consumer group, and which of them expire (O-20 to O-23)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.offsets import CommitCall, FetchingMember
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import NO_EXPIRY
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_commit import CONSUMER_GROUPS_SINCE
from odradek_protocol.stored.offset_commit import OffsetCommitValue

_E = ErrorCode


def check_commit(group: ConsumerGroup, call: CommitCall, transactional: bool) -> ErrorCode:
    """Why a caller may not commit; NONE if it may (O-20; with `transactional` O-22)."""
    if call.generation < 0 and not group.members:
        # Positions set from outside, while nobody reads.
        return _E.NONE
    anonymous = call.generation < 0 and not call.member_id and call.instance_id is None
    if transactional and anonymous:
        return _E.NONE
    member = group.members.get(call.member_id)
    if member is None:
        return _E.UNKNOWN_MEMBER_ID
    if not transactional and member.classic is None and call.api_version < CONSUMER_GROUPS_SINCE:
        return _E.UNSUPPORTED_VERSION
    error = _check_epoch(member, call.generation)
    if transactional and error is _E.STALE_MEMBER_EPOCH:
        # TxnOffsetCommit has no word for it.
        return _E.ILLEGAL_GENERATION
    return error


def check_fetch(group: ConsumerGroup, asker: FetchingMember) -> ErrorCode:
    """Why a caller may not fetch; NONE if it may. One that says it is a member must be one (O-21)."""
    if asker.member_id is None and asker.epoch < 0:
        return _E.NONE
    member = group.members.get(asker.member_id or "")
    return _E.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, asker.epoch)


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return _E.NONE
    return _E.STALE_MEMBER_EPOCH if member.classic is None else _E.ILLEGAL_GENERATION


def expired_partitions(
    group: ConsumerGroup,
    offsets: dict[TopicPartition, OffsetCommitValue],
    retention_ms: int,
    wall_ms: int,
) -> list[TopicPartition]:
    """The partitions that nobody subscribes to and nobody has committed for `retention_ms` (O-23)."""
    subscribed = group.subscribed_names
    found = []
    for partition, value in offsets.items():
        if partition[0] in subscribed:
            continue
        due_ms = value.commit_timestamp + retention_ms
        if value.expire_timestamp != NO_EXPIRY:
            due_ms = value.expire_timestamp
        if wall_ms >= due_ms:
            found.append(partition)
    return found
