"""The promotion of mirror topics (rules I-11, I-12), on a node over files in memory."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from logs import append, append_marker, headers, make_batch, records
from mirror_world import MirrorWorld, SourceLog
from odradek_broker.mirror.events import MirrorEvent
from odradek_broker.mirror.promotion import Promoted
from odradek_broker.storage.errors import AppendRejected
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.control_marker import ControlType, decode_marker

E = ErrorCode


@pytest.fixture
def world() -> MirrorWorld:
    made = MirrorWorld()
    made.mirror_topic()
    return made


def mirrored(world: MirrorWorld, index: int = 0) -> SourceLog:
    """Mirror the records of several producers, two with an open transaction, under leader epoch
    5."""
    source = SourceLog()
    source.leader_epoch = 5
    source.data(2, producer_id=1, epoch=3, transactional=True)
    source.data(1, producer_id=2, epoch=0, transactional=True)
    source.data(2, producer_id=3, epoch=9)
    source.data(1, producer_id=4, transactional=True)
    source.marker(True, 4)
    world.follow(source, index=index)
    return source


def assert_promoted(world: MirrorWorld, source: SourceLog, index: int = 0) -> None:
    """Check that the topic is not a mirror any more, and that its open transactions are aborted."""
    log, metadata = world.log_of("t", index), world.node.metadata
    assert not metadata.is_mirror("t")
    stored, copied = world.stored("t", index), source.read()
    assert stored.startswith(copied)
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset
    first = {header.producer_id for header in headers(stored[len(copied) :]) if header.is_control}
    assert first >= {1, 2}
    assert {producer for producer, _ in log.aborted_transactions(0, source.end)} == {1, 2}
    assert metadata.leader_epoch_of("t", index) >= 6
    assert metadata.leader_epoch_of("t", index) > log.leader_epochs.latest


def assert_takes_our_producers(world: MirrorWorld, index: int = 0) -> None:
    """Check that producers can begin at sequence 0 with the producer ids of the source, and with
    lower epochs than at the source."""
    log = world.log_of("t", index)
    epoch = world.node.metadata.leader_epoch_of("t", index)
    assert len(log.producers) == 0
    for producer_id in (1, 2, 3, 4):
        append(log, make_batch(1, producer_id=producer_id), leader_epoch=epoch)
    append(log, make_batch(1, producer_id=1, sequence=1, transactional=True), leader_epoch=epoch)
    append_marker(log, False, 1)
    log.durability.flush()
    assert log.last_stable_offset == log.log_end_offset


def test_i11_a_promoted_mirror_is_an_ordinary_topic(world: MirrorWorld) -> None:
    source = mirrored(world)
    assert world.log_of().last_stable_offset == 0
    assert world.promote() == Promoted(aborted=2)
    assert_promoted(world, source)
    assert "mirror.source" not in world.node.metadata.topic_overrides("t")
    marker = headers(world.stored())[-1]
    assert marker.is_control and marker.leader_epoch == 5
    assert_takes_our_producers(world)


@pytest.mark.parametrize("keep_page_cache", [True, False])
def test_i11_a_crash_does_not_restore_the_producers_of_the_source(
    world: MirrorWorld, keep_page_cache: bool
) -> None:
    source = mirrored(world)
    world.promote()
    world.crash(keep_page_cache=keep_page_cache)
    assert_promoted(world, source)
    assert_takes_our_producers(world)
    world.crash(keep_page_cache=keep_page_cache)
    assert {entry.producer_id for entry in world.log_of().producers.entries()} == {1, 2, 3, 4}


def test_i11_a_clean_stop_does_not_restore_the_producers_of_the_source(world: MirrorWorld) -> None:
    source = mirrored(world)
    world.promote()
    world.node.close()
    world.logs.close()
    world.start()
    assert_promoted(world, source)
    assert_takes_our_producers(world)


def test_i11_the_promotion_of_an_ordinary_topic_has_no_effect(world: MirrorWorld) -> None:
    mirrored(world)
    world.promote()
    end = world.log_of().log_end_offset
    assert world.promote() == Promoted()
    assert world.log_of().log_end_offset == end
    assert world.promote("absent").error is E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("opened", [0, 100])
def test_i11_an_empty_mirror_is_promoted(world: MirrorWorld, opened: int) -> None:
    source = SourceLog(opened)
    world.follow(source)
    assert world.promote() == Promoted()
    world.crash(keep_page_cache=False)
    log = world.log_of()
    assert not world.node.metadata.is_mirror("t")
    assert (log.log_start_offset, log.log_end_offset) == (opened, opened)


def test_i11_a_mirror_with_an_empty_active_segment_is_promoted(world: MirrorWorld) -> None:
    """The snapshot at the log end has the producers of the source. The promotion replaces this
    snapshot."""
    source = SourceLog()
    source.data(2, producer_id=3, epoch=9)
    world.follow(source)
    world.log_of().roll(0)
    world.flush_all()
    assert world.promote() == Promoted()
    world.crash(keep_page_cache=False)
    assert len(world.log_of().producers) == 0
    append(world.log_of(), make_batch(1, producer_id=3), leader_epoch=6)


def test_i11_all_partitions_of_a_mirror_are_promoted_together() -> None:
    world = MirrorWorld()
    world.mirror_topic(partitions=3)
    sources = [mirrored(world, index) for index in range(3)]
    assert world.promote() == Promoted(aborted=6)
    world.crash(keep_page_cache=False)
    for index, source in enumerate(sources):
        assert_promoted(world, source, index)
        assert_takes_our_producers(world, index)


def steps(world: MirrorWorld) -> Callable[[], bool]:
    """A function that flushes one log; it returns False if no log has asked for a flush."""

    def step() -> bool:
        if not world.asked:
            return False
        log = next(iter(world.asked))
        world.asked, rest = {log: None}, {k: v for k, v in world.asked.items() if k is not log}
        world.flush()
        world.asked = {**rest, **world.asked}
        return True

    return step


def test_i12_a_crash_after_every_step_leaves_a_mirror_or_an_ordinary_topic() -> None:
    """Power cuts and kills after each flush of a log; then the promotion is repeated."""
    ended = set()
    for keep_page_cache in (True, False):
        for crash_after in range(12):
            for seed in range(3):
                world = MirrorWorld()
                world.mirror_topic(partitions=2)
                sources = [mirrored(world, index) for index in range(2)]
                outcome = world.node.promotions.promote("t")
                step = steps(world)
                for _ in range(crash_after):
                    step()
                done = outcome.done
                rng = None if keep_page_cache else random.Random(seed)
                world.crash(keep_page_cache=keep_page_cache, rng=rng)
                still = world.node.metadata.is_mirror("t")
                ended.add((done, still))
                assert not (done and still), "answered, and lost"
                assert world.promote().error is E.NONE
                for index, source in enumerate(sources):
                    assert_promoted(world, source, index)
                world.crash(keep_page_cache=False)
                for index, source in enumerate(sources):
                    assert_promoted(world, source, index)
                    assert_takes_our_producers(world, index)
    assert ended >= {(False, True), (True, False)}


def test_i12_a_promotion_is_recorded_after_its_markers_are_durable(world: MirrorWorld) -> None:
    source = mirrored(world)
    outcome = world.node.promotions.promote("t")
    step = steps(world)
    while not outcome.done:
        assert world.node.metadata.is_mirror("t"), "a record could be lost with the promotion"
        answer = world.send(b"", epoch=5)
        assert step()
        world.flush_all() if outcome.done else None
        if answer.done and not outcome.done:
            assert answer.result()[0].error_code == E.INVALID_REQUEST
    assert not world.node.metadata.is_mirror("t")
    assert_promoted(world, source)


def test_i12_a_second_promotion_waits_for_the_first(world: MirrorWorld) -> None:
    mirrored(world)
    first, second = world.node.promotions.promote("t"), world.node.promotions.promote("t")
    assert not first.done and not second.done
    world.flush_all()
    assert first.result() == second.result() == Promoted(aborted=2)


def test_i12_a_mirror_cannot_append_after_the_markers_of_a_promotion(world: MirrorWorld) -> None:
    """A crash during the promotion leaves markers that the source does not have."""
    source = mirrored(world)
    world.node.promotions.promote("t")
    steps(world)()
    world.crash()
    assert world.node.metadata.is_mirror("t")
    source.data(1)
    result = world.append(source.read(source.end - 1), end=source.end - 1, epoch=5)
    assert result.error_code == E.OFFSET_OUT_OF_RANGE
    assert world.promote().error is E.NONE


def test_i12_the_deletion_of_a_topic_ends_its_promotion(world: MirrorWorld) -> None:
    mirrored(world)
    for flushes in range(3):
        outcome = world.node.promotions.promote("t")
        step = steps(world)
        for _ in range(flushes):
            step()
        recorded = world.node.metadata.mirror_sources == {}
        world.delete("t")
        world.flush_all()
        assert (outcome.result().error is E.NONE) is recorded
        assert not world.node.metadata.promoting
        world.mirror_topic()
        mirrored(world)


def test_i12_a_partition_added_during_a_promotion_is_promoted_too(world: MirrorWorld) -> None:
    source = mirrored(world)
    outcome = world.node.promotions.promote("t")
    records = world.node.metadata.partition_records(
        world.node.metadata.topic_id("t"), {1: [world.node.node_id]}
    )
    world.node.metadata_log.commit(records)
    world.flush_all()
    assert outcome.result().error is E.NONE
    assert_promoted(world, source)
    assert world.node.metadata.leader_epoch_of("t", 1) == 1


def test_i12_an_offline_partition_fails_the_promotion(world: MirrorWorld) -> None:
    mirrored(world)
    outcome = world.node.promotions.promote("t")
    world.log_of().go_offline("its disk fails")
    assert outcome.result().error is E.KAFKA_STORAGE_ERROR
    assert not world.node.metadata.promoting and world.node.metadata.is_mirror("t")
    assert world.promote().error is E.KAFKA_STORAGE_ERROR


def test_the_producers_of_the_source_are_kept_until_the_promotion(world: MirrorWorld) -> None:
    mirrored(world)
    with pytest.raises(ValueError, match="open transactions"):
        world.log_of().forget_producers(0)
    with pytest.raises(AppendRejected):
        append(world.log_of(), make_batch(1, producer_id=3), leader_epoch=6)


def test_the_markers_of_a_promotion_are_aborts(world: MirrorWorld) -> None:
    mirrored(world)
    events: list[MirrorEvent] = []
    world.node.promotions._observer = lambda decision: events.append(decision.event)
    world.promote()
    assert events == [MirrorEvent.PROMOTED]
    last = records(world.stored())[-1]
    marker = decode_marker(last.key, last.value)
    assert marker is not None and marker.kind is ControlType.ABORT
