"""Commits of a consumer against a model of a coordinator, in virtual time (K-38, K-39).

`World` has a group, connections that lose answers, and a clock that advances when nothing else can
run. One seed determines commits, losses, and moves of partitions. Committed offsets must go back
only if the application requests it, and an awaited commit must have its true result.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

import budget
from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.errors import CommitFailed
from odradek_client.consumer.group.coordinator import ConsumerCoordinator
from odradek_client.consumer.group.group_loop import AutoCommit
from odradek_client.consumer.group.offsets import GroupOffsets, Identity
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.errors import ConnectionLost, OdradekError, RebalanceInProgress, RequestTimedOut
from odradek_client.structs import OffsetAndMetadata, TopicPartition
from odradek_protocol.common_structs import PartitionError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from odradek_testkit.simulation.simulate import run

ALL = [TopicPartition("t", n) for n in range(3)]
ME = "me"


class World:
    """A coordinator, its connection, and the membership of a consumer.

    `next_protocol`: the group uses the protocol of KIP-848. Its epochs rise while members keep
    partitions, and the coordinator checks the epoch of a commit, but not the owner of the partition
    (as before KIP-1251).
    """

    def __init__(self, *, next_protocol: bool = False, **settings: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.next_protocol = next_protocol
        self.committed: dict[TopicPartition, int] = dict.fromkeys(ALL, 0)
        self.history: list[tuple[TopicPartition, int]] = []
        #: The outcomes of the next commits: an error code, or the fate of the request.
        self.script: list[ErrorCode | str] = []
        self.chance: Callable[[], ErrorCode | str] = lambda: ErrorCode.NONE
        self.delay_s: Callable[[], float] = lambda: 0.01
        self.generation = 1
        self.known_generation = 1
        self.joined = True
        self.requests: list[OffsetCommitRequest] = []
        self._carried_out_at_s = 0.0
        self.subscription = SubscriptionState()
        self.subscription.subscribe_topics(["t"])
        self.subscription.assign_by_group(ALL)
        self.config = ConsumerConfig.from_settings({"group_id": "g", **settings})
        network: Any = self
        self.offsets = GroupOffsets(
            self.config,
            network,
            ConsumerCoordinator(self.config, "g", network),
            self.subscription,
            self,
        )
        self.auto_commit = AutoCommit(self.config, network, self.subscription, self.offsets)

    # --- the network ---

    def now_ms(self) -> float:
        return self.loop.time() * 1000

    async def find_coordinator(self, group_id: str) -> int:
        return 1

    def forget_coordinator(self, group_id: str) -> None:
        pass

    async def send(self, node_id: int, request: Message, **_: Any) -> OffsetCommitResponse:
        """Send a commit. The coordinator handles commits in the order of sending. `script`, or
        `chance` if the script is empty, decides if the answer is lost."""
        assert isinstance(request, OffsetCommitRequest)
        self.requests.append(request)
        fate = self.script.pop(0) if self.script else self.chance()
        at_s = self._carried_out_at_s = max(
            self._carried_out_at_s + 1e-6, self.loop.time() + self.delay_s()
        )
        answer: asyncio.Future[OffsetCommitResponse] = self.loop.create_future()
        self.loop.call_at(at_s, self._carry_out, request, fate, answer)
        return await answer

    def _carry_out(
        self,
        request: OffsetCommitRequest,
        fate: ErrorCode | str,
        answer: asyncio.Future[OffsetCommitResponse],
    ) -> None:
        lost = ConnectionLost("the connection was lost")
        code = fate if isinstance(fate, ErrorCode) else ErrorCode.NONE
        if request.generation_id_or_member_epoch != self.generation:
            stale = ErrorCode.STALE_MEMBER_EPOCH
            code = stale if self.next_protocol else ErrorCode.ILLEGAL_GENERATION
        if code is ErrorCode.NONE and fate != "lost before":
            for topic in request.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    self.commit_of_others(partition, each.committed_offset)
        if answer.done():
            return
        if isinstance(fate, str):
            answer.set_exception(lost)
            return
        answer.set_result(
            OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            PartitionError(partition_index=each.partition_index, error_code=code)
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )

    def commit_of_others(self, partition: TopicPartition, offset: int) -> None:
        self.committed[partition] = offset
        self.history.append((partition, offset))

    # --- membership ---

    def identity(self) -> Identity:
        if not self.joined:
            raise RebalanceInProgress("not in the group", code=ErrorCode.REBALANCE_IN_PROGRESS)
        return Identity(self.known_generation, ME)

    def on_commit_refused(self, code: ErrorCode, identity: Identity) -> bool:
        return True

    def may_commit_again(self, code: ErrorCode, identity: Identity) -> bool:
        self.known_generation = self.generation
        return self.next_protocol and code is ErrorCode.STALE_MEMBER_EPOCH and self.joined

    def is_same_member(self, identity: Identity, now: Identity) -> bool:
        return identity.member_id == now.member_id if self.next_protocol else identity == now

    def on_rebalance_in_progress(self) -> None:
        pass

    # --- events ---

    def read_up_to(self, offset: int, *partitions: TopicPartition) -> None:
        for partition in partitions or ALL:
            if self.subscription.get(partition) is not None:
                self.subscription.seek(partition, offset)

    def revoke(self, *partitions: TopicPartition) -> None:
        self.subscription.drop(partitions)

    def moved(self) -> None:
        """Begin the next generation of the group, and let this consumer know it."""
        self.generation += 1
        self.known_generation = self.generation

    def give(self, *partitions: TopicPartition) -> None:
        self.subscription.assign_by_group([*self.subscription.assigned(), *partitions])
        for partition in partitions:
            self.subscription.seek(partition, self.committed[partition])

    async def committing(self, **offsets: int) -> None:
        """Commit offsets; `p0=5` is offset 5 of partition 0."""
        await self.offsets.commit(_given(offsets), 60_000)

    def commit_soon(self, **offsets: int) -> asyncio.Task[None]:
        return self.offsets.commit_soon(_given(offsets), 60_000)


def _given(offsets: dict[str, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {ALL[int(name[1:])]: OffsetAndMetadata(offset) for name, offset in offsets.items()}


def each_protocol(function: Any) -> Any:
    return pytest.mark.parametrize("next_protocol", [False, True], ids=["classic", "next"])(
        function
    )


# --- Single scenarios -----------------------------------------------------------------------------


@each_protocol
def test_k39_a_failed_auto_commit_does_not_overwrite_a_later_commit(
    next_protocol: bool,
) -> None:
    """The automatic commit of 50 fails, and the application commits 150. No retry overwrites
    150."""

    async def story() -> None:
        world = World(next_protocol=next_protocol)
        world.script = ["lost before"] * 3
        world.read_up_to(50)
        world.auto_commit.commit_if_due()
        await asyncio.sleep(0.05)
        world.read_up_to(150)
        await world.committing(p0=150)
        assert world.committed[ALL[0]] == 150
        await asyncio.sleep(120)
        assert world.committed[ALL[0]] == 150

    run(story)


def test_k39_a_failed_auto_commit_is_soon_followed_by_one_of_newer_positions() -> None:
    async def story() -> None:
        world = World(auto_commit_interval_ms=5_000, retry_backoff_ms=100)
        world.script = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        world.read_up_to(50)
        world.auto_commit.commit_if_due()
        await asyncio.sleep(0.05)
        assert world.committed[ALL[0]] == 0
        wait_ms = world.auto_commit.due_in_ms()
        assert wait_ms is not None
        assert wait_ms <= 100
        world.read_up_to(70)
        await asyncio.sleep(wait_ms / 1000)
        world.auto_commit.commit_if_due()
        await asyncio.sleep(0.05)
        assert world.history == [(each, 70) for each in ALL]

    run(story)


@each_protocol
def test_k39_the_client_does_not_retry_a_commit_after_a_rebalance(next_protocol: bool) -> None:
    """After the consumer lost the partition, another owner has committed 90. The commit of 5 is not
    retried, although the partition is assigned to this consumer again and the coordinator would
    accept the commit."""

    async def story() -> None:
        world = World(next_protocol=next_protocol)
        world.script = ["lost before"]
        tried = world.commit_soon(p0=5, p1=7)
        await asyncio.sleep(0.02)
        world.revoke(ALL[0])
        world.moved()
        world.commit_of_others(ALL[0], 90)
        world.moved()
        world.give(ALL[0])
        with pytest.raises(RebalanceInProgress):
            await tried
        assert world.committed[ALL[0]] == 90
        assert len(world.requests) == 1

    run(story)


@each_protocol
def test_k38_offsets_of_revoked_partitions_are_not_committed(next_protocol: bool) -> None:
    """The coordinator of the classic protocol accepts a commit of any partition from any member, so
    a late commit of the old owner would overwrite that of the new owner."""

    async def story() -> None:
        world = World(next_protocol=next_protocol)
        world.revoke(ALL[0])
        world.moved()
        world.commit_of_others(ALL[0], 90)
        with pytest.raises(RebalanceInProgress, match=r"t-0.*given the partitions up"):
            await world.committing(p0=5, p1=7)
        assert world.requests == []
        await world.committing(p1=7)
        assert (world.committed[ALL[0]], world.committed[ALL[1]]) == (90, 7)

    run(story)


def test_k38_offsets_of_partitions_never_assigned_may_be_committed() -> None:
    async def story() -> None:
        world = World()
        foreign = TopicPartition("other", 4)
        await world.offsets.commit({foreign: OffsetAndMetadata(3)}, 1_000)
        assert world.committed[foreign] == 3

    run(story)


def test_a_classic_commit_of_an_older_generation_is_not_retried() -> None:
    """After the rebalance the application has to repeat the commit for the partitions that it
    kept."""

    async def story() -> None:
        world = World()
        world.script = ["lost after"]
        tried = world.commit_soon(p0=5)
        await asyncio.sleep(0.02)
        world.moved()
        with pytest.raises(RebalanceInProgress):
            await tried
        assert [each.generation_id_or_member_epoch for each in world.requests] == [1]

    run(story)


def test_k38_a_commit_of_kept_partitions_is_retried_with_the_new_epoch() -> None:
    async def story() -> None:
        world = World(next_protocol=True)
        world.script = ["lost before"]
        tried = world.commit_soon(p0=5)
        await asyncio.sleep(0.02)
        world.moved()
        await tried
        assert world.committed[ALL[0]] == 5
        # The first retry has the old epoch. After its refusal, the next has the current epoch.
        assert [each.generation_id_or_member_epoch for each in world.requests] == [1, 1, 2]

    run(story)


def test_a_newer_commit_replaces_a_waiting_one() -> None:
    """Of the commits that begin while another commit is in flight, only the last is sent. All of
    these commits get its result."""

    async def story() -> None:
        world = World()
        tasks = [world.commit_soon(p0=offset) for offset in range(1, 1_001)]
        await asyncio.gather(*tasks)
        assert world.committed[ALL[0]] == 1_000
        assert len(world.requests) <= 2

    run(story)


def test_a_newer_commit_replaces_only_its_own_partitions_of_an_older_one() -> None:
    async def story() -> None:
        world = World()
        world.script = ["lost before"]
        older = world.commit_soon(p0=5, p1=6)
        await asyncio.sleep(0.02)
        newer = world.commit_soon(p0=8)
        await asyncio.gather(older, newer)
        assert (world.committed[ALL[0]], world.committed[ALL[1]]) == (8, 6)
        assert (ALL[0], 5) not in world.history

    run(story)


def test_a_superseded_commit_fails_like_the_newer_one() -> None:
    async def story() -> None:
        world = World()
        first = world.commit_soon(p0=1)
        await asyncio.sleep(0)
        second, third = world.commit_soon(p0=2), world.commit_soon(p0=3)
        world.script = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        await first
        for each in (second, third):
            with pytest.raises(OdradekError, match="lacks a right on the group"):
                await each
        on_wire = world.commit_soon(p1=4)
        await asyncio.sleep(0)
        waiting = world.commit_soon(p1=5)
        last = world.commit_soon(p1=6)
        last.cancel()
        await on_wire
        with pytest.raises(RequestTimedOut, match="newer commit"):
            await waiting

    run(story)


def test_k31_a_commit_before_a_rebalance_does_not_overwrite_a_later_one() -> None:
    """During a cooperative rebalance, the consumer commits, and a later poll can still return
    records of kept partitions."""

    async def story() -> None:
        world = World()
        before = world.offsets.commit_quietly_soon(_given({"p0": 145}), 60_000, "before")
        later = world.commit_soon(p0=146)
        await asyncio.gather(before, later)
        assert world.committed[ALL[0]] == 146

    run(story)


def test_a_commit_that_was_cancelled_before_it_began_does_not_delay_others() -> None:
    async def story() -> None:
        world = World()
        world.commit_soon(p0=1).cancel()
        await world.committing(p0=2)
        await world.offsets.wait_until_ended(0)
        assert world.committed[ALL[0]] == 2

    run(story)


def test_a_commit_ends_at_its_timeout_and_names_its_last_error() -> None:
    async def story() -> None:
        world = World()
        world.chance = lambda: "lost before"
        with pytest.raises(RequestTimedOut, match=r"within 3000 ms .*connection was lost"):
            await world.offsets.commit(_given({"p0": 1}), 3_000)
        assert world.now_ms() == pytest.approx(3_000)

    run(story)


# --- Random scenarios -----------------------------------------------------------------------------


class Life:
    """Random commits of rising positions by a consumer that loses and gets partitions."""

    def __init__(self, seed: int, *, next_protocol: bool) -> None:
        self.random = random.Random(seed)
        self.world = World(
            next_protocol=next_protocol, auto_commit_interval_ms=200, retry_backoff_ms=50
        )
        self.world.chance = self.chance
        self.world.delay_s = lambda: self.random.choice((0.001, 0.02, 0.3))
        self.position = 0
        self.tasks: list[tuple[asyncio.Task[None], dict[str, int]]] = []
        self.refused = 0

    def chance(self) -> ErrorCode | str:
        fates: list[ErrorCode | str] = [ErrorCode.NONE] * 3
        fates += ["lost before", "lost after"]
        fates += [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        return self.random.choice(fates)

    def read(self) -> None:
        self.position += self.random.randint(1, 9)
        self.world.read_up_to(self.position)

    def commit(self) -> None:
        """Manually commit offsets of random partitions, including partitions that are no longer
        assigned."""
        self.world.read_up_to(self.position)
        chosen = self.random.sample(range(3), self.random.randint(1, 3))
        offsets = {f"p{n}": self.position for n in chosen}
        self.tasks.append((self.world.commit_soon(**offsets), offsets))

    def before_a_rebalance(self) -> None:
        """Commit as the consumer does before a rebalance, then read and commit more records of kept
        partitions."""
        offsets = self.world.subscription.consumed()
        self.world.offsets.commit_quietly_soon(offsets, 60_000, "before a rebalance")
        self.read()
        self.commit()

    def rebalance(self) -> None:
        """Revoke some partitions. Other members may commit offsets of these partitions, and some
        may be assigned to this consumer again."""
        world, held = self.world, self.world.subscription.assigned()
        gone = [each for each in sorted(held) if self.random.random() < 0.5]
        free = [each for each in ALL if each not in held]
        if not world.next_protocol:
            # In the classic protocol all partitions are revoked, and those that are kept are
            # assigned again.
            world.revoke(*held)
        else:
            world.revoke(*gone)
        world.generation += 1
        for each in [*gone, *free]:
            if self.random.random() < 0.7:
                self.position += 1
                world.commit_of_others(each, self.position)
        back = [each for each in free if self.random.random() < 0.5]
        kept = [each for each in sorted(held) if each not in gone]
        world.known_generation = world.generation
        world.give(*back) if world.next_protocol else world.give(*back, *kept)

    async def live(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(
                (
                    self.read,
                    self.read,
                    self.world.auto_commit.commit_if_due,
                    self.commit,
                    self.rebalance,
                )
            )()
            await asyncio.sleep(self.random.choice((0.0, 0.005, 0.05, 0.4)))
        self.world.chance = lambda: ErrorCode.NONE
        await asyncio.sleep(200)

    def check(self) -> None:
        last = dict.fromkeys(ALL, 0)
        for partition, offset in self.world.history:
            assert offset >= last[partition], f"{partition} went back from {last[partition]}"
            last[partition] = offset
        for task, offsets in self.tasks:
            assert task.done()
            error = task.exception()
            if error is None:
                for name, offset in offsets.items():
                    assert self.world.committed[ALL[int(name[1:])]] >= offset
            else:
                assert isinstance(error, RebalanceInProgress | CommitFailed), error
                self.refused += 1


@each_protocol
@pytest.mark.budgeted
def test_k38_k39_committed_offsets_never_go_back_unless_requested(next_protocol: bool) -> None:
    committed = refused = 0
    lives = budget.examples(150)

    async def story() -> None:
        nonlocal committed, refused
        for seed in range(lives):
            life = Life(seed, next_protocol=next_protocol)
            await life.live(60)
            life.check()
            committed += len(life.world.history)
            refused += life.refused
            await life.world.auto_commit.stop()

    run(story)
    assert committed > 7 * lives
    assert refused > lives // 3  # enough commits were refused for the test to have a meaning
