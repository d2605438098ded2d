"""Join, Sync, Heartbeat, Leave of the classic protocol (rules G-20 to G-82).

Each request is checked, looked up in the table of `states`, and carried out. A request that cannot
be answered yet is parked on its member; whoever makes the answer possible gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from odradek_broker.coordinator.groups.answers import (
    heartbeat_reply,
    join_answer,
    join_error,
    join_refused,
    join_reply,
    leave_refused,
    list_members,
    sync_refused,
    sync_reply,
)
from odradek_broker.coordinator.groups.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.rebalance import GroupSettings, Rebalances
from odradek_broker.coordinator.groups.states import ANSWERS, Action, GroupState, Request
from odradek_broker.coordinator.runtime import Moment, Outcome, Reply
from odradek_broker.history_words import What, describe_client, span
from odradek_broker.later import Later
from odradek_broker.seams import Randomness
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_protocol.schemas.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

#: From this JoinGroup on, a dynamic member first fetches its id (G-25).
MEMBER_ID_REQUIRED_SINCE = 4
#: From this JoinGroup on, a leader can be told not to assign (G-28).
SKIP_ASSIGNMENT_SINCE = 9
#: From this LeaveGroup on, members and errors come in lists (G-80).
LEAVE_LIST_SINCE = 3
#: Ids that a group has handed out and that have not joined. Beyond it, the group counts as full.
PENDING_MEMBERS_MAX = 10_000
#: Protocols that one member may offer.
PROTOCOLS_MAX = 100
#: Names and metadata of all of them. More would hardly fit into the group's record.
PROTOCOLS_MAX_BYTES = 1_048_576
#: Of instance ids, protocol types and names: in UTF-8, and with a UUID behind them, they must fit
#: into the strings of a record, which have 16 bits for their length.
TEXT_MAX_CHARS = 8_000
#: How much of a client id goes into the record and into the ids of members.
CLIENT_ID_MAX_CHARS = 255


@dataclass(frozen=True, slots=True)
class JoinCall:
    """A JoinGroup request, and what its connection says about the member."""

    request: JoinGroupRequest
    later: Later[JoinGroupResponse]
    api_version: int
    client_id: str
    client_host: str

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 has none: the session timeout stands for it (G-41)."""
        request = self.request
        if self.api_version == 0 or request.rebalance_timeout_ms < 0:
            return request.session_timeout_ms
        return request.rebalance_timeout_ms

    @property
    def is_fit(self) -> bool:
        """Can all that it brings be kept? (D11)"""
        request = self.request
        if len(request.protocols) > PROTOCOLS_MAX:
            return False
        texts = [request.protocol_type, request.group_instance_id or ""]
        texts += [protocol.name for protocol in request.protocols]
        return (
            max(map(len, texts)) <= TEXT_MAX_CHARS
            and sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
            <= PROTOCOLS_MAX_BYTES
        )

    @property
    def client(self) -> str:
        """Who asks, for people."""
        return describe_client(self.client_id, self.client_host)

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        return [(protocol.name, protocol.metadata) for protocol in self.request.protocols]


def check_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """G-29: is it a member, and is the instance id its own?"""
    if instance_id is not None:
        mapped = group.static_ids.get(instance_id)
        if mapped is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if mapped != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


class ClassicProtocol:
    """The requests. `groups` is the shard's; one that is missing is created by a first join.

    `create` says None when there are too many groups that have nothing yet.
    """

    def __init__(
        self,
        config: GroupSettings,
        groups: dict[str, ClassicGroup],
        rebalances: Rebalances,
        random: Randomness,
        create: Callable[[str, Moment], ClassicGroup | None],
    ) -> None:
        self._config = config
        self._groups = groups
        self._rebalances = rebalances
        self._history = rebalances.history
        self._random = random
        self._create = create

    # --- JoinGroup ---

    def join(self, call: JoinCall, moment: Moment) -> Outcome:
        """G-20 to G-31."""
        out = Outcome()
        error = self._join(call, out, moment)
        if error is not ErrorCode.NONE:
            full = error is ErrorCode.GROUP_MAX_SIZE_REACHED
            member_id = "" if full else call.request.member_id
            out.replies.append(join_refused(call.later, error, member_id))
            self._tell_refused_join(call, error)
        return out

    def _join(self, call: JoinCall, out: Outcome, moment: Moment) -> ErrorCode:
        """The error to answer, or NONE if the call is answered or parked."""
        request, config = call.request, self._config
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        shortest_ms = config.group_min_session_timeout_ms
        longest_ms = config.group_max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not call.is_fit:
            return ErrorCode.INVALID_REQUEST
        group = self._groups.get(request.group_id)
        names = [protocol.name for protocol in request.protocols]
        if group is None:
            if request.member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if not request.protocol_type or not names:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            created = self._create(request.group_id, moment)
            if created is None:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            group = created
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room(group, request.member_id):
            return self._drop_surplus(group, request.member_id, out, moment)
        if not group.accepts(request.protocol_type, names):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not request.member_id:
            return self._join_without_id(group, call, out, moment)
        if request.member_id in group.pending:
            if request.group_instance_id is not None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._rebalances.take_pending(group, request.member_id)
            return self._add(group, call, request.member_id, out, moment)
        error = check_member(group, request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        return self._join_again(group, call, group.members[request.member_id], out, moment)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """G-22."""
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

    def _drop_surplus(
        self, group: ClassicGroup, member_id: str, out: Outcome, moment: Moment
    ) -> ErrorCode:
        if member_id in group.pending:
            self._rebalances.take_pending(group, member_id)
            self._rebalances.recheck(group, out, moment)
        elif member_id in group.members:
            full = f"the group is full (group.max.size={self._config.group_max_size})"
            self._rebalances.remove(group, group.members[member_id], out, full)
            self._rebalances.after_removal(group, out, moment, f"{member_id} was removed")
        return ErrorCode.GROUP_MAX_SIZE_REACHED

    def _join_without_id(
        self, group: ClassicGroup, call: JoinCall, out: Outcome, moment: Moment
    ) -> ErrorCode:
        instance_id = call.request.group_instance_id
        unique = UUID(bytes=self._random.uuid())
        if instance_id is not None:
            member_id = f"{instance_id}-{unique}"
            held = group.static_ids.get(instance_id)
            if held is not None:
                return self._replace(group, call, group.members[held], member_id, out, moment)
            return self._add(group, call, member_id, out, moment)
        member_id = f"{call.client_id}-{unique}"
        if call.api_version < MEMBER_ID_REQUIRED_SINCE:
            return self._add(group, call, member_id, out, moment)
        self._rebalances.add_pending(group, member_id, call.request.session_timeout_ms, moment)
        out.replies.append(join_refused(call.later, ErrorCode.MEMBER_ID_REQUIRED, member_id))
        self._history.record(
            group.group_id, What.MEMBER_ID_GIVEN, client=call.client, member=member_id
        )
        return ErrorCode.NONE

    def _add(
        self, group: ClassicGroup, call: JoinCall, member_id: str, out: Outcome, moment: Moment
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
            parked_join=call.later,
        )
        self._rebalances.add(group, member, moment)
        self._proceed(action, group, out, moment, f"{member_id} is new")
        return ErrorCode.NONE

    def _join_again(
        self, group: ClassicGroup, call: JoinCall, member: Member, out: Outcome, moment: Moment
    ) -> ErrorCode:
        """A known member joins: for the next generation, or because our answer was lost (G-30)."""
        if member.protocols != call.protocols:
            request = Request.JOIN_CHANGED
        elif group.leader_id == member.member_id:
            request = Request.JOIN_LEADER
        else:
            request = Request.JOIN_FOLLOWER
        action = ANSWERS[group.state, request]
        if action is Action.ANSWER_JOIN:
            answer = join_answer(group, member, group.generation, group.protocol)
            out.replies.append(join_reply(call.later, answer))
            self._rebalances.restart_session(group, member, moment)
            return ErrorCode.NONE
        self._park(member, call, out, moment)
        if group.state is GroupState.PREPARING_REBALANCE:
            waited_ms = moment.now_ms - group.rebalance_since_ms
            self._history.record(
                group.group_id,
                What.MEMBER_REJOINED,
                member=member.member_id,
                waited=span(waited_ms) if waited_ms > 0 else None,
            )
        changed = request is Request.JOIN_CHANGED
        why = "with another subscription or other protocols" if changed else "again"
        if not changed and group.leader_id == member.member_id:
            why = "again, and it is the leader"
        self._proceed(action, group, out, moment, f"{member.member_id} joined {why}")
        return ErrorCode.NONE

    def _park(self, member: Member, call: JoinCall, out: Outcome, moment: Moment) -> None:
        """Take the member's new word, and leave it waiting.

        An earlier join of its own that still waits comes from a connection that it gave up.
        """
        if member.parked_join is not None:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            out.replies.append(join_refused(member.parked_join, error, member.member_id))
        member.parked_join = call.later
        member.joined_ms = moment.now_ms
        member.protocols = call.protocols
        member.session_timeout_ms = call.request.session_timeout_ms
        member.rebalance_timeout_ms = call.rebalance_timeout_ms
        member.client_id = call.client_id
        member.client_host = call.client_host

    def _proceed(
        self, action: Action, group: ClassicGroup, out: Outcome, moment: Moment, why: str
    ) -> None:
        """A join was parked: what becomes of the join phase?"""
        if action in (Action.ADD_AND_REBALANCE, Action.UPDATE_AND_REBALANCE):
            self._rebalances.start(group, out, moment, why)
        else:
            self._rebalances.recheck(group, out, moment)

    def _replace(
        self,
        group: ClassicGroup,
        call: JoinCall,
        member: Member,
        member_id: str,
        out: Outcome,
        moment: Moment,
    ) -> ErrorCode:
        """G-28: a static member came back without its id; whoever held it is fenced."""
        old_id, old_leader = member.member_id, group.leader_id
        self._rebalances.release(member, ErrorCode.FENCED_INSTANCE_ID, out)
        self._rebalances.rename_session(group, member, member_id, moment)
        self._park(member, call, out, moment)
        self._history.record(
            group.group_id,
            What.MEMBER_REPLACED,
            client=call.client,
            instance=member.instance_id,
            member=member_id,
            fenced_member=old_id,
        )
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.recheck(group, out, moment)
            return ErrorCode.NONE
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
            why = f"static member {member.instance_id} came back, and the group had not settled"
            if group.state is GroupState.STABLE:
                why = f"static member {member.instance_id} came back with other protocols"
            self._rebalances.start(group, out, moment, why)
            return ErrorCode.NONE
        member.parked_join = None
        assignments = {
            held: group.assignment(old_id if held == member_id else held) for held in group.members
        }
        self._rebalances.write(
            group, group.generation, group.protocol, group.leader_id, assignments, out, moment
        )
        answer = join_answer(group, member, group.generation, group.protocol)
        if group.leader_id == member_id:
            if call.api_version >= SKIP_ASSIGNMENT_SINCE:
                answer.skip_assignment = True
                answer.members = list_members(group, group.protocol)
            else:
                # It would assign, for a generation that has its assignment: it must not know.
                answer.leader, answer.members = old_leader or "", []
        out.replies.append(
            Reply(call.later, answer, lambda error: join_error(error, call.request.member_id))
        )

        def settled(error: ErrorCode, then: Moment) -> Outcome:
            if error is not ErrorCode.NONE and member_id in group.members:
                self._rebalances.rename_session(group, member, old_id, then)
            return Outcome()

        out.settled = settled
        return ErrorCode.NONE

    # --- SyncGroup ---

    def sync(
        self, request: SyncGroupRequest, later: Later[SyncGroupResponse], moment: Moment
    ) -> Outcome:
        """G-60 to G-65."""
        out = Outcome()
        error, group = self._find(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
        if group is None:
            out.replies.append(sync_refused(later, error))
            self._tell_refused("SyncGroup", request, error)
            return out
        if not _matches(request.protocol_type, group.protocol_type) or not _matches(
            request.protocol_name, group.protocol
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            out.replies.append(sync_refused(later, error))
            self._tell_refused("SyncGroup", request, error)
            return out
        member = group.members[request.member_id]
        action = ANSWERS[group.state, Request.SYNC]
        if action is Action.ANSWER_SYNC:
            out.replies.append(sync_reply(later, group, member))
            self._rebalances.synced(group, member)
            self._rebalances.restart_session(group, member, moment)
        elif action is Action.PARK_SYNC:
            self._park_sync(group, member, request, later, out, moment)
        else:
            out.replies.append(sync_refused(later, ErrorCode[action.name]))
        return out

    def _park_sync(
        self,
        group: ClassicGroup,
        member: Member,
        request: SyncGroupRequest,
        later: Later[SyncGroupResponse],
        out: Outcome,
        moment: Moment,
    ) -> None:
        # An earlier one of its own that still waits comes from a connection that it gave up.
        self._rebalances.release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, out)
        member.parked_sync = later
        self._rebalances.synced(group, member)
        self._rebalances.restart_session(group, member, moment)
        if group.leader_id == member.member_id and group.storing_generation is None:
            self._store(group, request, out, moment)

    def _store(
        self, group: ClassicGroup, request: SyncGroupRequest, out: Outcome, moment: Moment
    ) -> None:
        """G-61: write the leader's assignment; the state moves when it is durable."""
        given = {part.member_id: part.assignment for part in request.assignments}
        generation = group.generation
        group.storing_generation = generation
        self._rebalances.write(
            group, generation, group.protocol, group.leader_id, given, out, moment
        )

        def settled(error: ErrorCode, then: Moment) -> Outcome:
            done = Outcome()
            if group.storing_generation != generation:
                # A rebalance came between; the parked syncs were told so.
                return done
            group.storing_generation = None
            if error is ErrorCode.NONE:
                before = group.state
                group.become(GroupState.STABLE, then)
                self._history.record(
                    group.group_id,
                    What.GROUP_STABLE,
                    leader=group.leader_id,
                    before=before.value,
                    after=group.state.value,
                    generation=generation,
                )
                self._answer_syncs(group, done, then)
            else:
                for member in group.members.values():
                    self._rebalances.release_sync(member, error, done)
                why = f"the assignment could not be recorded ({error.name})"
                self._rebalances.start(group, done, then, why)
            return done

        out.settled = settled

    def _answer_syncs(self, group: ClassicGroup, out: Outcome, moment: Moment) -> None:
        for member in group.members.values():
            self._rebalances.restart_session(group, member, moment)
            if member.parked_sync is not None:
                out.replies.append(sync_reply(member.parked_sync, group, member))
                member.parked_sync = None

    # --- Heartbeat ---

    def heartbeat(
        self, request: HeartbeatRequest, later: Later[HeartbeatResponse], moment: Moment
    ) -> Outcome:
        """G-32, G-70, G-71."""
        error, group = self._find(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
        if group is not None:
            action = ANSWERS[group.state, Request.HEARTBEAT]
            if action in (Action.ALIVE, Action.ALIVE_BUT_REJOIN):
                member = group.members[request.member_id]
                self._rebalances.restart_session(group, member, moment)
            error = _HEARTBEAT_ERRORS[action]
        elif error is not ErrorCode.NONE:
            self._tell_refused("Heartbeat", request, error)
        return Outcome(replies=[heartbeat_reply(later, error)])

    def _find(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ErrorCode, ClassicGroup | None]:
        """The group, if the request comes from a member of its current generation."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, None
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, None
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        error = check_member(group, member_id, instance_id)
        if error is ErrorCode.NONE and generation != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        return error, None if error is not ErrorCode.NONE else group

    # --- LeaveGroup ---

    def leave(
        self,
        request: LeaveGroupRequest,
        api_version: int,
        later: Later[LeaveGroupResponse],
        moment: Moment,
    ) -> Outcome:
        """G-80: however many leave, the others rebalance once."""
        out = Outcome()
        group = self._groups.get(request.group_id)
        if not request.group_id:
            out.replies.append(leave_refused(later, ErrorCode.INVALID_GROUP_ID))
            return out
        if group is not None and group.state is GroupState.DEAD:
            out.replies.append(leave_refused(later, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return out
        batch = api_version >= LEAVE_LIST_SINCE
        leaving = request.members if batch else [MemberIdentity(member_id=request.member_id)]
        before = [] if group is None else [*group.members, *group.pending]
        errors = [self._leave(group, identity, out) for identity in leaving]
        held = {} if group is None else {**group.members, **group.pending}
        if group is not None and len(held) < len(before):
            left = [member_id for member_id in before if member_id not in held]
            who = left[0] if len(left) == 1 else f"{len(left)} members"
            self._rebalances.after_removal(group, out, moment, f"{who} left")
        elif group is not None:
            self._rebalances.recheck(group, out, moment)
        response = LeaveGroupResponse(error_code=ErrorCode.NONE)
        if batch:
            response.members = [
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
                for identity, error in zip(leaving, errors, strict=True)
            ]
        else:
            response.error_code = errors[0]
        out.replies.append(
            Reply(later, response, lambda error: LeaveGroupResponse(error_code=error))
        )
        return out

    def _leave(
        self, group: ClassicGroup | None, identity: MemberIdentity, out: Outcome
    ) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id, instance_id = identity.member_id, identity.group_instance_id
        why = None
        if not member_id and instance_id is not None:
            # An administrator removes a static member by its instance id.
            member_id = group.static_ids.get(instance_id, "")
            why = "an administrator removed it by its instance id"
        elif member_id in group.pending and instance_id is None:
            self._rebalances.take_pending(group, member_id)
            return ErrorCode.NONE
        error = check_member(group, member_id, instance_id)
        if error is ErrorCode.NONE:
            self._rebalances.remove(group, group.members[member_id], out, why)
        return error

    # --- For people ---

    def _tell_refused_join(self, call: JoinCall, error: ErrorCode) -> None:
        request = call.request
        if not request.group_id:
            return
        self._history.record(
            request.group_id,
            What.GROUP_REFUSED,
            error=error,
            request="JoinGroup",
            member=request.member_id or None,
            instance=request.group_instance_id,
            client=call.client,
            reason=self._why_join(call, error),
        )

    def _why_join(self, call: JoinCall, error: ErrorCode) -> str:
        request, config = call.request, self._config
        group = self._groups.get(request.group_id)
        if error is ErrorCode.INVALID_SESSION_TIMEOUT:
            return (
                f"its session timeout is {request.session_timeout_ms} ms; from"
                f" {config.group_min_session_timeout_ms} to {config.group_max_session_timeout_ms}"
                " are taken (group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            return f"group.max.size={config.group_max_size}"
        if error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            theirs = ", ".join(name for name, _ in call.protocols) or "nothing"
            ours = "nothing" if group is None else ", ".join(sorted(group.candidates()))
            return f"it speaks {theirs}; all members of the group speak {ours or 'anything'}"
        return why_refused(group, request.member_id, request.group_instance_id, None)

    def _tell_refused(
        self, request_name: str, request: SyncGroupRequest | HeartbeatRequest, error: ErrorCode
    ) -> None:
        if not request.group_id:
            return
        group = self._groups.get(request.group_id)
        reason = why_refused(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        if error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and group is not None:
            reason = f"expected protocol {group.protocol}"
        self._history.record(
            request.group_id,
            What.GROUP_REFUSED,
            error=error,
            request=request_name,
            member=request.member_id or None,
            instance=request.group_instance_id,
            reason=reason,
        )


def why_refused(
    group: ClassicGroup | None, member_id: str, instance_id: str | None, generation: int | None
) -> str:
    """What `check_member`, or the generation, has against a request, in words."""
    if group is None:
        return "there is no such group"
    if instance_id is not None and instance_id in group.static_ids:
        held = group.static_ids[instance_id]
        if held != member_id:
            return f"expected member id {held} for this static member: another one took its place"
    if member_id not in group.members:
        return "it is not a member: it never joined, left, or was removed"
    if generation is not None and generation != group.generation:
        return f"expected generation {group.generation}, got {generation}"
    return f"the group is {group.state.value}"


_HEARTBEAT_ERRORS: dict[Action, ErrorCode] = {
    Action.ALIVE: ErrorCode.NONE,
    Action.ALIVE_BUT_REJOIN: ErrorCode.REBALANCE_IN_PROGRESS,
    Action.UNKNOWN_MEMBER_ID: ErrorCode.UNKNOWN_MEMBER_ID,
    Action.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def _matches(given: str | None, held: str | None) -> bool:
    """G-60: a protocol type or name counts only where it is given."""
    return given is None or given == held
