"""Requests for many partitions leave turns to other requests (L-45)."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

import budget
from node_world import NodeWorld
from odradek_testkit.simulation.disk import Crashed, DiskFailure

MANY = 30


@pytest.fixture
def world() -> NodeWorld:
    return NodeWorld()


def _led(world: NodeWorld, name: str = "many") -> int:
    return sum(
        topic == name
        for topic, index, _ in world.node.replicas.partitions()
        if world.node.partition(topic, index) is not None
    )


def _directories(world: NodeWorld, name: str = "many") -> int:
    return sum(
        entry.startswith(f"{name}-") and not entry.endswith("-delete")
        for entry in world.files.list("data")
    )


def test_l45_other_requests_are_served_while_many_partitions_are_created(world: NodeWorld) -> None:
    created = world.create("many", MANY)
    world.flush()
    assert not created.done
    made = [_directories(world)]
    while not created.done:
        assert world.soon.turn()
        made.append(_directories(world))
        # The partitions created so far can be used.
        assert _led(world) == made[-1]
    assert made[-1] == MANY
    steps = [after - before for before, after in pairwise(made)]
    assert 0 < max(steps) <= 4
    # A small topic does not wait until a large one is created.
    world.create("wide", MANY)
    small = world.create("small", 10)
    world.flush()
    while not small.done:
        assert world.soon.turn()
    assert _directories(world, "wide") < MANY


def test_l45_a_creation_is_answered_when_its_records_are_durable(world: NodeWorld) -> None:
    created = world.create("many", MANY)
    world.soon.run()
    assert _directories(world) == MANY
    assert _led(world) == 0
    assert not created.done
    world.flush()
    assert created.done
    assert _led(world) == MANY


def test_l45_partitions_without_a_directory_have_no_leader(world: NodeWorld) -> None:
    world.create("many", MANY)
    world.flush()
    assert world.node.partition("many", 0) is not None
    assert world.node.partition("many", MANY - 1) is None
    world.soon.run()
    assert world.node.partition("many", MANY - 1) is not None


def test_l45_other_requests_are_served_while_many_partitions_are_deleted(world: NodeWorld) -> None:
    world.create("many", MANY)
    world.soon.run()
    world.flush()
    deleted = world.delete("many")
    assert _led(world) == 0
    assert _directories(world) == MANY
    world.flush()
    assert not deleted.done
    left = [_directories(world)]
    while not deleted.done:
        assert world.soon.turn()
        left.append(_directories(world))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 4


def test_l45_a_topic_is_deleted_and_recreated_during_its_creation(world: NodeWorld) -> None:
    created, deleted = world.create("many", MANY), world.delete("many")
    again = world.create("many", 3 * MANY)
    world.flush()
    world.soon.run()
    assert created.done and deleted.done and again.done
    assert _led(world) == _directories(world) == 3 * MANY
    topic_id = world.node.metadata.topic_id("many")
    assert {log.topic_id for log in world.logs if log.topic == "many"} == {topic_id}


def test_l45_a_start_creates_the_partitions_that_a_stop_left_out(world: NodeWorld) -> None:
    created = world.create("many", MANY)
    world.flush()
    world.node.close()
    assert created.done
    world.soon.run()
    assert _directories(world) < MANY
    assert world.logs.close(clean=True) == []
    world.start()
    assert _led(world) == _directories(world) == MANY


def test_l45_partitions_are_created_when_a_full_disk_has_room_again(world: NodeWorld) -> None:
    created = world.create("many", MANY)
    world.flush()
    world.files.fail(DiskFailure("open", code=errno.ENOSPC, path_part="many-", for_ever=True))
    world.soon.run()
    assert created.done
    assert _led(world) < MANY
    world.files.heal()
    for _ in range(3):
        world.clock.now_ms += 6_000
        world.node.maintain()
    assert _led(world) == MANY


def test_l45_removals_are_pending_until_all_directories_are_renamed(world: NodeWorld) -> None:
    world.create("many", MANY)
    world.soon.run()
    world.flush()
    world.delete("many")
    world.flush()
    assert world.logs.removals_pending
    world.soon.run()
    assert not world.logs.removals_pending


@pytest.mark.parametrize("keep_page_cache", budget.of_which([False, True], [False]))
def test_l45_d4_a_crash_while_many_partitions_are_made_leaves_all_or_none(
    keep_page_cache: bool,
) -> None:
    at = 0
    while True:
        world = NodeWorld()
        expected = {0, 12}
        world.files.crash_at = world.files.operations + at
        finished = False
        try:
            created = world.create("many", 12)
            world.flush()
            world.soon.run()
            assert created.done
            assert _led(world) == 12
            deleted = world.delete("many")
            world.flush()
            world.soon.run()
            assert deleted.done
            expected = {0}
            finished = True
        except Crashed:
            pass
        world.crash(keep_page_cache=keep_page_cache)
        assert _led(world) == _directories(world), at
        assert _led(world) in expected, at
        assert not [entry for entry in world.files.list("data") if "stray" in entry], at
        if finished:
            break
        at += 3
