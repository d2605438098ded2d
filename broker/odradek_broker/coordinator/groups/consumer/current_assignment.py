"""The current assignment of a member: one step towards its target (rules G-120 to G-122).

A member is first told to give back what is not in its target. When it says that it has, it moves on
and gets what nobody else may own any more; what others still have to give back, it gets later. So a
partition never belongs to two members, whatever is lost on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odradek_broker.coordinator.groups.consumer.group import ConsumerMember
from odradek_broker.coordinator.groups.consumer.partitions import (
    NO_PARTITIONS,
    Partitions,
    difference,
    each_partition,
    intersection,
    intersects,
    partitions_of,
    union,
)
from odradek_broker.coordinator.groups.consumer.states import STEPS, MemberState, Report, Step

Owner = Callable[[bytes, int], str | None]
"""Who may own a partition: (topic id, index) -> member id or None."""


def next_assignment(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner: Owner,
) -> ConsumerMember:
    """The member after one step; itself if there is nothing to do.

    `owned`: what its heartbeat says that it owns, None if it does not say.
    """
    step = STEPS[member.state, _report(member.pending, owned), member.epoch != target_epoch]
    if step in (Step.STAY, Step.WAIT):
        return member
    epoch = member.epoch + 1 if step is Step.ADVANCE else member.epoch
    return _compute(member, epoch, target_epoch, target, owned, owner)


def _report(pending: Partitions, owned: Partitions | None) -> Report:
    if owned is None:
        return Report.SILENT
    return Report.OWNING if intersects(owned, pending) else Report.RELEASED


def _compute(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner: Owner,
) -> ConsumerMember:
    kept = intersection(member.assigned, target)
    surplus = difference(member.assigned, target)
    if surplus and (owned is None or intersects(owned, surplus)):
        return replace(
            member.at_epoch(epoch),
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending=surplus,
        )
    wanted = difference(target, kept)
    free = partitions_of(
        (topic_id, [index])
        for topic_id, index in each_partition(wanted)
        if owner(topic_id, index) in (None, member.member_id)
    )
    complete = free == wanted
    return replace(
        member.at_epoch(target_epoch),
        state=MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS,
        assigned=union(kept, free),
        pending=NO_PARTITIONS,
    )
