"""Members of a consumer group that speak the classic protocol (rules G-152 to G-154).

These members see the member epoch as the generation, get their current assignment from SyncGroup,
and learn of a rebalance from a heartbeat. No member waits for others: a JoinGroup is answered
immediately.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID

from odradek_broker.coordinator.groups.classic.group import JoinCall
from odradek_broker.coordinator.groups.consumer.group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from odradek_broker.coordinator.groups.consumer.heartbeat import ConsumerGroups
from odradek_broker.coordinator.groups.consumer.reconciliation import (
    MemberUpdate,
    replace_static_member,
    update_member,
)
from odradek_broker.coordinator.groups.conversion import (
    assignment_bytes,
    may_downgrade,
    owned_by_subscription,
)
from odradek_broker.coordinator.groups.deadlines import GroupTimer
from odradek_broker.coordinator.groups.events import MemberRemovalReason, Removal
from odradek_broker.coordinator.groups.partitions import Partitions, difference, each_partition
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.responses import (
    heartbeat_reply,
    join_error,
    join_refused,
    leave_reply,
    leaving_members,
    removal_of,
    sync_error,
    sync_refused,
)
from odradek_broker.coordinator.groups.settings import CoordinatorMetadata, GroupSettings
from odradek_broker.coordinator.runtime import CoreOutcome, Instant, Reply
from odradek_broker.deferred import Deferred
from odradek_broker.platform.seams import Randomness
from odradek_broker.slices import in_pieces
from odradek_protocol.constants import LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import DecodeError
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.join_group import MEMBER_ID_REQUIRED_SINCE, JoinGroupResponse
from odradek_protocol.schemas.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek_protocol.stored.subscription import PROTOCOL_TYPE, decode_subscription

_E = ErrorCode


class ClassicProtocolMembers:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup of a consumer group."""

    def __init__(
        self,
        config: GroupSettings,
        topics: CoordinatorMetadata,
        groups: ConsumerGroups,
        random: Randomness,
    ) -> None:
        self._config = config
        self._topics = topics
        self._deadlines = groups.deadlines
        self._groups = groups
        self._random = random

    # --- JoinGroup ---

    async def join(self, group: ConsumerGroup, call: JoinCall, now: Instant) -> CoreOutcome:
        """Answer a JoinGroup immediately. If the group refuses it, the answer has no member id
        (G-152)."""
        out = CoreOutcome()
        error = call.error(self._config)
        if error is not _E.NONE:
            out.replies.append(join_refused(call.deferred, error, call.request.member_id))
            return out
        try:
            response = await self._join(group, call, out, now)
            out.replies.append(Reply(call.deferred, response, partial(join_error, member_id="")))
        except Refusal as refusal:
            out.records.clear()
            out.replies.append(join_refused(call.deferred, refusal.error, ""))
        return out

    async def _join(
        self, group: ConsumerGroup, call: JoinCall, out: CoreOutcome, now: Instant
    ) -> JoinGroupResponse:
        request = call.request
        await self._check_join(group, call)
        member_id, instance_id = request.member_id, request.group_instance_id
        if not member_id:
            member_id = str(UUID(bytes=self._random.uuid()))
            if instance_id is None and call.api_version >= MEMBER_ID_REQUIRED_SINCE:
                return join_error(_E.MEMBER_ID_REQUIRED, member_id)
        try:
            subscription = decode_subscription(call.protocols[0][1])
        except DecodeError as error:
            raise Refusal(_E.UNKNOWN_SERVER_ERROR, str(error)) from error
        owned = owned_by_subscription(subscription, self._topics)
        update = await self._subscribe(group, call, member_id, owned)
        if update.replaced is not None and self._is_last(group, update.replaced):
            # The last member that used the consumer protocol has returned with the classic
            # protocol. The group becomes a classic group, and the member joins it with its next
            # JoinGroup.
            removal = Removal(MemberRemovalReason.REPLACED_BY_CLASSIC)
            await self._groups.remove(group, {update.replaced.member_id: removal}, out, now)
            return join_error(_E.REBALANCE_IN_PROGRESS, request.member_id)
        update.member = replace(
            update.member,
            rack_id=subscription.rack_id,
            client_id=call.client_id,
            client_host=call.client_host,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            pattern=None,
            assignor=None,
            classic=ClassicMetadata(request.session_timeout_ms, tuple(call.protocols)),
        )
        member = await update_member(update, self._config, self._topics, now)
        out.records += update.records
        self._groups.undo_if_refused(group, out, member_id)
        if update.replaced is not None:
            self._deadlines.forget(group, update.replaced.member_id)
        self._deadlines.cancel(group, member_id, GroupTimer.MEMBER_REJOIN)
        self._deadlines.update_revocation(group, member, now)
        self._deadlines.restart_session(group, member, now)
        timeout_ms = member.rebalance_timeout_ms
        self._deadlines.set(group, member.member_id, GroupTimer.MEMBER_SYNC, timeout_ms, now)
        return JoinGroupResponse(
            error_code=_E.NONE,
            generation_id=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=call.protocols[0][0],
            leader="",
            member_id=member_id,
        )

    def _is_last(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """True if the replaced member uses the consumer protocol, and the group without this member
        is empty or may become a classic group."""
        if replaced.classic is not None:
            return False
        return len(group.members) == 1 or may_downgrade(group, {replaced.member_id}, self._config)

    async def _check_join(self, group: ConsumerGroup, call: JoinCall) -> None:
        request = call.request
        self._groups.check_group_size(group, request.member_id, request.group_instance_id)
        if request.protocol_type != PROTOCOL_TYPE or not await _supports(group, call):
            raise Refusal(
                _E.INCONSISTENT_GROUP_PROTOCOL, "no protocol that the other members support"
            )

    async def _subscribe(
        self, group: ConsumerGroup, call: JoinCall, member_id: str, owned: Partitions
    ) -> MemberUpdate:
        """The update for the member that joins. A dynamic member may join with an unknown member
        id: an earlier JoinGroup answer gave it the id, which is in no record yet."""
        instance_id = call.request.group_instance_id
        member = group.members.get(member_id)
        if instance_id is not None:
            member = group.static_member(instance_id)
            if member is not None and member.member_id != member_id:
                if call.request.member_id:
                    raise group.fenced_instance(member_id, instance_id)
                return await replace_static_member(group, member, member_id, owned, classic=True)
            if member is None and call.request.member_id:
                raise Refusal(_E.UNKNOWN_MEMBER_ID, "nobody has the instance id")
        if member is None:
            fresh = ConsumerMember(member_id=member_id, instance_id=instance_id)
            return MemberUpdate(group, None, fresh, owned)
        if member.epoch == LEAVE_STATIC_EPOCH:
            return MemberUpdate(group, member, replace(member, epoch=0, previous_epoch=0), owned)
        return MemberUpdate(group, member, member, owned)

    # --- SyncGroup ---

    def sync(
        self,
        group: ConsumerGroup,
        request: SyncGroupRequest,
        deferred: Deferred[SyncGroupResponse],
        now: Instant,
    ) -> CoreOutcome:
        """Answer a SyncGroup with the current assignment (G-153)."""
        try:
            member = _find(
                group, request.member_id, request.group_instance_id, request.generation_id
            )
            side = member.classic
            assert side is not None
            protocol = side.protocols[0][0]
            if (request.protocol_type or PROTOCOL_TYPE) != PROTOCOL_TYPE or (
                request.protocol_name or protocol
            ) != protocol:
                raise Refusal(_E.INCONSISTENT_GROUP_PROTOCOL, "another protocol")
            revokes = member.state is MemberState.UNREVOKED_PARTITIONS
            if group.epoch > member.epoch and not revokes:
                self._expect_rejoin(group, member, now)
                raise Refusal(_E.REBALANCE_IN_PROGRESS, "the group has moved on")
        except Refusal as refusal:
            return CoreOutcome(replies=[sync_refused(deferred, refusal.error)])
        self._deadlines.cancel(group, member.member_id, GroupTimer.MEMBER_SYNC)
        self._deadlines.restart_session(group, member, now)
        response = SyncGroupResponse(
            error_code=_E.NONE,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignment=assignment_bytes(member.assigned, side.protocols[0][1], self._topics),
        )
        return CoreOutcome(replies=[Reply(deferred, response, sync_error)])

    # --- Heartbeat ---

    def heartbeat(
        self,
        group: ConsumerGroup,
        request: HeartbeatRequest,
        deferred: Deferred[HeartbeatResponse],
        now: Instant,
    ) -> CoreOutcome:
        """Answer a Heartbeat; REBALANCE_IN_PROGRESS if the member has to join again (G-154)."""
        try:
            member = _find(
                group, request.member_id, request.group_instance_id, request.generation_id
            )
        except Refusal as refusal:
            return CoreOutcome(replies=[heartbeat_reply(deferred, refusal.error)])
        self._deadlines.restart_session(group, member, now)
        error = _E.NONE
        if _must_rejoin(group, member):
            error = _E.REBALANCE_IN_PROGRESS
            self._expect_rejoin(group, member, now)
        return CoreOutcome(replies=[heartbeat_reply(deferred, error)])

    def _expect_rejoin(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        if not self._deadlines.is_set(group, member.member_id, GroupTimer.MEMBER_REJOIN):
            timeout_ms = member.rebalance_timeout_ms
            self._deadlines.set(group, member.member_id, GroupTimer.MEMBER_REJOIN, timeout_ms, now)

    # --- LeaveGroup ---

    async def leave(
        self,
        group: ConsumerGroup,
        request: LeaveGroupRequest,
        api_version: int,
        deferred: Deferred[LeaveGroupResponse],
        now: Instant,
    ) -> CoreOutcome:
        """Answer a LeaveGroup; the group epoch grows once, however many members leave."""
        out = CoreOutcome()
        leaving = leaving_members(request, api_version)
        gone: dict[str, Removal] = {}
        errors = [
            _leave(group, identity, gone) async for some in in_pieces(leaving) for identity in some
        ]
        if gone:
            await self._groups.remove(group, gone, out, now)
        out.replies.append(await leave_reply(deferred, leaving, errors, api_version))
        return out


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember:
    """The member, if it uses the classic protocol and has this epoch. Raises Refusal otherwise."""
    member = group.find_member(member_id, instance_id)
    if member is None or member.classic is None:
        raise Refusal(_E.UNKNOWN_MEMBER_ID, "no such member speaks the classic protocol")
    if generation != member.epoch:
        raise Refusal(_E.ILLEGAL_GENERATION, f"the member is at epoch {member.epoch}")
    return member


def _must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = difference(group.target(member.member_id), member.assigned)
    return all(
        group.owner(*partition) in (None, member.member_id) for partition in each_partition(missing)
    )


async def _supports(group: ConsumerGroup, call: JoinCall) -> bool:
    """True if this member offers a protocol that all other members of the classic protocol offer
    too."""
    names = {name for name, _ in call.protocols}
    async for some in in_pieces(group.members.values()):
        for member in some:
            if member.classic is not None and member.member_id != call.request.member_id:
                names &= {name for name, _ in member.classic.protocols}
    return bool(names)


def _leave(group: ConsumerGroup, identity: MemberIdentity, gone: dict[str, Removal]) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id and instance_id is not None:
        # An administrator removes a static member, whether it uses the consumer protocol or the
        # classic protocol.
        member = group.static_member(instance_id)
    else:
        member = group.members.get(member_id)
        holder = None if instance_id is None else group.static_member(instance_id)
        if holder is not None and holder.member_id != member_id:
            return _E.FENCED_INSTANCE_ID
        if instance_id is not None and holder is None:
            member = None
    if member is None:
        return _E.UNKNOWN_MEMBER_ID
    gone[member.member_id] = removal_of(identity)
    return _E.NONE
