"""The node over files in memory: after any failure, the metadata log and the partition directories
agree (D4)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from logs import NOW_MS, append, make_batch
from node_world import NodeWorld
from odradek_broker.coordinator.runtime import RuntimeState
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import METADATA_TOPIC, OFFSETS_TOPIC
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.storage.checkpoints import encode_partition_metadata
from odradek_broker.storage.errors import DataDirectoryError, StorageError
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.records.layout import RECORD_COUNT_AT
from odradek_protocol.stored.cluster_metadata import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RemoveTopicRecord,
    encode_record,
)
from odradek_testkit.simulation.disk import DiskFailure


@pytest.fixture
def world() -> NodeWorld:
    return NodeWorld()


def stray_directory(world: NodeWorld, name: str) -> None:
    world.files.make_dirs(f"data/{name}")
    world.files.put(f"data/{name}/partition.metadata", encode_partition_metadata(bytes(range(16))))


# --- Deletion -------------------------------------------------------------------------------------


def test_d4_a_deletion_that_is_not_durable_deletes_no_records(world: NodeWorld) -> None:
    """The record of the deletion and the new name of the directory become durable separately."""
    created = world.create("t")
    world.flush()
    assert created.done
    world.produce("t", 5)
    deleted = world.delete("t")
    assert world.node.partition("t", 0) is None
    # The new name is durable, the record is not.
    world.files.sync_dir("data")
    assert not deleted.done
    world.crash(keep_page_cache=False)
    assert world.end("t") == 5
    deleted = world.delete("t")
    world.flush()
    assert deleted.done
    assert [name for name in world.files.list("data") if name.endswith("-delete")]
    # The record is durable, the new name is not.
    world.crash(keep_page_cache=False)
    assert "t" not in world.node.metadata.topics
    assert "t-0" not in world.files.list("data")
    world.maintain_later()
    assert not [name for name in world.files.list("data") if name.startswith("t-0")]


@pytest.mark.parametrize("keep_page_cache", [False, True])
def test_a_topic_is_recreated_before_its_deletion_is_durable(
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
    world.maintain_later()
    assert world.end("t") == 3
    assert world.crash(keep_page_cache=keep_page_cache).problems == []
    assert (world.end("t"), world.end("t", 1)) == (3, 0)


def test_a_failed_renaming_of_a_directory_is_tried_again(world: NodeWorld) -> None:
    world.create("t", 2)
    world.flush()
    world.produce("t", 5)
    world.files.fail(DiskFailure("rename", code=errno.EACCES, path_part="t-0", for_ever=True))
    deleted = world.delete("t")
    world.flush()
    assert deleted.done, "it is recorded: the rest is maintenance"
    assert world.files.exists("data/t-0/partition.metadata")
    assert not world.files.exists("data/t-1/partition.metadata")
    assert "deleted files" in world.maintain_later()[0]
    # The directory still has the name, so a new topic of that name has to wait.
    created = world.create("t")
    world.flush()
    assert created.done
    assert world.node.partition("t", 0) is None
    world.files.heal()
    world.maintain_later()
    assert world.end("t") == 0
    assert world.maintain_later() == []


def test_n57_changes_that_are_durable_together_create_and_delete_in_turns(
    world: NodeWorld,
) -> None:
    """As those of one request for many topics, of which each change has a few."""

    def directories(end: str) -> int:
        return sum(
            name.startswith("many") and name.endswith(end) for name in world.files.list("data")
        )

    def made_by(callback: Callable[[], object], end: str) -> int:
        before = directories(end)
        callback()
        return directories(end) - before

    topics = [[f"many{change}-{number}" for number in range(8)] for change in range(10)]
    for change in topics:
        wanted = [RequestedTopic(name, 1) for name in change]
        records, _ = create_topics(world.node.metadata, wanted)
        world.node.metadata_log.commit(records)
    assert directories("-0") == 4, "those of the first change"
    made = [made_by(world.flush, "-0")]
    while world.soon.waits:
        made.append(made_by(world.soon.turn, "-0"))
    assert max(made) <= 4
    assert directories("-0") == 80
    deleted = [world.delete(name) for change in topics for name in change]
    renamed = [made_by(world.flush, "-delete")]
    while world.soon.waits:
        renamed.append(made_by(world.soon.turn, "-delete"))
    assert max(renamed) <= 4
    assert directories("-delete") == 80
    assert all(each.done for each in deleted)


def test_a_failed_removal_does_not_stop_maintenance(world: NodeWorld) -> None:
    world.create("a")
    world.create("b")
    world.flush()
    world.delete("a")
    world.delete("b")
    world.flush()
    world.files.fail(DiskFailure("remove", code=errno.EACCES, path_part="a-0", for_ever=True))
    assert len(world.maintain_later()) == 1
    assert not [name for name in world.files.list("data") if name.startswith("b-0")]
    world.files.heal()
    assert world.maintain_later() == []
    assert not [name for name in world.files.list("data") if name.startswith("a-0")]


# --- Creation -------------------------------------------------------------------------------------


def test_a_partition_that_cannot_be_created_is_created_later(world: NodeWorld) -> None:
    """The disk is full: the topic exists, and one partition has no leader for a while. Other
    partitions are served."""
    world.files.fail(DiskFailure("open", code=errno.ENOSPC, path_part="data/t-1/", for_ever=True))
    created = world.create("t", 3)
    world.flush()
    assert created.done
    assert world.node.partition("t", 0) is not None
    assert world.node.partition("t", 1) is None
    assert world.node.partition("t", 2) is not None
    assert set(world.node.metadata.topics["t"].partitions) == {0, 1, 2}
    assert "t-1" in world.maintain_later()[0]
    world.files.heal()
    assert world.maintain_later() == []
    assert world.end("t", 1) == 0
    assert world.fatal == []


def test_a_partition_that_cannot_be_created_is_reported_once(world: NodeWorld) -> None:
    """The creation is tried again every few seconds while the disk is full."""
    full = world.files.fail(
        DiskFailure("open", code=errno.ENOSPC, path_part="data/t-", for_ever=True)
    )
    world.create("t", 2)
    world.flush()
    told = [world.maintain_later() for _ in range(3)]
    assert [len(problems) for problems in told] == [2, 0, 0]
    assert full.fired >= 6, "and tried each time"
    world.files.heal()
    assert world.maintain_later() == []
    world.files.fail(DiskFailure("open", code=errno.ENOSPC, path_part="data/u-", for_ever=True))
    world.create("u")
    world.flush()
    assert len(world.maintain_later()) == 1
    world.delete("u")
    world.flush()
    world.create("u")
    world.flush()
    assert len(world.maintain_later()) == 1, "it is another topic"


def test_a_start_on_a_full_disk_serves_the_existing_partitions(world: NodeWorld) -> None:
    world.create("old")
    world.flush()
    world.produce("old", 3)
    full = DiskFailure("append", code=errno.ENOSPC, path_part="data/new", for_ever=True)
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
    assert world.maintain_later() == []
    assert (world.end("new", 0), world.end("new", 1)) == (0, 0)


def test_a_missing_partition_of_a_deleted_topic_is_dropped(world: NodeWorld) -> None:
    world.files.fail(DiskFailure("open", code=errno.ENOSPC, path_part="data/t-0/", for_ever=True))
    world.create("t")
    world.delete("t")
    world.flush()
    assert world.maintain_later() == []
    world.files.heal()
    assert world.maintain_later() == []
    assert world.node.partition("t", 0) is None


@pytest.mark.parametrize("records", [0, 4])
def test_a_directory_of_no_topic_does_not_prevent_the_creation_of_a_topic(
    world: NodeWorld, records: int
) -> None:
    """A power cut has undone the record of the creation, but not the directory. The name is
    free."""
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


def test_d4_a_partition_can_be_used_when_its_creation_is_durable(world: NodeWorld) -> None:
    """If the partition could be used earlier, a crash could remove acknowledged records together
    with their topic."""
    created = world.create("t")
    assert not created.done
    assert world.node.partition("t", 0) is None
    world.flush()
    assert created.done
    assert world.node.partition("t", 0) is not None


def test_d4_an_internal_topic_can_be_used_when_its_creation_is_durable(world: NodeWorld) -> None:
    first = world.node.ensure_internal_topic(OFFSETS_TOPIC)
    second = world.node.ensure_internal_topic(OFFSETS_TOPIC)
    assert not first.done
    assert not second.done
    world.soon.run()
    world.flush()
    assert first.done
    assert second.done
    assert world.node.ensure_internal_topic(OFFSETS_TOPIC).done


# --- The metadata log -----------------------------------------------------------------------------


def test_d5_a_broker_with_unreadable_metadata_does_not_start(world: NodeWorld) -> None:
    """Without metadata all logs would seem to belong to no topic, and would be renamed."""
    world.create("t")
    world.flush()
    world.produce("t", 5)
    world.files.crash(keep_page_cache=True)
    world.files.fail(DiskFailure("sync", path_part=METADATA_TOPIC))
    with pytest.raises(DataDirectoryError, match="the cluster's metadata cannot be read"):
        world.start()
    assert not [name for name in world.files.list("data") if name.endswith("-stray")]
    world.crash()
    assert world.end("t") == 5


def test_d5_the_coordinator_of_unreadable_groups_fails(world: NodeWorld) -> None:
    world.node.ensure_internal_topic(OFFSETS_TOPIC)
    world.flush()
    found = world.node.partition(OFFSETS_TOPIC, 0)
    assert found is not None
    found.append_internal([(bytes(2), None)], 0)
    found.log.durability.flush()
    world.files.crash(keep_page_cache=True)
    world.files.fail(DiskFailure("sync", path_part=f"{OFFSETS_TOPIC}-0"))
    world.start()
    (failed, *others) = world.node.groups.shards
    assert failed.state is RuntimeState.FAILED
    assert {other.state for other in others} == {RuntimeState.ACTIVE}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"\1\x7f\0", "unknown type 127"),
        (b"\1\2", "without its head"),
        (encode_record(RemoveTopicRecord(topic_id=bytes(16))), "the unknown topic"),
        (encode_record(ClientQuotaRecord(key="beers")), "unknown kind 'beers'"),
        (
            encode_record(
                ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="ages")
            ),
            "retention.ms is 'ages'",
        ),
    ],
)
def test_d4_an_impossible_metadata_record_fails_the_start(
    world: NodeWorld, value: bytes, says: str
) -> None:
    """The error is a message without a traceback, because a newer version may have written the
    directory."""
    world.create("t")
    world.flush()
    world.files.crash(keep_page_cache=True)
    path = f"data/{METADATA_TOPIC}-0/{0:020d}.log"
    content = world.files.content(path)
    (*_, (_, last)) = iter_batches(content)
    batch = simple_batch([(None, value)], NOW_MS, base_offset=last.next_offset)
    world.files.put(path, content + batch)
    with pytest.raises(DataDirectoryError, match=f"metadata cannot be read: .*{says}"):
        world.start()


def test_o18_a_damaged_batch_of_groups_fails_their_coordinator_only(world: NodeWorld) -> None:
    """After a clean stop a start checks no batches: the coordinator finds the damage."""
    world.node.ensure_internal_topic(OFFSETS_TOPIC)
    world.flush()
    found = world.node.partition(OFFSETS_TOPIC, 0)
    assert found is not None
    found.append_internal([(bytes(2), None)], 0)
    found.log.durability.flush()
    assert world.logs.close() == []
    path = f"data/{OFFSETS_TOPIC}-0/{0:020d}.log"
    content = bytearray(world.files.content(path))
    content[RECORD_COUNT_AT : RECORD_COUNT_AT + 4] = (7).to_bytes(4, "big")
    world.files.put(path, content)
    assert world.start().clean
    (failed, *others) = world.node.groups.shards
    assert failed.state is RuntimeState.FAILED
    assert {other.state for other in others} == {RuntimeState.ACTIVE}


def test_l08_changes_are_refused_while_the_metadata_disk_is_full(world: NodeWorld) -> None:
    world.files.fail(
        DiskFailure("append", code=errno.ENOSPC, path_part=METADATA_TOPIC, for_ever=True)
    )
    with pytest.raises(StorageError):
        world.create("t")
    assert "t" not in world.node.metadata.topics
    ids = [world.node.producer_ids.next() for _ in range(2)]
    assert [later.result() for later in ids] == [None, None]
    with pytest.raises(StorageError):
        world.node.ensure_internal_topic(OFFSETS_TOPIC)
    world.files.heal()
    assert world.fatal == []
    created = world.create("t")
    later = world.node.producer_ids.next()
    world.flush()
    assert created.done
    assert later.result() is not None
    world.crash(keep_page_cache=False)
    assert world.end("t") == 0


def test_d5_a_failed_flush_of_the_metadata_log_stops_the_broker(world: NodeWorld) -> None:
    world.files.fail(DiskFailure("sync", path_part=METADATA_TOPIC))
    created = world.create("t")
    world.flush()
    assert not created.done
    assert len(world.fatal) == 1
    assert world.node.partition("t", 0) is None


# --- Every step -----------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_page_cache", [False, True])
async def test_d4_metadata_and_directories_agree_after_a_crash_at_any_step(
    keep_page_cache: bool,
) -> None:
    """The steps are create, write, delete, recreate and write again, with a crash at each file
    operation."""
    from odradek_testkit.simulation.disk import Crashed

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
            # the unfinished step may have taken effect or not
            expected.add(ends[steps[len(done)]])
        there = world.node.partition("t", 0)
        found = None if there is None else there.log.log_end_offset
        assert found in expected, (at, done, found)
        assert ("t" in world.node.metadata.topics) == (there is not None)
        # A new topic can get the name. If the old topic still exists, it is deleted first.
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


def test_l40_a_partition_with_an_unreadable_log_does_not_affect_others(world: NodeWorld) -> None:
    """The log of one partition cannot be read: other partitions are served, and the log is opened
    again later."""
    world.create("t", 2)
    world.flush()
    world.produce("t", 3, 0)
    world.produce("t", 4, 1)
    world.files.crash(keep_page_cache=True)
    world.files.fail(DiskFailure("read", path_part="data/t-0/0", for_ever=True))
    report = world.start()
    assert len([problem for problem in report.problems if "t-0" in problem]) == 1
    failed = world.node.partition("t", 0)
    assert failed is not None
    assert failed.log.offline
    assert world.end("t", 1) == 4
    world.produce("t", 1, 1)
    told: list[str] = []
    world.logs.directories[0].disk.on_online = told.append
    world.maintain_later()
    assert failed.log.offline
    world.files.heal()
    world.maintain_later()
    assert told == ["t-0"]
    assert (failed.log.high_watermark, world.end("t", 1)) == (3, 5)
    world.produce("t", 1, 0)
    assert world.end("t", 0) == 4


def test_l40_a_partition_with_a_failed_fsync_is_offline_until_a_restart(world: NodeWorld) -> None:
    world.create("t", 2)
    world.flush()
    world.produce("t", 3, 0)
    found = world.node.partition("t", 0)
    assert found is not None
    append(found.log, make_batch())
    world.files.fail(DiskFailure("sync", path_part="data/t-0"))
    with pytest.raises(StorageError):
        found.log.durability.flush()
    world.files.heal()
    for _ in range(3):
        world.maintain_later()
        assert found.log.offline
    world.produce("t", 2, 1)
    assert found.log.high_watermark == 3, "what was not made durable is not visible"
    world.crash(keep_page_cache=False)
    assert (world.end("t", 0), world.end("t", 1)) == (3, 2)
    world.produce("t", 1, 0)


# --- Features -------------------------------------------------------------------------------------


def _lowered(world: NodeWorld, level: int) -> Deferred[None]:
    return world.node.metadata_log.commit(
        [FeatureLevelRecord(name="transaction.version", feature_level=level)]
    )


def test_n53_a_feature_level_is_published_when_it_is_durable(world: NodeWorld) -> None:
    before = world.node.publisher.finalized_features
    assert before.levels["transaction.version"] == 2
    first = _lowered(world, 1)
    assert world.node.publisher.finalized_features == before, "a power cut can still take it back"
    world.flush()
    assert first.done
    told = world.node.publisher.finalized_features
    assert told.levels == {**before.levels, "transaction.version": 1}
    assert told.epoch > before.epoch, "else clients keep what they have"
    _lowered(world, 0)
    world.crash(keep_page_cache=False)
    assert world.node.publisher.finalized_features == told
    again = _lowered(world, 2)
    world.flush()
    assert again.done and world.node.publisher.finalized_features.levels == before.levels
    assert world.node.publisher.finalized_features.epoch > told.epoch


def test_n53_pending_feature_levels_are_published_in_their_order(world: NodeWorld) -> None:
    _lowered(world, 1)
    _lowered(world, 0)
    world.create("t")
    world.flush()
    assert world.node.publisher.finalized_features.levels["transaction.version"] == 0
