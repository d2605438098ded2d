"""States of share partitions survive power cuts, kills, torn tails and failed flushes (H-102).

The tests run a whole node over files in memory, with its own logs and recovery. The prune interval
and the number of updates per snapshot are small, so that the coordinator writes snapshots and
deletes old records all the time (H-106, H-107).
"""

from __future__ import annotations

import errno
import random

import pytest

import budget
from node_world import NodeWorld
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC
from odradek_broker.share_state import ShareKey, ShareState, StateBatch, StateResult
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.disk import DiskFailure

E = ErrorCode
PARTITIONS = 3
_INTERVAL_MS = 60_000


class ShareWorld(NodeWorld):
    """A node with share partitions of one topic."""

    def __init__(self, durability: str = "fsync") -> None:
        super().__init__(
            log_durability=durability,
            share_coordinator_state_topic_num_partitions="2",
            share_coordinator_snapshot_update_records_per_snapshot="3",
            share_coordinator_state_topic_prune_interval_ms=str(_INTERVAL_MS),
            share_coordinator_cold_partition_snapshot_interval_ms=str(_INTERVAL_MS),
        )
        self.create("topic", PARTITIONS)
        self.node.ensure_internal_topic(SHARE_STATE_TOPIC)
        self.flush()
        self.topic_id = self.node.metadata.topics["topic"].topic_id

    def key(self, index: int) -> ShareKey:
        return ShareKey("g", self.topic_id, index)

    def initialize(self, index: int, start_offset: int = 0) -> Deferred[StateResult]:
        return self.node.share_state.initialize(self.key(index), -1, start_offset)

    def write(self, index: int, *batches: StateBatch, start: int = -1) -> Deferred[StateResult]:
        return self.node.share_state.write(
            self.key(index), ShareState(0, -1, -1, start, 1, batches)
        )

    def state(self, index: int) -> ShareState | None:
        """The state in memory, which may not be durable yet."""
        for shard in self.node.share_state.shards.cores:
            if self.key(index) in shard.partitions:
                return shard.partitions[self.key(index)].state
        return None

    def log_sizes(self) -> list[int]:
        partitions = [self.node.partition(SHARE_STATE_TOPIC, index) for index in range(2)]
        return [each.log.log_end_offset - each.log.log_start_offset for each in partitions if each]

    def let_time_pass(self) -> None:
        self.clock.now_ms += _INTERVAL_MS
        self.node.share_state.shards.run_due(self.clock.now_ms)
        self.soon.run()


#: The part of a state that its readers see.
Visible = tuple[int, int, int, tuple[StateBatch, ...]] | None


def visible(state: ShareState | None) -> Visible:
    if state is None:
        return None
    return state.leader_epoch, state.start_offset, state.delivery_complete_count, state.batches


class Witness:
    """For each share partition: the list of its states, oldest first, and the index in it of the
    newest acknowledged state."""

    def __init__(self) -> None:
        self.decided: list[list[Visible]] = [[None] for _ in range(PARTITIONS)]
        self.acknowledged = [0] * PARTITIONS

    def step(self, world: ShareWorld, index: int, rng: random.Random) -> None:
        first = rng.randrange(100)
        batch = StateBatch(first, first + rng.randrange(10), rng.choice([0, 2, 4]), 1)
        kind = rng.randrange(12)
        if kind == 0:
            answer = world.node.share_state.delete(world.key(index))
        elif kind < 3:
            answer = world.initialize(index, first)
        elif kind < 5:
            answer = world.node.share_state.read(world.key(index), rng.randrange(50))
        else:
            answer = world.write(index, batch, start=rng.choice([-1, first // 2]))
        self.decided[index].append(visible(world.state(index)))
        number = len(self.decided[index]) - 1

        def answered(result: StateResult) -> None:
            if result.error is E.NONE:
                self.acknowledged[index] = max(self.acknowledged[index], number)

        answer.then(answered)

    def check(self, world: ShareWorld) -> None:
        """Check that each state was written at some time, and is not older than the newest
        acknowledged state."""
        for index in range(PARTITIONS):
            found = visible(world.state(index))
            assert found in self.decided[index][self.acknowledged[index] :]
            self.decided[index] = [found]
            self.acknowledged[index] = 0


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
@pytest.mark.parametrize("seed", budget.of_which(range(25), range(5)))
def test_h102_acknowledged_states_survive_a_crash_at_any_moment(seed: int, durability: str) -> None:
    """Each test has seven crashes: power cuts with fsync durability, kills with page-cache
    durability."""
    rng = random.Random(seed)
    world, witness = ShareWorld(durability), Witness()
    for _ in range(7):
        for _ in range(rng.randrange(60)):
            step = rng.randrange(20)
            if step < 14:
                witness.step(world, rng.randrange(PARTITIONS), rng)
            elif step < 18:
                world.flush()
            else:
                world.let_time_pass()
        if durability == "fsync":
            world.crash(keep_page_cache=False, rng=rng)
        else:
            world.crash()
        witness.check(world)
        world.flush()


def test_h106_the_share_state_log_stays_short() -> None:
    world = ShareWorld()
    for index in range(PARTITIONS):
        world.initialize(index)
    for number in range(200):
        world.write(0, StateBatch(number, number, 2, 1))
        world.flush()
        if number % 10 == 0:
            world.let_time_pass()
            world.flush()
    world.let_time_pass()
    world.flush()
    world.let_time_pass()
    assert sum(world.log_sizes()) < 50
    before = [world.state(index) for index in range(PARTITIONS)]
    world.crash(keep_page_cache=False)
    assert [world.state(index) for index in range(PARTITIONS)] == before
    assert sum(world.log_sizes()) < 50, "the deletion was durable"


def test_h102_a_write_on_a_full_disk_gets_an_error_and_loses_nothing() -> None:
    world = ShareWorld()
    world.initialize(0)
    world.flush()
    before = world.state(0)
    full = DiskFailure("append", code=errno.ENOSPC, path_part=SHARE_STATE_TOPIC, for_ever=True)
    world.files.fail(full)
    assert world.write(0, StateBatch(0, 0, 2, 1)).result().error is E.NOT_COORDINATOR
    assert full.fired > 0 and world.state(0) == before
    world.files.heal()
    assert world.write(0, StateBatch(1, 1, 2, 1)).done is False
    world.flush()
    world.crash(keep_page_cache=False)
    state = world.state(0)
    assert state is not None and state.batches == (StateBatch(1, 1, 2, 1),)


def test_h102_calls_get_not_coordinator_from_a_failed_flush_to_the_restart() -> None:
    world = ShareWorld()
    world.initialize(0)
    world.flush()
    before = world.state(0)
    world.files.fail(DiskFailure("sync", path_part=SHARE_STATE_TOPIC, for_ever=True))
    written = world.write(0, StateBatch(0, 0, 2, 1))
    world.flush()
    assert written.result().error is E.NOT_COORDINATOR
    assert world.node.share_state.read(world.key(0), 0).result().error is E.NOT_COORDINATOR
    world.crash(keep_page_cache=False)
    assert world.state(0) == before


def test_h108_states_are_deleted_when_the_topic_deletion_is_durable() -> None:
    world = ShareWorld()
    for index in range(PARTITIONS):
        world.initialize(index)
    world.flush()
    world.delete("topic")
    assert world.state(0) is not None
    world.flush()
    assert world.state(0) is None
    world.crash(keep_page_cache=False)
    assert [world.state(index) for index in range(PARTITIONS)] == [None] * PARTITIONS


def test_h108_a_lost_topic_deletion_keeps_the_states() -> None:
    world = ShareWorld()
    world.initialize(0)
    world.flush()
    world.delete("topic")
    world.crash(keep_page_cache=False)
    assert "topic" in world.node.metadata.topics
    assert world.state(0) is not None
