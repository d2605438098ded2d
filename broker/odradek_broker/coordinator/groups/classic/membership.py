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
    Action,
    ClassicGroup,
    GroupState,
    JoinCall,
    Member,
    Request,
)
from odradek_broker.coordinator.groups.classic.join_phase import Rebalances
from odradek_broker.coordinator.groups.events import (
    GroupStabilized,
    MemberIdGiven,
    MemberRejoined,
    MemberReplaced,
    Observer,
    RebalanceCause,
    RebalanceReason,
    Removal,
    RemovalReason,
    RequestRefused,
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
from odradek_broker.coordinator.runtime import Instant, Outcome, Reply
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

_HEARTBEAT_ERRORS: dict[Action, ErrorCode] = {
    Action.ALIVE: ErrorCode.NONE,
    Action.ALIVE_BUT_REJOIN: ErrorCode.REBALANCE_IN_PROGRESS,
    Action.UNKNOWN_MEMBER_ID: ErrorCode.UNKNOWN_MEMBER_ID,
    Action.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class ClassicMembership:
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

    async def join(self, call: JoinCall, now: Instant) -> Outcome:
        """Answer the join, or park it until the join phase is complete."""
        out = Outcome()
        error = await self._join(call, out, now)
        if error is not ErrorCode.NONE:
            full = error is ErrorCode.GROUP_MAX_SIZE_REACHED
            member_id = "" if full else call.request.member_id
            out.replies.append(join_refused(call.deferred, error, member_id))
            self._observe_refusal(call, error)
        return out

    async def _join(self, call: JoinCall, out: Outcome, now: Instant) -> ErrorCode:
        """The error to answer, or NONE if the call is answered or parked."""
        request = call.request
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        error = call.error(self._config)
        if error is not ErrorCode.NONE:
            return error
        group = self._groups.get(request.group_id)
        names = [protocol.name for protocol in request.protocols]
        if group is None:
            if request.member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if not request.protocol_type or not names:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            created = self._create(request.group_id, now)
            if created is None:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            group = created
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room(group, request.member_id):
            return await self._drop_surplus(group, request.member_id, out, now)
        if not group.accepts(request.protocol_type, names):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not request.member_id:
            return await self._join_without_id(group, call, out, now)
        if request.member_id in group.pending:
            if request.group_instance_id is not None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._timers.take_pending(group, request.member_id)
            return await self._add(group, call, request.member_id, out, now)
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        return await self._join_again(group, call, group.members[request.member_id], out, now)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """True if group.max.size lets the member join (G-22)."""
        size_max = self._config.group_max_size
        member = group.members.get(member_id)
        known = member is not None or member_id in group.pending
        if not known and len(group.pending) >= PENDING_MEMBERS_MAX:
            return False
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            parked = member is not None and member.parked_join is not None
            return parked or group.awaiting_joins < size_max
        return member is not None or len(group.members) < size_max

    async def _drop_surplus(
        self, group: ClassicGroup, member_id: str, out: Outcome, now: Instant
    ) -> ErrorCode:
        if member_id in group.pending:
            self._timers.take_pending(group, member_id)
            await self._rebalances.complete_if_all_joined(group, out, now)
        elif member_id in group.members:
            removal = Removal(RemovalReason.GROUP_FULL)
            self._rebalances.remove(group, group.members[member_id], out, removal)
            cause = RebalanceCause(RebalanceReason.MEMBER_REMOVED, [member_id])
            await self._rebalances.after_removal(group, out, now, cause)
        return ErrorCode.GROUP_MAX_SIZE_REACHED

    async def _join_without_id(
        self, group: ClassicGroup, call: JoinCall, out: Outcome, now: Instant
    ) -> ErrorCode:
        instance_id = call.request.group_instance_id
        unique = UUID(bytes=self._random.uuid())
        if instance_id is not None:
            member_id = f"{instance_id}-{unique}"
            holder_id = group.static_ids.get(instance_id)
            if holder_id is not None:
                return await self._replace(
                    group, call, group.members[holder_id], member_id, out, now
                )
            return await self._add(group, call, member_id, out, now)
        member_id = f"{call.client_id}-{unique}"
        if call.api_version < MEMBER_ID_REQUIRED_SINCE:
            return await self._add(group, call, member_id, out, now)
        self._timers.add_pending(group, member_id, call.request.session_timeout_ms, now)
        out.replies.append(join_refused(call.deferred, ErrorCode.MEMBER_ID_REQUIRED, member_id))
        self._observer(MemberIdGiven(group.group_id, member_id, call))
        return ErrorCode.NONE

    async def _add(
        self, group: ClassicGroup, call: JoinCall, member_id: str, out: Outcome, now: Instant
    ) -> ErrorCode:
        action = ANSWERS[group.state, Request.JOIN_NEW]
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
        await self._proceed(action, group, out, now, cause)
        return ErrorCode.NONE

    async def _join_again(
        self, group: ClassicGroup, call: JoinCall, member: Member, out: Outcome, now: Instant
    ) -> ErrorCode:
        """Answer a known member that joins for the next generation, or because the answer to its
        last JoinGroup was lost (G-30)."""
        member.knows_id = True
        if member.protocols != call.protocols:
            request = Request.JOIN_CHANGED
        elif group.leader_id == member.member_id:
            request = Request.JOIN_LEADER
        else:
            request = Request.JOIN_FOLLOWER
        action = ANSWERS[group.state, request]
        if action is Action.ANSWER_JOIN:
            answer = await join_answer(group, member, group.generation, group.protocol)
            out.replies.append(join_reply(call.deferred, answer))
            self._timers.restart_session(group, member, now)
            return ErrorCode.NONE
        self._park(group, member, call, out, now)
        if group.state is GroupState.PREPARING_REBALANCE:
            waited_ms = now.monotonic_ms - group.rebalance_since_ms
            self._observer(MemberRejoined(group.group_id, member.member_id, waited_ms))
        reason = RebalanceReason.LEADER_REJOINED
        if request is Request.JOIN_CHANGED:
            reason = RebalanceReason.MEMBER_CHANGED
        await self._proceed(action, group, out, now, RebalanceCause(reason, [member.member_id]))
        return ErrorCode.NONE

    def _park(
        self, group: ClassicGroup, member: Member, call: JoinCall, out: Outcome, now: Instant
    ) -> None:
        """Take the metadata of the member, and park the call.

        An older parked JoinGroup of the member is answered with an error: the client has given up
        its connection.
        """
        if member.parked_join is not None:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            out.replies.append(join_refused(member.parked_join, error, member.member_id))
        group.park(member, call.deferred)
        group.offer(member, call.protocols)
        member.joined_ms = now.monotonic_ms
        group.set_timeouts(member, call.request.session_timeout_ms, call.rebalance_timeout_ms)
        member.client_id = call.client_id
        member.client_host = call.client_host

    async def _proceed(
        self,
        action: Action,
        group: ClassicGroup,
        out: Outcome,
        now: Instant,
        cause: RebalanceCause,
    ) -> None:
        """Begin the join phase after a JoinGroup was parked, or check whether it is complete."""
        if action in (Action.ADD_AND_REBALANCE, Action.UPDATE_AND_REBALANCE):
            await self._rebalances.start(group, out, now, cause)
        else:
            await self._rebalances.complete_if_all_joined(group, out, now)

    async def _replace(
        self,
        group: ClassicGroup,
        call: JoinCall,
        member: Member,
        member_id: str,
        out: Outcome,
        now: Instant,
    ) -> ErrorCode:
        """Replace a static member by its successor, which joined without an id, and fence the old
        member id (G-28)."""
        old_id, old_leader = member.member_id, group.leader_id
        self._rebalances.release(group, member, ErrorCode.FENCED_INSTANCE_ID, out)
        self._rebalances.rename_session(group, member, member_id, now)
        self._park(group, member, call, out, now)
        self._observer(MemberReplaced(group.group_id, member, old_id))
        if group.state is GroupState.PREPARING_REBALANCE:
            await self._rebalances.complete_if_all_joined(group, out, now)
            return ErrorCode.NONE
        stable = group.state is GroupState.STABLE
        if not stable or await group.select_protocol() != group.protocol:
            reason = RebalanceReason.STATIC_MEMBER_RETURNED
            if stable:
                reason = RebalanceReason.STATIC_MEMBER_CHANGED
            cause = RebalanceCause(reason, [member_id], member.instance_id)
            await self._rebalances.start(group, out, now, cause)
            return ErrorCode.NONE
        group.unpark(member)
        assignments = {
            each: group.assignment(old_id if each == member_id else each) for each in group.members
        }
        await self._rebalances.write(
            group, group.generation, group.protocol, group.leader_id, assignments, out, now
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
        out.replies.append(
            Reply(call.deferred, answer, lambda error: join_error(error, call.request.member_id))
        )

        def after_append(error: ErrorCode, then: Instant) -> Outcome:
            if error is not ErrorCode.NONE and member_id in group.members:
                self._rebalances.rename_session(group, member, old_id, then)
            return Outcome()

        out.after_append = after_append
        return ErrorCode.NONE

    def _observe_refusal(self, call: JoinCall, error: ErrorCode) -> None:
        request = call.request
        self._observer(
            RequestRefused(
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
    ) -> Outcome:
        """Answer the SyncGroup with the member's assignment, or park it until the leader has sent
        the assignments.
        """
        out = Outcome()
        error, group = find_group(self._groups, request)
        if group is not None and not (
            _matches(request.protocol_type, group.protocol_type)
            and _matches(request.protocol_name, group.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group is None or error is not ErrorCode.NONE:
            out.replies.append(sync_refused(deferred, error))
            self._observer(request_refused(self._groups, "SyncGroup", request, error))
            return out
        member = group.members[request.member_id]
        action = ANSWERS[group.state, Request.SYNC]
        if action is Action.ANSWER_SYNC:
            out.replies.append(sync_reply(deferred, group, member))
            self._rebalances.synced(group, member)
            self._timers.restart_session(group, member, now)
        elif action is Action.PARK_SYNC:
            await self._park_sync(group, member, request, deferred, out, now)
        else:
            out.replies.append(sync_refused(deferred, ErrorCode[action.name]))
        return out

    async def _park_sync(
        self,
        group: ClassicGroup,
        member: Member,
        request: SyncGroupRequest,
        deferred: Deferred[SyncGroupResponse],
        out: Outcome,
        now: Instant,
    ) -> None:
        # The client has given up the connection of an older parked SyncGroup of the member.
        self._rebalances.release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, out)
        member.parked_sync = deferred
        self._rebalances.synced(group, member)
        self._timers.restart_session(group, member, now)
        if group.leader_id == member.member_id and group.storing_generation is None:
            await self._store(group, request, out, now)

    async def _store(
        self, group: ClassicGroup, request: SyncGroupRequest, out: Outcome, now: Instant
    ) -> None:
        """Write the leader's assignment; the state changes when it is durable (G-61)."""
        given = {part.member_id: part.assignment for part in request.assignments}
        generation = group.generation
        group.storing_generation = generation
        await self._rebalances.write(
            group, generation, group.protocol, group.leader_id, given, out, now
        )

        async def after_append(error: ErrorCode, then: Instant) -> Outcome:
            done = Outcome()
            if group.storing_generation != generation:
                # A rebalance began before the assignment was durable, and the parked SyncGroup
                # requests were answered with REBALANCE_IN_PROGRESS.
                return done
            group.storing_generation = None
            if error is ErrorCode.NONE:
                before = group.state
                group.transition_to(GroupState.STABLE, then)
                self._observer(GroupStabilized(group, before, generation))
                await self._answer_syncs(group, done, then)
            else:
                cause = RebalanceCause(RebalanceReason.ASSIGNMENT_NOT_WRITTEN, error=error)
                async for some in in_pieces(group.members.values()):
                    for member in some:
                        self._rebalances.release_sync(member, error, done)
                await self._rebalances.start(group, done, then, cause)
            return done

        out.after_append = after_append

    async def _answer_syncs(self, group: ClassicGroup, out: Outcome, now: Instant) -> None:
        async for some in in_pieces(group.members.values()):
            for member in some:
                self._timers.restart_session(group, member, now)
                if member.parked_sync is not None:
                    out.replies.append(sync_reply(member.parked_sync, group, member))
                    member.parked_sync = None

    # --- Heartbeat ---

    def heartbeat(
        self, request: HeartbeatRequest, deferred: Deferred[HeartbeatResponse], now: Instant
    ) -> Outcome:
        """Restart the session of the member."""
        error, group = find_group(self._groups, request)
        if group is not None:
            action = ANSWERS[group.state, Request.HEARTBEAT]
            if action in (Action.ALIVE, Action.ALIVE_BUT_REJOIN):
                self._timers.restart_session(group, group.members[request.member_id], now)
            error = _HEARTBEAT_ERRORS[action]
        elif error is not ErrorCode.NONE:
            self._observer(request_refused(self._groups, "Heartbeat", request, error))
        return Outcome(replies=[heartbeat_reply(deferred, error)])

    # --- LeaveGroup ---

    async def leave(
        self,
        request: LeaveGroupRequest,
        api_version: int,
        deferred: Deferred[LeaveGroupResponse],
        now: Instant,
    ) -> Outcome:
        """Answer a LeaveGroup; the remaining members rebalance once, however many members leave
        (G-80)."""
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
        errors = [
            self._leave(group, identity, out)
            async for some in in_pieces(leaving)
            for identity in some
        ]
        present = {} if group is None else {**group.members, **group.pending}
        if group is not None and len(present) < len(before):
            left = [member_id for member_id in before if member_id not in present]
            cause = RebalanceCause(RebalanceReason.MEMBERS_LEFT, left)
            await self._rebalances.after_removal(group, out, now, cause)
        elif group is not None:
            await self._rebalances.complete_if_all_joined(group, out, now)
        out.replies.append(await leave_reply(deferred, leaving, errors, api_version))
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
        error = group.check_member(member_id, instance_id)
        if error is ErrorCode.NONE:
            self._rebalances.remove(group, group.members[member_id], out, removal_of(identity))
        return error


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
) -> RequestRefused:
    """The event for a request that `find_group` refuses; `name` is the name of the API."""
    return RequestRefused(
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
