"""Random members of both protocols in one group, which changes its protocol to consumer and back
(KIP-848; G-150 to G-156).

No partition has two owners, generations and epochs never decrease, no step is illegal, and a
restart finds the same state.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import budget
from consumer_group_world import FakeMember, TopicIdPartitions, shard, topic_id_partitions
from group_world import GROUP, GroupWorld
from odradek_broker.deferred import Deferred
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.join_group import JoinGroupResponse
from odradek_protocol.schemas.sync_group import SyncGroupResponse
from odradek_protocol.stored.assignment import (
    ConsumerAssignment,
    decode_assignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import ConsumerSubscription, encode_subscription

E = ErrorCode
SESSION_MS = 45_000
WHO = st.integers(0, 3)
RARELY = st.sampled_from([False] * 5 + [True])
PARTITIONS = 10


class EagerClient:
    """A client of the classic protocol: it revokes everything before it joins."""

    def __init__(self, world: GroupWorld, instance: str | None) -> None:
        self.world, self.instance = world, instance
        self.member_id, self.generation = "", -1
        self.owned: TopicIdPartitions = frozenset()
        self.alive_ms = 0
        self.waits: Deferred[Any] | None = None

    def how(self) -> dict[str, Any]:
        metadata = encode_subscription(ConsumerSubscription(topics=["topic"]))
        return {
            "protocols": [("range", metadata)],
            "instance": self.instance,
            "session_ms": SESSION_MS,
        }

    def act(self) -> None:
        """Do the next action: a join or a heartbeat. While the client waits for an answer, its
        session does not expire."""
        if self.waits is not None and not self.waits.done:
            self.heard()
        elif self.generation < 0:
            self.join()
        else:
            self.beat()

    def heard(self) -> None:
        self.alive_ms = self.world.clock.now_ms + SESSION_MS

    def lost(self) -> None:
        self.owned, self.generation = frozenset(), -1

    def join(self) -> None:
        self.lost()
        deferred = self.world.join(self.member_id, **self.how())
        self.waits = deferred
        deferred.then(lambda answer: self.joined(deferred, answer))

    def joined(self, deferred: Deferred[Any], answer: JoinGroupResponse) -> None:
        if self.waits is not deferred:
            return
        if answer.error_code in (E.NONE, E.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        elif answer.error_code != E.REBALANCE_IN_PROGRESS:
            self.member_id = ""
        if answer.error_code != E.NONE:
            return
        self.generation = answer.generation_id
        given: dict[str, bytes] = {}
        if answer.leader == answer.member_id:
            names = [member.member_id for member in answer.members]
            for at, name in enumerate(names):
                mine = PartitionsOfTopic(
                    topic="topic", partitions=list(range(PARTITIONS))[at :: len(names)]
                )
                given[name] = encode_assignment(ConsumerAssignment(assigned_partitions=[mine]))
        sync = self.world.sync(self.member_id, self.generation, given, instance=self.instance)
        self.waits = sync
        sync.then(lambda synced: self.synced(sync, synced))

    def synced(self, deferred: Deferred[Any], answer: SyncGroupResponse) -> None:
        if self.waits is not deferred:
            return
        if answer.error_code != E.NONE:
            self.lost()
            return
        parts = decode_assignment(answer.assignment).assigned_partitions
        self.owned = topic_id_partitions(*(index for part in parts for index in part.partitions))
        self.heard()

    def beat(self) -> None:
        error = self.world.heartbeat(self.member_id, self.generation, instance=self.instance)
        if error is E.NONE:
            self.heard()
        elif error is E.REBALANCE_IN_PROGRESS:
            self.heard()
            self.join()
        else:
            self.lost()
            self.member_id = "" if error is not E.ILLEGAL_GENERATION else self.member_id

    def holds(self, now_ms: int) -> TopicIdPartitions:
        return self.owned if now_ms < self.alive_ms else frozenset()


class NewClient(FakeMember):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alive_ms = 0

    def act(self) -> None:
        if self.beat(full=not self.told).error_code == E.NONE:
            self.alive_ms = self.world.clock.now_ms + SESSION_MS

    def holds(self, now_ms: int) -> TopicIdPartitions:
        return self.owned if now_ms < self.alive_ms else frozenset()


class MigrationMachine(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(["bidirectional", "bidirectional", "upgrade", "downgrade"]))
    def start(self, policy: str) -> None:
        # If an empty group expired, its epochs would begin at 1 again.
        self.world = GroupWorld(
            group_consumer_migration_policy=policy, offsets_retention_check_interval_ms=10**12
        )
        self.old = [EagerClient(self.world, "i" if at == 3 else None) for at in range(4)]
        self.new = [NewClient(self.world, f"n{at}") for at in range(4)]
        self.number = 0
        self.uses = 0

    @rule(who=WHO)
    def classic_acts(self, who: int) -> None:
        self.old[who].act()

    @rule(who=WHO)
    def consumer_acts(self, who: int) -> None:
        self.new[who].act()

    @rule(classic=st.integers(0, 4), consumer=st.integers(0, 4), rounds=st.integers(1, 6))
    def several_clients_act(self, classic: int, consumer: int, rounds: int) -> None:
        for _ in range(rounds):
            some: list[EagerClient | NewClient] = [*self.old[:classic], *self.new[:consumer]]
            for member in some:
                member.act()

    @rule(who=WHO)
    def classic_leaves(self, who: int) -> None:
        client = self.old[who]
        if client.member_id and client.instance is None:
            self.world.leave(client.member_id)
        client.lost()
        client.waits, client.member_id, client.alive_ms = None, "", 0

    @rule(who=WHO)
    def consumer_leaves(self, who: int) -> None:
        self.new[who].leave()
        self.new[who].alive_ms = 0

    @rule(who=WHO, which=st.booleans())
    def a_client_dies(self, who: int, which: bool) -> None:
        """A client is killed without a LeaveGroup, and another client replaces it."""
        if which:
            self.old[who] = EagerClient(self.world, self.old[who].instance)
        else:
            self.uses += 1
            self.new[who] = NewClient(self.world, f"n{who}-{self.uses}")

    @rule(who=WHO, refused=RARELY)
    def an_append_is_refused(self, who: int, refused: bool) -> None:
        self.world.log.refuse = E.KAFKA_STORAGE_ERROR if refused else E.NONE
        self.new[who].act()
        self.old[who].act()
        self.world.log.refuse = E.NONE

    @rule(duration_ms=st.sampled_from([1, 1_000, 5_000, 20_000, 44_000, 61_000]))
    def wait(self, duration_ms: int) -> None:
        self.world.wait(duration_ms)

    @rule(sure=RARELY)
    def restart(self, sure: bool) -> None:
        if not sure:
            return
        before = self._stored()
        self.world.restart()
        assert self._stored() == before
        for client in self.old:
            if client.waits is not None and not client.waits.done:
                # The restart closed the connection, so the answer is lost.
                client.waits = None
                client.lost()

    def _stored(self) -> tuple[Any, Any]:
        consumers = copy.deepcopy(shard(self.world).consumers)
        for group in consumers.values():
            group.topics_version = None
        classic = {
            group_id: group.stored
            for group_id, group in shard(self.world).groups.items()
            if group.stored is not None
        }
        return consumers, classic

    @invariant()
    def a_group_id_belongs_to_one_group(self) -> None:
        if hasattr(self, "world"):
            assert not set(shard(self.world).groups) & set(shard(self.world).consumers)

    @invariant()
    def g156_epochs_and_generations_never_decrease(self) -> None:
        if not hasattr(self, "world"):
            return
        held = shard(self.world)
        number = 0
        if GROUP in held.consumers:
            number = held.consumers[GROUP].epoch
        elif GROUP in held.groups:
            number = held.groups[GROUP].generation
        assert number >= self.number
        self.number = number

    @invariant()
    def g121_no_partition_has_two_owners(self) -> None:
        if not hasattr(self, "world"):
            return
        now_ms = self.world.clock.now_ms
        owner: dict[tuple[bytes, int], object] = {}
        everyone: list[EagerClient | NewClient] = [*self.old, *self.new]
        for member in everyone:
            for place in member.holds(now_ms):
                assert place not in owner, (place, member, owner[place])
                owner[place] = member

    def teardown(self) -> None:
        """At the end all sessions have expired. Then a member of each protocol joins while the
        group has no other members, and gets all partitions."""
        if not hasattr(self, "world"):
            return
        self.world.wait(400_000)
        held = shard(self.world)
        assert all(not group.members for group in held.consumers.values())
        assert all(not group.members for group in held.groups.values())
        last = NewClient(self.world, "last")
        last.act()
        assert len(last.owned) == PARTITIONS
        last.leave()
        old = EagerClient(self.world, None)
        for _ in range(3):
            old.act()
        assert len(old.owned) == PARTITIONS


TestMigrationMachine = MigrationMachine.TestCase
TestMigrationMachine.settings = settings(
    max_examples=budget.examples(50), stateful_step_count=50, deadline=None
)
