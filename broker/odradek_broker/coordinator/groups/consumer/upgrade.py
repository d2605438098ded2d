"""From a classic group to a consumer group, while its members go on (rules G-150, G-151).

Pure: what a group becomes, as records. Who owned a partition before owns it afterwards, and what a
member may still hold without having it assigned is to be given back first.
"""

from __future__ import annotations

from dataclasses import replace

from odradek_broker.coordinator.groups.classic.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.classic.states import GroupState
from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.classic_assignment import (
    from_names,
    owned_by_subscription,
)
from odradek_broker.coordinator.groups.consumer.group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
)
from odradek_broker.coordinator.groups.consumer.partitions import (
    NO_PARTITIONS,
    Partitions,
    difference,
    is_subset,
    partitions_of,
    union,
)
from odradek_broker.coordinator.groups.consumer.settings import ConsumerGroupSettings, Topics
from odradek_broker.coordinator.groups.consumer.states import MemberState
from odradek_broker.coordinator.groups.consumer.subscriptions import subscription_metadata
from odradek_broker.coordinator.runtime import Record
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored.assignment import (
    decode_assignment,
)
from odradek_protocol.stored.consumer_group import RecordType, decode_key, decode_value
from odradek_protocol.stored.subscription import (
    PROTOCOL_TYPE,
    decode_subscription,
)

#: Values of group.consumer.migration.policy that allow it.
UPGRADES = frozenset({"bidirectional", "upgrade"})


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
    metadata = subscription_metadata(group, by_id, {}, topics)
    wanted = partitions_of((topic.topic_id, range(topic.partitions)) for topic in metadata.values())
    assigned = partitions_of(pair for after in made for pair in after.assigned.items())
    if not is_subset(wanted, assigned):
        # Partitions that were on their way from one member to another are nobody's. As if no topic had
        # been seen yet, whoever comes first has them assigned, though nothing else may have changed.
        metadata = {}
    records.append(make.topics_record(group.group_id, metadata))
    records.append(make.group_record(group.group_id, epoch))
    records.append(make.target_epoch_record(group.group_id, epoch))
    for key, value in records:
        assert value is not None
        kind = RecordType(int.from_bytes(key[:2], "big"))
        make.replay(group, kind, decode_key(kind, key), decode_value(kind, value))
    return group, records


def _without_double_claims(members: list[ConsumerMember]) -> list[ConsumerMember]:
    """The members without partitions that another one has: an assignment counts before a claim, and among
    equals the first."""
    taken: Partitions = NO_PARTITIONS
    assigned = []
    for member in members:
        assigned.append(difference(member.assigned, taken))
        taken = union(taken, assigned[-1])
    made = []
    for member, held in zip(members, assigned, strict=True):
        pending = difference(member.pending, taken)
        taken = union(taken, pending)
        state = MemberState.UNREVOKED_PARTITIONS if pending else MemberState.STABLE
        made.append(replace(member, assigned=held, pending=pending, state=state))
    return made


def _member(classic: ClassicGroup, member: Member, topics: Topics) -> ConsumerMember:
    """The member as a consumer group has it. DecodeError if its subscription or assignment cannot be read."""
    metadata = member.metadata(classic.protocol) or member.protocols[0][1]
    subscription = decode_subscription(metadata)
    claimed = owned_by_subscription(subscription, topics)
    assigned, pending = claimed, NO_PARTITIONS
    if _has_assignment(classic, member):
        given = decode_assignment(classic.assignment(member.member_id)).assigned_partitions
        assigned = from_names([(part.topic, part.partitions) for part in given], topics)
        # A cooperative member gives back what it had before only after it got its assignment.
        pending = difference(claimed, assigned)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols)),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=assigned,
        pending=pending,
    )


def _has_assignment(classic: ClassicGroup, member: Member) -> bool:
    """Was the member given what the last record says? Not while its answer is still to come."""
    if classic.stored is None or classic.stored.leader is None:
        return False
    if classic.state is GroupState.PREPARING_REBALANCE:
        # Who has joined again said then what it holds.
        return member.parked_join is None
    return classic.state is GroupState.STABLE
