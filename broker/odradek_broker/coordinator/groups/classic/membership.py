"""The four requests of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (rules
G-20 to G-82).

Each request is checked, and the table of `group` selects the action. A request that cannot be
answered yet is parked on its member, and answered as soon as the group's state allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from odradek_broker.coordinator.groups.classic.group import (
    ANSWERS,
    ClassicAction,
    ClassicGroup,
    ClassicRequest,
    GroupState,
    JoinCall,
    Member,
)
from odradek_broker.coordinator.groups.classic.join_phase import Rebalances, Replies
from odradek_broker.coordinator.groups.events import (
    GroupRequestRefused,
    GroupStabilized,
    MemberIdGiven,
    MemberRejoined,
    MemberReplaced,
    Observer,
    RebalanceCause,
    RebalanceReason,
)
from odradek_broker.coordinator.groups.responses import (
    heartbeat_reply,
    join_answer,
    join_error,
    join_refused,
    join_reply,
    leave_refused,
    leave_reply,
    leaving_members,
    list_members,
    removal_of,
    sync_refused,
    sync_reply,
)
from odradek_broker.coordinator.groups.settings import GroupSettings
from odradek_broker.coordinator.runtime import CoreOutcome, Instant, Reply
from odradek_broker.deferred import Deferred
from odradek_broker.platform.seams import Randomness
from odradek_broker.slices import in_pieces
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.join_group import MEMBER_ID_REQUIRED_SINCE, SKIP_ASSIGNMENT_SINCE
from odradek_protocol.schemas.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

#: The limit of pending member ids per group; a group that has reached this limit is full.
PENDING_MEMBERS_MAX = 10_000

_HEARTBEAT_ERRORS: dict[ClassicAction, ErrorCode] = {
    ClassicAction.ALIVE: ErrorCode.NONE,
    ClassicAction.ALIVE_BUT_REJOIN: ErrorCode.REBALANCE_IN_PROGRESS,
    ClassicAction.UNKNOWN_MEMBER_ID: ErrorCode.UNKNOWN_MEMBER_ID,
    ClassicAction.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class ClassicMembers:
    """The requests of members of a shard's classic groups.

    `groups`: the groups of the shard. `create` creates a group, or returns None if there are too
    many groups without a record.
    """

    def __init__(
        self,
        config: GroupSettings,
        groups: dict[str, ClassicGroup],
        rebalances: Rebalances,
        random: Randomness,
        create: Callable[[str, Instant], ClassicGroup | None],
        observer: Observer,
    ) -> None:
        self._config = config
        self._groups = groups
        self._rebalances = rebalances
        self._timers = rebalances.timers
        self._random = random
        self._create = create
        self._observer = observer

    # --- JoinGroup ---

    async def join(self, call: JoinCall, now: Instant) -> CoreOutcome:
        """Answer the join, or park it until the join phase is complete."""
        request, instance_id = call.request, call.request.group_instance_id
        group = self._groups.get(request.group_id)
        error = call.error(self._config) or self._join_error(group, call)
        if group is None and error is ErrorCode.NONE:
            group = self._create(request.group_id, now)
        if group is None or error is not ErrorCode.NONE:
            # Without an error: there are too many groups without a record.
            return await self._refuse_join(
                call, error or ErrorCode.COORDINATOR_NOT_AVAILABLE, group, now
            )
        # `known_id`: the id under which the group has the member, if it has it.
        member_id = known_id = request.member_id
        if not member_id:
            first = call.client_id if instance_id is None else instance_id
            member_id = f"{first}-{UUID(bytes=self._random.uuid())}"
            known_id = "" if instance_id is None else group.static_ids.get(instance_id, "")
            if instance_id is None and call.api_version >= MEMBER_ID_REQUIRED_SINCE:
                return self._give_id(group, call, member_id, now)
        member = group.members.get(known_id)
        if member is None:
            return await self._add(group, call, member_id, now)
        if known_id != member_id:
            return await self._replace(group, call, member, member_id, now)
        return await self._join_again(group, call, member, now)

    def _join_error(self, group: ClassicGroup | None, call: JoinCall) -> ErrorCode:
        """The error of the first check of the group that the join does not pass, else NONE. `group`
        None: the join would create the group."""
        request, member_id = call.request, call.request.member_id
        present = ClassicGroup(request.group_id) if group is None else group
        error = ErrorCode.NONE
        if group is None and member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif present.state is GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif not self._has_room(present, member_id):
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
        elif not present.accepts(request.protocol_type, [each.name for each in request.protocols]):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif member_id in present.pending and request.group_instance_id is not None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id and member_id not in present.pending:
            error = present.check_member(member_id, request.group_instance_id)
        return error

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """True if group.max.size lets the member join (G-22)."""
        member = group.members.get(member_id)
        is_known = member is not None or member_id in group.pending
        if group.state is GroupState.PREPARING_REBALANCE:
            has_place = member is not None and member.parked_join is not None
            taken = group.awaiting_joins
        else:
            has_place = member is not None or group.state is GroupState.EMPTY
            taken = len(group.members)
        has_id = is_known or len(group.pending) < PENDING_MEMBERS_MAX
        return has_id and (has_place or taken < self._config.group_max_size)

    async def _refuse_join(
        self, call: JoinCall, error: ErrorCode, group: ClassicGroup | None, now: Instant
    ) -> CoreOutcome:
        out, member_id = CoreOutcome(), call.request.member_id
        if group is not None and error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            out = await self._rebalances.drop_surplus(group, member_id, now)
            member_id = ""
        out.replies.append(join_refused(call.deferred, error, member_id))
        self._observe_refusal(call, error)
        return out

    def _give_id(
        self, group: ClassicGroup, call: JoinCall, member_id: str, now: Instant
    ) -> CoreOutcome:
        """Answer a dynamic member with the id to join with (G-25)."""
        self._timers.add_pending(group, member_id, call.request.session_timeout_ms, now)
        self._observer(MemberIdGiven(group.group_id, member_id, call))
        refusal = join_refused(call.deferred, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return CoreOutcome(replies=[refusal])

    async def _add(
        self, group: ClassicGroup, call: JoinCall, member_id: str, now: Instant
    ) -> CoreOutcome:
        """Park the join of a new member."""
        member = Member(
            member_id=member_id,
            instance_id=call.request.group_instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            session_timeout_ms=call.request.session_timeout_ms,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            protocol_type=call.request.protocol_type,
            protocols=call.protocols,
            knows_id=bool(call.request.member_id or call.request.group_instance_id),
            parked_join=call.deferred,
        )
        self._rebalances.add(group, member, now)
        cause = RebalanceCause(RebalanceReason.MEMBER_ADDED, [member_id])
        return await self._rebalances.proceed(group, ClassicRequest.JOIN_NEW, now, cause)

    async def _join_again(
        self, group: ClassicGroup, call: JoinCall, member: Member, now: Instant
    ) -> CoreOutcome:
        """Answer a known member that joins for the next generation, or because the answer to its
        last JoinGroup was lost (G-30)."""
        member.knows_id = True
        reason = RebalanceReason.LEADER_REJOINED
        if member.protocols != call.protocols:
            request, reason = ClassicRequest.JOIN_CHANGED, RebalanceReason.MEMBER_CHANGED
        elif group.leader_id == member.member_id:
            request = ClassicRequest.JOIN_LEADER
        else:
            request = ClassicRequest.JOIN_FOLLOWER
        if ANSWERS[group.state, request] is ClassicAction.ANSWER_JOIN:
            answer = await join_answer(group, member, group.generation, group.protocol)
            self._timers.restart_session(group, member, now)
            return CoreOutcome(replies=[join_reply(call.deferred, answer)])
        given_up = self._park(group, member, call, now)
        if group.state is GroupState.PREPARING_REBALANCE:
            waited_ms = now.monotonic_ms - group.rebalance_since_ms
            self._observer(MemberRejoined(group.group_id, member.member_id, waited_ms))
        cause = RebalanceCause(reason, [member.member_id])
        return (await self._rebalances.proceed(group, request, now, cause)).after(given_up)

    def _park(self, group: ClassicGroup, member: Member, call: JoinCall, now: Instant) -> Replies:
        """Take the metadata of the member, and park the call. Returns the answer to an older parked
        JoinGroup of the member, whose connection the client has given up."""
        given_up: Replies = []
        if member.parked_join is not None:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            given_up.append(join_refused(member.parked_join, error, member.member_id))
        group.park(member, call.deferred)
        group.offer(member, call.protocols)
        member.joined_ms = now.monotonic_ms
        group.set_timeouts(member, call.request.session_timeout_ms, call.rebalance_timeout_ms)
        member.client_id = call.client_id
        member.client_host = call.client_host
        return given_up

    async def _replace(
        self, group: ClassicGroup, call: JoinCall, member: Member, member_id: str, now: Instant
    ) -> CoreOutcome:
        """Replace a static member by its successor, which joined without an id, and fence the old
        member id (G-28). A stable group rebalances only if the successor changes its protocol."""
        old_id, old_leader = member.member_id, group.leader_id
        fenced = self._rebalances.replace(group, member, member_id, now)
        self._park(group, member, call, now)
        self._observer(MemberReplaced(group.group_id, member, old_id))
        stable = group.state is GroupState.STABLE
        if not stable or await group.select_protocol() != group.protocol:
            reason = RebalanceReason.STATIC_MEMBER_RETURNED
            if stable:
                reason = RebalanceReason.STATIC_MEMBER_CHANGED
            cause = RebalanceCause(reason, [member_id], member.instance_id)
            out = await self._rebalances.proceed(group, ClassicRequest.JOIN_CHANGED, now, cause)
            return out.after(fenced)
        group.unpark(member)
        assignments = {
            each: group.assignment(old_id if each == member_id else each) for each in group.members
        }
        record = await self._rebalances.record(
            group, group.generation, group.protocol, group.leader_id, assignments, now
        )
        answer = await join_answer(group, member, group.generation, group.protocol)
        if group.leader_id == member_id:
            if call.api_version >= SKIP_ASSIGNMENT_SINCE:
                answer.skip_assignment = True
                answer.members = await list_members(group, group.protocol)
            else:
                # In versions without SkipAssignment, a member that learns that it is the leader
                # computes an assignment, but this generation has an assignment already.
                answer.leader, answer.members = old_leader or "", []
        reply = Reply(call.deferred, answer, lambda error: join_error(error, ""))

        def after_append(error: ErrorCode, then: Instant) -> CoreOutcome:
            if error is not ErrorCode.NONE and member_id in group.members:
                self._rebalances.rename_session(group, member, old_id, then)
            return CoreOutcome()

        return CoreOutcome([record], [*fenced, reply], after_append)

    def _observe_refusal(self, call: JoinCall, error: ErrorCode) -> None:
        request = call.request
        self._observer(
            GroupRequestRefused(
                request.group_id,
                "JoinGroup",
                error,
                request.member_id,
                request.group_instance_id,
                self._groups.get(request.group_id),
                join=call,
                client=(call.client_id, call.client_host),
            )
        )

    # --- SyncGroup ---

    async def sync(
        self, request: SyncGroupRequest, deferred: Deferred[SyncGroupResponse], now: Instant
    ) -> CoreOutcome:
        """Answer the SyncGroup with the member's assignment, or park it until the leader has sent
        the assignments.
        """
        error, group = find_group(self._groups, request)
        if group is not None and not (
            _matches(request.protocol_type, group.protocol_type)
            and _matches(request.protocol_name, group.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group is None or error is not ErrorCode.NONE:
            self._observer(request_refused(self._groups, "SyncGroup", request, error))
            return CoreOutcome(replies=[sync_refused(deferred, error)])
        member = group.members[request.member_id]
        action = ANSWERS[group.state, ClassicRequest.SYNC]
        if action is ClassicAction.PARK_SYNC:
            return await self._park_sync(group, member, request, deferred, now)
        if action is not ClassicAction.ANSWER_SYNC:
            return CoreOutcome(replies=[sync_refused(deferred, ErrorCode[action.name])])
        reply = sync_reply(deferred, group, member)
        self._rebalances.synced(group, member)
        self._timers.restart_session(group, member, now)
        return CoreOutcome(replies=[reply])

    async def _park_sync(
        self,
        group: ClassicGroup,
        member: Member,
        request: SyncGroupRequest,
        deferred: Deferred[SyncGroupResponse],
        now: Instant,
    ) -> CoreOutcome:
        # The client has given up the connection of an older parked SyncGroup of the member.
        given_up = self._rebalances.release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.parked_sync = deferred
        self._rebalances.synced(group, member)
        self._timers.restart_session(group, member, now)
        if group.leader_id == member.member_id and group.storing_generation is None:
            return (await self._store(group, request, now)).after(given_up)
        return CoreOutcome(replies=given_up)

    async def _store(
        self, group: ClassicGroup, request: SyncGroupRequest, now: Instant
    ) -> CoreOutcome:
        """Write the leader's assignment; the state changes when it is durable (G-61)."""
        given = {part.member_id: part.assignment for part in request.assignments}
        generation = group.generation
        group.storing_generation = generation
        record = await self._rebalances.record(
            group, generation, group.protocol, group.leader_id, given, now
        )

        async def after_append(error: ErrorCode, then: Instant) -> CoreOutcome:
            if group.storing_generation != generation:
                # A rebalance began before the assignment was durable, and the parked SyncGroup
                # requests were answered with REBALANCE_IN_PROGRESS.
                return CoreOutcome()
            group.storing_generation = None
            if error is ErrorCode.NONE:
                before = group.state
                group.transition_to(GroupState.STABLE, then)
                self._observer(GroupStabilized(group, before, generation))
                return CoreOutcome(replies=await self._answer_syncs(group, then))
            cause = RebalanceCause(RebalanceReason.ASSIGNMENT_NOT_WRITTEN, error=error)
            refused: Replies = []
            async for some in in_pieces(group.members.values()):
                for member in some:
                    refused += self._rebalances.release_sync(member, error)
            return (await self._rebalances.start(group, then, cause)).after(refused)

        return CoreOutcome([record], after_append=after_append)

    async def _answer_syncs(self, group: ClassicGroup, now: Instant) -> Replies:
        replies: Replies = []
        async for some in in_pieces(group.members.values()):
            for member in some:
                self._timers.restart_session(group, member, now)
                if member.parked_sync is not None:
                    replies.append(sync_reply(member.parked_sync, group, member))
                    member.parked_sync = None
        return replies

    # --- Heartbeat ---

    def heartbeat(
        self, request: HeartbeatRequest, deferred: Deferred[HeartbeatResponse], now: Instant
    ) -> CoreOutcome:
        """Restart the session of the member."""
        error, group = find_group(self._groups, request)
        if group is not None:
            action = ANSWERS[group.state, ClassicRequest.HEARTBEAT]
            if action in (ClassicAction.ALIVE, ClassicAction.ALIVE_BUT_REJOIN):
                self._timers.restart_session(group, group.members[request.member_id], now)
            error = _HEARTBEAT_ERRORS[action]
        elif error is not ErrorCode.NONE:
            self._observer(request_refused(self._groups, "Heartbeat", request, error))
        return CoreOutcome(replies=[heartbeat_reply(deferred, error)])

    # --- LeaveGroup ---

    async def leave(
        self,
        request: LeaveGroupRequest,
        api_version: int,
        deferred: Deferred[LeaveGroupResponse],
        now: Instant,
    ) -> CoreOutcome:
        """Answer a LeaveGroup; the remaining members rebalance once, however many members leave
        (G-80)."""
        group = self._groups.get(request.group_id)
        if not request.group_id:
            return CoreOutcome(replies=[leave_refused(deferred, ErrorCode.INVALID_GROUP_ID)])
        if group is not None and group.state is GroupState.DEAD:
            return CoreOutcome(
                replies=[leave_refused(deferred, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
            )
        leaving = leaving_members(request, api_version)
        before = [] if group is None else [*group.members, *group.pending]
        errors: list[ErrorCode] = []
        released: Replies = []
        async for some in in_pieces(leaving):
            for identity in some:
                error, replies = self._leave(group, identity)
                errors.append(error)
                released += replies
        out = CoreOutcome()
        present = {} if group is None else {**group.members, **group.pending}
        if group is not None and len(present) < len(before):
            left = [member_id for member_id in before if member_id not in present]
            cause = RebalanceCause(RebalanceReason.MEMBERS_LEFT, left)
            out = await self._rebalances.proceed(group, ClassicRequest.LEAVE, now, cause)
        elif group is not None:
            out = await self._rebalances.complete_if_all_joined(group, now)
        out.replies.append(await leave_reply(deferred, leaving, errors, api_version))
        return out.after(released)

    def _leave(
        self, group: ClassicGroup | None, identity: MemberIdentity
    ) -> tuple[ErrorCode, Replies]:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id and instance_id is not None:
            # An administrator removes a static member by its instance id.
            member_id = group.static_ids.get(instance_id, "")
        elif member_id in group.pending and instance_id is None:
            self._timers.take_pending(group, member_id)
            return ErrorCode.NONE, []
        error = group.check_member(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error, []
        member = group.members[member_id]
        return error, self._rebalances.remove(group, member, removal_of(identity))


def find_group(
    groups: Mapping[str, ClassicGroup], request: SyncGroupRequest | HeartbeatRequest
) -> tuple[ErrorCode, ClassicGroup | None]:
    """The group, if the request comes from a member of its current generation; else the error."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID, None
    group = groups.get(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, None
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and request.generation_id != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    return error, None if error is not ErrorCode.NONE else group


def request_refused(
    groups: Mapping[str, ClassicGroup],
    name: str,
    request: SyncGroupRequest | HeartbeatRequest,
    error: ErrorCode,
) -> GroupRequestRefused:
    """The event for a request that `find_group` refuses; `name` is the name of the API."""
    return GroupRequestRefused(
        request.group_id,
        name,
        error,
        request.member_id,
        request.group_instance_id,
        groups.get(request.group_id),
        request.generation_id,
    )


def _matches(given: str | None, expected: str | None) -> bool:
    """True if a protocol type or name is not given, or equal to the group's (G-60)."""
    return given is None or given == expected
