"""Random members, lost requests and answers, timeouts, topics that change, refused appends and
crashes, with invariants of consumer groups (KIP-848; G-100 to G-133).

- No partition has two owners. A member owns its assigned partitions until it reports that it has
  given them up, or learns that it was fenced; a member that gets no answers owns them until its
  session expires.
- Without further events, every partition has an owner.
- Epochs only increase.
- A restart at any moment finds the same group.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import budget
from consumer_group_world import (
    E,
    FakeMember,
    TopicIdPartitions,
    assigned,
    listed,
    send,
    settle,
    shard,
)
from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, MemberState
from odradek_broker.coordinator.groups.deadlines import GroupTimer, GroupTimerName
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

SESSION_MS = 45_000
REBALANCE_MS = 60_000
NAMES = ("a", "b", "c", "d", "e")
WHO = st.sampled_from(NAMES)
RARELY = st.sampled_from([False] * 5 + [True])
SUBSCRIPTIONS = st.sampled_from([["topic"], ["topic"], ["topic", "other"], ["other"]])
PATTERNS = st.sampled_from([None, None, None, "to.*", "t.*|o.*", "nothing"])


class Client(FakeMember):
    """A member as its own client sees it.

    `alive_ms`: the end of its session as far as the client knows; after that it owns nothing.
    `slow`: the client keeps the partitions that it has to revoke, like a consumer that is busy
    with their records.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alive_ms = 0
        self.slow = False
        self.keeps: TopicIdPartitions = frozenset()

    def holds(self, now_ms: int) -> TopicIdPartitions:
        return self.owned | self.keeps if now_ms < self.alive_ms else frozenset()


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize(assignor=st.sampled_from([("uniform", "range"), ("range",)]))
    def start(self, assignor: tuple[str, ...]) -> None:
        # If an empty group expired, its epochs would begin at 1 again.
        self.world = GroupWorld(
            group_consumer_assignors=assignor, offsets_retention_check_interval_ms=10**12
        )
        self.world.metadata.counts = {**self.world.metadata.counts, "topic": 5, "other": 3}
        self.clients: dict[str, Client] = {}
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0
        self.uses = 0

    # --- Events of members ---

    def _client(self, name: str) -> Client:
        if name not in self.clients:
            # d is a static member.
            client = Client(self.world, name, instance="i" if name == "d" else None)
            client.rebalance_ms = REBALANCE_MS
            self.clients[name] = client
        return self.clients[name]

    @rule(who=WHO, topics=SUBSCRIPTIONS, pattern=PATTERNS, lost=RARELY)
    def join(self, who: str, topics: list[str], pattern: str | None, lost: bool) -> None:
        """Start the client, or start it again without a LeaveGroup."""
        client = self._client(who)
        client.topics, client.pattern = topics, pattern
        client.epoch, client.owned, client.keeps, client.told = 0, frozenset(), frozenset(), False
        self._beat(client, lost=lost)

    @rule(who=WHO, full=RARELY, lost=RARELY, unsent=RARELY, refused=RARELY)
    def heartbeat(self, who: str, full: bool, lost: bool, unsent: bool, refused: bool) -> None:
        client = self._client(who)
        if unsent:
            client.told = False
            return
        self._beat(client, full=full, lost=lost, refused=refused)

    @rule(rounds=st.integers(1, 3), left_out=WHO)
    def everyone_beats(self, rounds: int, left_out: str) -> None:
        for _ in range(rounds):
            for name, client in self.clients.items():
                if name != left_out:
                    self._beat(client)

    def _beat(
        self, client: Client, full: bool = False, lost: bool = False, refused: bool = False
    ) -> None:
        now_ms = self.world.clock.now_ms
        if now_ms >= client.alive_ms and client.epoch > 0:
            # The client knows by its own clock that its session has expired.
            client.owned, client.keeps, client.epoch = frozenset(), frozenset(), 0
        request = client.request(full=full)
        if "topic_partitions" in request and client.epoch > 0:
            request["topic_partitions"] = listed(client.owned | client.keeps)
        self.world.log.refuse = E.MESSAGE_TOO_LARGE if refused else E.NONE
        answer = send(self.world, **request).result()
        self.world.log.refuse = E.NONE
        if lost:
            # The next heartbeat will have all fields.
            client.told = False
            return
        self._take(client, answer, now_ms)

    def _take(self, client: Client, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        if answer.error_code == E.NONE:
            client.alive_ms = now_ms + SESSION_MS
            given = assigned(answer)
            if given is not None and client.slow:
                client.keeps |= client.owned - given
            if given is not None:
                client.keeps -= given
        elif answer.error_code in (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID):
            client.keeps = frozenset()
        else:
            assert answer.error_code in (
                E.UNRELEASED_INSTANCE_ID,
                E.FENCED_INSTANCE_ID,
                E.UNKNOWN_SERVER_ERROR,
            )
            client.told = False
            return
        before = client.owned
        client.take(answer)
        if client.keeps and client.owned == before:
            # The client still owns the same partitions, so the next heartbeat need not report them.
            client.told = True

    @rule(who=WHO, slow=st.booleans())
    def change_pace(self, who: str, slow: bool) -> None:
        """A slow client that becomes fast gives up the partitions that it had to revoke."""
        client = self._client(who)
        client.slow = slow
        if not slow and client.keeps:
            client.keeps, client.told = frozenset(), False

    @rule(who=WHO, temporarily=st.booleans(), lost=RARELY)
    def leave(self, who: str, temporarily: bool, lost: bool) -> None:
        client = self._client(who)
        client.keeps = frozenset()
        if lost:
            client.owned, client.epoch, client.told = frozenset(), 0, False
        else:
            client.leave(-2 if temporarily and client.instance else -1)
        client.alive_ms = 0

    @rule()
    def another_takes_the_instance(self) -> None:
        """The static member is started again, with another id."""
        old = self._client("d")
        self.uses += 1
        new = Client(self.world, f"d{self.uses}", instance="i")
        new.alive_ms = 0
        old_holds = old.holds(self.world.clock.now_ms)
        self._beat(new)
        if new.epoch > 0:
            assert not old_holds, "it was let in beside the one that lives"
            self.clients["d"] = new

    # --- Events of the environment ---

    @rule(duration_ms=st.sampled_from([1, 1_000, 5_000, 20_000, 44_000, 46_000, 61_000]))
    def wait(self, duration_ms: int) -> None:
        self.world.wait(duration_ms)

    @rule(topic=st.sampled_from(["topic", "other"]))
    def grow(self, topic: str) -> None:
        metadata = self.world.metadata
        if metadata.counts.get(topic, 0) < 12:
            metadata.counts[topic] = metadata.counts.get(topic, 0) + 1
            metadata.topics_version += 1

    @rule()
    def recreate(self) -> None:
        metadata = self.world.metadata
        metadata.ids["other"] = bytes([metadata.topics_version % 256]) * 16
        metadata.topics_version += 1

    @rule()
    def restart(self) -> None:
        """Kill the broker at any moment; after the restart all sessions begin again (G-100)."""
        before = self._groups()
        self.world.restart()
        assert self._groups() == before
        now_ms = self.world.clock.now_ms
        for client in self.clients.values():
            if client.alive_ms > now_ms:
                # A client that gets no answer computes the end of its session from its own clock.
                client.alive_ms = min(client.alive_ms, now_ms + SESSION_MS)

    def _groups(self) -> dict[str, ConsumerGroup]:
        groups = copy.deepcopy(shard(self.world).consumers)
        for group in groups.values():
            group.topics_version = None
        return groups

    # --- Invariants ---

    def _group(self) -> ConsumerGroup | None:
        return shard(self.world).consumers.get(GROUP)

    @invariant()
    def g121_no_partition_has_two_owners(self) -> None:
        if not hasattr(self, "world"):
            return
        now_ms = self.world.clock.now_ms
        owner: dict[tuple[bytes, int], str] = {}
        for name, client in self.clients.items():
            for place in client.holds(now_ms):
                assert place not in owner, (place, name, owner[place])
                owner[place] = name
        group = self._group()
        if group is None:
            return
        claimed: set[tuple[bytes, int]] = set()
        for member in group.members.values():
            for parts in (member.assigned, member.pending):
                mine = {(topic, index) for topic, held in parts.items() for index in held}
                assert not mine & claimed
                claimed |= mine
        assert claimed == set(group.owners)

    @invariant()
    def g103_epochs_never_decrease(self) -> None:
        group = self._group() if hasattr(self, "world") else None
        if group is None:
            return
        assert group.epoch >= self.group_epoch
        assert group.assignment_epoch <= group.epoch
        self.group_epoch = group.epoch
        for member_id, member in group.members.items():
            assert member.epoch <= group.epoch
            if member.epoch > 0:
                assert member.epoch >= self.epochs.get(member_id, 0)
                self.epochs[member_id] = member.epoch
        self.epochs = {held: self.epochs[held] for held in group.members if held in self.epochs}

    @invariant()
    def every_member_has_its_deadlines(self) -> None:
        group = self._group() if hasattr(self, "world") else None
        deadlines = shard(self.world).consumers and shard(self.world).consumer.deadlines
        if group is None or not deadlines:
            return
        for member_id, member in group.members.items():
            timers = shard(self.world).timers
            revokes = member.state is MemberState.UNREVOKED_PARTITIONS
            session, revocation = (
                GroupTimerName(kind, group.group_id, member_id)
                for kind in (GroupTimer.MEMBER_SESSION, GroupTimer.MEMBER_REVOCATION)
            )
            assert session in timers
            assert (revocation in timers) is revokes

    def teardown(self) -> None:
        """At the end all sessions have expired: new members divide all partitions among them."""
        if not hasattr(self, "world"):
            return
        self.world.wait(SESSION_MS + REBALANCE_MS)
        group = self._group()
        assert group is None or not group.members
        members = [Client(self.world, name) for name in ("x", "y", "z")]
        for member in members:
            assert member.beat().error_code == E.NONE
        settle(*members)
        count = self.world.metadata.counts["topic"]
        owned = [place for member in members for place in member.owned]
        assert sorted(owned) == [(b"T" * 16, index) for index in range(count)]


TestConsumerGroupMachine = ConsumerGroupMachine.TestCase
TestConsumerGroupMachine.settings = settings(
    max_examples=budget.examples(60), stateful_step_count=50, deadline=None
)
