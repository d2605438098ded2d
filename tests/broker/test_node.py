"""The node over files in memory: metadata log and partition directories agree, whatever fails (D4)."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from tests.sim.files import Failure

from logs import make_batch
from node_world import NodeWorld
from odradek_broker.metadata import METADATA_TOPIC, OFFSETS_TOPIC
from odradek_broker.storage.checkpoints import encode_partition_metadata
from odradek_broker.storage.errors import StorageError


@pytest.fixture
def world() -> NodeWorld:
    return NodeWorld()


def stray_directory(world: NodeWorld, name: str) -> None:
    world.files.make_dirs(f"data/{name}")
    world.files.put(f"data/{name}/partition.metadata", encode_partition_metadata(bytes(range(16))))


# --- Deletion --------------------------------------------------------------------------------------


def test_d4_a_deletion_that_is_not_durable_takes_nothing_away(world: NodeWorld) -> None:
    """Its record and the renamed directory reach the disk separately."""
    created = world.create("t")
    world.flush()
    assert created.done
    world.produce("t", 5)
    deleted = world.delete("t")
    assert world.node.partition("t", 0) is None
    # The directory's entries reach the disk, for whatever reason; the record does not.
    world.files.sync_dir("data")
    assert not deleted.done
    world.crash(keep_page_cache=False)
    assert world.end("t") == 5
    deleted = world.delete("t")
    world.flush()
    assert deleted.done
    assert [name for name in world.files.list("data") if name.endswith("-delete")]
    world.crash(keep_page_cache=False)
    assert "t" not in world.node.metadata.topics
    assert not [name for name in world.files.list("data") if name.startswith("t-0")]


@pytest.mark.parametrize("keep_page_cache", [False, True])
def test_a_topic_comes_back_before_its_deletion_is_durable(
    world: NodeWorld, keep_page_cache: bool
) -> None:
    world.create("t")
    world.flush()
    world.produce("t", 5)
    world.delete("t")
    world.create("t")
    again = world.delete("t")
    created = world.create("t", 2)
    world.flush()
    assert again.done
    assert created.done
    world.produce("t", 3)
    world.keep_house_later()
    assert world.end("t") == 3
    assert world.crash(keep_page_cache=keep_page_cache).problems == []
    assert (world.end("t"), world.end("t", 1)) == (3, 0)


def test_a_directory_that_cannot_be_renamed_is_tried_again(world: NodeWorld) -> None:
    world.create("t", 2)
    world.flush()
    world.produce("t", 5)
    world.files.fail(Failure("rename", code=errno.EACCES, path_part="t-0", for_ever=True))
    deleted = world.delete("t")
    world.flush()
    assert deleted.done, "it is recorded: the rest is housekeeping"
    assert world.files.exists("data/t-0/partition.metadata")
    assert not world.files.exists("data/t-1/partition.metadata")
    assert "deleted files" in world.keep_house_later()[0]
    # Its name is not free, so a new topic of it waits too.
    created = world.create("t")
    world.flush()
    assert created.done
    assert world.node.partition("t", 0) is None
    world.files.heal()
    world.keep_house_later()
    assert world.end("t") == 0
    assert world.keep_house_later() == []


def test_one_failed_removal_does_not_stop_housekeeping(world: NodeWorld) -> None:
    world.create("a")
    world.create("b")
    world.flush()
    world.delete("a")
    world.delete("b")
    world.flush()
    world.files.fail(Failure("remove", code=errno.EACCES, path_part="a-0", for_ever=True))
    assert len(world.keep_house_later()) == 1
    assert not [name for name in world.files.list("data") if name.startswith("b-0")]
    world.files.heal()
    assert world.keep_house_later() == []
    assert not [name for name in world.files.list("data") if name.startswith("a-0")]


# --- Creation --------------------------------------------------------------------------------------


def test_a_partition_that_cannot_be_made_is_made_later(world: NodeWorld) -> None:
    """A full disk: the topic is recorded and has no leader for a while, the others are fine."""
    world.files.fail(Failure("open", code=errno.ENOSPC, path_part="data/t-1/", for_ever=True))
    created = world.create("t", 3)
    world.flush()
    assert created.done
    assert world.node.partition("t", 0) is not None
    assert world.node.partition("t", 1) is None
    assert world.node.partition("t", 2) is not None
    assert set(world.node.metadata.topics["t"].partitions) == {0, 1, 2}
    assert "t-1" in world.keep_house_later()[0]
    world.files.heal()
    assert world.keep_house_later() == []
    assert world.end("t", 1) == 0
    assert world.fatal == []


def test_a_start_on_a_full_disk_serves_what_is_there(world: NodeWorld) -> None:
    world.create("old")
    world.flush()
    world.produce("old", 3)
    full = Failure("append", code=errno.ENOSPC, path_part="data/new", for_ever=True)
    world.files.fail(full)
    world.create("new", 2)
    world.flush()
    world.files.crash(keep_page_cache=True)
    world.files.fail(full)
    report = world.start()
    assert len(report.problems) == 2
    assert world.end("old") == 3
    assert world.node.partition("new", 0) is None
    world.files.heal()
    assert world.keep_house_later() == []
    assert (world.end("new", 0), world.end("new", 1)) == (0, 0)


def test_a_missing_partition_of_a_deleted_topic_is_forgotten(world: NodeWorld) -> None:
    world.files.fail(Failure("open", code=errno.ENOSPC, path_part="data/t-0/", for_ever=True))
    world.create("t")
    world.delete("t")
    world.flush()
    assert world.keep_house_later() == []
    world.files.heal()
    assert world.keep_house_later() == []
    assert world.node.partition("t", 0) is None


@pytest.mark.parametrize("records", [0, 4])
def test_a_directory_of_no_topic_does_not_stand_in_the_way(world: NodeWorld, records: int) -> None:
    """A creation whose record a power cut took, while its directory stayed: the name is free."""
    stray_directory(world, "t-0")
    if records:
        world.files.put("data/t-0/00000000000000000000.log", bytes(stored_batch(records)))
    report = world.crash()
    kept = [name for name in world.files.list("data") if name.endswith("-stray")]
    assert len(kept) == (1 if records else 0)
    assert [problem for problem in report.problems if "t-0" in problem] == (
        [f"data/t-0 belongs to no topic; it is kept as data/{kept[0]}"] if records else []
    )
    created = world.create("t")
    world.flush()
    assert created.done
    world.produce("t", 2)
    assert world.crash().problems == []
    assert world.end("t") == 2
    assert len([name for name in world.files.list("data") if name.endswith("-stray")]) == len(kept)


def stored_batch(count: int) -> memoryview:
    batch = make_batch(count)
    batch[12:16] = bytes(4)
    return batch


def test_a_stray_partition_of_a_known_topic_is_set_aside(world: NodeWorld) -> None:
    world.create("t")
    world.flush()
    stray_directory(world, "t-7")
    world.crash()
    assert world.logs.get("t", 7) is None
    assert world.logs.get(METADATA_TOPIC, 0) is not None
    assert world.end("t") == 0


def test_d4_a_partition_exists_once_that_is_durable(world: NodeWorld) -> None:
    """Else a crash could take acknowledged records away together with their topic."""
    created = world.create("t")
    assert not created.done
    assert world.node.partition("t", 0) is None
    world.flush()
    assert created.done
    assert world.node.partition("t", 0) is not None


def test_d4_an_internal_topic_may_be_used_once_it_is_durable(world: NodeWorld) -> None:
    first = world.node.ensure_internal_topic(OFFSETS_TOPIC)
    second = world.node.ensure_internal_topic(OFFSETS_TOPIC)
    assert not first.done
    assert not second.done
    world.flush()
    assert first.done
    assert second.done
    assert world.node.ensure_internal_topic(OFFSETS_TOPIC).done


# --- The metadata log ------------------------------------------------------------------------------


def test_l08_a_full_disk_refuses_changes_and_stops_nothing(world: NodeWorld) -> None:
    world.files.fail(Failure("append", code=errno.ENOSPC, path_part=METADATA_TOPIC, for_ever=True))
    with pytest.raises(StorageError):
        world.create("t")
    assert "t" not in world.node.metadata.topics
    ids = [world.node.next_producer_id() for _ in range(2)]
    assert [later.result() for later in ids] == [None, None]
    with pytest.raises(StorageError):
        world.node.ensure_internal_topic(OFFSETS_TOPIC)
    world.files.heal()
    assert world.fatal == []
    created = world.create("t")
    later = world.node.next_producer_id()
    world.flush()
    assert created.done
    assert later.result() is not None
    world.crash(keep_page_cache=False)
    assert world.end("t") == 0


def test_d5_metadata_that_does_not_become_durable_stops_the_broker(world: NodeWorld) -> None:
    world.files.fail(Failure("sync", path_part=METADATA_TOPIC))
    created = world.create("t")
    world.flush()
    assert not created.done
    assert len(world.fatal) == 1
    assert world.node.partition("t", 0) is None


# --- Every step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_page_cache", [False, True])
async def test_d4_metadata_and_directories_agree_after_a_crash_at_any_step(
    keep_page_cache: bool,
) -> None:
    """Create, write, delete, recreate, write; die at every file operation in turn; look."""
    from tests.sim.files import Crashed

    at = 0
    while True:
        world = NodeWorld()
        done: list[str] = []
        world.files.crash_at = world.files.operations + at
        try:
            for step, act in _STEPS:
                later = act(world)
                world.flush()
                assert later is None or later.done
                done.append(step)
        except Crashed:
            pass
        finished = len(done) == len(_STEPS)
        world.files.crash_at = None
        world.crash(keep_page_cache=keep_page_cache)
        ends = {"create": 0, "write": 5, "delete": None, "recreate": 0, "rewrite": 3}
        steps = [step for step, _ in _STEPS]
        expected = {ends[done[-1]] if done else None}
        if not finished:
            # What was begun may be there or not.
            expected.add(ends[steps[len(done)]])
        there = world.node.partition("t", 0)
        found = None if there is None else there.log.log_end_offset
        assert found in expected, (at, done, found)
        assert ("t" in world.node.metadata.topics) == (there is not None)
        # The name can be used whatever happened.
        if there is not None:
            world.delete("t")
        world.create("t")
        world.flush()
        world.produce("t", 2)
        world.crash(keep_page_cache=False)
        assert world.end("t") == 2
        if finished:
            break
        at += 1
        await asyncio.sleep(0)
    assert at > 20


_STEPS: list[tuple[str, Any]] = [
    ("create", lambda world: world.create("t")),
    ("write", lambda world: world.produce("t", 5)),
    ("delete", lambda world: world.delete("t")),
    ("recreate", lambda world: world.create("t")),
    ("rewrite", lambda world: world.produce("t", 3)),
]
