"""Calls of the share coordinator for many share partitions: each call takes several turns of the
event loop, and appends once for each shard and turn."""

from __future__ import annotations

from typing import Any

from node_world import NodeWorld
from odradek_broker.coordinator.runtime import RuntimeState
from odradek_broker.coordinator.share.coordinator import DELETED_AT_ONCE
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC
from odradek_broker.share_state import ShareKey, StateResult
from odradek_protocol.errors import ErrorCode
from share_state_world import TOPIC_ID, ShareStateWorld

E = ErrorCode
MANY = 1_000


def keys(number: int = MANY) -> list[ShareKey]:
    return [ShareKey("g", TOPIC_ID, index) for index in range(number)]


def new_world(**how: Any) -> ShareStateWorld:
    world = ShareStateWorld(**how)
    world.metadata.counts["topic"] = MANY
    return world


def run_turns(world: ShareStateWorld) -> int:
    """Run all scheduled turns; returns their number."""
    turns = 0
    while any(at_ms <= world.clock.monotonic_ms() for at_ms, _ in world.timers):
        world.run_scheduled()
        turns += 1
    return turns


def test_h103_many_states_are_initialized_over_several_turns() -> None:
    world = new_world(partitions=3)
    made = world.share.initialize_all(1, dict.fromkeys(keys(), 7))
    assert 0 < sum(len(shard.partitions) for shard in world.cores) < MANY // 2
    assert run_turns(world) > 5
    assert made.result() == dict.fromkeys(keys(), StateResult())
    summaries = world.share.read_summaries(keys())
    run_turns(world)
    found = [result.state for result in summaries.result().values()]
    assert [state.start_offset for state in found if state is not None] == [7] * MANY
    appends = sum(len(partition.append_times_ms) for partition in world.topic_partitions)
    assert appends < MANY / 5, "partitions of one shard share an append"


def test_h102_many_states_are_answered_when_they_are_durable() -> None:
    world = new_world()
    world.log.hold = True
    made = world.share.initialize_all(1, dict.fromkeys(keys(), 0))
    run_turns(world)
    assert not made.done
    world.log.flush()
    world.wait(0)
    assert made.result() == dict.fromkeys(keys(), StateResult())


def test_calls_about_many_states_keep_their_order() -> None:
    world = new_world()
    made = world.share.initialize_all(1, dict.fromkeys(keys(), 0))
    deleted = world.share.delete_all(keys(10))
    assert not deleted.done
    run_turns(world)
    assert made.done and deleted.done
    assert set(world.cores[0].partitions) == set(keys()[10:])


def test_each_of_many_states_has_its_own_result() -> None:
    world = new_world()
    world.initialize(state_epoch=5, key=keys()[0])
    negative, missing = ShareKey("g", TOPIC_ID, -1), ShareKey("g", bytes(16), 0)
    results = world.share.initialize_all(
        1, dict.fromkeys([*keys(2), negative, missing], 0)
    ).result()
    assert [result.error for result in results.values()] == [
        E.FENCED_STATE_EPOCH,
        E.NONE,
        E.INVALID_REQUEST,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_h102_a_refused_append_fails_all_states_in_it() -> None:
    world = new_world()
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    results = world.share.initialize_all(1, dict.fromkeys(keys(2), 0)).result()
    assert results == dict.fromkeys(keys(2), StateResult(E.NOT_COORDINATOR))
    assert not world.cores[0].partitions


def test_closing_the_coordinator_answers_the_waiting_calls() -> None:
    world = new_world()
    made = world.share.initialize_all(1, dict.fromkeys(keys(), 0))
    world.share.shards.close()
    assert [runtime.state for runtime in world.share.shards] == [RuntimeState.CLOSED]
    run_turns(world)
    assert made.result()[keys()[-1]] == StateResult(E.NOT_COORDINATOR)


def test_h108_many_states_of_a_deleted_topic_are_deleted_in_batches() -> None:
    world = new_world()
    for group in ("g", "h", "i"):
        made = world.share.initialize_all(
            1, {ShareKey(group, TOPIC_ID, index): 0 for index in range(MANY)}
        )
        run_turns(world)
        assert made.done
    world.log.append_times_ms.clear()
    world.delete_topic()
    deleted = world.share.topic_deleted(TOPIC_ID)
    world.turns.run()
    assert deleted.done
    assert not world.cores[0].partitions
    assert len(world.log.append_times_ms) == 3 * MANY / DELETED_AT_ONCE


def test_a_call_about_no_states_does_not_create_the_topic() -> None:
    world = new_world(topic=False)
    assert world.share.delete_all([]).result() == {}
    assert world.share.read_summaries([]).result() == {}
    assert world.metadata.partition_count(SHARE_STATE_TOPIC) == 0


def test_calls_wait_until_the_state_topic_has_a_leader() -> None:
    world = new_world(topic=False)
    created: Deferred[None] = Deferred()
    partitions, world.topic_partitions = world.topic_partitions, []

    def ensure(name: str) -> Deferred[None]:
        world.metadata.counts[name] = len(partitions)
        return created

    world.ensure_internal_topic = ensure  # type: ignore[method-assign]
    world.internal_partition = lambda topic, index: (  # type: ignore[method-assign]
        world.topic_partitions[index] if world.topic_partitions else None
    )
    world.start()
    calls = [world.share.initialize(key, 1, 0) for key in keys(2)]
    many = world.share.initialize_all(1, dict.fromkeys(keys(), 0))
    assert not any(call.done for call in calls) and not many.done
    world.topic_partitions = partitions
    created.resolve(None)
    run_turns(world)
    assert [call.result() for call in calls] == [StateResult()] * 2
    assert set(many.result().values()) == {StateResult()}


def test_calls_wait_until_the_state_topic_is_recorded() -> None:
    world = NodeWorld()
    world.create("topic", MANY)
    world.flush()
    topic_id = world.node.metadata.topic_id("topic")
    keys = [ShareKey("g", topic_id, index) for index in range(2)]
    calls = [world.node.share_state.initialize(key, 1, 0) for key in keys]
    for _ in range(3):
        world.soon.run()
        world.flush()
    assert [call.result() for call in calls] == [StateResult()] * 2
