"""Conversion of groups: a shard's classic groups become consumer groups, and its consumer groups
become classic groups, if a conversion is requested and allowed. The members keep working (rules
G-150 to G-156).

The converted group is computed as records. A member that owned a partition before owns it
afterwards; a member has to revoke the partitions that it perhaps owns and that are not assigned to
it. Records and answers are returned to the caller, which writes and sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from odradek_broker.coordinator.groups.classic.group import (
    ClassicGroup,
    GroupState,
    Member,
    StateObserver,
)
from odradek_broker.coordinator.groups.classic.join_phase import Rebalances, stored_value
from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from odradek_broker.coordinator.groups.consumer.reconciliation import subscription_metadata
from odradek_broker.coordinator.groups.deadlines import MemberDeadlines
from odradek_broker.coordinator.groups.events import (
    ConversionReason,
    GroupConverted,
    Observer,
    RebalanceCause,
    RebalanceReason,
)
from odradek_broker.coordinator.groups.modern.group import FIRST_EPOCH
from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    by_name,
    difference,
    each_partition,
    is_subset,
    partitions_of,
    union,
)
from odradek_broker.coordinator.groups.settings import (
    ConsumerGroupSettings,
    CoordinatorMetadata,
    GroupSettings,
)
from odradek_broker.coordinator.groups.streams.group import StreamsGroup
from odradek_broker.coordinator.runtime import CoreOutcome, Decision, Instant, Record, Reply
from odradek_broker.slices import in_pieces
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored import group_metadata
from odradek_protocol.stored.assignment import (
    ConsumerAssignment,
    decode_assignment,
    encode_assignment,
)
from odradek_protocol.stored.consumer_group import GroupRecordType
from odradek_protocol.stored.group_metadata import GroupMetadataValue, StoredMember
from odradek_protocol.stored.modern_groups import decode_key, decode_value
from odradek_protocol.stored.subscription import (
    PROTOCOL_TYPE,
    ConsumerSubscription,
    decode_subscription,
    read_version,
)


def from_names(parts: list[tuple[str, list[int]]], topics: CoordinatorMetadata) -> Partitions:
    """The partitions by topic id; topics that do not exist are left out."""
    return partitions_of(
        (topics.topic_id(name), indexes) for name, indexes in parts if topics.partition_count(name)
    )


def owned_by_subscription(
    subscription: ConsumerSubscription, topics: CoordinatorMetadata
) -> Partitions:
    """The partitions that a classic member reports as owned. Eager members revoke all partitions
    before they join, and report none."""
    parts = [(part.topic, part.partitions) for part in subscription.owned_partitions]
    return from_names(parts, topics)


def assignment_bytes(partitions: Partitions, metadata: bytes, topics: CoordinatorMetadata) -> bytes:
    """The assignment of a classic member for SyncGroup, in the version of the member's
    `metadata`."""
    try:
        version = read_version(metadata)
    except DecodeError:
        # The group's protocol has unreadable metadata; the conversion used another protocol of the
        # member.
        version = 0
    return encode_assignment(
        ConsumerAssignment(
            assigned_partitions=[
                PartitionsOfTopic(topic=name, partitions=indexes)
                for name, _, indexes in by_name(partitions, topics)
            ]
        ),
        version,
    )


#: The values of group.consumer.migration.policy that allow a conversion into a consumer group.
UPGRADES = frozenset({"bidirectional", "upgrade"})


async def upgraded(
    classic: ClassicGroup, config: ConsumerGroupSettings, topics: CoordinatorMetadata
) -> tuple[ConsumerGroup, list[Record]] | None:
    """The consumer group into which a classic group with members is converted, and the records of
    the new group (G-150, G-151); the tombstone of the classic group is not among them.

    None if the policy, another protocol type, the number of members, unreadable metadata of a
    member or user data in an assignment forbids the conversion. Members that do not know their ids
    yet are left out.
    """
    members = [member for member in classic.members.values() if member.knows_id]
    if (
        config.group_consumer_migration_policy not in UPGRADES
        or classic.protocol_type != PROTOCOL_TYPE
        or classic.state is GroupState.DEAD
        or len(members) > config.group_consumer_max_size
    ):
        return None
    group = ConsumerGroup(classic.group_id)
    made = []
    async for some in in_pieces(members):
        for member in some:
            try:
                after = _member(classic, member, topics)
                last = decode_assignment(classic.last_assignments.get(member.member_id, b""))
            except DecodeError:
                return None
            if last.user_data:
                # The user data of a custom assignor would be lost.
                return None
            made.append(after)
    made = await _without_double_claims(made)
    epoch = classic.generation
    records: list[Record] = []
    async for several in in_pieces(made):
        for after in several:
            records += [
                await make.member_record(group.group_id, after),
                await make.target_record(group.group_id, after.member_id, after.assigned),
                await make.current_record(group.group_id, after),
            ]
    names = frozenset[str]().union(*(after.topics for after in made))
    metadata = await subscription_metadata(names, topics)
    wanted = partitions_of((topic.topic_id, range(topic.partitions)) for topic in metadata.values())
    assigned = partitions_of(pair for after in made for pair in after.assigned.items())
    if not is_subset(wanted, assigned):
        # Partitions that were moving from one member to another have no owner. Without resolved
        # topics in the new group, the next heartbeat finds that the topics have changed, and
        # assigns these partitions.
        metadata = {}
    records.append(await make.topics_record(group.group_id, metadata))
    records.append(make.group_record(group.group_id, epoch))
    records.append(make.target_epoch_record(group.group_id, epoch, 0))
    async for piece in in_pieces(records):
        for key, value in piece:
            assert value is not None
            kind = GroupRecordType(int.from_bytes(key[:2], "big"))
            group.replay(kind, decode_key(kind, key), decode_value(kind, value))
    return group, records


async def _without_double_claims(members: list[ConsumerMember]) -> list[ConsumerMember]:
    """The members, of which only one keeps each partition. If several members claim a partition,
    the first member to which the partition is assigned keeps it. If the partition is assigned to no
    member, the first member that must still revoke the partition keeps it."""
    taken: dict[bytes, set[int]] = {}

    def take(partitions: Partitions) -> Partitions:
        """Take the partitions that nobody has taken."""
        left = partitions_of(
            (topic_id, indexes - taken.get(topic_id, set()))
            for topic_id, indexes in partitions.items()
        )
        for topic_id, indexes in left.items():
            taken.setdefault(topic_id, set()).update(indexes)
        return left

    assigned = [take(member.assigned) async for some in in_pieces(members) for member in some]
    made = []
    async for several in in_pieces(zip(members, assigned, strict=True)):
        for member, partitions in several:
            pending = take(member.pending)
            state = MemberState.UNREVOKED_PARTITIONS if pending else MemberState.STABLE
            made.append(replace(member, assigned=partitions, pending=pending, state=state))
    return made


def _member(classic: ClassicGroup, member: Member, topics: CoordinatorMetadata) -> ConsumerMember:
    """The member in the form of a consumer group. Raises DecodeError if its subscription or
    assignment is not readable."""
    metadata = member.metadata(classic.protocol) or member.protocols[0][1]
    subscription = decode_subscription(metadata)
    claimed = owned_by_subscription(subscription, topics)
    assigned, pending = claimed, NO_PARTITIONS
    if _has_assignment(classic, member):
        given = decode_assignment(classic.assignment(member.member_id)).assigned_partitions
        assigned = from_names([(part.topic, part.partitions) for part in given], topics)
        # A cooperative member revokes its old partitions only after it has received its assignment.
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
        epochs=dict.fromkeys(each_partition(union(assigned, pending)), classic.generation),
    )


def _has_assignment(classic: ClassicGroup, member: Member) -> bool:
    """True if the member received the assignment of the last record; False while its SyncGroup is
    not answered."""
    if classic.stored is None or classic.stored.leader is None:
        return False
    if classic.state is GroupState.PREPARING_REBALANCE:
        # The JoinGroup of a member that has joined again replaces the old assignment: it reports
        # the partitions that the member owns.
        return member.parked_join is None
    return classic.state is GroupState.STABLE


#: The values of group.consumer.migration.policy that allow a conversion into a classic group.
DOWNGRADES = frozenset({"bidirectional", "downgrade"})


def may_downgrade(group: ConsumerGroup, gone: set[str], config: ConsumerGroupSettings) -> bool:
    """True if the group without the members `gone` may become a classic one (G-155)."""
    left = [member for member in group.members.values() if member.member_id not in gone]
    return (
        bool(left)
        and config.group_consumer_migration_policy in DOWNGRADES
        and len(left) <= config.group_max_size
        and all(member.classic is not None for member in left)
    )


async def downgraded(
    group: ConsumerGroup, gone: set[str], topics: CoordinatorMetadata, wall_ms: int
) -> tuple[GroupMetadataValue, list[Record]]:
    """The classic group without the members `gone`: its record, and all records to write.

    The generation is the group epoch: a member with this epoch is in the generation, and a member
    with an older epoch is not. Both have to join again: a member in the generation because of a
    rebalance, any other member because its generation is not valid.
    """
    left = [member for member in group.members.values() if member.member_id not in gone]
    sides = [member.classic for member in left if member.classic is not None]
    common = {name for name, _ in sides[0].protocols}
    async for several in in_pieces(sides):
        for side in several:
            common &= {name for name, _ in side.protocols}
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
            async for some in in_pieces(zip(left, sides, strict=True))
            for member, side in some
        ],
    )
    return value, await _records(group, value)


async def emptied(
    group: ConsumerGroup | StreamsGroup, wall_ms: int
) -> tuple[GroupMetadataValue, list[Record]]:
    """The empty classic group into which a group of another protocol is converted when it has no
    members; the generation continues from the group epoch (G-156)."""
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=None,
        leader=None,
        current_state_timestamp=wall_ms,
        members=[],
    )
    return value, await _records(group, value)


async def _records(group: ConsumerGroup | StreamsGroup, value: GroupMetadataValue) -> list[Record]:
    """The tombstones of the converted group, and the record of the classic group."""
    return [
        *await group.tombstones(),
        (group_metadata.encode_key(group.group_id), await stored_value(value)),
    ]


@dataclass(frozen=True, slots=True)
class OpenedGroup:
    """The consumer group to which a member sends its heartbeat.

    If the group was classic, `records` create the consumer group, and `ending` removes the classic
    group (G-150, G-156). When nothing can refuse the heartbeat any more, the caller calls
    `convert`, which begins the deadlines of the members, and returns the answers to their parked
    requests.
    """

    group: ConsumerGroup
    records: list[Record]
    ending: list[Record]
    convert: Callable[[], Coroutine[Any, Any, list[Reply[Any]]]]


async def _nothing() -> list[Reply[Any]]:
    return []


class GroupConversion:
    """The conversions of a shard. `groups` and `consumers` are the shard's; `others`: the ids of
    groups that cannot be converted."""

    def __init__(
        self,
        config: GroupSettings,
        topics: CoordinatorMetadata,
        groups: dict[str, ClassicGroup],
        consumers: Mapping[str, ConsumerGroup],
        others: Container[str],
        rebalances: Rebalances,
        deadlines: MemberDeadlines,
        observer: Observer,
        state_observer: StateObserver | None,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._others = others
        self._rebalances = rebalances
        self._deadlines = deadlines
        self._observer = observer
        self._state_observer = state_observer

    # --- To a consumer group ---

    async def open(self, group_id: str, now: Instant, *, joins: bool) -> OpenedGroup | None:
        """The group to which a member of the consumer protocol sends its heartbeat; None if there
        is no such group, or if it cannot become a consumer group."""
        if group_id in self._others:
            return None
        group = self._consumers.get(group_id)
        if group is not None:
            return OpenedGroup(group, [], [], _nothing)
        if not joins:
            return None
        classic = self._groups.get(group_id)
        if classic is None:
            return OpenedGroup(ConsumerGroup(group_id), [], [], _nothing)
        ending: list[Record] = []
        records: list[Record] = []
        if classic.stored is not None:
            ending.append((group_metadata.encode_key(group_id), None))
        if classic.state is GroupState.EMPTY:
            reason = ConversionReason.GROUP_EMPTY
            # The group epoch begins with the last generation: a conversion must not lead from a
            # generation to a smaller epoch.
            epoch = max(FIRST_EPOCH, classic.generation)
            group = ConsumerGroup(group_id, epoch=epoch)
        else:
            reason = ConversionReason.MEMBER_JOINED
            made = await upgraded(classic, self._config, self._topics)
            if made is None:
                return None
            group, records = made

        async def convert() -> list[Reply[Any]]:
            self._observer(GroupConverted(group_id, "consumer", reason))
            replies = await self._release_all(classic)
            await self._deadlines.restored(group, now)
            return replies

        return OpenedGroup(group, records, ending, convert)

    async def _release_all(self, classic: ClassicGroup) -> list[Reply[Any]]:
        """Answer all requests that are parked in the join phase. The members that know their ids
        join again immediately."""
        replies: list[Reply[Any]] = []
        classic.storing_generation = None
        async for some in in_pieces(classic.members.values()):
            for member in some:
                known = member.knows_id
                error = ErrorCode.REBALANCE_IN_PROGRESS if known else ErrorCode.UNKNOWN_MEMBER_ID
                replies += self._rebalances.release(classic, member, error)
        return replies

    # --- To a streams group ---

    def retire(self, group_id: str) -> list[Record] | None:
        """The records that end a classic group without members, so that a streams group can have
        the id (J-16); None if the group must stay."""
        classic = self._groups.get(group_id)
        if group_id in self._consumers or classic is None or classic.state is not GroupState.EMPTY:
            return None
        return [] if classic.stored is None else [(group_metadata.encode_key(group_id), None)]

    # --- To a classic group ---

    async def downgrade(
        self, group: ConsumerGroup, gone: set[str], now: Instant
    ) -> CoreOutcome | None:
        """Convert a consumer group into a classic group, because its last members of the consumer
        protocol leave (G-155); None if the group stays a consumer group.

        The members stay in the group's record, and have to join again because of a rebalance.
        """
        if not may_downgrade(group, gone, self._config):
            return None
        reason = ConversionReason.LAST_CONSUMER_MEMBER_GONE
        self._observer(GroupConverted(group.group_id, "classic", reason))
        value, records = await downgraded(group, gone, self._topics, now.wall_ms)
        await self._deadlines.forget_members(group)
        classic = await self._revive(group.group_id, value, now)
        async for some in in_pieces(classic.members.values()):
            for member in some:
                side = group.members[member.member_id].classic
                if side is not None:
                    classic.offer(member, list(side.protocols))
                self._rebalances.timers.restart_session(classic, member, now)
        cause = RebalanceCause(RebalanceReason.DOWNGRADED)
        out = await self._rebalances.start(classic, now, cause)
        out.records += records
        self._undo_if_refused(classic, group, out)
        return out

    async def join_empty(
        self,
        group: ConsumerGroup | StreamsGroup,
        join: Callable[[], Coroutine[Any, Any, CoreOutcome]],
        now: Instant,
    ) -> CoreOutcome:
        """Let a classic member join a group that has another protocol and no members (G-156,
        J-51): the group becomes a classic group, and `join` adds the member."""
        self._observer(GroupConverted(group.group_id, "classic", ConversionReason.GROUP_EMPTY))
        value, records = await emptied(group, now.wall_ms)
        classic = await self._revive(group.group_id, value, now)
        out = await join()
        out.records[:0] = records
        self._undo_if_refused(classic, group, out)
        return out

    async def _revive(self, group_id: str, value: GroupMetadataValue, now: Instant) -> ClassicGroup:
        """The classic group that the record `value` describes; the record is being written."""
        classic = ClassicGroup(group_id, state_since_ms=now.wall_ms, observer=self._state_observer)
        self._groups[group_id] = classic
        classic.replay(value)
        await classic.restore(now)
        return classic

    def _undo_if_refused(
        self, classic: ClassicGroup, group: ConsumerGroup | StreamsGroup, out: CoreOutcome
    ) -> None:
        """Remove the classic group, which exists before its records are written, if the log refuses
        the records."""
        before = out.after_append

        async def undo(error: ErrorCode, then: Instant) -> CoreOutcome:
            undone = CoreOutcome()
            async for some in in_pieces(classic.members.values()):
                for member in some:
                    undone.replies += self._rebalances.release(classic, member, error)
            self._rebalances.timers.forget(classic)
            if self._groups.get(classic.group_id) is classic:
                del self._groups[classic.group_id]
            if isinstance(group, ConsumerGroup):
                await self._deadlines.restored(group, then)
            return undone

        def after_append(error: ErrorCode, then: Instant) -> Decision:
            if error is not ErrorCode.NONE:
                return undo(error, then)
            return CoreOutcome() if before is None else before(error, then)

        out.after_append = after_append
