"""What a member's word does to its group: epochs, topics, targets, and the member's next step.

The same for whoever speaks, over ConsumerGroupHeartbeat or over JoinGroup (rules G-101 to G-103,
G-145, G-146).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.assignors import ASSIGNORS, Subscriber
from odradek_broker.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    SeenTopic,
)
from odradek_broker.coordinator.groups.consumer.partitions import Partitions
from odradek_broker.coordinator.groups.consumer.patterns import PatternError, compile_pattern
from odradek_broker.coordinator.groups.consumer.reconcile import Owner, reconcile
from odradek_broker.coordinator.groups.consumer.settings import ConsumerGroupSettings, Topics
from odradek_broker.coordinator.runtime import Moment, Record


@dataclass(slots=True)
class Change:
    """A member speaks: who it was, who it is now, and what is to be written about it.

    `before` None: it is new. `replaced`: the static member whose place it takes (G-131), whose
    records are among `records` already. `owned`: what it says that it owns.
    """

    group: ConsumerGroup
    before: ConsumerMember | None
    member: ConsumerMember
    owned: Partitions | None
    replaced: ConsumerMember | None = None
    records: list[Record] = field(default_factory=list)
    #: The epoch that the group will have.
    epoch: int = 0
    #: The topics and resolved expressions that it will have; None: as they are.
    seen: dict[str, SeenTopic] | None = None
    patterns: dict[str, frozenset[str]] | None = None

    def members(self) -> dict[str, ConsumerMember]:
        """The group's members, this one as it is now."""
        members = dict(self.group.members)
        if self.replaced is not None:
            members.pop(self.replaced.member_id, None)
        members[self.member.member_id] = self.member
        return members

    def target_of(self, member_id: str) -> Partitions:
        """What a member is to have by the assignment so far."""
        if self.replaced is not None and member_id == self.member.member_id:
            return self.group.target(self.replaced.member_id)
        return self.group.target(member_id)


def choose_assignor(members: Mapping[str, ConsumerMember], config: ConsumerGroupSettings) -> str:
    """G-142: what most members ask for; without a wish, the first that the broker offers."""
    offered = assignor_names(config)
    votes = Counter(member.assignor for member in members.values() if member.assignor in offered)
    best = min(votes, key=lambda name: (-votes[name], offered.index(str(name))), default=None)
    return best or offered[0]


def assignor_names(config: ConsumerGroupSettings) -> list[str]:
    """The names of `group.consumer.assignors`; Kafka's class names stand for their names."""
    return [assignor_name(text) for text in config.group_consumer_assignors]


def assignor_name(text: str) -> str:
    """`org.apache...UniformAssignor` is `uniform`."""
    return text.rpartition(".")[2].removesuffix("Assignor").lower()


def advance(
    change: Change, config: ConsumerGroupSettings, topics: Topics, moment: Moment
) -> ConsumerMember:
    """Write into `change.records` what follows; the member as it is then."""
    group, before, member = change.group, change.before, change.member
    if before is None or _said(before) != _said(member):
        change.records.append(make.member_record(group.group_id, member))
    known = change.replaced if change.replaced is not None else change.before
    wanted = None if known is None else (known.topics, known.pattern)
    change.epoch = group.epoch
    if wanted != (member.topics, member.pattern) or group.seen_version != topics.topics_version:
        _look_at_topics(change, known, topics, moment)
    target = change.target_of(member.member_id)
    target_epoch = group.assignment_epoch
    if change.epoch > target_epoch:
        target = _assign_anew(change, config)
        target_epoch = change.epoch
    after = reconcile(member, target_epoch, target, change.owned, _owner(change))
    if after != member or before is None:
        change.records.append(make.current_record(group.group_id, after))
    return after


def _said(member: ConsumerMember) -> tuple[object, ...]:
    """What is in a member's own record."""
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


def _owner(change: Change) -> Owner:
    group, replaced = change.group, change.replaced
    if replaced is None:
        return group.owner

    def owner(topic_id: bytes, partition: int) -> str | None:
        held = group.owner(topic_id, partition)
        return None if held == replaced.member_id else held

    return owner


def _look_at_topics(
    change: Change, known: ConsumerMember | None, topics: Topics, moment: Moment
) -> None:
    """G-145, G-146: resolve the subscriptions; if anything is new, the group epoch grows.

    `known`: the member as it was, None if it is new. One that asks for no topic asks for nothing.
    """
    group = change.group
    members = change.members()
    patterns: dict[str, frozenset[str]] = {}
    for member in members.values():
        pattern = member.pattern
        if pattern and pattern not in patterns:
            patterns[pattern] = _resolve(pattern, topics)
            if patterns[pattern] != group.patterns.get(pattern):
                change.records.append(
                    make.pattern_record(
                        group.group_id,
                        pattern,
                        patterns[pattern],
                        topics.topics_version,
                        moment.wall_ms,
                    )
                )
    change.records += [
        make.pattern_tombstone(group.group_id, pattern)
        for pattern in group.patterns
        if pattern not in patterns
    ]
    wanted = frozenset[str]() if known is None else group.names_of(known)
    asks_anew = wanted != group.names_of(change.member, patterns)
    seen = see_topics(group, members, patterns, topics)
    if seen != group.topics:
        asks_anew = True
        change.records.append(make.topics_record(group.group_id, seen))
    if asks_anew:
        change.epoch = group.epoch + 1
    if asks_anew or group.is_new:
        change.records.append(make.group_record(group.group_id, change.epoch))
    change.seen, change.patterns = seen, patterns
    group.seen_version = topics.topics_version


def _resolve(pattern: str, topics: Topics) -> frozenset[str]:
    """The names that it matches; none for one that another broker took and this one cannot read."""
    try:
        return compile_pattern(pattern).select(topics.topic_names())
    except PatternError:
        return frozenset()


def see_topics(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    patterns: Mapping[str, frozenset[str]],
    topics: Topics,
) -> dict[str, SeenTopic]:
    """The topics that members are subscribed to and that exist."""
    names: set[str] = set()
    for member in members.values():
        names |= group.names_of(member, patterns)
    counts = {name: topics.partition_count(name) for name in names}
    return {
        name: SeenTopic(topics.topic_id(name), count) for name, count in counts.items() if count > 0
    }


def _assign_anew(change: Change, config: ConsumerGroupSettings) -> Partitions:
    """G-102: compute the target assignment, and write what is another one for each member."""
    group = change.group
    members = change.members()
    seen = group.topics if change.seen is None else change.seen
    patterns = group.patterns if change.patterns is None else change.patterns
    subscribers = [
        Subscriber(
            member_id=member_id,
            instance_id=member.instance_id,
            topics=frozenset(
                seen[name].topic_id for name in group.names_of(member, patterns) if name in seen
            ),
            current=change.target_of(member_id),
        )
        for member_id, member in members.items()
    ]
    assignor = ASSIGNORS[choose_assignor(members, config)]
    targets = assignor(subscribers, {topic.topic_id: topic.partitions for topic in seen.values()})
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            change.records.append(make.target_record(group.group_id, member_id, target))
    change.records.append(make.target_epoch_record(group.group_id, change.epoch))
    return targets[change.member.member_id]
