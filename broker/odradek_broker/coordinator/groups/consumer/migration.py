"""From a classic group to a consumer group and back, while its members go on (rules G-150 to G-156).

Pure: what a group becomes, as records. Who owned a partition before owns it afterwards, and what a
member may still hold without having it assigned is to be given back first.
"""

from __future__ import annotations

from dataclasses import replace

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.advance import see_topics
from odradek_broker.coordinator.groups.consumer.group import (
    PROTOCOL_TYPE,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
)
from odradek_broker.coordinator.groups.consumer.partitions import (
    NOTHING,
    Partitions,
    joined,
    partitions_of,
    without,
)
from odradek_broker.coordinator.groups.consumer.settings import ConsumerGroupSettings, Topics
from odradek_broker.coordinator.groups.consumer.states import MemberState
from odradek_broker.coordinator.groups.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.states import GroupState
from odradek_broker.coordinator.runtime import Record
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored import group_metadata
from odradek_protocol.stored.assignment import (
    AssignedPartitions,
    ConsumerAssignment,
    decode_assignment,
    encode_assignment,
)
from odradek_protocol.stored.consumer_group import RecordType, decode_key, decode_value
from odradek_protocol.stored.group_metadata import GroupMetadataValue, StoredMember
from odradek_protocol.stored.subscription import (
    ConsumerSubscription,
    decode_subscription,
    read_version,
)

UPGRADES = frozenset({"bidirectional", "upgrade"})
DOWNGRADES = frozenset({"bidirectional", "downgrade"})


# --- Partitions by name ---------------------------------------------------------------------------


def from_names(parts: list[tuple[str, list[int]]], topics: Topics) -> Partitions:
    """By topic id; topics that do not exist are left out."""
    return partitions_of(
        (topics.topic_id(name), indexes) for name, indexes in parts if topics.partition_count(name)
    )


def owned_by_subscription(subscription: ConsumerSubscription, topics: Topics) -> Partitions:
    """What a classic member says that it holds. Eager ones have given up everything when they
    join, and say nothing."""
    parts = [(held.topic, held.partitions) for held in subscription.owned_partitions]
    return from_names(parts, topics)


def assignment_bytes(partitions: Partitions, metadata: bytes, topics: Topics) -> bytes:
    """What a classic member is given in SyncGroup, in the version of its own `metadata`."""
    try:
        version = read_version(metadata)
    except DecodeError:
        # It is another of its protocols that it was understood by.
        version = 0
    named = sorted(
        (name, sorted(indexes))
        for topic_id, indexes in partitions.items()
        if (name := topics.topic_name(topic_id)) is not None
    )
    return encode_assignment(
        ConsumerAssignment(
            assigned_partitions=[
                AssignedPartitions(topic=name, partitions=indexes) for name, indexes in named
            ]
        ),
        version,
    )


# --- Upgrade --------------------------------------------------------------------------------------


def upgraded(
    classic: ClassicGroup, config: ConsumerGroupSettings, topics: Topics
) -> tuple[ConsumerGroup, list[Record]] | None:
    """The consumer group that a classic one with members becomes, and its records (G-150, G-151);
    the end of the classic group is not among them.

    None if it may not become one: the policy, another protocol type, too many members, or members
    whose words cannot be read. Members that do not know their ids yet are left out.
    """
    members = [member for member in classic.members.values() if not member.is_new]
    if (
        config.group_consumer_migration_policy not in UPGRADES
        or classic.protocol_type != PROTOCOL_TYPE
        or classic.state is GroupState.DEAD
        or len(members) > config.group_consumer_max_size
    ):
        return None
    group = ConsumerGroup(classic.group_id)
    made = []
    for member in members:
        try:
            after = _member(classic, member, topics)
        except DecodeError:
            return None
        made.append(after)
    made = _without_double_claims(made)
    epoch = classic.generation
    records: list[Record] = []
    for after in made:
        records += [
            make.member_record(group.group_id, after),
            make.target_record(group.group_id, after.member_id, after.assigned),
            make.current_record(group.group_id, after),
        ]
    by_id = {after.member_id: after for after in made}
    records.append(make.topics_record(group.group_id, see_topics(group, by_id, {}, topics)))
    records.append(make.group_record(group.group_id, epoch))
    records.append(make.target_epoch_record(group.group_id, epoch))
    for key, value in records:
        assert value is not None
        kind = RecordType(int.from_bytes(key[:2], "big"))
        make.replay(group, kind, decode_key(kind, key), decode_value(kind, value))
    return group, records


def _without_double_claims(members: list[ConsumerMember]) -> list[ConsumerMember]:
    """Nobody gets what another one has: an assignment counts before a claim, and then the first."""
    taken: Partitions = NOTHING
    assigned = []
    for member in members:
        assigned.append(without(member.assigned, taken))
        taken = joined(taken, assigned[-1])
    made = []
    for member, held in zip(members, assigned, strict=True):
        pending = without(member.pending, taken)
        taken = joined(taken, pending)
        state = MemberState.UNREVOKED_PARTITIONS if pending else MemberState.STABLE
        made.append(replace(member, assigned=held, pending=pending, state=state))
    return made


def _member(classic: ClassicGroup, member: Member, topics: Topics) -> ConsumerMember:
    """DecodeError if its subscription or its assignment cannot be read."""
    metadata = member.metadata(classic.protocol) or member.protocols[0][1]
    subscription = decode_subscription(metadata)
    claimed = owned_by_subscription(subscription, topics)
    assigned, pending = claimed, NOTHING
    if _has_assignment(classic, member):
        given = decode_assignment(classic.assignment(member.member_id)).assigned_partitions
        assigned = from_names([(part.topic, part.partitions) for part in given], topics)
        # A cooperative member gives back what it had before only after it got its assignment.
        pending = without(claimed, assigned)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        classic=ClassicSide(member.session_timeout_ms, tuple(member.protocols)),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=assigned,
        pending=pending,
    )


def _has_assignment(classic: ClassicGroup, member: Member) -> bool:
    """Has it been given what the last record says? Not while its answer is still to come."""
    if classic.stored is None or classic.stored.leader is None:
        return False
    if classic.state is GroupState.PREPARING_REBALANCE:
        # Who has joined again said then what it holds.
        return member.parked_join is None
    return classic.state is GroupState.STABLE


# --- Downgrade ------------------------------------------------------------------------------------


def may_downgrade(group: ConsumerGroup, gone: set[str], config: ConsumerGroupSettings) -> bool:
    """G-155: without these members, is it a group of classic members that may be a classic one?"""
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
    """What a consumer group becomes without these members: its record, and all records.

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
    key = group_metadata.encode_key(group.group_id)
    return value, [*make.group_tombstones(group), (key, group_metadata.encode_value(value))]


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
    key = group_metadata.encode_key(group.group_id)
    return value, [*make.group_tombstones(group), (key, group_metadata.encode_value(value))]
