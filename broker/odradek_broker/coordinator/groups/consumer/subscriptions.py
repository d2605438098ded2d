"""The topics that a group's members are subscribed to, and the group epoch that grows with them.

Names and regular expressions are resolved when a member subscribes to something else, and when the
topics of the cluster have changed (rules G-101, G-145, G-146).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    TopicMetadata,
)
from odradek_broker.coordinator.groups.consumer.settings import Topics, Visible, every_topic
from odradek_broker.coordinator.runtime import Instant, Record
from odradek_broker.re2.parser import PatternError, compile_pattern


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """The next subscription of a group: existing topics by name, and those that expressions
    matched.

    `epoch`: the group epoch that comes with it. `records`: what is to be written.
    """

    epoch: int
    topics: Mapping[str, TopicMetadata]
    patterns: Mapping[str, frozenset[str]]
    records: list[Record]


def resolve_subscriptions(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    before: ConsumerMember | None,
    member: ConsumerMember,
    topics: Topics,
    now: Instant,
    visible: Visible = every_topic,
) -> Subscriptions:
    """Resolve what `members` are subscribed to; if anything is new, the group epoch grows.

    `member` is the one that has changed, `before` what it was, None if it is new. One that asks for
    no topic asks for nothing. `visible`: what its user may know of; expressions match nothing else (A-67).
    """
    records: list[Record] = []
    patterns: dict[str, frozenset[str]] = {}
    for pattern in [each.pattern for each in members.values()]:
        if pattern and pattern not in patterns:
            names = patterns[pattern] = visible(_resolve(pattern, topics))
            if names != group.patterns.get(pattern):
                version = topics.topics_version
                records.append(
                    make.pattern_record(group.group_id, pattern, names, version, now.wall_ms)
                )
    records += [
        make.pattern_tombstone(group.group_id, pattern)
        for pattern in group.patterns
        if pattern not in patterns
    ]
    wanted = frozenset[str]() if before is None else group.names_of(before)
    changed = wanted != group.names_of(member, patterns)
    metadata = subscription_metadata(group, members, patterns, topics)
    if metadata != group.topics:
        changed = True
        records.append(make.topics_record(group.group_id, metadata))
    epoch = group.epoch + 1 if changed else group.epoch
    if changed or group.is_new:
        records.append(make.group_record(group.group_id, epoch))
    return Subscriptions(epoch, metadata, patterns, records)


def _resolve(pattern: str, topics: Topics) -> frozenset[str]:
    """The names that the expression matches; none for one that another broker took and this one
    cannot read."""
    try:
        return compile_pattern(pattern).select(topics.topic_names())
    except PatternError:
        return frozenset()


def subscription_metadata(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    patterns: Mapping[str, frozenset[str]],
    topics: Topics,
) -> dict[str, TopicMetadata]:
    """The topics that members are subscribed to and that exist."""
    names: set[str] = set()
    for member in members.values():
        names |= group.names_of(member, patterns)
    counts = {name: topics.partition_count(name) for name in names}
    return {
        name: TopicMetadata(topics.topic_id(name), count)
        for name, count in counts.items()
        if count > 0
    }
