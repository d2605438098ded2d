"""LeaveGroup of the classic protocol (rules G-80 to G-82)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.classic.checks import check_member
from odradek_broker.coordinator.groups.classic.group import ClassicGroup
from odradek_broker.coordinator.groups.classic.rebalance import Rebalances
from odradek_broker.coordinator.groups.classic.states import GroupState
from odradek_broker.coordinator.groups.events import (
    RebalanceCause,
    RebalanceReason,
)
from odradek_broker.coordinator.groups.responses import (
    leave_refused,
    leave_reply,
    leaving_members,
    removal_of,
)
from odradek_broker.coordinator.runtime import Instant, Outcome
from odradek_broker.deferred import Deferred
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)


class LeaveGroup:
    """Answers LeaveGroups. `groups` is the shard's."""

    def __init__(self, groups: dict[str, ClassicGroup], rebalances: Rebalances) -> None:
        self._groups = groups
        self._rebalances = rebalances

    def decide(
        self,
        request: LeaveGroupRequest,
        api_version: int,
        deferred: Deferred[LeaveGroupResponse],
        now: Instant,
    ) -> Outcome:
        """However many leave, the others rebalance once (G-80)."""
        out = Outcome()
        group = self._groups.get(request.group_id)
        if not request.group_id:
            out.replies.append(leave_refused(deferred, ErrorCode.INVALID_GROUP_ID))
            return out
        if group is not None and group.state is GroupState.DEAD:
            out.replies.append(leave_refused(deferred, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return out
        leaving = leaving_members(request, api_version)
        before = [] if group is None else [*group.members, *group.pending]
        errors = [self._leave(group, identity, out) for identity in leaving]
        held = {} if group is None else {**group.members, **group.pending}
        if group is not None and len(held) < len(before):
            left = [member_id for member_id in before if member_id not in held]
            cause = RebalanceCause(RebalanceReason.MEMBERS_LEFT, left)
            self._rebalances.after_removal(group, out, now, cause)
        elif group is not None:
            self._rebalances.complete_if_all_joined(group, out, now)
        out.replies.append(leave_reply(deferred, leaving, errors, api_version))
        return out

    def _leave(
        self, group: ClassicGroup | None, identity: MemberIdentity, out: Outcome
    ) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id and instance_id is not None:
            # An administrator removes a static member by its instance id.
            member_id = group.static_ids.get(instance_id, "")
        elif member_id in group.pending and instance_id is None:
            self._rebalances.timers.take_pending(group, member_id)
            return ErrorCode.NONE
        error = check_member(group, member_id, instance_id)
        if error is ErrorCode.NONE:
            self._rebalances.remove(group, group.members[member_id], out, removal_of(identity))
        return error
