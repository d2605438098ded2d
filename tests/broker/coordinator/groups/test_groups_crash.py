"""Offsets survive power cuts, kills, full disks, torn tails and failed flushes (O-03, O-18, G-90).

The tests run a whole node over files in memory, with its own logs and recovery.
`tests/adversity/test_killed_group_coordinator.py` kills real processes.
"""

from __future__ import annotations

import errno
import random

import pytest

import budget
from group_world import part
from node_world import NodeWorld
from odradek_broker.coordinator.groups.coordinator import GroupCoordinator
from odradek_broker.coordinator.groups.offsets import CommitCall
from odradek_broker.coordinator.shards import partition_for
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek_testkit.simulation.disk import DiskFailure

E = ErrorCode
OFFSET_PARTITIONS = 2
GROUPS = ("a", "b", "c")
ASSIGNED = bytes(2) + bytes(8)


class GroupsWorld(NodeWorld):
    """A node with a topic, and requests to its group coordinator."""

    def __init__(self, durability: str = "fsync") -> None:
        super().__init__(
            log_durability=durability,
            offsets_topic_num_partitions=str(OFFSET_PARTITIONS),
            group_initial_rebalance_delay_ms="0",
        )
        self.create("topic", 3)
        self.node.ensure_internal_topic(OFFSETS_TOPIC)
        self.flush()

    def commit_later(
        self, group: str, offset: int, partition: int = 0
    ) -> Deferred[list[ErrorCode]]:
        topic_id = self.node.metadata.topic_id("topic")
        parts = [part(offset, partition=partition, topic_id=topic_id)]
        return self.node.groups.commit_offsets(CommitCall(group, -1, "", None, 9, -1, parts))

    def commit(self, group: str, offset: int) -> ErrorCode:
        deferred = self.commit_later(group, offset)
        self.flush()
        return deferred.result()[0]

    def committed(self, group: str, partition: int = 0) -> int:
        return dict(self.node.groups.committed(group)).get(("topic", partition), -1)

    def join(self, group: str, member_id: str = "") -> Deferred[JoinGroupResponse]:
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="any",
            protocols=[protocol],
        )
        return self.node.groups.join(request, 3, "client", "/host")

    def sync_later(self, group: str, member_id: str, generation: int) -> Deferred[ErrorCode]:
        given = [SyncGroupRequestAssignment(member_id=member_id, assignment=ASSIGNED)]
        request = SyncGroupRequest(
            group_id=group, generation_id=generation, member_id=member_id, assignments=given
        )
        error: Deferred[ErrorCode] = Deferred()
        self.node.groups.sync(request).then(
            lambda answer: error.resolve(ErrorCode(answer.error_code))
        )
        return error

    def log_path(self, group: str) -> str:
        index = partition_for(group, OFFSET_PARTITIONS)
        return f"data/{OFFSETS_TOPIC}-{index}/00000000000000000000.log"


@pytest.fixture
def world() -> GroupsWorld:
    return GroupsWorld()


class Witness:
    """The sent and the acknowledged commits of each group, and the generations of its JoinGroup
    answers."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = dict.fromkeys(GROUPS, -1)
        self.acknowledged: dict[str, int] = dict.fromkeys(GROUPS, -1)
        self.generations: dict[str, int] = dict.fromkeys(GROUPS, 0)

    def commit(self, world: GroupsWorld, group: str) -> None:
        self.sent[group] += 1
        offset = self.sent[group]

        def answered(errors: list[ErrorCode]) -> None:
            if errors == [E.NONE]:
                assert self.acknowledged[group] < offset
                self.acknowledged[group] = offset

        world.commit_later(group, offset).then(answered)

    def join(self, world: GroupsWorld, group: str) -> None:
        """Add a member that sends no further requests."""

        def joined(answer: JoinGroupResponse) -> None:
            if answer.error_code == E.NONE:
                assert answer.generation_id >= self.generations[group]
                self.generations[group] = answer.generation_id

        world.join(group).then(joined)

    def check(self, world: GroupsWorld) -> None:
        """Check that no acknowledged commit is lost, and that every stored commit was sent."""
        for group in GROUPS:
            assert self.acknowledged[group] <= world.committed(group) <= self.sent[group]
            found = world.node.groups.group(group)
            assert (found.generation if found else 0) >= self.generations[group]


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
@pytest.mark.parametrize("seed", budget.of_which(range(25), range(5)))
def test_o03_o18_acknowledged_commits_survive_a_crash_at_any_moment(
    seed: int, durability: str
) -> None:
    """Each test has seven crashes: power cuts with fsync durability, kills with page-cache
    durability."""
    rng = random.Random(seed)
    world, witness = GroupsWorld(durability), Witness()
    for group in GROUPS:  # a group that has offsets is not deleted
        witness.commit(world, group)
    world.flush()
    for _ in range(7):
        for _ in range(rng.randrange(30)):
            step = rng.randrange(10)
            if step < 6:
                witness.commit(world, rng.choice(GROUPS[:2]))
            elif step < 7:
                witness.join(world, GROUPS[2])
            elif step < 9:
                world.flush()
            else:
                world.clock.now_ms += 400_000
                world.node.groups.shards.run_due(world.clock.now_ms)
        if durability == "fsync":
            world.crash(keep_page_cache=False, rng=rng)
        else:
            world.crash()
        witness.check(world)
        world.flush()


def test_o03_a_commit_on_a_full_disk_gets_an_error_and_loses_nothing(world: GroupsWorld) -> None:
    assert world.commit("a", 5) is E.NONE
    full = DiskFailure("append", code=errno.ENOSPC, path_part=OFFSETS_TOPIC, for_ever=True)
    world.files.fail(full)
    # A retriable error: the client stays a member and retries until the disk has room.
    assert world.commit("a", 6) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert full.fired > 0
    assert world.committed("a") == 5
    refused = world.join("b").result()
    assert refused.error_code == E.NOT_COORDINATOR
    world.files.heal()
    assert world.commit("a", 7) is E.NONE
    world.crash(keep_page_cache=False)
    assert world.committed("a") == 7


@pytest.mark.parametrize("torn_bytes", [1, 20, 61, 90])
def test_l08_a_half_written_commit_is_truncated(world: GroupsWorld, torn_bytes: int) -> None:
    assert world.commit("a", 5) is E.NONE
    world.files.fail(
        DiskFailure("append", code=errno.ENOSPC, path_part=OFFSETS_TOPIC, torn_bytes=torn_bytes)
    )
    assert world.commit("a", 6) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.commit("a", 7) is E.NONE
    assert world.committed("a") == 7
    world.crash()
    assert world.committed("a") == 7


def test_o18_a_torn_tail_loses_only_the_commits_in_it(world: GroupsWorld) -> None:
    """The log is truncated at every byte of the last commit, as by a power cut."""
    assert world.commit("a", 5) is E.NONE
    path = world.log_path("a")
    before = world.files.open(path).size()
    assert world.commit("a", 6) is E.NONE
    after = world.files.open(path).size()
    whole = world.files.open(path).read_at(0, after)
    assert len(whole) == after > before + 61
    for size in range(before, after + 1):
        world.files.put(path, whole[:size])
        world.crash()
        assert world.committed("a") == (6 if size == after else 5)
    # A damaged byte has the same effect as a missing byte.
    for position in range(before, after, 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        world.files.put(path, bytes(damaged))
        world.crash()
        # The checksum does not cover the base offset and the leader epoch, so damage there may go
        # unnoticed.
        assert world.committed("a") in (5, 6)


def test_d5_commits_get_not_coordinator_from_a_failed_flush_to_the_restart(
    world: GroupsWorld,
) -> None:
    assert world.commit("a", 5) is E.NONE
    world.files.fail(DiskFailure("sync", path_part=f"{OFFSETS_TOPIC}-{partition_for('a', 2)}"))
    failed = world.commit_later("a", 6)
    world.flush()
    assert failed.result() == [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.commit("a", 7) is E.NOT_COORDINATOR
    other = next(group for group in GROUPS if partition_for(group, 2) != partition_for("a", 2))
    assert world.commit(other, 1) is E.NONE
    world.crash(keep_page_cache=False)
    assert world.committed("a") == 5
    assert world.commit("a", 8) is E.NONE


def test_g90_an_assignment_is_durable_before_a_member_gets_it(world: GroupsWorld) -> None:
    joined = world.join("a")
    assert not joined.done
    world.flush()
    member_id = joined.result().member_id
    synced = world.sync_later("a", member_id, 1)
    assert not synced.done
    world.crash(keep_page_cache=False)
    # The generation is durable, and members know it; the assignment is not durable.
    again = world.join("a", member_id)
    world.flush()
    assert again.result().generation_id == 2
    synced = world.sync_later("a", member_id, 2)
    world.flush()
    assert synced.result() is E.NONE
    world.crash(keep_page_cache=False)
    assert world.sync_later("a", member_id, 2).result() is E.NONE


def test_g90_while_a_partition_loads_its_groups_get_coordinator_load_in_progress(
    world: GroupsWorld,
) -> None:
    """Groups of other partitions are served."""
    assert world.commit("a", 5) is E.NONE
    node = world.node
    groups = GroupCoordinator(
        node.config,
        metadata=node.metadata,
        internal_partition=node.replicas.internal_partition,
        clock=node.clock,
        scheduler=node.scheduler,
        slices=node.slices,
        randomness=world.randomness,
        share_states=node.share_state,
        end_offset=node.replicas.end_offset,
    )
    groups.shards.begin_load()
    call = CommitCall("a", -1, "", None, 9, -1, [part(6)])
    assert groups.commit_offsets(call).result() == [E.COORDINATOR_LOAD_IN_PROGRESS]
    fetched = groups.fetch_offsets("a", [("topic", 0)], require_stable=False).result()
    assert fetched.error is E.COORDINATOR_LOAD_IN_PROGRESS
    while not groups.shards.load_some():
        pass
    assert dict(groups.committed("a")) == {("topic", 0): 5}
