"""Members of a consumer group that speak the classic protocol (rules G-152 to G-154).

To them the member epoch is the generation, the current assignment is what SyncGroup gives, and a
rebalance is what they hear of in a heartbeat. Nobody waits for anybody: a join is answered at once.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from odradek_broker.coordinator.groups.answers import (
    heartbeat_reply,
    join_error,
    join_refused,
    sync_error,
    sync_refused,
)
from odradek_broker.coordinator.groups.classic import (
    LEAVE_LIST_SINCE,
    MEMBER_ID_REQUIRED_SINCE,
    JoinCall,
)
from odradek_broker.coordinator.groups.consumer.advance import Change, advance
from odradek_broker.coordinator.groups.consumer.deadlines import ConsumerDeadlines
from odradek_broker.coordinator.groups.consumer.group import (
    PROTOCOL_TYPE,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
)
from odradek_broker.coordinator.groups.consumer.heartbeat import ConsumerProtocol, take_over
from odradek_broker.coordinator.groups.consumer.migration import (
    assignment_bytes,
    may_downgrade,
    owned_by_subscription,
)
from odradek_broker.coordinator.groups.consumer.partitions import Partitions, each, without
from odradek_broker.coordinator.groups.consumer.settings import Refusal, Topics
from odradek_broker.coordinator.groups.consumer.states import LEAVE_STATIC_EPOCH, MemberState
from odradek_broker.coordinator.groups.rebalance import Deadline, GroupSettings
from odradek_broker.coordinator.runtime import Moment, Outcome, Reply
from odradek_broker.later import Later
from odradek_broker.seams import Randomness
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import DecodeError
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.join_group import JoinGroupResponse
from odradek_protocol.schemas.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek_protocol.stored.subscription import decode_subscription

_E = ErrorCode


class ClassicMembers:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup of a consumer group."""

    def __init__(
        self,
        config: GroupSettings,
        topics: Topics,
        deadlines: ConsumerDeadlines,
        protocol: ConsumerProtocol,
        random: Randomness,
    ) -> None:
        self._config = config
        self._topics = topics
        self._deadlines = deadlines
        self._protocol = protocol
        self._random = random

    # --- JoinGroup ---

    def join(self, group: ConsumerGroup, call: JoinCall, moment: Moment) -> Outcome:
        """G-152."""
        out = Outcome()
        try:
            response = self._join(group, call, out, moment)
            error = Reply(call.later, response, lambda other: join_error(other, response.member_id))
            out.replies.append(error)
        except Refusal as refusal:
            out.records.clear()
            full = refusal.error is _E.GROUP_MAX_SIZE_REACHED
            member_id = "" if full else call.request.member_id
            out.replies.append(join_refused(call.later, refusal.error, member_id))
        return out

    def _join(
        self, group: ConsumerGroup, call: JoinCall, out: Outcome, moment: Moment
    ) -> JoinGroupResponse:
        request = call.request
        self._check_join(group, call)
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
        change = self._subscribe(group, call, member_id, owned)
        if change.replaced is not None and may_downgrade(
            group, {change.replaced.member_id}, self._config
        ):
            # The last one that spoke the consumer protocol is back with the classic one. It joins
            # again, and then this is a classic group.
            self._protocol.remove(group, [change.replaced], out, moment, "its successor is classic")
            return join_error(_E.REBALANCE_IN_PROGRESS, request.member_id)
        change.member = replace(
            change.member,
            rack_id=subscription.rack_id,
            client_id=call.client_id,
            client_host=call.client_host,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            pattern=None,
            assignor=None,
            classic=ClassicSide(request.session_timeout_ms, tuple(call.protocols)),
        )
        member = advance(change, self._config, self._topics, moment)
        out.records += change.records
        self._protocol.guard(group, out)
        if change.replaced is not None:
            self._deadlines.forget(group, change.replaced.member_id)
        self._deadlines.cancel(group, member_id, Deadline.MEMBER_REJOIN)
        self._deadlines.stepped(group, member, moment)
        self._deadlines.heard(group, member, moment)
        timeout_ms = member.rebalance_timeout_ms
        self._deadlines.wait(group, member, Deadline.MEMBER_SYNC, timeout_ms, moment)
        return JoinGroupResponse(
            error_code=_E.NONE,
            generation_id=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=call.protocols[0][0],
            leader="",
            member_id=member_id,
        )

    def _check_join(self, group: ConsumerGroup, call: JoinCall) -> None:
        request, config = call.request, self._config
        shortest_ms = config.group_min_session_timeout_ms
        longest_ms = config.group_max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise Refusal(_E.INVALID_SESSION_TIMEOUT, "the session timeout is out of bounds")
        if not call.is_fit:
            raise Refusal(_E.INVALID_REQUEST, "the request is too large to be kept")
        if request.protocol_type != PROTOCOL_TYPE or not _supports(group, call):
            raise Refusal(_E.INCONSISTENT_GROUP_PROTOCOL, "no protocol that the others speak")
        self._protocol.check_room(group, request.member_id, request.group_instance_id)

    def _subscribe(
        self, group: ConsumerGroup, call: JoinCall, member_id: str, owned: Partitions
    ) -> Change:
        """Who joins. A dynamic member may bring any id: it was given one before."""
        instance_id = call.request.group_instance_id
        member = group.members.get(member_id)
        if instance_id is not None:
            member = group.static_member(instance_id)
            if member is not None and member.member_id != member_id:
                if call.request.member_id:
                    raise Refusal(_E.FENCED_INSTANCE_ID, "another member has the instance id")
                return take_over(group, member, member_id, owned, classic=True)
            if member is None and call.request.member_id:
                raise Refusal(_E.UNKNOWN_MEMBER_ID, "nobody has the instance id")
        if member is None:
            fresh = ConsumerMember(member_id=member_id, instance_id=instance_id)
            return Change(group, None, fresh, owned)
        if member.epoch == LEAVE_STATIC_EPOCH:
            return Change(group, member, replace(member, epoch=0, previous_epoch=0), owned)
        return Change(group, member, member, owned)

    # --- SyncGroup ---

    def sync(
        self,
        group: ConsumerGroup,
        request: SyncGroupRequest,
        later: Later[SyncGroupResponse],
        moment: Moment,
    ) -> Outcome:
        """G-153."""
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
                self._expect_rejoin(group, member, moment)
                raise Refusal(_E.REBALANCE_IN_PROGRESS, "the group has moved on")
        except Refusal as refusal:
            return Outcome(replies=[sync_refused(later, refusal.error)])
        self._deadlines.cancel(group, member.member_id, Deadline.MEMBER_SYNC)
        self._deadlines.heard(group, member, moment)
        response = SyncGroupResponse(
            error_code=_E.NONE,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignment=assignment_bytes(member.assigned, side.protocols[0][1], self._topics),
        )
        return Outcome(replies=[Reply(later, response, sync_error)])

    # --- Heartbeat ---

    def heartbeat(
        self,
        group: ConsumerGroup,
        request: HeartbeatRequest,
        later: Later[HeartbeatResponse],
        moment: Moment,
    ) -> Outcome:
        """G-154: it is told to join again if that would get it on."""
        try:
            member = _find(
                group, request.member_id, request.group_instance_id, request.generation_id
            )
        except Refusal as refusal:
            return Outcome(replies=[heartbeat_reply(later, refusal.error)])
        self._deadlines.heard(group, member, moment)
        error = _E.NONE
        if _must_rejoin(group, member):
            error = _E.REBALANCE_IN_PROGRESS
            self._expect_rejoin(group, member, moment)
        return Outcome(replies=[heartbeat_reply(later, error)])

    def _expect_rejoin(self, group: ConsumerGroup, member: ConsumerMember, moment: Moment) -> None:
        if not self._deadlines.waits(group, member.member_id, Deadline.MEMBER_REJOIN):
            timeout_ms = member.rebalance_timeout_ms
            self._deadlines.wait(group, member, Deadline.MEMBER_REJOIN, timeout_ms, moment)

    # --- LeaveGroup ---

    def leave(
        self,
        group: ConsumerGroup,
        request: LeaveGroupRequest,
        api_version: int,
        later: Later[LeaveGroupResponse],
        moment: Moment,
    ) -> Outcome:
        """However many leave, the group epoch grows once."""
        out = Outcome()
        batch = api_version >= LEAVE_LIST_SINCE
        leaving = request.members if batch else [MemberIdentity(member_id=request.member_id)]
        gone: dict[str, ConsumerMember] = {}
        errors = [_leave(group, identity, gone) for identity in leaving]
        if gone:
            self._protocol.remove(group, list(gone.values()), out, moment)
        response = LeaveGroupResponse(error_code=_E.NONE if batch else errors[0])
        if batch:
            response.members = [
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
                for identity, error in zip(leaving, errors, strict=True)
            ]
        out.replies.append(
            Reply(later, response, lambda error: LeaveGroupResponse(error_code=error))
        )
        return out


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember:
    """The member, if it speaks the classic protocol and is at this epoch. Refusal if not."""
    member = group.members.get(member_id)
    if instance_id is not None:
        holder = group.static_member(instance_id)
        if holder is not None and holder.member_id != member_id:
            raise Refusal(_E.FENCED_INSTANCE_ID, "another member has the instance id")
        member = holder
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
    missing = without(group.target(member.member_id), member.assigned)
    return all(group.owner(*place) in (None, member.member_id) for place in each(missing))


def _supports(group: ConsumerGroup, call: JoinCall) -> bool:
    """Is one of its protocols spoken by every classic member?"""
    names = {name for name, _ in call.protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != call.request.member_id:
            names &= {name for name, _ in member.classic.protocols}
    return bool(names)


def _leave(
    group: ConsumerGroup, identity: MemberIdentity, gone: dict[str, ConsumerMember]
) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id and instance_id is not None:
        # An administrator removes a static member, whatever it speaks.
        member = group.static_member(instance_id)
    else:
        member = group.members.get(member_id)
        holder = None if instance_id is None else group.static_member(instance_id)
        if holder is not None and holder.member_id != member_id:
            return _E.FENCED_INSTANCE_ID
        if instance_id is not None and holder is None:
            member = None
    if member is None or member.member_id in gone:
        return _E.UNKNOWN_MEMBER_ID
    gone[member.member_id] = member
    return _E.NONE
