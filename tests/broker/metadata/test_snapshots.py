"""Snapshots of the metadata log: their content, their times, and their use at a start (KIP-630)."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any

import pytest

import budget
from logs import NOW_MS
from node_world import NodeWorld
from odradek_broker.config.broker import default_config
from odradek_broker.metadata.cluster import METADATA_TOPIC, ClusterMetadata
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.scram import credential_record
from odradek_broker.metadata.snapshots import (
    HEADER_BATCH_BYTES_MAX,
    RECORDS_PER_BATCH,
    CorruptMetadataSnapshot,
    MetadataSnapshot,
    MetadataSnapshotId,
    decode_header,
    decode_snapshot,
    encode_snapshot,
    parse_file_name,
)
from odradek_broker.platform.machine import RealRandomness
from odradek_broker.storage.errors import DataDirectoryError, StorageError
from odradek_broker.storage.manager import LogManager
from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.constants import RESOURCE_TOPIC
from odradek_protocol.message import Message
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.sasl.scram import ScramCredential, ScramMechanism
from odradek_protocol.stored.cluster_metadata import (
    RECORD_TYPES,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    MetadataRecord,
    PartitionRecord,
    PartitionRecords,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    decode_record,
    encode_records,
)
from odradek_testkit.simulation.disk import Crashed, DiskFailure

DIRECTORY = f"data/{METADATA_TOPIC}-0"
#: Settings with which each maintenance takes a snapshot and trims the log before it.
EAGER = {
    "metadata_log_max_record_bytes_between_snapshots": "1",
    "metadata_max_retention_bytes": "0",
}


def checkpoints(world: NodeWorld) -> list[str]:
    return [name for name in world.files.list(DIRECTORY) if name.endswith(".checkpoint")]


def segments(world: NodeWorld) -> list[str]:
    return [name for name in world.files.list(DIRECTORY) if name.endswith(".log")]


def make_topics(world: NodeWorld, *names: str) -> None:
    for name in names:
        world.create(name)
    world.flush()


def take_snapshot(world: NodeWorld) -> None:
    """Run maintenance twice: the second run trims the log."""
    for _ in range(2):
        assert world.maintain_later() == []
        world.soon.run()
        world.flush()


def state_of(metadata: ClusterMetadata) -> object:
    return (
        {
            name: (topic.topic_id, {i: repr(state) for i, state in topic.partitions.items()})
            for name, topic in metadata.topics.items()
        },
        metadata._configs,
        metadata.client_quotas,
        metadata.scram_credentials,
        dict(metadata.acls.by_id),
        {each.token_id: each for each in metadata.delegation_tokens.all()},
        metadata._next_producer_id,
    )


# --- The file -------------------------------------------------------------------------------------


def _encode(values: list[bytes]) -> bytes:
    return b"".join(encode_snapshot(iter(values), 3, NOW_MS, NOW_MS + 5))


@pytest.mark.parametrize("count", [0, 1, RECORDS_PER_BATCH, RECORDS_PER_BATCH + 1])
def test_a_snapshot_file_is_read_back(count: int) -> None:
    values = [b"%d" % number for number in range(count)]
    data = _encode(values)
    assert decode_snapshot(data) == MetadataSnapshot(NOW_MS, values)
    assert decode_header(data[:HEADER_BATCH_BYTES_MAX]) == NOW_MS
    headers = [header for _, header in iter_batches(data)]
    assert [header.is_control for header in headers[:1] + headers[-1:]] == [True, True]
    assert not any(header.is_control for header in headers[1:-1])
    assert all(header.record_count <= RECORDS_PER_BATCH for header in headers)
    assert {header.leader_epoch for header in headers} == {3}
    offset = 0
    for header in headers:
        assert header.base_offset == offset
        offset = header.next_offset


def test_every_damage_of_a_snapshot_is_found() -> None:
    values = [b"one", b"two", b"three"]
    data = _encode(values)
    for size in range(len(data)):
        with pytest.raises(CorruptMetadataSnapshot):
            decode_snapshot(data[:size])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        try:
            found = decode_snapshot(bytes(damaged))
        except CorruptMetadataSnapshot:
            continue
        # The checksum does not cover base offset and leader epoch, which no reader uses.
        assert found == MetadataSnapshot(NOW_MS, values)
    with pytest.raises(CorruptMetadataSnapshot):
        decode_snapshot(data + b"x")
    with pytest.raises(CorruptMetadataSnapshot):
        decode_snapshot(data + data)


def test_snapshot_file_names_are_kafkas() -> None:
    snapshot = MetadataSnapshotId(10, 1)
    assert snapshot.file_name == "00000000000000000010-0000000001.checkpoint"
    assert parse_file_name(snapshot.file_name) == snapshot
    for name in ("bootstrap.checkpoint", "10-1.checkpoint", f"{snapshot.file_name}.part"):
        assert parse_file_name(name) is None


# --- The image ------------------------------------------------------------------------------------


def _credential_change(rng: random.Random, metadata: ClusterMetadata) -> MetadataRecord:
    user, mechanism = rng.choice("uv"), rng.choice(list(ScramMechanism))
    if mechanism in metadata.scram_credentials.get(user, {}) and rng.random() < 0.5:
        return RemoveUserScramCredentialRecord(name=user, mechanism=mechanism.number)
    key = rng.randbytes(mechanism.key_bytes)
    return credential_record(user, mechanism, ScramCredential(b"salt", key, key, 4096))


def _token_change(rng: random.Random, metadata: ClusterMetadata) -> MetadataRecord:
    token_id = rng.choice("tuv")
    if metadata.delegation_tokens.get(token_id) is not None and rng.random() < 0.5:
        return RemoveDelegationTokenRecord(token_id=token_id)
    return DelegationTokenRecord(
        token_id=token_id, owner="User:u", issue_timestamp=rng.randrange(9)
    )


def _histories(rng: random.Random, metadata: ClusterMetadata) -> Iterator[list[MetadataRecord]]:
    """Random changes of metadata. Each may depend on earlier changes."""
    for _ in range(300):
        name = f"t{rng.randrange(6)}"
        if rng.random() < 0.1:
            yield [_credential_change(rng, metadata)]
        if rng.random() < 0.1:
            yield [_token_change(rng, metadata)]
        topic = metadata.topics.get(name)
        if topic is None:
            assignments = {index: [1] for index in range(rng.choice([1, 2, 3, 4, 101]))}
            yield metadata.topic_records(name, assignments, {"retention.ms": str(rng.random())})
        elif rng.random() < 0.2:
            yield [RemoveTopicRecord(topic_id=topic.topic_id)]
        elif rng.random() < 0.2:
            user = QuotaEntityPart(entity_type="user", entity_name=rng.choice([None, "u"]))
            yield [
                ClientQuotaRecord(
                    entity=[user],
                    key=rng.choice(["producer_byte_rate", "request_percentage"]),
                    value=rng.random(),
                    remove=rng.random() < 0.3,
                )
            ]
        elif rng.random() < 0.2 and metadata.acls.by_id:
            gone = rng.choice(list(metadata.acls.by_id))
            yield [RemoveAccessControlEntryRecord(id=gone)]
        elif rng.random() < 0.2:
            yield [
                AccessControlEntryRecord(
                    id=metadata.new_acl_id(),
                    resource_type=2,
                    resource_name=f"acl{rng.random()}",
                    pattern_type=3,
                    principal="User:u",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        elif rng.random() < 0.4:
            key = rng.choice(["retention.ms", "segment.bytes", "cleanup.policy"])
            value = rng.choice([None, "1", "2"])
            yield [
                ConfigRecord(
                    resource_type=RESOURCE_TOPIC, resource_name=name, name=key, value=value
                )
            ]
        elif rng.random() < 0.5:
            count = len(topic.partitions)
            yield [*metadata.partition_records(topic.topic_id, {count: [1]})]
        elif rng.random() < 0.5:
            yield metadata.new_leader_epochs(name)
        else:
            yield metadata.producer_id_block()


@pytest.mark.parametrize("seed", range(5))
def test_d4_an_image_replays_to_the_same_metadata(seed: int) -> None:
    metadata = ClusterMetadata(default_config(), RealRandomness())
    image = MetadataImage()
    for records in _histories(random.Random(seed), metadata):
        for record in records:
            metadata.replay(record)
            image.replay(record, *encode_records([record])[0])
    again = ClusterMetadata(default_config(), RealRandomness())
    values = list(image.values())
    for value in values:
        again.replay(decode_record(value))
    assert state_of(again) == state_of(metadata)
    assert len(image) == len(values)
    partitions = sum(isinstance(decode_record(value), PartitionRecord) for value in values)
    assert partitions == metadata.total_partitions, "nothing is kept that was replaced"


@pytest.mark.parametrize("record_type", RECORD_TYPES.values())
def test_d4_an_image_knows_every_record_type(record_type: type[Message]) -> None:
    with suppress(KeyError):  # of an unknown topic
        MetadataImage().replay(record_type(), b"")


def test_d4_an_image_being_read_leaves_out_later_records() -> None:
    metadata = ClusterMetadata(default_config(), RealRandomness())
    image = MetadataImage()

    def replay(records: list[MetadataRecord]) -> None:
        for record in records:
            metadata.replay(record)
            image.replay(record, *encode_records([record])[0])

    replay(metadata.topic_records("a", {0: [1], 1: [1]}, {"retention.ms": "1"}))
    before = list(image.values())
    values = image.values()
    taken = [next(values)]
    replay([ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name="a", name="x", value="new")])
    replay(metadata.topic_records("b", {0: [1]}, {}))
    replay([RemoveTopicRecord(topic_id=metadata.topics["a"].topic_id)])
    assert taken + list(values) == before


@pytest.mark.parametrize("seed", range(20))
def test_d4_a_slow_read_of_an_image_ignores_later_changes(seed: int) -> None:
    """A snapshot has the metadata of the moment when its read began, however slowly it is read."""
    rng = random.Random(seed)
    metadata = ClusterMetadata(default_config(), RealRandomness())
    image = MetadataImage()
    read: tuple[Iterator[bytes], list[bytes], Any, int] | None = None
    finished = 0
    for records in _histories(rng, metadata):
        for record in records:
            metadata.replay(record)
            image.replay(record, *encode_records([record])[0])
        if rng.random() < 0.2:
            image.apply_changes(rng.randrange(5))
        if read is None:
            if rng.random() < 0.3:
                read = image.values(), [], deepcopy(state_of(metadata)), len(image)
            continue
        values, taken, expected, count = read
        some = list(islice(values, rng.randrange(1, 6)))
        taken += some
        if not some:
            again = ClusterMetadata(default_config(), RealRandomness())
            for value in taken:
                again.replay(decode_record(value))
            assert (state_of(again), len(taken)) == (expected, count)
            finished += 1
            read = None
    assert finished
    if read is not None:
        list(read[0])
    again = ClusterMetadata(default_config(), RealRandomness())
    for value in image.values():
        again.replay(decode_record(value))
    assert state_of(again) == state_of(metadata)


def test_l39_a_snapshot_begins_without_copying_the_metadata() -> None:
    """A copy of many records would delay all requests."""
    metadata = ClusterMetadata(default_config(), RealRandomness())
    image = MetadataImage()
    for record in metadata.topic_records("a", {index: [1] for index in range(20_000)}, {}):
        count = record.size if isinstance(record, PartitionRecords) else 1
        image.replay(record, *[b"x"] * count)
    peaks = []
    # The measurement includes other threads of the test run, so the lowest of several peaks counts.
    for _ in range(5):
        tracemalloc.start()
        try:
            values = image.values()
            assert next(values) == b"x"
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert min(peaks) < 20_000


# --- The time of snapshots ------------------------------------------------------------------------


def test_l39_a_snapshot_is_taken_after_enough_bytes() -> None:
    world = NodeWorld(metadata_log_max_record_bytes_between_snapshots="1000")
    make_topics(world, "a")
    take_snapshot(world)
    assert checkpoints(world) == []
    make_topics(world, *(f"b{number}" for number in range(20)))
    end = world.logs.get(METADATA_TOPIC, 0)
    assert end is not None
    take_snapshot(world)
    assert checkpoints(world) == [MetadataSnapshotId(end.log_end_offset, 0).file_name]


def test_l39_a_snapshot_is_taken_after_its_interval_if_records_came() -> None:
    world = NodeWorld(metadata_log_max_snapshot_interval_ms="300000")
    make_topics(world, "a")
    take_snapshot(world)  # maintenance after two minutes and after four
    assert checkpoints(world) == []
    take_snapshot(world)
    assert len(checkpoints(world)) == 1
    for _ in range(4):
        take_snapshot(world)
    assert len(checkpoints(world)) == 1
    make_topics(world, "b")
    take_snapshot(world)
    take_snapshot(world)
    assert len(checkpoints(world)) == 2


def test_a_snapshot_interval_of_0_ms_takes_no_snapshots() -> None:
    world = NodeWorld(metadata_log_max_snapshot_interval_ms="0")
    make_topics(world, "a")
    world.clock.now_ms += 10 * 3_600_000
    take_snapshot(world)
    assert checkpoints(world) == []


def test_a_snapshot_encodes_one_batch_per_turn_and_waits_for_no_disk() -> None:
    world = NodeWorld(**EAGER)
    make_topics(world, "a")
    world.create("wide", 3 * RECORDS_PER_BATCH)
    world.soon.run()
    world.flush()
    jobs = []
    world.logs.run_in_background = lambda work, done: jobs.append((work, done))  # type: ignore[method-assign]
    world.maintain_later()
    turns = 0
    before = world.files.operations
    while world.soon.turn():
        turns += 1
    assert turns >= 5, "header, at least three batches, footer"
    assert world.files.operations == before
    assert checkpoints(world) == []
    (job,) = jobs
    job[0]()
    job[1](None)
    assert len(checkpoints(world)) == 1


def test_l39_a_snapshot_waits_until_its_records_are_durable() -> None:
    world = NodeWorld(**EAGER)
    world.create("a")
    world.maintain_later()
    world.soon.run()
    assert checkpoints(world) == []
    world.flush()
    assert len(checkpoints(world)) == 1


# --- A start --------------------------------------------------------------------------------------


def _world_with_history(**settings: str) -> NodeWorld:
    world = NodeWorld(**(EAGER | settings))
    make_topics(world, "a", "b", "gone")
    world.produce("a", 3)
    take_snapshot(world)
    world.delete("gone")
    make_topics(world, "c")
    take_snapshot(world)
    make_topics(world, "tail")
    return world


def _names(world: NodeWorld) -> set[str]:
    return set(world.node.metadata.topics)


def test_l39_a_start_replays_the_newest_snapshot_and_the_later_records() -> None:
    world = _world_with_history()
    before = state_of(world.node.metadata)
    log = world.logs.get(METADATA_TOPIC, 0)
    assert log is not None
    assert log.log_start_offset > 0
    assert [int(name[:20]) for name in segments(world)] == [log.log_start_offset]
    assert [parse_file_name(name) for name in checkpoints(world)] == [(log.log_start_offset, 0)]
    for keep_page_cache in (True, False):
        report = world.crash(keep_page_cache=keep_page_cache)
        assert report.problems == []
        assert state_of(world.node.metadata) == before
        assert world.end("a") == 3
    world.logs.close()
    assert world.start().problems == []
    assert state_of(world.node.metadata) == before


@pytest.mark.parametrize("damage", [b"", b"x" * 300])
def test_l39_a_damaged_snapshot_is_passed_over_for_an_older_one(damage: bytes) -> None:
    world = _world_with_history(metadata_max_retention_bytes="-1")
    before = state_of(world.node.metadata)
    *_, older, newest = checkpoints(world)
    world.files.put(f"{DIRECTORY}/{newest}", damage)
    report = world.crash()
    assert [newest in problem for problem in report.problems] == [True]
    assert state_of(world.node.metadata) == before
    assert checkpoints(world)[-1] == older
    world.logs.close()
    world.files.put(f"{DIRECTORY}/{older}", damage)
    for name in checkpoints(world)[:-1]:
        world.files.remove(f"{DIRECTORY}/{name}")
    world.start()
    assert state_of(world.node.metadata) == before, "the whole log is still there"


def test_an_unreadable_snapshot_is_kept_for_the_next_start() -> None:
    world = _world_with_history(metadata_max_retention_bytes="-1")
    before = state_of(world.node.metadata)
    newest = checkpoints(world)[-1]
    world.files.crash(keep_page_cache=True)
    world.files.fail(DiskFailure("read", path_part=newest))
    assert len(world.start().problems) == 1
    assert state_of(world.node.metadata) == before
    assert newest in checkpoints(world)


def test_l39_a_broker_without_the_snapshot_of_its_log_does_not_start() -> None:
    """Without the snapshot all logs would seem to belong to no topic, and would be renamed."""
    world = _world_with_history()
    (only,) = checkpoints(world)
    world.files.put(f"{DIRECTORY}/{only}", b"")
    world.files.crash(keep_page_cache=True)
    with pytest.raises(DataDirectoryError, match="has no snapshot"):
        world.start()
    assert not [name for name in world.files.list("data") if name.endswith("-stray")]


def test_a_log_that_ends_before_the_snapshot_restarts_at_its_offset() -> None:
    """A power cut loses the unsynced end of the log (page-cache durability), but not the synced
    snapshot."""
    world = NodeWorld(**EAGER, log_durability="page-cache")
    make_topics(world, "a", "b")
    world.logs.get(METADATA_TOPIC, 0).durability.flush()  # type: ignore[union-attr]
    make_topics(world, "c")
    world.maintain_later()
    world.soon.run()
    (newest,) = checkpoints(world)
    end = int(newest[:20])
    world.crash(keep_page_cache=False)
    assert _names(world) == {"a", "b", "c"}
    log = world.logs.get(METADATA_TOPIC, 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (end, end)
    make_topics(world, "d")
    log.durability.flush()
    world.crash(keep_page_cache=False)
    assert _names(world) == {"a", "b", "c", "d"}


def test_l39_snapshots_are_deleted_by_age_and_the_newest_is_kept() -> None:
    world = _world_with_history(
        metadata_max_retention_bytes="-1", metadata_max_retention_ms=str(3_600_000)
    )
    assert len(checkpoints(world)) > 1
    newest = checkpoints(world)[-1]
    world.clock.now_ms += 2 * 3_600_000
    take_snapshot(world)
    assert len(checkpoints(world)) == 1
    assert checkpoints(world)[-1] >= newest
    world.clock.now_ms += 2 * 3_600_000
    take_snapshot(world)
    assert len(checkpoints(world)) == 1
    assert len(segments(world)) == 1


# --- Faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["append", "sync", "rename", "sync_dir"])
def test_a_snapshot_that_failed_is_written_at_a_later_maintenance(kind: str) -> None:
    world = NodeWorld(**EAGER)
    make_topics(world, "a")
    path = "" if kind == "sync_dir" else ".checkpoint"
    world.files.fail(DiskFailure(kind, path_part=path))
    world.maintain_later()
    world.soon.run()
    (problem,) = world.maintain_later()
    assert "no snapshot" in problem
    take_snapshot(world)
    assert len(checkpoints(world)) == 1
    assert world.fatal == []
    world.crash(keep_page_cache=False)
    assert _names(world) == {"a"}


def test_l39_no_snapshot_is_taken_before_a_topic_removal_is_finished() -> None:
    """The record of the removal tells a start which files to delete. Without the record, a start
    only renames the files."""
    world = NodeWorld(**EAGER)
    make_topics(world, "a", "b")
    world.produce("b", 3)
    world.files.fail(DiskFailure("rename", path_part="b-0", for_ever=True))
    world.delete("b")
    world.flush()
    world.maintain_later()
    world.soon.run()
    assert checkpoints(world) == []
    world.files.heal()
    assert any("cannot be renamed" in problem for problem in world.maintain_later())
    take_snapshot(world)
    assert len(checkpoints(world)) == 1
    world.crash(keep_page_cache=False)
    assert not [name for name in world.files.list("data") if name.endswith("-stray")]


def _changes(world: NodeWorld, done: set[str], gone: set[str]) -> None:
    """Create and delete topics, and write two snapshots. `done` gets the names of topics whose
    creation is acknowledged, and `gone` the names of topics whose deletion is acknowledged."""
    for step in range(2):
        names = {f"{step}-{number}" for number in range(3)}
        make_topics(world, *sorted(names))
        done |= names
        world.produce(f"{step}-0", 2)
        world.maintain_later()
        world.soon.run()
        world.flush()
        doomed = f"{step}-2"
        world.delete(doomed)
        done.discard(doomed)
        world.flush()
        gone.add(doomed)
        world.maintain_later()
        world.soon.run()
        world.flush()


def _operations() -> int:
    world = NodeWorld(**EAGER)
    _changes(world, set(), set())
    return world.files.operations


@pytest.mark.parametrize("power_cut", budget.of_which([False, True], [True]))
def test_d4_a_crash_at_any_disk_operation_loses_no_change(power_cut: bool) -> None:
    for crash_at in range(_operations()):
        done: set[str] = set()
        gone: set[str] = set()
        world: NodeWorld | None = None
        try:
            world = NodeWorld(**EAGER)
            world.files.crash_at = crash_at
            _changes(world, done, gone)
        except Crashed:
            pass
        if world is None:
            continue
        rng = random.Random(crash_at)
        report = world.crash(keep_page_cache=not power_cut, rng=rng if crash_at % 2 else None)
        assert done <= _names(world), crash_at
        assert not gone & _names(world), crash_at
        assert [text for text in report.problems if "stray" in text or "not used" in text] == []
        for name in _names(world) & done:
            if name.endswith("-0") and world.end(name) not in (0, 2):
                raise AssertionError(f"{name} at {crash_at}")
        world.create("after")
        world.flush()
        take_snapshot(world)
        world.crash(keep_page_cache=False)
        assert done | {"after"} <= _names(world), crash_at


@pytest.mark.parametrize("code", range(3))
def test_a_full_disk_while_a_snapshot_is_due_refuses_changes_and_loses_none(code: int) -> None:
    world = NodeWorld(**EAGER)
    make_topics(world, "a")
    world.files.fail(DiskFailure("append", nth=code + 1, path_part=METADATA_TOPIC, for_ever=True))
    with pytest.raises(StorageError):
        for number in range(code + 1):
            make_topics(world, f"b{number}")
    world.maintain_later()
    world.soon.run()
    world.files.heal()
    assert len(world.maintain_later()) == 1, "the snapshot failed as well"
    take_snapshot(world)
    world.crash(keep_page_cache=False)
    assert _names(world) == {"a", *(f"b{number}" for number in range(code))}


@pytest.mark.parametrize("content", [b"", b"not an index", bytes(24), None])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_l33_a_start_rebuilds_indexes_of_closed_metadata_segments(
    monkeypatch: pytest.MonkeyPatch, suffix: str, content: bytes | None, *, clean: bool
) -> None:
    """A request that needs a missing index is retried after a worker has rebuilt it. A start cannot
    be retried, so the start itself rebuilds the indexes. The start reads no records before the
    snapshot."""
    world = NodeWorld(metadata_log_max_record_bytes_between_snapshots="1")
    make_topics(world, "first", "second")
    take_snapshot(world)
    log = world.logs.get(METADATA_TOPIC, 0)
    assert log is not None
    if len(log.segments) == 1:
        log.roll(NOW_MS)
    make_topics(world, "third")
    if clean:
        assert world.logs.close() == []
    else:
        write = world.logs.metadata_directory.recovery_points_writer()
        assert write is not None
        write()
        world.logs.metadata_directory.use_recovery_points()
        world.logs.sync_names()
        world.files.crash()
    assert len(segments(world)) == 2
    path = f"{DIRECTORY}/{segments(world)[0].removesuffix('log')}{suffix}"
    if content is None:
        world.files.remove(path)
    else:
        world.files.put(path, content)

    def never(*_: object) -> None:
        pass

    monkeypatch.setattr("node_world.LogManager", partial(LogManager, background=never))
    world.start()
    assert set(world.node.metadata.topics) >= {"first", "second", "third"}
