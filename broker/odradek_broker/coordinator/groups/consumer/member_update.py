"""An update of a member: the records, epochs and assignments that follow from it.

The same for both protocols, ConsumerGroupHeartbeat and JoinGroup (rules G-101 to G-103).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.current_assignment import (
    Owner,
    next_assignment,
)
from odradek_broker.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
)
from odradek_broker.coordinator.groups.consumer.partitions import Partitions
from odradek_broker.coordinator.groups.consumer.settings import (
    ConsumerGroupSettings,
    Topics,
    Visible,
    every_topic,
)
from odradek_broker.coordinator.groups.consumer.subscriptions import (
    Subscriptions,
    resolve_subscriptions,
)
from odradek_broker.coordinator.groups.consumer.target_assignment import compute_target_assignment
from odradek_broker.coordinator.runtime import Instant, Record


@dataclass(slots=True)
class MemberUpdate:
    """A request of a member: what it was, what it is now, and what is to be written about it.

    `before` None: it is new. `replaced`: the static member whose place it takes (G-131), whose
    records are among `records` already. `owned`: what it says that it owns. `visible`: what its user may see.
    """

    group: ConsumerGroup
    before: ConsumerMember | None
    member: ConsumerMember
    owned: Partitions | None
    replaced: ConsumerMember | None = None
    records: list[Record] = field(default_factory=list)
    visible: Visible = every_topic

    def members(self) -> dict[str, ConsumerMember]:
        """The group's members, this one as it is now."""
        members = dict(self.group.members)
        if self.replaced is not None:
            members.pop(self.replaced.member_id, None)
        members[self.member.member_id] = self.member
        return members

    def target_of(self, member_id: str) -> Partitions:
        """The target of a member so far."""
        if self.replaced is not None and member_id == self.member.member_id:
            return self.group.target(self.replaced.member_id)
        return self.group.target(member_id)


def update_member(
    update: MemberUpdate, config: ConsumerGroupSettings, topics: Topics, now: Instant
) -> ConsumerMember:
    """Add to `update.records` what follows; returns the member as it is then."""
    group, before, member = update.group, update.before, update.member
    if before is None or _stored_fields(before) != _stored_fields(member):
        update.records.append(make.member_record(group.group_id, member))
    known = update.replaced if update.replaced is not None else before
    wanted = None if known is None else (known.topics, known.pattern)
    subscriptions = Subscriptions(group.epoch, group.topics, group.patterns, [])
    if wanted != (member.topics, member.pattern) or group.topics_version != topics.topics_version:
        subscriptions = resolve_subscriptions(
            group, update.members(), known, member, topics, now, update.visible
        )
        update.records += subscriptions.records
        group.topics_version = topics.topics_version
    target, target_epoch = update.target_of(member.member_id), group.assignment_epoch
    if subscriptions.epoch > target_epoch:
        target, target_epoch = _assign_targets(update, subscriptions, config), subscriptions.epoch
    after = next_assignment(member, target_epoch, target, update.owned, _owner(update))
    if after != member or before is None:
        update.records.append(make.current_record(group.group_id, after))
    return after


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
        held = group.owner(topic_id, partition)
        return None if held == replaced.member_id else held

    return owner


def _assign_targets(
    update: MemberUpdate, subscriptions: Subscriptions, config: ConsumerGroupSettings
) -> Partitions:
    """Add the targets that have changed (G-102); returns that of the member itself."""
    group, members = update.group, update.members()
    targets = compute_target_assignment(
        group,
        members,
        {member_id: update.target_of(member_id) for member_id in members},
        subscriptions.topics,
        subscriptions.patterns,
        config,
    )
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            update.records.append(make.target_record(group.group_id, member_id, target))
    update.records.append(make.target_epoch_record(group.group_id, subscriptions.epoch))
    return targets[update.member.member_id]
