"""What a group is at this moment, for people (`odradek explain group`).

What happened to it is recorded where it is decided; see `odradek_broker.history`.
"""

from __future__ import annotations

from odradek_broker.coordinator.groups.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.states import GroupState
from odradek_broker.history import LIST_MAX, Now
from odradek_broker.history_words import Value, What, span


def now_of_group(group: ClassicGroup | None, offsets: int, wall_ms: int) -> list[Now]:
    """The group, then its members (the first of them), then who is expected."""
    if group is None:
        return [Now(What.NOW_NOTHING, {"reason": "there is no such group"})]
    fields: dict[str, Value | None] = {
        "state": group.state.value,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader_id if group.members else None,
        "members": len(group.members),
        "offsets": offsets,
        "updated": span(wall_ms - group.state_since_ms),
    }
    told = [Now.of(What.NOW_GROUP, fields)]
    members = list(group.members.values())
    told += [_member(group, member) for member in members[:LIST_MAX]]
    if len(members) > LIST_MAX:
        told.append(Now.of(What.NOW_NOTHING, {"reason": f"and {len(members) - LIST_MAX} members"}))
    if group.pending:
        first, *others = group.pending
        reason = f"{len(group.pending)} ids were handed out and have not joined: {first}"
        told.append(Now.of(What.NOW_NOTHING, {"reason": (reason, *others)}))
    return told


def _member(group: ClassicGroup, member: Member) -> Now:
    note = None
    if group.state is GroupState.PREPARING_REBALANCE:
        note = "has joined, and waits for the others"
        if member.parked_join is None:
            note = "has not joined again yet"
    elif member.parked_sync is not None:
        note = "waits for its assignment"
    elif member.member_id in group.pending_syncs:
        note = "has not asked for its assignment yet"
    fields: dict[str, Value | None] = {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client,
        "timeout": span(member.session_timeout_ms),
        "note": note,
    }
    return Now.of(What.NOW_MEMBER, fields)
