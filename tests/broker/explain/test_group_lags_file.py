"""The file of the lag over time: a restart keeps it, and it is only a cache (G-166)."""

from __future__ import annotations

import errno

import pytest

from broker_in_loop import StartBroker
from logs import NOW_MS
from node_world import NodeWorld
from odradek_broker.explain import group_lags_file
from odradek_broker.explain.group_lags import COARSE_MAX, COARSE_MS, GroupLags
from odradek_broker.explain.group_lags_file import INTERVAL_MS, NAME
from odradek_broker.explain.verdicts import SAMPLE_INTERVAL_MS
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_protocol.checksums import crc32c
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles
from raw_client import batch_of, produce_request
from timed_broker import TimedBroker

GROUP = "größe"
PATH = f"data/{NAME}"


def commit() -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="t", partitions=[part])
    return OffsetCommitRequest(group_id=GROUP, topics=[topic])


def lags_of(world: NodeWorld) -> GroupLags:
    return world.node.verdicts.group_lags


def written(wall_ms: int = NOW_MS) -> NodeWorld:
    """A world whose file has a point of two groups."""
    world = NodeWorld()
    for number, group in enumerate((GROUP, "other")):
        lags_of(world).add(group, wall_ms, number)
    world.node.group_lags_file.save()
    return world


def forged(groups: bytes) -> bytes:
    """A file with these bytes and their checksum."""
    return b"odradek.group-lags 1\n" + crc32c(groups).to_bytes(4, "big") + groups


def content_of(world: NodeWorld) -> bytes:
    return bytes(world.files.content(PATH))


def test_g166_the_lag_survives_a_kill_up_to_the_last_five_minutes() -> None:
    broker = TimedBroker(patience_ms=5_000, offsets_topic_num_partitions="1")
    world = broker.world
    world.node.ensure_internal_topic(OFFSETS_TOPIC)
    world.create("t")
    broker.wait(1_000)
    world.produce("t", 7)
    assert not broker.ask(commit(), 9).topics[0].partitions[0].error_code

    def rounds(duration_ms: int) -> None:
        for _ in range(duration_ms // SAMPLE_INTERVAL_MS):
            world.clock.now_ms += SAMPLE_INTERVAL_MS
            world.node.maintain()
            broker.wait(1)

    rounds(INTERVAL_MS - 2 * SAMPLE_INTERVAL_MS)
    assert not world.files.exists(PATH), "it is written rarely"
    rounds(3 * SAMPLE_INTERVAL_MS)
    assert world.files.exists(PATH)
    before = lags_of(world).of(GROUP)
    report = world.crash()
    assert report.problems == []
    kept = lags_of(world).of(GROUP)
    assert kept
    assert {lag for _, lag in kept} == {6}
    assert kept[0][0] < before[-1][0]
    rounds(2 * SAMPLE_INTERVAL_MS)
    assert lags_of(world).of(GROUP)[: len(kept)] == kept, "the group is still there"
    assert len(lags_of(world).of(GROUP)) > len(kept)


async def test_g166_a_clean_stop_keeps_the_lag(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    await client.call(produce_request("t", batch_of(b"a", b"b", b"c")), 9)
    await client.call(commit(), 9)
    now_ms = broker.node.clock.wall_ms()
    broker.node.verdicts.group_lags.add(GROUP, now_ms, 2)
    await broker.stop()
    again = await start_broker()
    assert again.node.verdicts.group_lags.of(GROUP)[0] == (now_ms, 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content.replace(b"lags 1", b"lags 2"),
        lambda content: content + bytes(group_lags_file.BYTES_MAX),
        lambda content: forged(content[25:-1]),
        lambda content: forged(content[25:] + b"\0\1"),
        lambda content: forged(b"\0\1\0\0\xff"),
    ],
)
def test_g166_a_damaged_or_newer_file_is_ignored_with_one_line(damage: object) -> None:
    assert callable(damage)
    world = written()
    sound = content_of(world)
    world.files.put(PATH, damage(sound))
    (problem,) = world.crash().problems
    assert "the lag of groups over time begins anew" in problem
    assert PATH in problem
    assert lags_of(world).of(GROUP) == []
    lags_of(world).add(GROUP, NOW_MS, 0)
    lags_of(world).add("other", NOW_MS, 1)
    world.node.group_lags_file.save()
    assert content_of(world) == sound, "the next one replaces it"


def test_g166_a_file_that_cannot_be_read_is_ignored() -> None:
    world = written()
    world.files.crash(None, keep_page_cache=True)
    world.files.fail(DiskFailure("read", path_part=NAME))
    assert len(world.start().problems) == 1
    assert lags_of(world).of(GROUP) == []


@pytest.mark.parametrize("kind", ["append", "sync", "rename"])
def test_g166_a_full_disk_changes_nothing(kind: str) -> None:
    world = written()
    before = content_of(world)
    lags_of(world).add(GROUP, NOW_MS + COARSE_MS, 100)
    world.files.fail(DiskFailure(kind, code=errno.ENOSPC, path_part=NAME, torn_bytes=5))
    world.node.group_lags_file.save()
    assert content_of(world) == before
    assert not world.files.exists(PATH + ".tmp"), "it takes no room"
    assert not world.logs.metadata_directory.disk.problem
    assert world.crash().problems == []
    world.logs.metadata_directory.disk.problem = "No space left on device"
    lags_of(world).add(GROUP, NOW_MS + COARSE_MS, 100)
    world.node.group_lags_file.save()
    assert content_of(world) == before, "it is not tried while the disk is full"


def test_g166_the_file_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = len(content_of(written()))
    monkeypatch.setattr(group_lags_file, "BYTES_MAX", sizes - 1)
    world = written()
    assert len(content_of(world)) < sizes
    assert world.crash().problems == []
    assert lags_of(world).of(GROUP) == [(NOW_MS, 0)]
    assert lags_of(world).of("other") == []


def test_g166_points_of_more_than_two_days_ago_are_dropped() -> None:
    world = written(NOW_MS - COARSE_MAX * COARSE_MS - 1)
    lags_of(world).add(GROUP, NOW_MS, 5)
    world.node.group_lags_file.save()
    world.crash()
    assert lags_of(world).of(GROUP) == [(NOW_MS, 5)]
    assert lags_of(world).of("other") == []


def test_n57_the_file_is_encoded_with_a_pause_for_each_group() -> None:
    world = NodeWorld()
    for number in range(100):
        lags_of(world).add(f"g{number}", NOW_MS, number)
    assert len(list(world.node.group_lags_file.step(INTERVAL_MS))) == 100
    assert world.files.exists(PATH)
    assert list(world.node.group_lags_file.step(INTERVAL_MS)) == [], "it is not due"


def test_g166_without_groups_no_file_is_written() -> None:
    world = NodeWorld()
    world.node.group_lags_file.save()
    assert isinstance(world.files, MemoryFiles)
    assert not world.files.exists(PATH)
