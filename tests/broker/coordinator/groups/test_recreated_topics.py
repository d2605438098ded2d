"""Offsets of a topic that was deleted and made again (O-15, O-24)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from group_world import GROUP, GroupWorld, part
from odradek_broker.coordinator.groups.events import OffsetDeletion, OffsetsDeleted
from odradek_broker.coordinator.groups.offsets import CommitCall
from odradek_broker.coordinator.runtime import ProducerIdentity
from odradek_broker.partition import StoredRecord
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored import offset_commit
from odradek_protocol.stored.offset_commit import OffsetCommitValue

E = ErrorCode
OLD, NEW = b"T" * 16, b"N" * 16


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def delete(world: GroupWorld) -> None:
    """Delete the topic; its removal is durable."""
    assert world.delete_topic().done


def create(world: GroupWorld) -> None:
    """Make the topic again."""
    world.clock.now_ms += 1
    world.metadata.counts["topic"], world.metadata.ids["topic"] = 10, NEW
    world.metadata.made_ms["topic"] = world.clock.wall_ms()


def run_timers(world: GroupWorld) -> None:
    timers, world.timers = world.timers, []
    for _, callback in timers:
        callback()


def tombstones(world: GroupWorld) -> list[bytes | None]:
    return [key for key, value in world.log.records if value is None]


def in_transaction(world: GroupWorld, producer_id: int, offset: int, topic_id: bytes) -> ErrorCode:
    parts = [part(offset, topic_id=topic_id)]
    call = CommitCall(GROUP, -1, "", None, 5, -1, parts)
    return world.groups.commit_offsets(call, ProducerIdentity(producer_id, 0)).result()[0]


def end_transaction(world: GroupWorld, producer_id: int, *, commit: bool = True) -> None:
    written = world.log.append_marker(producer_id, commit)
    world.groups.marker_written(0, producer_id, commit, written)


def test_o24_a_commit_has_the_id_of_its_topic(world: GroupWorld) -> None:
    world.commit(5)
    ((_, value),) = world.log.records
    assert value is not None
    assert offset_commit.decode_value(value).topic_id == OLD


@pytest.mark.parametrize("retention_ms", [-1, 60_000], ids=["version 4", "version 1"])
@pytest.mark.parametrize("restarts", ["never", "deleted", "created", "both"])
def test_o24_no_offset_outlives_its_topic_if_the_disk_was_full(
    world: GroupWorld, retention_ms: int, restarts: str
) -> None:
    for group in ("a", "b"):
        world.commit(10, group=group, retention_ms=retention_ms)
        world.commit_later(part(3, "other"), group=group)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    delete(world)
    assert world.groups.deletions_pending
    if restarts in ("deleted", "both"):
        world.restart()
    create(world)
    if restarts in ("created", "both"):
        world.restart()
    for group in ("a", "b"):
        assert (world.committed(group), world.committed(group, "other")) == (-1, 3)
        assert dict(world.groups.committed(group)) == {("other", 0): 3}
        found = world.fetch(group=group, everything=True).parts
        assert [each.topic for each in found] == ["other"]
    world.log.refuse = E.NONE
    run_timers(world)
    assert not world.groups.deletions_pending
    assert len(tombstones(world)) == 2
    world.restart()
    assert (world.committed("a"), world.committed("a", "other")) == (-1, 3)
    assert len(tombstones(world)) == 2


def test_o24_offsets_of_the_new_topic_stay_when_old_ones_are_removed_later(
    world: GroupWorld,
) -> None:
    world.commit(10, group="a")
    world.commit(11, group="b")
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    delete(world)
    create(world)
    world.log.refuse = E.NONE
    assert world.commit_later(part(2, topic_id=NEW), group="a").result() == [E.NONE]
    run_timers(world)
    for _ in range(2):
        assert (world.committed("a"), world.committed("b")) == (2, -1)
        world.restart()


@pytest.mark.parametrize("commit", [True, False])
def test_o17_o24_a_pending_offset_of_the_old_topic_is_never_committed(
    world: GroupWorld, commit: bool
) -> None:
    assert in_transaction(world, 7, 10, OLD) is E.NONE
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    delete(world)
    create(world)
    for stable in (False, True):
        (found,) = world.fetch(("topic", 0), stable=stable).parts
        assert (found.offset, found.error) == (-1, E.NONE)
    world.log.refuse = E.NONE
    end_transaction(world, 7, commit=commit)
    for _ in range(2):
        assert world.committed() == -1
        world.restart()


def test_o17_o24_a_transaction_of_the_new_topic_is_kept_while_old_offsets_wait(
    world: GroupWorld,
) -> None:
    """A tombstone would also drop the pending offset, so it waits for the end of the
    transaction."""
    world.commit(10)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    delete(world)
    create(world)
    world.log.refuse = E.NONE
    assert in_transaction(world, 7, 2, NEW) is E.NONE
    run_timers(world)
    assert tombstones(world) == []
    assert world.committed() == -1
    assert world.fetch(("topic", 0), stable=True).parts[0].error is E.UNSTABLE_OFFSET_COMMIT
    end_transaction(world, 7)
    run_timers(world)
    assert not world.groups.deletions_pending
    for _ in range(2):
        assert world.committed() == 2
        world.restart()


def test_o24_a_commit_decided_after_its_topic_was_made_again_is_refused(world: GroupWorld) -> None:
    """The transaction was verified meanwhile."""
    delete(world)
    create(world)
    assert in_transaction(world, 7, 10, OLD) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert world.commit_later(part(1, topic_id=NEW), part(2, "other")).result() == [E.NONE] * 2


@pytest.mark.parametrize("expires", [True, False])
def test_o24_an_offset_without_an_id_belongs_to_the_topic_that_was_there_before_it(
    world: GroupWorld, expires: bool
) -> None:
    """Earlier versions and Kafka store offsets without ids."""
    for group, ms in (("old", 100), ("new", 101)):
        value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=ms)
        if expires:
            value.expire_timestamp = 1 << 60
        world.log.records.append(
            (offset_commit.encode_key(group, "topic", 0), offset_commit.encode_value(value))
        )
    world.log.durable = 2
    world.metadata.made_ms["topic"] = 101
    world.restart()
    assert (world.committed("old"), world.committed("new")) == (-1, 7)
    world.metadata.made_ms.clear()
    world.restart()
    assert (world.committed("old"), world.committed("new")) == (-1, 7)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    delete(world)
    create(world)
    assert world.committed("new") == -1


def test_o24_a_partition_that_cannot_be_read_is_finished_when_it_can(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(10, retention_ms=60_000)

    def unreadable() -> Iterator[StoredRecord]:
        raise StorageError(E.KAFKA_STORAGE_ERROR, "the disk does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.log, "read_stored", unreadable)
        world.restart()
        delete(world)
        create(world)
        assert world.groups.deletions_pending
    world.wait(60_000)
    assert world.committed() == -1
    assert not world.groups.deletions_pending
    assert len(tombstones(world)) == 1


def test_o24_a_partition_of_a_failed_directory_is_finished_by_a_start(world: GroupWorld) -> None:
    world.commit(10)
    world.groups.shards.give_up(0)
    world.metadata.leader = 2
    delete(world)
    create(world)
    assert world.groups.deletions_pending
    world.metadata.leader = 1
    world.restart()
    assert world.committed() == -1
    assert len(tombstones(world)) == 1


def test_o24_a_start_remembers_the_removals_in_the_metadata_log(world: GroupWorld) -> None:
    """No snapshot of the metadata may cover a removal before it is finished everywhere."""
    world.metadata.leader = 2

    def started(removed: set[bytes]) -> bool:
        world.groups = world.new_groups()
        world.groups.note_removed(removed)
        world.groups.shards.load()
        return world.groups.deletions_pending

    assert started({OLD})
    world.metadata.leader = 1
    assert not started({OLD})


def test_o15_a_deletion_that_is_tried_again_is_noted_once(world: GroupWorld) -> None:
    world.commit(10)
    noted: list[object] = []
    world.groups = world.new_groups(observer=noted.append)
    world.groups.shards.load()
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    delete(world)
    run_timers(world)
    world.log.refuse = E.NONE
    run_timers(world)
    deleted = [each for each in noted if isinstance(each, OffsetsDeleted)]
    assert deleted == [OffsetsDeleted(GROUP, [("topic", 0)], OffsetDeletion.TOPIC_DELETED)]
