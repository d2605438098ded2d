"""Mirror topics that are appended to while the broker crashes, cleans up, or has no room (rules
I-03 to I-09)."""

from __future__ import annotations

import errno
import random

import pytest

import budget
from compaction import compact
from logs import NOW_MS, headers
from mirror_world import MirrorWorld, SourceLog, base_offsets, same_state
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.record import read_records
from odradek_testkit.simulation.disk import Crashed, DiskFailure

E = ErrorCode
_ROUNDS = 6


def grow(source: SourceLog, number: int) -> None:
    """Add a plain batch and a transaction to the source. Odd numbers also add a gap, and number 3
    raises the log start."""
    source.leader_epoch = number
    source.data(3, producer_id=7, sequence=3 * number)
    source.data(2, producer_id=8 + number, transactional=True)
    if number % 2:
        source.skip(4)
    source.marker(number % 3 == 0, 8 + number)
    if number == 3:
        source.log.trimming.delete_records(source.end // 3)


def values(data: bytes) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Offset -> key and value of each record."""
    return {
        record.offset: (record.key, record.value)
        for at, header in iter_batches(data)
        if not header.is_control
        for record in read_records(data, at, header)
    }


def _fill(world: MirrorWorld, source: SourceLog, acknowledged: list[int]) -> None:
    for number in range(_ROUNDS):
        grow(source, number)
        world.follow(source)
        acknowledged.append(source.end)


def _operations(durability: str) -> int:
    world = MirrorWorld(log_durability=durability)
    world.mirror_topic(segment_bytes="600")
    before = world.files.operations
    _fill(world, SourceLog(), [])
    return world.files.operations - before


@pytest.mark.parametrize(
    ("durability", "keep_page_cache"),
    # With `page-cache` durability there are kills, but no power cuts, which would lose the page
    # cache.
    [("fsync", False), ("fsync", True), ("page-cache", True)],
    ids=["power-cut", "kill", "kill-page-cache"],
)
def test_i09_a_crash_at_any_disk_operation_loses_no_answered_records(
    durability: str, keep_page_cache: bool
) -> None:
    operations = _operations(durability)
    assert operations > 50
    step = max(operations // budget.examples(60), 1)
    for crash_at in range(0, operations, step):
        world, source, acknowledged = MirrorWorld(log_durability=durability), SourceLog(), [0]
        world.mirror_topic(segment_bytes="600")
        world.files.crash_at = world.files.operations + crash_at
        with pytest.raises(Crashed):
            _fill(world, source, acknowledged)
        rng = random.Random(crash_at) if crash_at % 2 else None
        world.crash(keep_page_cache=keep_page_cache, rng=rng)
        log = world.log_of()
        assert log.log_end_offset >= acknowledged[-1], crash_at
        start = max(log.log_start_offset, source.log.log_start_offset)
        stored = world.stored(start=start)
        assert source.read(start).startswith(stored), crash_at
        world.follow(source)
        same_state(world, source)
        world.crash(keep_page_cache=keep_page_cache)
        same_state(world, source)
        newest = max(header.leader_epoch for header in headers(world.stored()))
        assert world.node.metadata.leader_epoch_of("t", 0) >= newest


def test_i08_a_gap_at_the_log_start_survives_crashes_without_epoch_checkpoint(
    world: MirrorWorld,
) -> None:
    """A start without a checkpoint of the log start takes the first offset in the leader epochs as
    the log start."""
    source = SourceLog()
    source.leader_epoch = 3
    source.skip(20)
    world.follow(source)
    for _ in range(3):
        world.crash(keep_page_cache=True)
        assert world.log_of().log_start_offset == 0
        # A consumer of the source that has read to offset 15 in an earlier epoch may go on.
        assert world.log_of().leader_epochs.entries == [(0, 0), (3, 20)]
        source.data(1)
        world.follow(source)
        world.files.remove("data/t-0/leader-epoch-checkpoint")
    same_state(world, source)


@pytest.fixture
def world() -> MirrorWorld:
    made = MirrorWorld()
    made.mirror_topic()
    return made


def test_i02_a_mirror_continues_after_metadata_snapshots() -> None:
    world = MirrorWorld(
        metadata_log_max_record_bytes_between_snapshots="1", metadata_max_retention_bytes="0"
    )
    world.mirror_topic()
    source = SourceLog()
    for number in range(_ROUNDS):
        grow(source, number)
        answer = world.send(
            source.read(max(world.log_of().log_end_offset, source.log.log_start_offset)),
            epoch=source.leader_epoch,
            start=source.log.log_start_offset,
            high_watermark=source.end,
        )
        # The records about the leader epoch and the producer ids are not durable yet.
        assert world.maintain_later() == []
        world.soon.run()
        world.flush_all()
        assert answer.result()[0].error_code == E.NONE
        same_state(world, source)
        world.crash(keep_page_cache=number % 2 == 0)
        same_state(world, source)
        assert world.node.metadata.is_mirror("t")
        assert world.node.metadata.leader_epoch_of("t", 0) == source.leader_epoch
        assert world.node.metadata.producer_ids_end > 8 + number
    directory = "data/__cluster_metadata-0"
    assert any(name.endswith(".checkpoint") for name in world.files.list(directory))
    assert world.promote().error is E.NONE


@pytest.mark.parametrize("kind", ["append", "sync"])
def test_i09_a_mirror_continues_after_a_full_disk_has_room_again(
    world: MirrorWorld, kind: str
) -> None:
    source = SourceLog()
    grow(source, 0)
    world.follow(source)
    kept = source.end
    grow(source, 1)
    world.files.fail(DiskFailure(kind, code=errno.ENOSPC, path_part="t-0", for_ever=True))
    result = world.append(source.read(kept), epoch=source.leader_epoch, high_watermark=source.end)
    assert result.error_code == E.KAFKA_STORAGE_ERROR, result
    assert result.log_end_offset in (-1, kept)
    if kind == "append":
        # A failed append leaves the log unchanged and usable.
        world.files.heal()
        assert world.append(None).log_end_offset == kept
    else:
        # A failed flush takes the partition offline until the broker starts again.
        world.crash(keep_page_cache=True)
    world.follow(source)
    same_state(world, source)
    world.crash(keep_page_cache=False)
    same_state(world, source)


def test_i02_retention_deletes_old_segments_while_a_mirror_appends() -> None:
    world, source = MirrorWorld(), SourceLog()
    world.mirror_topic(segment_bytes="600", retention_bytes="900")
    starts = []
    for number in range(2 * _ROUNDS):
        source.leader_epoch = number
        source.data(5, producer_id=7, sequence=5 * number)
        end, start = world.log_of().log_end_offset, source.log.log_start_offset
        result = world.append(
            source.read(end), epoch=number, start=start, high_watermark=source.end
        )
        assert (result.error_code, result.log_end_offset) == (E.NONE, source.end)
        assert world.logs.apply_retention(NOW_MS).problems == []
        world.flush_all()
        starts.append(world.log_of().log_start_offset)
        if number % 4 == 3:
            world.crash(keep_page_cache=False)
        assert world.log_of().log_start_offset == starts[-1]
        assert source.read().endswith(world.stored())
    assert 0 < starts[-1] < source.end and starts == sorted(starts)


def test_i03_a_mirror_topic_is_compacted_while_a_mirror_appends() -> None:
    world, source = MirrorWorld(), SourceLog()
    world.mirror_topic(segment_bytes="400", cleanup_policy="compact")
    cleaned_to: int | None = None
    for number in range(2 * _ROUNDS):
        for key in (b"a", b"b", b"%d" % (number % 3)):
            source.data(1, key=key, value=b"%d" % number)
        end = world.log_of().log_end_offset
        result = world.append(source.read(end), high_watermark=source.end)
        assert (result.error_code, result.log_end_offset) == (E.NONE, source.end)
        # Recovery points are written, as by the cleaner's manager, because a start takes gaps above
        # them for damage.
        world.logs.write_recovery_points([world.log_of()])
        cleaned_to = compact(world.log_of(), world.files, NOW_MS, cleaned_to)
        directory = world.logs.directory_of(world.log_of())
        directory.cleaner_offsets["t", 0] = cleaned_to or 0
        directory.cleaner_offsets_writer()()
        directory.use_cleaner_offsets()
        if number % 4 == 3:
            world.crash(keep_page_cache=number % 8 == 3)
        ours, theirs = values(world.stored()), values(source.read())
        assert ours.items() <= theirs.items()
        last = dict(theirs.values())
        assert dict(ours.values()) == last
        assert world.log_of().log_end_offset == source.end
    assert len(ours) < len(theirs)
    assert base_offsets(world.stored()) == sorted(base_offsets(world.stored()))
