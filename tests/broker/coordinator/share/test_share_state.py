"""The share coordinator: epochs, merged state, snapshots, and what a restart finds (H-101 to
H-108)."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_broker.coordinator.shards import GROUP_ID_MAX_CHARS, partition_for
from odradek_broker.coordinator.share.coordinator import DELETE_AGAIN_MS, coordinator_key
from odradek_broker.coordinator.share.records import decode_change
from odradek_broker.deferred import Deferred
from odradek_broker.share_state import ShareKey, ShareState, StateBatch, StateResult
from odradek_protocol.errors import ErrorCode
from share_state_world import KEY, TOPIC_ID, ShareStateWorld

E = ErrorCode

OTHER = ShareKey("g", TOPIC_ID, 1)
FENCED_STATE = StateResult(
    E.FENCED_STATE_EPOCH,
    "The share coordinator rejected the request because the share-group state epoch did not match.",
)
FENCED_LEADER = StateResult(
    E.FENCED_LEADER_EPOCH,
    "The leader epoch in the request is older than the epoch on the broker.",
)
UNKNOWN = StateResult(
    E.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)


@pytest.fixture
def world() -> ShareStateWorld:
    return ShareStateWorld()


def kinds(world: ShareStateWorld) -> list[str]:
    """The kinds of the records in the log: snapshot, update or deletion."""
    found = []
    for key, value in world.log.records:
        change = decode_change(key or b"", value)
        assert change is not None
        _, state, is_snapshot = change
        found.append("snapshot" if is_snapshot else "update")
        if state is None:
            found[-1] = "deletion"
    return found


# --- H-101 ---


def test_h101_the_name_of_a_share_partition_is_hashed_as_in_java() -> None:
    assert coordinator_key(KEY) == "g:AAECAwQFBgcICQoLDA0ODw:0"


def test_h101_states_are_spread_over_the_partitions_of_the_topic() -> None:
    world = ShareStateWorld(partitions=3)
    keys = [ShareKey("g", TOPIC_ID, index) for index in range(10)]
    for key in keys:
        world.initialize(key=key)
    for key in keys:
        index = partition_for(coordinator_key(key), 3)
        assert key in world.cores[index].partitions
    assert sum(len(shard.partitions) for shard in world.cores) == len(keys)


def test_h101_the_topic_is_created_at_the_first_call() -> None:
    world = ShareStateWorld(topic=False)
    world.initialize(start_offset=7)
    assert world.read().start_offset == 7


# --- H-103 ---


def test_h103_initialize_stores_a_start_offset(world: ShareStateWorld) -> None:
    world.initialize(state_epoch=3, start_offset=17)
    assert world.read() == ShareState(
        0, 3, 0, 17, 0, (), world.clock.wall_ms(), world.clock.wall_ms()
    )
    assert kinds(world) == ["snapshot"]


def test_h103_a_state_without_a_start_offset_has_no_delivered_count(
    world: ShareStateWorld,
) -> None:
    world.initialize(start_offset=-1)
    state = world.read()
    assert (state.start_offset, state.delivery_complete_count) == (-1, -1)


def test_h103_a_second_initialize_replaces_the_stored_state(world: ShareStateWorld) -> None:
    world.initialize(state_epoch=1)
    world.write((0, 9, 2, 1), complete=10)
    world.initialize(state_epoch=1, start_offset=5)
    state = world.read()
    assert (state.batches, state.start_offset, state.delivery_complete_count) == ((), 5, 0)
    assert state.snapshot_epoch == 1


def test_h103_initialize_with_an_older_state_epoch_is_fenced(world: ShareStateWorld) -> None:
    world.initialize(state_epoch=5)
    assert world.share.initialize(KEY, 4, 0).result() == FENCED_STATE
    assert world.share.initialize(KEY, -1, 3).result() == StateResult(), "-1 passes"
    assert world.read().state_epoch == -1
    assert world.share.initialize(KEY, 4, 0).result() == FENCED_STATE, "the highest epoch counts"


@pytest.mark.parametrize("key", [ShareKey("g", TOPIC_ID, 10), ShareKey("g", bytes(16), 0)])
def test_h103_unknown_topics_and_partitions_are_refused(
    world: ShareStateWorld, key: ShareKey
) -> None:
    assert world.share.initialize(key, 1, 0).result() == UNKNOWN
    assert world.share.delete(key).result() == UNKNOWN
    assert world.share.read_summary(key, 0).result() == UNKNOWN


def test_h103_delete_writes_a_snapshot_without_a_value(world: ShareStateWorld) -> None:
    world.initialize(state_epoch=5)
    assert world.share.delete(KEY).result() == StateResult()
    assert kinds(world) == ["snapshot", "deletion"]
    assert world.share.read(KEY, 0).result().error is E.INVALID_REQUEST
    world.initialize(state_epoch=1)
    assert world.read().state_epoch == 1, "no epoch is remembered"


def test_h103_delete_without_a_state_writes_nothing(world: ShareStateWorld) -> None:
    assert world.share.delete(KEY).result() == StateResult()
    assert world.log.records == []


# --- H-104 ---


def test_h104_reads_and_writes_before_initialize_are_refused(world: ShareStateWorld) -> None:
    assert world.share.read(KEY, 0).result() == StateResult(
        E.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed."
    )
    assert world.write_later().result() == StateResult(
        E.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed."
    )


def test_h104_a_newer_leader_fences_the_older_ones(world: ShareStateWorld) -> None:
    world.initialize()
    assert world.read(leader_epoch=3).leader_epoch == 0, "the state before the read"
    assert kinds(world) == ["snapshot", "update"]
    assert world.read(leader_epoch=3).leader_epoch == 3
    assert kinds(world) == ["snapshot", "update"], "nothing has changed"
    assert world.share.read(KEY, 2).result() == FENCED_LEADER
    assert world.share.read(KEY, -1).result() == FENCED_LEADER
    assert world.write_later(leader_epoch=2).result() == FENCED_LEADER
    assert world.write(leader_epoch=-1) is E.NONE


def test_h104_a_read_changes_nothing_but_the_leader_epoch(world: ShareStateWorld) -> None:
    world.initialize(start_offset=3)
    world.write((3, 5, 2, 1), start_offset=3, complete=3)
    before = world.read()
    world.read(leader_epoch=4)
    assert world.read(leader_epoch=4) == before._replace(leader_epoch=4)


def test_h104_initialize_keeps_fencing_older_leaders(world: ShareStateWorld) -> None:
    world.initialize()
    world.read(leader_epoch=3)
    world.initialize(state_epoch=2)
    assert world.read(leader_epoch=3).leader_epoch == 0
    assert world.share.read(KEY, 2).result() == FENCED_LEADER


def test_h104_a_summary_needs_no_leader_epoch_and_no_initialized_state(
    world: ShareStateWorld,
) -> None:
    assert world.share.read_summary(KEY, 0).result().state == ShareState(0, 0, 0, -1, -1)
    world.initialize(state_epoch=2, start_offset=5)
    world.read(leader_epoch=3)
    state = world.share.read_summary(KEY, 1).result().state
    assert state is not None
    assert (state.state_epoch, state.leader_epoch, state.start_offset) == (2, 3, 5)


# --- H-105 ---


def test_h105_a_write_is_merged_into_the_state(world: ShareStateWorld) -> None:
    world.initialize()
    assert world.write((0, 9, 0, 1), complete=0) is E.NONE
    assert world.write((4, 5, 2, 1), complete=2) is E.NONE
    assert world.batches() == [(0, 3, 0, 1), (4, 5, 2, 1), (6, 9, 0, 1)]
    assert world.write(start_offset=5, complete=1) is E.NONE
    assert world.batches() == [(5, 5, 2, 1), (6, 9, 0, 1)]
    state = world.read()
    assert (state.start_offset, state.delivery_complete_count) == (5, 1)


def test_h105_a_write_without_a_start_offset_keeps_the_stored_one(world: ShareStateWorld) -> None:
    world.initialize(start_offset=5)
    assert world.write((0, 9, 2, 1), start_offset=-1, complete=-1) is E.NONE
    state = world.read()
    assert state.start_offset == 5
    assert state.delivery_complete_count == -1, "the last write counts"
    assert world.batches() == [(5, 9, 2, 1)]


def test_h105_a_write_with_an_older_state_epoch_is_fenced(world: ShareStateWorld) -> None:
    world.initialize(state_epoch=5)
    assert world.write_later(state_epoch=4).result() == FENCED_STATE
    assert world.write(state_epoch=-1) is E.NONE
    assert world.write((0, 0, 2, 1), state_epoch=6) is E.NONE, "a newer one is not stored"
    assert world.read().state_epoch == 5


def test_h105_a_write_does_not_change_the_leader_epoch(world: ShareStateWorld) -> None:
    world.initialize()
    assert world.write(leader_epoch=7) is E.NONE
    assert world.read(leader_epoch=0).leader_epoch == 0


def test_h105_calls_for_a_deleted_topic_get_unknown_topic_or_partition(
    world: ShareStateWorld,
) -> None:
    world.initialize()
    world.delete_topic()
    assert world.write_later().result() == UNKNOWN
    assert world.share.read(KEY, 0).result() == UNKNOWN


def test_h105_a_batch_that_ends_before_it_begins_is_refused(world: ShareStateWorld) -> None:
    world.initialize()
    result = world.write_later([(0, 3, 0, 1), (7, 6, 2, 1)]).result()
    assert result == StateResult(
        E.INVALID_REQUEST, "A state batch ends at offset 6, before its first offset 7."
    )
    assert kinds(world) == ["snapshot"]


def test_h105_the_number_of_batches_is_limited(
    world: ShareStateWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek_broker.coordinator.share.shard.STATE_BATCHES_MAX", 4)
    world.initialize()
    assert world.write((0, 0, 2, 1), (2, 2, 2, 1), (4, 4, 2, 1), (6, 6, 2, 1)) is E.NONE
    result = world.write_later([(8, 8, 2, 1)]).result()
    assert result == StateResult(
        E.INVALID_REQUEST,
        "The share partition would have 5 state batches, more than 4: move its start offset.",
    )
    assert world.write((1, 1, 2, 1)) is E.NONE, "three of them become one"
    assert world.write((8, 8, 2, 1)) is E.NONE


def test_h110_a_group_id_too_long_for_a_record_is_refused(world: ShareStateWorld) -> None:
    key = ShareKey("g" * (GROUP_ID_MAX_CHARS + 1), TOPIC_ID, 0)
    assert world.share.initialize(key, 1, 0).result() == StateResult(
        E.INVALID_REQUEST, "The group id is longer than 8000 characters."
    )
    assert world.log.records == []
    longest = ShareKey("\U0001f600" * GROUP_ID_MAX_CHARS, TOPIC_ID, 0)
    world.initialize(key=longest)
    world.restart()
    assert longest in world.cores[0].partitions


# --- H-106, H-107 ---


def test_h106_a_snapshot_is_written_after_a_number_of_updates() -> None:
    world = ShareStateWorld(share_coordinator_snapshot_update_records_per_snapshot=2)
    world.initialize()
    for offset in range(6):
        world.write((offset, offset, 2, 1), complete=offset)
    assert kinds(world) == [
        "snapshot",
        "update",
        "update",
        "snapshot",
        "update",
        "update",
        "snapshot",
    ]
    state = world.read()
    assert state.snapshot_epoch == 2
    assert state.batches == (StateBatch(0, 5, 2, 1),)
    world.restart()
    assert world.read() == state


def test_h106_each_record_is_a_snapshot_if_updates_are_disabled() -> None:
    world = ShareStateWorld(share_coordinator_snapshot_update_records_per_snapshot=0)
    world.initialize()
    world.write((0, 0, 2, 1))
    world.read(leader_epoch=2)
    assert kinds(world) == ["snapshot"] * 3
    assert world.read(leader_epoch=2).leader_epoch == 2


def prune(world: ShareStateWorld) -> list[dict[int, int]]:
    """Let the prune interval pass; returns the deletions of records."""
    world.pruned.clear()
    world.wait(1_000)
    world.run_scheduled()
    return world.pruned


def pruning(**settings: Any) -> ShareStateWorld:
    return ShareStateWorld(share_coordinator_state_topic_prune_interval_ms=1_000, **settings)


def test_h106_records_before_the_oldest_needed_snapshot_are_deleted() -> None:
    world = pruning(share_coordinator_snapshot_update_records_per_snapshot=1)
    world.initialize()
    world.initialize(key=OTHER)
    assert prune(world) == [], "the first record is needed"
    for _ in range(2):
        world.write((0, 0, 2, 1))
    assert prune(world) == [{0: 1}]
    for _ in range(2):
        world.write((0, 0, 2, 1), key=OTHER)
    before = [world.stored(), world.stored(OTHER)]
    assert prune(world) == [{0: 3}]
    world.restart()
    assert [world.stored(), world.stored(OTHER)] == before


def test_h106_the_epochs_of_deleted_records_are_forgotten_at_a_restart() -> None:
    """A snapshot has no field for the epochs of deleted records, as in Kafka."""
    world = pruning()
    world.initialize(state_epoch=5)
    world.read(leader_epoch=5)
    world.initialize(state_epoch=-1)
    assert prune(world) == [{0: 2}]
    assert world.share.read(KEY, 4).result() == FENCED_LEADER
    world.restart()
    assert world.read(leader_epoch=4).state_epoch == -1
    world.initialize(state_epoch=1)


def test_h106_a_deleted_state_needs_no_records() -> None:
    world = pruning()
    world.initialize()
    world.initialize(key=OTHER)
    world.share.delete(KEY)
    assert prune(world) == [{0: 1}]
    world.share.delete(OTHER)
    assert prune(world) == [{0: 3}], "the last deletion stays, as in Kafka"
    assert world.share.pruned == {0: 3}


def test_h106_records_are_deleted_when_their_snapshot_is_durable() -> None:
    world = pruning(share_coordinator_snapshot_update_records_per_snapshot=0)
    world.initialize()
    world.log.hold = True
    world.write_later([(0, 0, 2, 1)])
    assert prune(world) == []
    world.log.flush()
    world.run_scheduled()
    assert world.pruned == [{0: 1}]


def cold(**settings: Any) -> ShareStateWorld:
    return ShareStateWorld(share_coordinator_cold_partition_snapshot_interval_ms=1_000, **settings)


def test_h107_old_snapshots_are_written_again() -> None:
    world = cold()
    world.initialize()
    world.write((0, 0, 2, 1), complete=1)
    world.wait(1_000)
    assert kinds(world) == ["snapshot", "update", "snapshot"]
    state = world.stored()
    assert state.snapshot_epoch == 1 and state.batches == (StateBatch(0, 0, 2, 1),)
    assert state.written_ms == state.created_ms + 1_000
    world.wait(10_000)
    assert len(world.log.records) == 3, "nothing has changed"


def test_h107_one_changed_share_partition_renews_all_old_snapshots() -> None:
    world = cold()
    world.initialize()
    world.wait(1_000)
    world.wait(500)
    world.initialize(key=OTHER)
    assert kinds(world) == ["snapshot", "snapshot", "snapshot"]
    world.wait(500)
    assert kinds(world)[3:] == ["snapshot"], "of the old one"
    assert world.stored().snapshot_epoch == 2 and world.stored(OTHER).snapshot_epoch == 0


def test_h107_many_snapshots_are_written_in_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek_broker.coordinator.share.shard._COLD_BATCH_BYTES", 150)
    world = cold()
    keys = [ShareKey("g", TOPIC_ID, index) for index in range(10)]
    for key in keys:
        world.initialize(key=key)
    world.log.hold = True
    world.wait(1_000)
    first = len(world.log.records)
    assert 10 < first < 20
    world.write_later([(0, 5, 2, 1)], key=keys[9])
    while len(world.log.records) > world.log.durable:
        world.log.flush()
        world.wait(0)
    assert [world.stored(key).snapshot_epoch for key in keys] == [1] * 10
    assert world.batches(keys[9]) == [(0, 5, 2, 1)], "the write between two batches counts"


# --- H-108 ---


def test_h108_the_states_of_a_deleted_topic_are_deleted(world: ShareStateWorld) -> None:
    world.initialize()
    world.initialize(key=OTHER)
    world.delete_topic()
    assert world.share.topic_deleted(TOPIC_ID).done
    assert kinds(world) == ["snapshot", "snapshot", "deletion", "deletion"]
    assert world.cores[0].partitions == {}


def test_h108_a_refused_deletion_of_states_is_repeated_later(
    world: ShareStateWorld,
) -> None:
    world.initialize()
    world.delete_topic()
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    assert world.share.topic_deleted(TOPIC_ID).done
    world.wait(DELETE_AGAIN_MS)
    world.run_scheduled()
    assert KEY in world.cores[0].partitions
    world.log.refuse = E.NONE
    world.wait(DELETE_AGAIN_MS)
    world.run_scheduled()
    assert world.cores[0].partitions == {}
    assert kinds(world) == ["snapshot", "deletion"]
    world.restart()
    assert world.cores[0].partitions == {}


def test_h108_a_restart_deletes_the_states_of_deleted_topics(world: ShareStateWorld) -> None:
    world.initialize()
    world.delete_topic()
    world.restart()
    assert kinds(world) == ["snapshot", "deletion"]


# --- H-102 ---


def test_h102_calls_are_answered_when_the_state_is_durable(world: ShareStateWorld) -> None:
    world.initialize()
    world.log.hold = True
    written = world.write_later([(0, 0, 2, 1)])
    read = world.share.read(KEY, 0)
    summary = world.share.read_summary(KEY, 0)
    answers: list[Deferred[StateResult]] = [written, read, summary]
    assert not any(answer.done for answer in answers)
    world.log.flush()
    assert all(answer.done for answer in answers)


def test_h102_a_write_lost_in_a_crash_was_never_answered(world: ShareStateWorld) -> None:
    world.initialize()
    before = world.read()
    world.log.hold = True
    lost = world.write_later([(0, 0, 2, 1)])
    world.restart()
    assert not lost.done
    assert world.stored() == before


def test_h102_a_write_that_takes_too_long_is_answered_with_an_error() -> None:
    world = ShareStateWorld(share_coordinator_write_timeout_ms=700)
    world.initialize()
    world.log.hold = True
    written = world.write_later()
    world.wait(699)
    assert not written.done
    world.wait(1)
    assert written.result().error is E.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("refused", "answered"),
    [
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_h102_a_refused_append_changes_nothing(
    world: ShareStateWorld, refused: ErrorCode, answered: ErrorCode
) -> None:
    world.initialize()
    before = world.stored()
    world.log.refuse = refused
    assert world.write((0, 0, 2, 1)) is answered
    assert world.stored() == before
