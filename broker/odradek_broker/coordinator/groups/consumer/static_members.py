"""Static members: one takes the place of another with its instance id (rules G-130, G-131)."""

from __future__ import annotations

from dataclasses import replace

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.consumer.member_update import MemberUpdate
from odradek_broker.coordinator.groups.consumer.partitions import NO_PARTITIONS, Partitions
from odradek_broker.coordinator.groups.consumer.settings import Refusal
from odradek_broker.coordinator.groups.consumer.states import MemberState
from odradek_protocol.constants import LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode

_E = ErrorCode


def replace_static_member(
    group: ConsumerGroup,
    old: ConsumerMember,
    member_id: str,
    owned: Partitions | None,
    *,
    classic: bool = False,
) -> MemberUpdate:
    """The update by which a member takes the place of `old`, whose instance id it has.

    It gets what that one was to have, without a new epoch. Between two members that speak the
    consumer protocol the old one must have left for a while; the classic protocol knows no such
    leave, and there the newer one counts.
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
    update.records += make.member_tombstones(group.group_id, old.member_id)
    update.records.append(
        make.target_record(group.group_id, member_id, group.target(old.member_id))
    )
    return update
