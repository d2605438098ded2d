"""From subscriptions to assignments: the update of a member of the consumer or the classic
protocol, and the records that follow from the update (rules G-101 to G-103, G-120 to G-122, G-130,
G-131, G-142, G-145, G-146).

    subscriptions  ->  group epoch  ->  target assignment  ->  current assignment of each member

Names and regular expressions are resolved when a member changes its subscription, and when the
topics of the cluster have changed; if the result has changed, the group epoch grows. The assignor
then computes the target of all members. A member reaches its target step by step: first it has to
revoke the partitions that are not in its target. When the member has reported the revocation, it
gets the partitions of its target that certainly have no owner. It gets the other partitions of its
target when their owners have revoked them. So no partition ever has two owners, whichever messages
are lost. A new static member replaces an old member with the same instance id.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.assignors import ASSIGNORS, Subscriber
from odradek_broker.coordinator.groups.consumer.group import (
    STEPS,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ReportReaction,
    RevocationReport,
    TopicMetadata,
)
from odradek_broker.coordinator.groups.consumer.pattern_subscriptions import NO_MATCHES, Matches
from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    difference,
    each_partition,
    intersection,
    intersects,
    partitions_of,
    union,
)
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.settings import (
    ConsumerGroupSettings,
    CoordinatorMetadata,
    assignment_interval_ms,
    may_assign_again,
)
from odradek_broker.coordinator.runtime import Instant, Record
from odradek_broker.slices import in_pieces
from odradek_protocol.constants import LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ResolvedSubscriptions:
    """The resolved subscriptions of a group: existing topics by name, and the topics that
    expressions matched.

    `epoch`: the group epoch of these subscriptions. `records`: the records to write.
    """

    epoch: int
    topics: Mapping[str, TopicMetadata]
    patterns: Mapping[str, frozenset[str]]
    records: list[Record]


async def resolve_subscriptions(
    group: ConsumerGroup,
    before: ConsumerMember | None,
    member: ConsumerMember,
    topics: CoordinatorMetadata,
    now: Instant,
    matches: Matches = NO_MATCHES,
) -> ResolvedSubscriptions:
    """Resolve the subscriptions of the members; if the result has changed, the group epoch grows.

    `member`: the member that has changed. `before`: the member before the change, None for a new
    member. A new member without topics does not change the epoch. `matches`: the new matches of
    expressions; other expressions keep the topics that they have.
    """
    records: list[Record] = []
    patterns: dict[str, frozenset[str]] = {}
    for pattern in group.patterns_after(before, member):
        known = group.patterns.get(pattern)
        names = patterns[pattern] = matches.topics.get(pattern, known or frozenset())
        if names != known:
            version = topics.topics_version
            records.append(
                await make.pattern_record(group.group_id, pattern, names, version, now.wall_ms)
            )
    records += [
        make.pattern_tombstone(group.group_id, pattern)
        for pattern in group.patterns
        if pattern not in patterns
    ]
    wanted = frozenset[str]() if before is None else group.names_of(before)
    changed = wanted != group.names_of(member, patterns)
    by_name = group.subscribers.keys_after(
        frozenset() if before is None else before.topics, member.topics
    )
    metadata = await subscription_metadata(by_name.union(*patterns.values()), topics)
    if metadata != group.topics:
        changed = True
        records.append(await make.topics_record(group.group_id, metadata))
    epoch = group.epoch + 1 if changed else group.epoch
    if changed or group.is_new:
        records.append(make.group_record(group.group_id, epoch))
    return ResolvedSubscriptions(epoch, metadata, patterns, records)


async def subscription_metadata(
    names: Iterable[str], topics: CoordinatorMetadata
) -> dict[str, TopicMetadata]:
    """The topics with these names that exist."""
    found = {}
    async for some in in_pieces(names):
        for name in some:
            count = topics.partition_count(name)
            if count > 0:
                found[name] = TopicMetadata(topics.topic_id(name), count)
    return found


def choose_assignor(members: Mapping[str, ConsumerMember], config: ConsumerGroupSettings) -> str:
    """The assignor that most members request; if no member requests one, the first of the broker's
    assignors (G-142)."""
    offered = assignor_names(config)
    votes = Counter(member.assignor for member in members.values() if member.assignor in offered)
    best = min(votes, key=lambda name: (-votes[name], offered.index(str(name))), default=None)
    return best or offered[0]


def assignor_names(config: ConsumerGroupSettings) -> list[str]:
    """The short names of the assignors in `group.consumer.assignors`, which may contain names of
    Kafka's classes."""
    return [assignor_name(text) for text in config.group_consumer_assignors]


def assignor_name(text: str) -> str:
    """The short name of an assignor, such as `uniform`. `text`: the short name, or the name of
    Kafka's class."""
    return text.rpartition(".")[2].removesuffix("Assignor").lower()


async def compute_target_assignment(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    current: Mapping[str, Partitions],
    topics: Mapping[str, TopicMetadata],
    patterns: Mapping[str, frozenset[str]],
    config: ConsumerGroupSettings,
) -> dict[str, Partitions]:
    """A target for each of `members`, the members that the group will have.

    `current`: the present targets. `topics` and `patterns`: the resolved subscriptions.
    """
    ids: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
    subscribers = []
    async for some in in_pieces(members.items()):
        for member_id, member in some:
            subscription = (member.topics, member.pattern)
            if subscription not in ids:
                ids[subscription] = await _topic_ids(group.names_of(member, patterns), topics)
            subscribers.append(
                Subscriber(
                    member_id=member_id,
                    instance_id=member.instance_id,
                    topics=ids[subscription],
                    current=current.get(member_id, NO_PARTITIONS),
                )
            )
    assignor = ASSIGNORS[choose_assignor(members, config)]
    counts = {topic.topic_id: topic.partitions for topic in topics.values()}
    return await assignor(subscribers, counts)


async def _topic_ids(names: Iterable[str], topics: Mapping[str, TopicMetadata]) -> frozenset[bytes]:
    """The ids of those of the topics that exist."""
    return frozenset(
        [
            topics[name].topic_id
            async for some in in_pieces(names)
            for name in some
            if name in topics
        ]
    )


Owner = Callable[[bytes, int], str | None]
"""The member that may own a partition: (topic id, index) -> member id or None."""


async def next_assignment(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner: Owner,
    *,
    subscribed: Collection[bytes],
    changed: bool,
) -> ConsumerMember:
    """The member after one step; the same member if there is nothing to do.

    `owned`: the partitions that the member's heartbeat reports as owned; None if the heartbeat does
    not report them. `subscribed`: the topics that the member is subscribed to; it gets no partition
    of another topic, even if an older target has some. `changed`: true if the subscription is new.
    """
    step = STEPS[member.state, _report(member.pending, owned), member.epoch != target_epoch]
    if step not in (ReportReaction.STAY, ReportReaction.WAIT):
        wanted = _of_topics(target, subscribed)
        return await _compute(member, target_epoch, wanted, owned, owner)
    return _narrowed(member, subscribed, owned) if changed else member


def _of_topics(partitions: Partitions, topic_ids: Collection[bytes]) -> Partitions:
    return {topic_id: indexes for topic_id, indexes in partitions.items() if topic_id in topic_ids}


def _narrowed(
    member: ConsumerMember, subscribed: Collection[bytes], owned: Partitions | None
) -> ConsumerMember:
    """The member that gives back the partitions of topics that it is not subscribed to any more."""
    kept = _of_topics(member.assigned, subscribed)
    if len(kept) == len(member.assigned):
        return member
    pending = union(member.pending, difference(member.assigned, kept))
    if owned is None or intersects(owned, pending):
        return replace(
            member.at_epoch(member.epoch),
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending=pending,
        )
    return replace(
        member.at_epoch(member.epoch),
        assigned=kept,
        epochs={partition: member.epochs[partition] for partition in each_partition(kept)},
    )


def _report(pending: Partitions, owned: Partitions | None) -> RevocationReport:
    if owned is None:
        return RevocationReport.SILENT
    return RevocationReport.OWNING if intersects(owned, pending) else RevocationReport.RELEASED


async def _compute(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner: Owner,
) -> ConsumerMember:
    kept = intersection(member.assigned, target)
    surplus = difference(member.assigned, target)
    if surplus and (owned is None or intersects(owned, surplus)):
        return replace(
            member.at_epoch(member.epoch),
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending=surplus,
        )
    wanted = difference(target, kept)
    free = partitions_of(
        [
            (
                topic_id,
                [index for index in indexes if owner(topic_id, index) in (None, member.member_id)],
            )
            async for some in in_pieces(wanted.items())
            for topic_id, indexes in some
        ]
    )
    complete = free == wanted
    epochs = {partition: member.epochs[partition] for partition in each_partition(kept)}
    return replace(
        member.at_epoch(target_epoch),
        state=MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS,
        assigned=union(kept, free),
        pending=NO_PARTITIONS,
        epochs=epochs | dict.fromkeys(each_partition(free), target_epoch),
    )


@dataclass(slots=True)
class MemberUpdate:
    """An update of a member by a request: the member before and after the update, and the records.

    `before` None: the member is new. `replaced`: the static member that the new member replaces
    (G-131); `records` already has the records of the replacement. `owned`: the partitions that the
    member reports as owned. `matches`: what regular expressions match now.
    """

    group: ConsumerGroup
    before: ConsumerMember | None
    member: ConsumerMember
    owned: Partitions | None
    replaced: ConsumerMember | None = None
    records: list[Record] = field(default_factory=list)
    matches: Matches = NO_MATCHES

    def members(self) -> dict[str, ConsumerMember]:
        members = dict(self.group.members)
        if self.replaced is not None:
            members.pop(self.replaced.member_id, None)
        members[self.member.member_id] = self.member
        return members

    def targets(self) -> Mapping[str, Partitions]:
        targets = self.group.targets
        if self.replaced is not None:
            own = {self.member.member_id: self.group.target(self.replaced.member_id)}
            return ChainMap(own, targets)
        return targets


async def update_member(
    update: MemberUpdate, config: ConsumerGroupSettings, topics: CoordinatorMetadata, now: Instant
) -> ConsumerMember:
    """Add the records of the update to `update.records`; returns the updated member."""
    group, before, member = update.group, update.before, update.member
    if before is None or _stored_fields(before) != _stored_fields(member):
        update.records.append(await make.member_record(group.group_id, member))
    known = update.replaced if update.replaced is not None else before
    wanted = None if known is None else (known.topics, known.pattern)
    subscriptions = ResolvedSubscriptions(group.epoch, group.topics, group.patterns, [])
    changed = wanted != (member.topics, member.pattern)
    if changed or group.topics_version != topics.topics_version:
        subscriptions = await resolve_subscriptions(
            group, known, member, topics, now, update.matches
        )
        update.records += subscriptions.records
        group.topics_version = _version_seen(update, subscriptions, topics)
    target = update.targets().get(member.member_id, NO_PARTITIONS)
    target_epoch = group.assignment_epoch
    if subscriptions.epoch > target_epoch:
        interval_ms = assignment_interval_ms(topics, group.group_id, group.protocol_type)
        if may_assign_again(group.assignment_ms, interval_ms, now.wall_ms):
            target = await _assign_targets(update, subscriptions, config, now)
            target_epoch = subscriptions.epoch
    after = member
    if changed or not member.is_reconciled(target_epoch):
        names = group.names_of(member, subscriptions.patterns)
        after = await next_assignment(
            member,
            target_epoch,
            target,
            update.owned,
            _owner(update),
            subscribed=await _topic_ids(names, subscriptions.topics),
            changed=changed,
        )
    if after != member or before is None:
        update.records.append(await make.current_record(group.group_id, after))
    return after


def _version_seen(
    update: MemberUpdate, subscriptions: ResolvedSubscriptions, topics: CoordinatorMetadata
) -> int | None:
    """The version of the topics with which all subscriptions were resolved. If expressions were
    matched with an older version, the next heartbeat matches them again."""
    patterns, matches = subscriptions.patterns.keys(), update.matches
    if not patterns or update.group.topics_version == topics.topics_version:
        return topics.topics_version
    return matches.topics_version if patterns <= matches.topics.keys() else None


def _stored_fields(member: ConsumerMember) -> tuple[object, ...]:
    """The fields of a member that are in its own record."""
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.topics,
        member.pattern,
        member.assignor,
        member.classic,
    )


def _owner(update: MemberUpdate) -> Owner:
    group, replaced = update.group, update.replaced
    if replaced is None:
        return group.owner

    def owner(topic_id: bytes, partition: int) -> str | None:
        owner = group.owner(topic_id, partition)
        return None if owner == replaced.member_id else owner

    return owner


async def _assign_targets(
    update: MemberUpdate,
    subscriptions: ResolvedSubscriptions,
    config: ConsumerGroupSettings,
    now: Instant,
) -> Partitions:
    """Add records of the targets that have changed (G-102); returns the target of the updated
    member."""
    group = update.group
    targets = await compute_target_assignment(
        group,
        update.members(),
        update.targets(),
        subscriptions.topics,
        subscriptions.patterns,
        config,
    )
    update.records += await group.target_records(targets, make.target_record)
    epoch = subscriptions.epoch
    update.records.append(make.target_epoch_record(group.group_id, epoch, now.wall_ms))
    return targets[update.member.member_id]


_E = ErrorCode


async def replace_static_member(
    group: ConsumerGroup,
    old: ConsumerMember,
    member_id: str,
    owned: Partitions | None,
    *,
    classic: bool = False,
) -> MemberUpdate:
    """The update by which a member replaces `old`, which has the same instance id.

    The new member gets the target of `old`, without a new epoch. If both members use the consumer
    protocol, raises Refusal unless `old` has left temporarily. The classic protocol has no
    temporary leave, so if one of the members uses it, the new member always replaces `old`.
    """
    if old.epoch != LEAVE_STATIC_EPOCH and old.classic is None and not classic:
        raise Refusal(
            _E.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {old.instance_id} cannot join the group"
            f" {group.group_id}: the instance id is in use by another member.",
        )
    if member_id in group.members:
        raise Refusal(
            _E.INVALID_REQUEST, f"Member {member_id} is in group {group.group_id} already."
        )
    fresh = replace(
        old,
        member_id=member_id,
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        pending=NO_PARTITIONS,
    )
    update = MemberUpdate(group, None, fresh, owned, replaced=old)
    update.records += group.member_tombstones(old.member_id)
    update.records.append(
        await make.target_record(group.group_id, member_id, group.target(old.member_id))
    )
    return update
