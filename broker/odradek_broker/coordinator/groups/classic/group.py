"""A classic group: its states and the answers to requests as tables, its durable state, its members
and its soft state (rule G-01).

The durable state is `ClassicGroup.stored`, the last GroupMetadata record; only `replay` sets it
(D4). Generation, selected protocol and assignments are read from it.

The soft state is lost in a restart and built again by `restore`:

- the state of the group, and the time at which it was entered;
- the members, including those that are joining and not yet in a record; all protocols of each
  member, and its parked requests;
- pending members: member ids that were handed out, and not used to join yet (G-25);
- the members that must still send a SyncGroup, the generation whose assignment is being written,
  and the rest of the initial delay;
- the deadlines, which are in the shard's `Timers`.

There are two kinds of GroupMetadata records with members. A record with a leader has a stored
assignment: the group is Stable. A record without a leader is written at the end of the join phase
of a new generation, so that the number of this generation is not assigned again after a restart
(G-90); a group that is loaded from a record without a leader lets its members rejoin.

`ANSWERS` is the table of the rules G-20 to G-64, from (state, request) to the action. Before the
table is used, a request is checked: the member must be known and have the given instance id (errors
25, 82); in a SyncGroup or Heartbeat, the generation must be the current one (22).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum

from odradek_broker.coordinator.groups.settings import GroupSettings
from odradek_broker.coordinator.groups.uses import Uses
from odradek_broker.coordinator.runtime import Instant
from odradek_broker.deferred import Deferred
from odradek_broker.slices import in_pieces
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_protocol.schemas.sync_group import SyncGroupResponse
from odradek_protocol.stored.group_metadata import GroupMetadataValue, StoredMember


class GroupState(Enum):
    """The state of a group, with the name that Kafka's tools show (G-03, G-04)."""

    EMPTY = "Empty"
    """No members; there may be offsets. A new group starts here."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Members join again, or for the first time; a member that has joined waits for the others."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """Every member has the new generation; the group waits for the leader's assignment."""

    STABLE = "Stable"
    """Every member can get its assignment."""

    DEAD = "Dead"
    """Deleted, expired or unloaded."""


_S = GroupState

#: The states from which each state may be entered (G-03).
PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.STABLE, _S.COMPLETING_REBALANCE, _S.EMPTY}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset(_S),
}


class IllegalGroupTransition(RuntimeError):
    """A transition that is not in `PREDECESSORS`: a bug of this program, not an error of a
    client."""


def check_transition(group_id: str, source: GroupState, target: GroupState) -> None:
    """Raise IllegalTransition unless `PREDECESSORS` allows the step from `source` to `target`."""
    if source not in PREDECESSORS[target]:
        raise IllegalGroupTransition(f"group {group_id}: {source.value} -> {target.value}")


class ClassicRequest(Enum):
    """The kinds of requests that the table `ANSWERS` distinguishes."""

    JOIN_NEW = "Join, new member"
    JOIN_LEADER = "Join, leader, same metadata"
    JOIN_FOLLOWER = "Join, follower, same metadata"
    JOIN_CHANGED = "Join, existing, changed metadata"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup, or the end of a session"


class ClassicAction(Enum):
    """The reaction to a request."""

    ADD_AND_REBALANCE = "add the member, start the join phase, park"
    ADD_AND_PARK = "add the member to the running join phase, park"
    UPDATE_AND_REBALANCE = "take the metadata, start the join phase, park"
    UPDATE_AND_PARK = "take the metadata, park"
    ANSWER_JOIN = "a lost answer: give the current generation again"
    PARK_SYNC = "await the leader's assignment; the leader brings it"
    ANSWER_SYNC = "give the stored assignment"
    ALIVE = "restart the session timer"
    ALIVE_BUT_REJOIN = "restart the session timer, REBALANCE_IN_PROGRESS"
    REMOVE_AND_REBALANCE = "remove the member, start the join phase"
    REMOVE_AND_RECHECK = "remove the member, the join phase may be complete"
    REBALANCE_IN_PROGRESS = "27"
    UNKNOWN_MEMBER_ID = "25"
    COORDINATOR_NOT_AVAILABLE = "15"


_R, _A = ClassicRequest, ClassicAction

_ROWS: dict[GroupState, dict[ClassicRequest, ClassicAction]] = {
    _S.EMPTY: {
        _R.JOIN_NEW: _A.ADD_AND_REBALANCE,
        _R.JOIN_LEADER: _A.UNKNOWN_MEMBER_ID,
        _R.JOIN_FOLLOWER: _A.UNKNOWN_MEMBER_ID,
        _R.JOIN_CHANGED: _A.UNKNOWN_MEMBER_ID,
        _R.SYNC: _A.UNKNOWN_MEMBER_ID,
        _R.HEARTBEAT: _A.UNKNOWN_MEMBER_ID,
        _R.LEAVE: _A.UNKNOWN_MEMBER_ID,
    },
    _S.PREPARING_REBALANCE: {
        _R.JOIN_NEW: _A.ADD_AND_PARK,
        _R.JOIN_LEADER: _A.UPDATE_AND_PARK,
        _R.JOIN_FOLLOWER: _A.UPDATE_AND_PARK,
        _R.JOIN_CHANGED: _A.UPDATE_AND_PARK,
        _R.SYNC: _A.REBALANCE_IN_PROGRESS,
        _R.HEARTBEAT: _A.ALIVE_BUT_REJOIN,
        _R.LEAVE: _A.REMOVE_AND_RECHECK,
    },
    _S.COMPLETING_REBALANCE: {
        _R.JOIN_NEW: _A.ADD_AND_REBALANCE,
        _R.JOIN_LEADER: _A.ANSWER_JOIN,
        _R.JOIN_FOLLOWER: _A.ANSWER_JOIN,
        _R.JOIN_CHANGED: _A.UPDATE_AND_REBALANCE,
        _R.SYNC: _A.PARK_SYNC,
        _R.HEARTBEAT: _A.ALIVE,
        _R.LEAVE: _A.REMOVE_AND_REBALANCE,
    },
    _S.STABLE: {
        _R.JOIN_NEW: _A.ADD_AND_REBALANCE,
        _R.JOIN_LEADER: _A.UPDATE_AND_REBALANCE,
        _R.JOIN_FOLLOWER: _A.ANSWER_JOIN,
        _R.JOIN_CHANGED: _A.UPDATE_AND_REBALANCE,
        _R.SYNC: _A.ANSWER_SYNC,
        _R.HEARTBEAT: _A.ALIVE,
        _R.LEAVE: _A.REMOVE_AND_REBALANCE,
    },
    _S.DEAD: dict.fromkeys(_R, _A.COORDINATOR_NOT_AVAILABLE),
}

ANSWERS: dict[tuple[GroupState, ClassicRequest], ClassicAction] = {
    (state, request): action for state, row in _ROWS.items() for request, action in row.items()
}


#: The limit of protocols per member.
PROTOCOLS_MAX = 100

#: The limit of the names and metadata of all protocols of a member together, in bytes. More would
#: hardly fit into the group's record.
PROTOCOLS_MAX_BYTES = 1_048_576

#: The limit of the length of an instance id, a protocol type or a protocol name: each of them,
#: encoded in UTF-8 and followed by a UUID, must fit into a string with a 16-bit length.
TEXT_MAX_CHARS = 8_000

#: The greatest length of a client id in a record or in a member id; longer client ids are cut.
CLIENT_ID_MAX_CHARS = 255


@dataclass(frozen=True, slots=True)
class JoinCall:
    """A JoinGroup request, with the data of its connection."""

    request: JoinGroupRequest
    deferred: Deferred[JoinGroupResponse]
    api_version: int
    client_id: str
    client_host: str

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout; in version 0, which has none, the session timeout (G-41)."""
        request = self.request
        if self.api_version == 0 or request.rebalance_timeout_ms < 0:
            return request.session_timeout_ms
        return request.rebalance_timeout_ms

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        """(name, metadata) of each protocol that the member offers, in order of preference."""
        return [(protocol.name, protocol.metadata) for protocol in self.request.protocols]

    def error(self, config: GroupSettings) -> ErrorCode:
        """The error of a request that is invalid in every group, else NONE: INVALID_GROUP_ID,
        INVALID_SESSION_TIMEOUT (G-20), or INVALID_REQUEST if the texts and protocols of the request
        are too large to be stored (D11)."""
        shortest_ms = config.group_min_session_timeout_ms
        longest_ms = config.group_max_session_timeout_ms
        error = ErrorCode.NONE
        if not self.request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not shortest_ms <= self.request.session_timeout_ms <= longest_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif not self._is_within_limits:
            error = ErrorCode.INVALID_REQUEST
        return error

    @property
    def _is_within_limits(self) -> bool:
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


Protocols = list[tuple[str, bytes]]

#: Called with a group, the state that the group leaves, and the state that it enters.
StateObserver = Callable[["ClassicGroup", GroupState, GroupState], None]


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a classic group. `protocols`: (name, metadata), in order of preference.

    `is_new`: its first join is still parked. The member perhaps does not know its id yet, so it
    cannot heartbeat (G-27).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    is_new: bool = False
    #: False for a dynamic member to which the broker has not sent its id yet.
    knows_id: bool = True
    #: The time at which the last JoinGroup was parked (monotonic).
    joined_ms: int = 0
    parked_join: Deferred[JoinGroupResponse] | None = None
    parked_sync: Deferred[SyncGroupResponse] | None = None

    @property
    def awaits(self) -> bool:
        """True if a request of the member is parked, so that the member counts as alive
        (G-70)."""
        return self.parked_join is not None or self.parked_sync is not None

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol; empty if the member does not offer the protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: frozenset[str]) -> str:
        """The candidate protocol that the member prefers (G-50)."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(slots=True)
class ClassicGroup:
    """A group of the classic protocol. `state_since_ms` is wall time."""

    group_id: str
    stored: GroupMetadataValue | None = None
    # --- soft ---
    state: GroupState = GroupState.EMPTY
    state_since_ms: int = 0
    protocol_type: str = ""
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    #: The members whose JoinGroup is parked: their number.
    awaiting_joins: int = 0
    #: The members that offer each protocol.
    offers: Uses[str] = field(default_factory=Uses)
    #: The members that have each rebalance timeout.
    rebalance_timeouts_ms: Uses[int] = field(default_factory=Uses)
    pending_syncs: set[str] = field(default_factory=set)
    #: The generation whose assignment is being written (G-61).
    storing_generation: int | None = None
    #: The milliseconds that new members can still add to the initial rebalance delay; None outside
    #: of the delay (G-44).
    initial_wait_left_ms: int | None = None
    added_during_wait: bool = False
    #: The time at which the join phase began (monotonic).
    rebalance_since_ms: int = 0
    observer: StateObserver | None = None
    #: The last assignments, by member id; DescribeGroups shows them until there is a new
    #: assignment, and a conversion checks them.
    last_assignments: dict[str, bytes] = field(default_factory=dict)
    _assignments: dict[str, bytes] = field(default_factory=dict)

    # --- What is durable ---

    def replay(self, value: GroupMetadataValue) -> None:
        """Apply a GroupMetadata record, the new durable state."""
        self.stored = value
        self._assignments = {member.member_id: member.assignment for member in value.members}
        if value.leader is not None:
            self.last_assignments = self._assignments
        elif not value.members:
            self.last_assignments = {}

    @property
    def generation(self) -> int:
        """The current generation; 0 before the first join phase has ended."""
        return 0 if self.stored is None else self.stored.generation

    @property
    def protocol(self) -> str | None:
        """The protocol of the current generation; None before the first generation."""
        return None if self.stored is None else self.stored.protocol

    def assignment(self, member_id: str) -> bytes:
        """The stored assignment; empty if there is none."""
        return self._assignments.get(member_id, b"")

    @property
    def is_simple(self) -> bool:
        """True if the group never had a member: its offsets are committed without membership
        (O-04)."""
        return self.protocol_type == ""

    async def record(
        self,
        generation: int,
        protocol: str | None,
        leader: str | None,
        assignments: Mapping[str, bytes],
        wall_ms: int,
    ) -> GroupMetadataValue:
        """A GroupMetadata record with the current members."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=generation,
            protocol=protocol,
            leader=leader,
            current_state_timestamp=wall_ms,
            members=[
                StoredMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(protocol),
                    assignment=assignments.get(member.member_id, b""),
                )
                async for some in in_pieces(self.members.values())
                for member in some
            ],
        )

    async def restore(self, now: Instant) -> None:
        """Build the soft state from the stored record, after a load (G-90)."""
        stored = self.stored
        if stored is None:
            return
        self.protocol_type = stored.protocol_type
        self.leader_id = stored.leader
        self.members = {}
        self.static_ids = {}
        self.awaiting_joins = 0
        self.offers = Uses()
        self.rebalance_timeouts_ms = Uses()
        async for some in in_pieces(stored.members):
            for kept in some:
                self._restore_member(stored, kept)
        # The state is set without a check of `PREDECESSORS`, because the group is new.
        if not self.members:
            self.state = GroupState.EMPTY
        elif stored.leader is None:
            self.state = GroupState.PREPARING_REBALANCE
            self.leader_id = next(iter(self.members))
        else:
            self.state = GroupState.STABLE
        timestamp_ms = stored.current_state_timestamp
        self.state_since_ms = timestamp_ms if timestamp_ms >= 0 else now.wall_ms

    def _restore_member(self, stored: GroupMetadataValue, kept: StoredMember) -> None:
        timeout_ms = kept.rebalance_timeout
        member = Member(
            member_id=kept.member_id,
            instance_id=kept.group_instance_id,
            client_id=kept.client_id,
            client_host=kept.client_host,
            session_timeout_ms=kept.session_timeout,
            # Version 0 of the record has no rebalance timeout, so the session timeout is used in
            # its place, as for version 0 of JoinGroup (G-41).
            rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else kept.session_timeout,
            protocol_type=stored.protocol_type,
            protocols=[(stored.protocol or "", kept.subscription)],
        )
        self.members[member.member_id] = member
        self.offers.change((), member.protocol_names)
        self.rebalance_timeouts_ms.change((), [member.rebalance_timeout_ms])
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id

    # --- Soft state ---

    def transition_to(self, state: GroupState, now: Instant) -> None:
        """Enter a state. Raises IllegalTransition if `PREDECESSORS` does not allow the step."""
        check_transition(self.group_id, self.state, state)
        before, self.state = self.state, state
        self.state_since_ms = now.wall_ms
        if self.observer is not None:
            self.observer(self, before, state)

    def add(self, member: Member) -> None:
        """Add a member; the first member becomes the leader (G-51)."""
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        self.offers.change((), member.protocol_names)
        self.rebalance_timeouts_ms.change((), [member.rebalance_timeout_ms])
        self.awaiting_joins += member.parked_join is not None
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the leader, the member that joined first among the others
        becomes the leader (G-51).
        """
        del self.members[member.member_id]
        self.offers.change(member.protocol_names, ())
        self.rebalance_timeouts_ms.change([member.rebalance_timeout_ms], ())
        self.awaiting_joins -= member.parked_join is not None
        self.pending_syncs.discard(member.member_id)
        if self.static_ids.get(member.instance_id or "") == member.member_id:
            del self.static_ids[member.instance_id or ""]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def park(self, member: Member, deferred: Deferred[JoinGroupResponse]) -> None:
        """Park the JoinGroup of a member, in place of an earlier one."""
        self.awaiting_joins += member.parked_join is None
        member.parked_join = deferred

    def unpark(self, member: Member) -> None:
        """Forget the parked JoinGroup of a member."""
        self.awaiting_joins -= member.parked_join is not None
        member.parked_join = None

    def offer(self, member: Member, protocols: Protocols) -> None:
        """Take the protocols that a member offers now."""
        before = member.protocol_names
        member.protocols = protocols
        self.offers.change(before, member.protocol_names)

    def set_timeouts(
        self, member: Member, session_timeout_ms: int, rebalance_timeout_ms: int
    ) -> None:
        """Take the timeouts that a member asks for now."""
        before_ms = member.rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self.rebalance_timeouts_ms.change([before_ms], [rebalance_timeout_ms])

    def rename(self, member: Member, member_id: str) -> None:
        """Give a new id to a static member that has returned; its position among the members does
        not change (G-28)."""
        before = member.member_id
        self.members = {
            (member_id if old_id == before else old_id): member
            for old_id, member in self.members.items()
        }
        self.last_assignments = {
            (member_id if old_id == before else old_id): data
            for old_id, data in self.last_assignments.items()
        }
        member.member_id = member_id
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member_id
        if before in self.pending_syncs:
            self.pending_syncs.remove(before)
            self.pending_syncs.add(member_id)
        if self.leader_id == before:
            self.leader_id = member_id

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """UNKNOWN_MEMBER_ID for an unknown member or instance id, FENCED_INSTANCE_ID if another
        member has the instance id, else NONE."""
        if instance_id is not None:
            mapped = self.static_ids.get(instance_id)
            if mapped is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if mapped != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def max_rebalance_timeout_ms(self) -> int:
        """The highest rebalance timeout of the members, which limits a join phase (G-41)."""
        return max(self.rebalance_timeouts_ms, default=0)

    @property
    def all_joined(self) -> bool:
        """True if every member has joined and no pending id is left (G-40)."""
        return not self.pending and self.awaiting_joins == len(self.members)

    def candidates(self) -> frozenset[str]:
        """The protocols that every member offers."""
        return frozenset(
            name for name, members in self.offers.items() if members == len(self.members)
        )

    def accepts(self, protocol_type: str, names: Sequence[str]) -> bool:
        """True if a member with these protocols may join the group (G-23)."""
        if not self.members:
            return protocol_type != "" and len(names) > 0
        return protocol_type == self.protocol_type and not self.candidates().isdisjoint(names)

    async def select_protocol(self) -> str:
        """The protocol with most votes; among protocols with equally many votes, the first by name
        (G-50)."""
        candidates = self.candidates()
        votes: dict[str, int] = {}
        async for some in in_pieces(self.members.values()):
            for member in some:
                choice = member.vote(candidates)
                votes[choice] = votes.get(choice, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name))

    @property
    def is_void(self) -> bool:
        """True if the group has no record, no member and no pending id, so that it can be
        removed."""
        return self.stored is None and not self.members and not self.pending
