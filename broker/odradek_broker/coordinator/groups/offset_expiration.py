"""The removal of committed offsets that have expired, or whose removal was requested (rules O-11 to
O-15, O-23). The functions change no state: they return records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek_broker.coordinator.groups.classic.group import ClassicGroup, GroupState
from odradek_broker.coordinator.groups.events import Observer, OffsetDeletion, OffsetsDeleted
from odradek_broker.coordinator.groups.modern.group import ModernGroup
from odradek_broker.coordinator.groups.offsets import OffsetStore
from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import in_pieces
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import NO_EXPIRY
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored import group_metadata, offset_commit
from odradek_protocol.stored.offset_commit import OffsetCommitValue
from odradek_protocol.stored.subscription import PROTOCOL_TYPE, decode_topics

#: The limits of groups that are looked at, and of tombstones, in one turn of the loop. The check
#: for expired offsets goes on in the next turn, or after a pause if it has found so many.
EXPIRY_SLICE_GROUPS = 8
TOMBSTONES_MAX = 50
EXPIRY_PAUSE_MS = 50


# --- Removal --------------------------------------------------------------------------------------


async def remove_offsets(
    offsets: Iterable[tuple[str, TopicPartition]],
    reason: OffsetDeletion,
    observer: Observer,
    origin: str | None = None,
) -> list[Record]:
    """The tombstones of committed offsets, given by (group, partition); passes the reason of the
    removal, and the client that asked for it, to the observer."""
    by_group: dict[str, list[TopicPartition]] = {}
    records: list[Record] = []
    async for some in in_pieces(offsets):
        for group_id, partition in some:
            by_group.setdefault(group_id, []).append(partition)
            records.append((offset_commit.encode_key(group_id, *partition), None))
    for group_id, partitions in by_group.items():
        observer(OffsetsDeleted(group_id, partitions, reason, origin))
    return records


async def remove_group(group: ClassicGroup | ModernGroup[Any, Any]) -> list[Record]:
    """The tombstones of a group's own records, without its offsets."""
    if isinstance(group, ModernGroup):
        return await group.tombstones()
    return [(group_metadata.encode_key(group.group_id), None)]


# --- Expiry (O-11 to O-13) ------------------------------------------------------------------------


async def expire(
    group: ClassicGroup | ModernGroup[Any, Any],
    offsets: OffsetStore,
    retention_ms: int,
    wall_ms: int,
    observer: Observer,
) -> list[Record]:
    """The tombstones of the expired offsets of a group, at most TOMBSTONES_MAX. If no offset is
    left and the group has no members, the records also remove the group."""
    group_id = group.group_id
    committed = await offsets.all_of_group(group_id)
    due = await expired_partitions(group, committed, retention_ms, wall_ms)
    expired = [
        partition
        async for some in in_pieces(due)
        for partition in some
        if not offsets.is_pending(group_id, partition)
    ]
    del expired[TOMBSTONES_MAX:]
    records = await remove_offsets(
        ((group_id, partition) for partition in expired), OffsetDeletion.EXPIRED, observer
    )
    if (
        len(expired) == len(committed)
        and not offsets.in_transaction(group_id)
        and _is_unused(group)
    ):
        records += await remove_group(group)
    return records


def _is_unused(group: ClassicGroup | ModernGroup[Any, Any]) -> bool:
    """True if the group has records of its own, but no members."""
    if isinstance(group, ModernGroup):
        return not group.members
    # A pending member id may be used for a join at any moment.
    return group.state is GroupState.EMPTY and group.stored is not None and not group.pending


async def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The topics to which the members of a consumer group subscribed for the current generation;
    None if they are not known (O-12)."""
    if group.protocol_type != PROTOCOL_TYPE or group.stored is None:
        return None
    topics: set[str] = set()
    async for some in in_pieces(group.stored.members):
        try:
            for member in some:
                topics.update(decode_topics(member.subscription))
        except DecodeError:
            return None
    return frozenset(topics)


async def expired_partitions(
    group: ClassicGroup | ModernGroup[Any, Any],
    offsets: dict[TopicPartition, OffsetCommitValue],
    retention_ms: int,
    wall_ms: int,
) -> list[TopicPartition]:
    """The expired offsets of a group (O-11, O-13, O-23)."""
    if isinstance(group, ModernGroup):
        since_ms, kept = None, group.subscribed_names
    elif group.is_simple:
        since_ms, kept = None, frozenset[str]()
    elif group.state is GroupState.EMPTY:
        since_ms, kept = group.state_since_ms, frozenset[str]()
    elif group.state is GroupState.STABLE:
        topics = await subscribed_topics(group)
        if topics is None:
            return []
        since_ms, kept = None, topics
    else:
        return []
    found = []
    async for some in in_pieces(offsets.items()):
        for partition, value in some:
            if partition[0] in kept:
                continue
            if value.expire_timestamp != NO_EXPIRY:
                due = wall_ms >= value.expire_timestamp
            else:
                start_ms = value.commit_timestamp if since_ms is None else since_ms
                due = wall_ms - start_ms >= retention_ms
            if due:
                found.append(partition)
    return found
