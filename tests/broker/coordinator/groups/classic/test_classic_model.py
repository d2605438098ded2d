"""Random members, timeouts, lost answers, slow disks and crashes, with invariants of classic
groups.

- Generations never decrease. All answers of one generation agree: one leader, one protocol, one set
  of members. Only the leader gets the list of members.
- Every request is answered at the latest when every deadline has passed.
- A member's assignment is the one that the leader of its generation sent.
- Within a generation no partition has two owners, and in a stable group each has one.
- Durable state is the same before and after a reload. A stored offset is that of the last
  acknowledged commit, or of a commit that was sent later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import budget
from group_world import GROUP, GroupWorld, part
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.coordinator.groups.deadlines import GroupTimer, GroupTimerName
from odradek_broker.coordinator.groups.shard import GroupShard
from odradek_broker.coordinator.runtime import RuntimeState
from odradek_broker.deferred import Deferred
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.join_group import JoinGroupResponse
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from odradek_protocol.schemas.sync_group import SyncGroupResponse

E = ErrorCode
S = GroupState

SESSION_MS = 10_000
REBALANCE_MS = 30_000
PARTITIONS = 7
#: A time longer than all deadlines: the 300 s of a new member, then a whole join phase.
ALL_DEADLINES_MS = 1_000_000

CLIENTS = st.integers(0, 4)
RARELY = st.sampled_from([False] * 7 + [True])
STAGES = st.sampled_from(["parked", "storing"])
DISTURBANCES = st.sampled_from(["join", "leave", "forget", "repeat", "wait"])
VERSIONS = st.sampled_from([9] * 6 + [5, 3])

OFFERS = [
    [("range", b"r")],
    [("range", b"r"), ("sticky", b"s")],
    [("sticky", b"s2"), ("range", b"r2")],
]


@dataclass
class Client:
    """The state that one client knows; lost answers do not change it."""

    name: int
    instance: str | None
    offer: int = 0
    member_id: str = ""
    generation: int = -1
    leader: bool = False
    members: tuple[str, ...] = ()
    pending: bool = False


@dataclass
class Generation:
    """The content of all answers of one generation."""

    leader: str
    protocol: str | None
    members: tuple[str, ...] | None = None


def _partitions(share: str) -> range:
    """The partitions of a member: "1/3" is every third partition, from partition 1 on."""
    at, among = map(int, share.split("/"))
    return range(at, PARTITIONS, among)


class GroupMachine(RuleBasedStateMachine):
    """Clients that send any request at any time, in any order."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size_max=st.sampled_from([100, 100, 3]))
    def start(self, delay_ms: int, size_max: int) -> None:
        # If the group expired, its generations would begin at 1 again.
        self.world = GroupWorld(
            group_initial_rebalance_delay_ms=delay_ms,
            group_max_size=size_max,
            offsets_retention_check_interval_ms=10**12,
        )
        self.clients = [Client(at, f"i{at}" if at in (1, 3) else None) for at in range(5)]
        self.unanswered: list[Deferred[Any]] = []
        self.generations: dict[int, Generation] = {}
        self.highest = 0
        #: Offset -> the number of commits that any client sent before the commit of this offset.
        self.order: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        #: (generation, partition) -> member id, from the answers to SyncGroup.
        self.owners: dict[tuple[int, int], str] = {}

        if delay_ms == 0:
            self.everyone_joins(9, False)
            self.everyone_joins(9, False)
            self.everyone_syncs(9, 0, False)

    # --- Events of clients ---

    @rule(at=CLIENTS, lost=RARELY, refused=RARELY, version=VERSIONS)
    def join(self, at: int, lost: bool, refused: bool, version: int) -> None:
        """Join, and join again if the first answer only gave the member id. `refused`: the log
        refuses appends."""
        client = self.clients[at]
        self._join(client, lost, refused, version)
        if client.pending:
            self._join(client, lost, refused, version)

    @rule(left_out=st.integers(0, 9), slow=st.booleans())
    def everyone_joins(self, left_out: int, slow: bool) -> None:
        """All clients except `left_out` join. `slow`: the disk is slow afterwards."""
        for at in range(len(self.clients)):
            if at != left_out:
                self.join(at, False, False, 9)
        self.world.log.hold = slow

    @rule(left_out=st.integers(0, 9), first=CLIENTS, slow=RARELY)
    def everyone_syncs(self, left_out: int, first: int, slow: bool) -> None:
        self.world.log.hold = slow
        for step in range(len(self.clients)):
            at = (first + step) % len(self.clients)
            if at != left_out:
                self.sync(at, False)

    @rule(at=CLIENTS, who=CLIENTS, stage=STAGES, how=DISTURBANCES)
    def rebalance_disturbed(self, at: int, who: int, stage: str, how: str) -> None:
        """A whole rebalance, disturbed in its sync phase."""
        self.flush()
        self._change_and_join(at)
        self.everyone_joins(at, False)
        for index, client in enumerate(self.clients):
            if not client.leader:
                self.sync(index, False)
        if stage == "storing":
            self.world.log.hold = True
            for index, client in enumerate(self.clients):
                if client.leader:
                    self.sync(index, False)
        if how == "join":
            self._change_and_join(who)
        elif how == "leave":
            self.leave(who)
        elif how == "forget":
            self.clients[who].member_id = ""
            self.join(who, False, False, 9)
        elif how == "repeat":
            self.sync(who, False)
        else:
            self.wait(SESSION_MS)

    def _change_and_join(self, at: int) -> None:
        self.change_offer(at, (self.clients[at].offer + 1) % len(OFFERS))
        self.join(at, False, False, 9)

    def _join(self, client: Client, lost: bool, refused: bool, version: int) -> None:
        self.world.log.refuse = E.MESSAGE_TOO_LARGE if refused else E.NONE
        deferred = self.world.join(
            client.member_id,
            protocols=OFFERS[client.offer],
            instance=client.instance if version >= 5 else None,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            version=version,
        )
        self.world.log.refuse = E.NONE
        client.pending = False
        self._expect(deferred)
        deferred.then(lambda answer: self._joined(client, answer, lost))

    def _joined(self, client: Client, answer: JoinGroupResponse, lost: bool) -> None:
        if answer.error_code == E.NONE:
            self._check_generation(answer)
        if lost:
            return
        if answer.error_code in (E.NONE, E.MEMBER_ID_REQUIRED):
            client.pending = answer.error_code == E.MEMBER_ID_REQUIRED
            client.member_id = answer.member_id
            client.generation = answer.generation_id
            client.leader = answer.leader == answer.member_id
            client.members = tuple(member.member_id for member in answer.members)
        elif answer.error_code in (
            E.UNKNOWN_MEMBER_ID,
            E.FENCED_INSTANCE_ID,
            E.GROUP_MAX_SIZE_REACHED,
        ):
            client.member_id, client.generation = "", -1

    def _check_generation(self, answer: JoinGroupResponse) -> None:
        number = answer.generation_id
        assert number > 0
        known = self.generations.get(number)
        members = tuple(member.member_id for member in answer.members)
        if known is None:
            # All answers to JoinGroup of a generation are sent together: no answer of an older
            # generation can follow.
            assert number > self.highest
            self.highest = number
            known = Generation(answer.leader, answer.protocol_name)
            self.generations[number] = known
        assert answer.protocol_name == known.protocol
        if answer.leader != answer.member_id:
            assert not members
        elif not answer.skip_assignment and self._is_dynamic(answer.leader):
            assert known.leader == answer.leader
            assert answer.member_id in members
            assert known.members in (None, members) or self._has_static(members)
            known.members = members
        assert len(set(members)) == len(members)

    def _is_dynamic(self, member_id: str) -> bool:
        return not member_id.startswith("i")

    def _has_static(self, members: tuple[str, ...]) -> bool:
        return any(not self._is_dynamic(member_id) for member_id in members)

    @rule(at=CLIENTS, refused=RARELY)
    def sync(self, at: int, refused: bool) -> None:
        client = self.clients[at]
        given: dict[str, bytes] = {}
        if client.leader:
            given = {
                member_id: f"{client.generation}:{member_id}:{at}/{len(client.members)}".encode()
                for at, member_id in enumerate(client.members)
            }
        self.world.log.refuse = E.MESSAGE_TOO_LARGE if refused else E.NONE
        deferred = self.world.sync(
            client.member_id, client.generation, given, instance=client.instance
        )
        self.world.log.refuse = E.NONE
        self._expect(deferred)
        asked = (client.member_id, client.generation)
        deferred.then(lambda answer: self._synced(asked, answer))

    def _synced(self, asked: tuple[str, int], answer: SyncGroupResponse) -> None:
        member_id, generation = asked
        if answer.error_code != E.NONE or not answer.assignment:
            return
        number, dealt_to, share = answer.assignment.decode().split(":")
        assert int(number) == generation
        # A returning static member has a new id, and the partitions that its old id had.
        assert dealt_to == member_id or (dealt_to[:3] == member_id[:3] and dealt_to.startswith("i"))
        for partition in _partitions(share):
            assert self.owners.setdefault((generation, partition), dealt_to) == dealt_to

    @rule(at=CLIENTS)
    def heartbeat(self, at: int) -> None:
        client = self.clients[at]
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance,
        )
        self._expect(self.world.groups.heartbeat(request))

    @rule(at=CLIENTS)
    def leave(self, at: int) -> None:
        client = self.clients[at]
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance)
        request = LeaveGroupRequest(group_id=GROUP, members=[identity])
        self._expect(self.world.groups.leave(request, 5))
        client.member_id, client.generation = "", -1

    @rule(at=CLIENTS, offer=st.integers(0, 2))
    def change_offer(self, at: int, offer: int) -> None:
        self.clients[at].offer = offer

    @rule(at=CLIENTS, partition=st.integers(0, 2), reset=RARELY)
    def commit(self, at: int, partition: int, reset: bool) -> None:
        """Commit an offset. `reset`: the offset is lower than all earlier ones."""
        client = self.clients[at]
        number = len(self.order)
        offset = 1_000_000 - number if reset else 1_000_000 + number
        self.order[offset] = number
        deferred = self.world.commit_later(
            part(offset, partition=partition),
            member_id=client.member_id,
            generation=client.generation,
            instance=client.instance,
        )
        self._expect(deferred)
        deferred.then(lambda errors: self._committed(partition, offset, errors))

    def _committed(self, partition: int, offset: int, errors: list[ErrorCode]) -> None:
        if errors == [E.NONE]:
            self.acknowledged[partition] = offset

    # --- Events of the environment ---

    @rule(duration_ms=st.sampled_from([1, 1, 1_000, 2_999, 3_000, 3_000, 9_999, 10_000, 30_000]))
    def wait(self, duration_ms: int) -> None:
        self.world.wait(duration_ms)

    @rule()
    def slow_disk(self) -> None:
        self.world.log.hold = True

    @rule()
    def flush(self) -> None:
        self.world.log.hold = False
        self.world.log.flush()

    @rule(sure=RARELY)
    def crash(self, sure: bool) -> None:
        """A power cut: open requests get no answers, and state that is not durable is lost."""
        if sure:
            self.unanswered = []
            self.world.log.hold = False
            self.world.restart()

    @precondition(lambda self: self.world.log.durable == len(self.world.log.records))
    @rule()
    def reload_in_peace(self) -> None:
        """Restart with all state on disk: the state does not change (O-18)."""
        before = self._durable_state()
        self.unanswered = []
        self.world.restart()
        assert self._durable_state() == before

    def _durable_state(self) -> tuple[Any, Any]:
        shard = self._shard()
        stored = {
            group_id: group.stored
            for group_id, group in shard.groups.items()
            if group.stored is not None
        }
        return stored, shard.offsets.of_group(GROUP)

    def _shard(self) -> GroupShard:
        (runtime,) = self.world.groups.shards
        return runtime.core

    def _expect(self, deferred: Deferred[Any]) -> None:
        self.unanswered.append(deferred)

    # --- Invariants ---

    @invariant()
    def generations_only_rise(self) -> None:
        if self.generations:
            assert self._shard().groups[GROUP].generation >= self.highest

    @invariant()
    def members_and_maps_agree(self) -> None:
        group = self._shard().groups.get(GROUP)
        if group is None:
            return
        members = group.members
        assert set(group.static_ids.values()) == {
            member_id for member_id, member in members.items() if member.instance_id is not None
        }
        assert all(members[held].instance_id == key for key, held in group.static_ids.items())
        assert (group.leader_id in members) == bool(members)
        assert group.pending_syncs <= set(members)
        assert not set(group.pending) & set(members)
        if group.state in (S.EMPTY, S.DEAD):
            assert not members
        if group.state is not S.PREPARING_REBALANCE:
            assert not any(member.parked_join for member in members.values())
        if group.state is not S.COMPLETING_REBALANCE:
            assert not any(member.parked_sync for member in members.values())
            assert group.storing_generation is None
        for member_id in members:
            names = {GroupTimerName(kind, GROUP, member_id) for kind in GroupTimer}
            assert sum(name in self._shard().timers for name in names) == 1

    @invariant()
    def a_stable_group_assigns_every_partition(self) -> None:
        group = self._shard().groups.get(GROUP)
        if group is None or group.state is not S.STABLE:
            return
        dealt: list[int] = []
        for member_id in group.members:
            share = group.assignment(member_id).decode().rpartition(":")[2]
            dealt += _partitions(share)
        assert sorted(dealt) == list(range(PARTITIONS))

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        (runtime,) = self.world.groups.shards
        if runtime.state is not RuntimeState.ACTIVE:
            return
        stored = self._shard().offsets.of_group(GROUP)
        for partition, offset in self.acknowledged.items():
            assert self.order[stored["topic", partition].offset] >= self.order[offset]

    def teardown(self) -> None:
        """At the end the disk flushes and every deadline passes: every request is answered."""
        if not hasattr(self, "world"):
            return
        self.world.log.hold = False
        self.world.log.flush()
        self.world.wait(ALL_DEADLINES_MS)
        assert all(deferred.done for deferred in self.unanswered)
        group = self._shard().groups.get(GROUP)
        assert group is None or group.state is S.EMPTY


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=budget.examples(60), stateful_step_count=60, deadline=None
)
