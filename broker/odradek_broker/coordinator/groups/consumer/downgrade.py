"""From a consumer group to a classic one, while its members go on (rules G-155, G-156)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.classic_assignment import assignment_bytes
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup
from odradek_broker.coordinator.groups.consumer.settings import ConsumerGroupSettings, Topics
from odradek_broker.coordinator.runtime import Record
from odradek_protocol.stored import group_metadata
from odradek_protocol.stored.group_metadata import GroupMetadataValue, StoredMember
from odradek_protocol.stored.subscription import PROTOCOL_TYPE

#: Values of group.consumer.migration.policy that allow it.
DOWNGRADES = frozenset({"bidirectional", "downgrade"})


def may_downgrade(group: ConsumerGroup, gone: set[str], config: ConsumerGroupSettings) -> bool:
    """May the group without the members `gone` be a classic one (G-155)?"""
    left = [member for member in group.members.values() if member.member_id not in gone]
    return (
        bool(left)
        and config.group_consumer_migration_policy in DOWNGRADES
        and len(left) <= config.group_max_size
        and all(member.classic is not None for member in left)
    )


def downgraded(
    group: ConsumerGroup, gone: set[str], topics: Topics, wall_ms: int
) -> tuple[GroupMetadataValue, list[Record]]:
    """The classic group that is left without the members `gone`: its record, and all that is written.

    The generation is the group epoch: a member that has caught up is in it, and is told to join
    again; one that has not is not, and joins again as well.
    """
    left = [member for member in group.members.values() if member.member_id not in gone]
    sides = [member.classic for member in left if member.classic is not None]
    common = set.intersection(*({name for name, _ in side.protocols} for side in sides))
    protocol = next(name for name, _ in sides[0].protocols if name in common or not common)
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=left[0].member_id,
        current_state_timestamp=wall_ms,
        members=[
            StoredMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=side.session_timeout_ms,
                subscription=side.metadata(protocol),
                assignment=assignment_bytes(member.assigned, side.protocols[0][1], topics),
            )
            for member, side in zip(left, sides, strict=True)
        ],
    )
    return value, _records(group, value)


def emptied(group: ConsumerGroup, wall_ms: int) -> tuple[GroupMetadataValue, list[Record]]:
    """A consumer group without members becomes an empty classic one; numbers go on (G-156)."""
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=None,
        leader=None,
        current_state_timestamp=wall_ms,
        members=[],
    )
    return value, _records(group, value)


def _records(group: ConsumerGroup, value: GroupMetadataValue) -> list[Record]:
    """The end of the consumer group, and the record of the classic one."""
    key = group_metadata.encode_key(group.group_id)
    return [*make.group_tombstones(group), (key, group_metadata.encode_value(value))]
