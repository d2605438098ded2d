"""A topic that is deleted and made again on a disk that fills up, with crashes in between: no group
begins at an offset of the old topic (O-15, O-24)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import budget
import node_world
from filling_files import FillingFiles
from logs import NOW_MS
from node_world import NodeWorld
from odradek_broker.coordinator.groups.offsets import CommitCall, CommitPart
from odradek_broker.coordinator.runtime import ProducerIdentity
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.disk import DiskFailure

GROUPS = ("plain", "expires", "pending", "both")
PRODUCER_ID = 7


class RecreatingWorld(NodeWorld):
    """A node with two partitions of offsets, and requests to its group coordinator."""

    files: FillingFiles

    def __init__(self, **settings: str) -> None:
        super().__init__(offsets_topic_num_partitions="2", **settings)
        self.node.ensure_internal_topic(OFFSETS_TOPIC)
        self.create("t")
        self.create("other")
        self.settle()
        for group in GROUPS:
            self.commit(group, "other", 5)
            if group != "pending":
                self.commit(group, "t", 10, retention_ms=60_000 if group == "expires" else -1)
            if group in ("pending", "both"):
                self.commit(group, "t", 11, transactional=True)
        self.settle()

    def settle(self) -> None:
        self.flush()
        self.soon.run()
        self.flush()

    def commit(self, group: str, topic: str, offset: int, **how: Any) -> None:
        part = CommitPart(topic, 0, offset, -1, "", self.node.metadata.topic_id(topic))
        call = CommitCall(group, -1, "", None, 4, how.get("retention_ms", -1), [part])
        groups = self.node.groups
        if how.get("transactional"):
            done = groups.commit_offsets(call, ProducerIdentity(PRODUCER_ID, 0))
        else:
            done = groups.commit_offsets(call)
        self.flush()
        assert done.result() == [ErrorCode.NONE]

    def end_transaction(self) -> None:
        """Write the marker of the transaction to every partition that has its records."""
        for index in range(2):
            partition = self.node.partition(OFFSETS_TOPIC, index)
            assert partition is not None
            if partition.log.producers.open_transactions:
                how: dict[str, Any] = {"commit": True, "transaction_version": 1, "now_ms": NOW_MS}
                written = partition.append_marker(PRODUCER_ID, 0, 0, **how)
                self.node.groups.marker_written(index, PRODUCER_ID, True, written)
        self.settle()

    def committed(self, topic: str) -> dict[str, tuple[int, ErrorCode]]:
        found = {}
        for group in GROUPS:
            for stable in (False, True):
                answer = self.node.groups.fetch_offsets(group, [(topic, 0)], stable)
                self.flush()
                (each,) = answer.result().parts
                found[f"{group} {stable}"] = (each.offset, each.error)
        return found


NOTHING = {
    f"{group} {stable}": (-1, ErrorCode.NONE) for group in GROUPS for stable in (False, True)
}


@pytest.fixture(autouse=True)
def filling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_world, "MemoryFiles", FillingFiles)


def recreate(world: RecreatingWorld, crash: str) -> None:
    """Delete the topic and make it again, with a crash after both; a step may find no room."""
    before = world.node.metadata.topic_id("t")
    if before == OLD[world]:
        with suppress(StorageError):
            world.delete("t")
        world.settle()
        _crash(world, crash)
    world.clock.now_ms += 1
    if "t" not in world.node.metadata.topics:
        with suppress(StorageError):
            world.create("t")
        world.settle()
        _crash(world, crash)


def _crash(world: RecreatingWorld, crash: str) -> None:
    if crash:
        full = world.files.full
        world.crash(keep_page_cache=crash == "kill")
        world.files.full, world.files.shortage = full, world.files


OLD: dict[RecreatingWorld, bytes] = {}


@pytest.mark.parametrize("crash", budget.of_which(["", "kill", "power"], ["", "kill"]))
@pytest.mark.parametrize("lasts", budget.of_which([1, 4, 1_000], [1_000]))
def test_o24_no_group_begins_at_an_offset_of_a_topic_that_was_made_again(
    crash: str, lasts: int
) -> None:
    probe = RecreatingWorld()
    OLD[probe] = probe.node.metadata.topic_id("t")
    assert {each[0] for each in probe.committed("t").values()} > {10}
    begin = probe.files.operations
    recreate(probe, crash)
    total = probe.files.operations
    made_again = 0
    for begins in range(begin, total, 1 + budget.is_short()):
        world = RecreatingWorld()
        OLD[world] = world.node.metadata.topic_id("t")
        world.files.full = range(begins, begins + lasts)
        recreate(world, crash)
        known = world.node.metadata.topic_id("t")
        if known not in (OLD[world], bytes(16)):
            # The disk is still full in the longest run.
            made_again += 1
            assert world.committed("t") == NOTHING, begins
        world.files.full = range(0)
        recreate(world, "")
        for how in ("", "kill", "power", ""):
            assert world.committed("t") == NOTHING, (begins, how)
            assert {each[0] for each in world.committed("other").values()} == {5}
            _crash(world, how)
        world.end_transaction()
        world.produce("t", 1)
        for how in ("", "power"):
            assert world.committed("t") == NOTHING, (begins, how)
            _crash(world, how)
        assert not world.node.groups.deletions_pending
    assert made_again > (2 if budget.is_short() else 5)
    OLD.clear()


def test_o24_no_snapshot_of_the_metadata_covers_an_unfinished_removal() -> None:
    """A start after the snapshot would not know the removal, and an offset without a topic id
    would pass for one of the new topic."""
    world = RecreatingWorld(metadata_log_max_record_bytes_between_snapshots="1")
    world.maintain_later()
    partitions = [world.node.partition(OFFSETS_TOPIC, index) for index in range(2)]
    for partition in partitions:
        assert partition is not None
        world.files.fail(DiskFailure("append", path_part=partition.log.directory, for_ever=True))
    world.delete("t")
    world.settle()
    world.clock.now_ms += 1
    world.create("t")
    world.settle()
    assert world.node.groups.deletions_pending
    world.clock.now_ms += 60_000
    world.node.maintain()
    world.soon.run()
    assert any("committed offsets of a deleted topic" in each for each in world.maintain_later())
    world.crash()
    assert world.committed("t") == NOTHING
    assert not world.node.groups.deletions_pending
    world.maintain_later()
    world.soon.run()
    world.crash()
    assert world.node.metadata.topic_made_ms("t") == 0
    assert world.committed("t") == NOTHING
