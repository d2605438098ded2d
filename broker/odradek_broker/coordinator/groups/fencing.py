"""Fencing of zombies in groups: the errors for members that are unknown, that another member with
the same instance id has replaced, or that bring an old epoch.

Classic groups compare member id and instance id here; the generation is compared by the handlers of
the requests, whose errors differ. Zombie producers are fenced in `transactions/decisions.py`.
"""

from __future__ import annotations

from odradek_broker.coordinator.groups.classic.group import ClassicGroup
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.partitions import Partitions, is_subset, union
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_protocol.constants import JOIN_EPOCH
from odradek_protocol.errors import ErrorCode

_E = ErrorCode


def check_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """UNKNOWN_MEMBER_ID for an unknown member or instance id, FENCED_INSTANCE_ID if another member
    has the instance id, else NONE."""
    if instance_id is not None:
        mapped = group.static_ids.get(instance_id)
        if mapped is None:
            return _E.UNKNOWN_MEMBER_ID
        if mapped != member_id:
            return _E.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return _E.UNKNOWN_MEMBER_ID
    return _E.NONE


def unknown_member(member_id: str, group_id: str) -> Refusal:
    """The refusal of a member that the group does not have (G-113)."""
    return Refusal(_E.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def fenced_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> Refusal:
    """The refusal of a member whose instance id another member has taken (G-133)."""
    return Refusal(
        _E.FENCED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} was fenced in group"
        f" {group.group_id}: another member has taken its place.",
    )


def find_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember | None:
    """The member of a consumer group; None if it is unknown. Refusal if another member has its
    instance id."""
    if instance_id is None:
        return group.members.get(member_id)
    member = group.static_member(instance_id)
    if member is not None and member.member_id != member_id:
        raise fenced_instance(group, member_id, instance_id)
    return member


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Refusal unless the epoch is the member's, or its last one after a lost answer (G-114, G-115).

    A join is always accepted, because a member that joins owns nothing.
    """
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    may_own = union(member.assigned, member.pending)
    lost_answer = epoch == member.previous_epoch and epoch < member.epoch
    if lost_answer and owned is not None and is_subset(owned, may_own):
        return
    comparison = "greater" if epoch > member.epoch else "smaller"
    raise Refusal(
        _E.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known"
        f" by the group coordinator ({member.epoch}). The member must abandon all its partitions"
        " and rejoin.",
    )
