"""No partition of a group is assigned to two members in the coordinator's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.coordinator.groups.partitions import each_partition
from odradek_broker.coordinator.runtime import RuntimeState
from odradek_protocol.stored.assignment import decode_assignment

if TYPE_CHECKING:
    from odradek_broker.coordinator.groups.classic.group import ClassicGroup
    from odradek_broker.coordinator.groups.shard import GroupShard
    from odradek_broker.node import Node


def check_assignment(group: str, held: Mapping[str, Iterable[object]]) -> Iterator[str]:
    """Yield the partitions that are assigned to two members.

    `held`: the partitions of each member, by member id.
    """
    owners: dict[object, str] = {}
    for member_id, partitions in held.items():
        for partition in partitions:
            owner = owners.setdefault(partition, member_id)
            if owner != member_id:
                yield f"group {group}: {partition} is given to {owner} and {member_id}"


def check_assignments(node: Node) -> Iterator[str]:
    """Check every group of a running broker."""
    for shard in shards_of(node):
        for group_id, classic in shard.groups.items():
            if classic.state is GroupState.STABLE:
                yield from check_assignment(group_id, _held_in_classic(classic))
        for group_id, consumer in shard.consumers.items():
            held = {
                member_id: [*each_partition(member.assigned), *each_partition(member.pending)]
                for member_id, member in consumer.members.items()
            }
            yield from check_assignment(group_id, held)


def shards_of(node: Node) -> Iterator[GroupShard]:
    """The coordinator's shards that are loaded."""
    for runtime in node.groups.shards:
        if runtime.state is RuntimeState.ACTIVE:
            yield runtime.core


def _held_in_classic(group: ClassicGroup) -> dict[str, list[object]]:
    held: dict[str, list[object]] = {}
    for member_id in group.members:
        assignment = decode_assignment(group.assignment(member_id))
        held[member_id] = [
            (given.topic, number)
            for given in assignment.assigned_partitions
            for number in given.partitions
        ]
    return held
