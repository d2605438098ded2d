"""Appends to mirror topics (rules I-01 to I-10), on a node over files in memory."""

from __future__ import annotations

import errno
import random
import struct

import pytest

from held_thread import HeldThread
from logs import NOW_MS, make_batch
from mirror_world import SOURCE, MirrorWorld, SourceLog, base_offsets, same_state
from odradek_broker.config.types import BrokerConfigError
from odradek_broker.explain.sentences import EventKind
from odradek_broker.metadata.config_changes import (
    ResourceChanges,
    SettingChange,
    alter_configs,
)
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.storage.validation import AT_ONCE_BYTES
from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import Codec
from odradek_protocol.constants import RESOURCE_TOPIC
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.layout import CRC_START, HEADER_BYTES
from odradek_protocol.schemas.append_mirror_records import MirroredPartitionResult
from odradek_protocol.schemas.incremental_alter_configs import ConfigOperation
from odradek_testkit.simulation.disk import DiskFailure

E = ErrorCode


@pytest.fixture
def world() -> MirrorWorld:
    made = MirrorWorld()
    made.mirror_topic()
    return made


@pytest.fixture
def source() -> SourceLog:
    return SourceLog()


def batch(base_offset: int = 0, count: int = 1, **build: object) -> bytes:
    return bytes(make_batch(count, base_offset=base_offset, **build))  # type: ignore[arg-type]


#: The header fields of a batch: position in bytes, and struct format.
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def forged(content: bytes, **fields: int) -> bytes:
    """The batch with changed header fields, and a matching checksum unless `crc` is given."""
    changed = bytearray(content)
    for name, value in fields.items():
        at, form = FIELDS[name]
        struct.pack_into(form, changed, at, value)
    if "crc" not in fields:
        struct.pack_into(">I", changed, FIELDS["crc"][0], crc32c(memoryview(changed)[CRC_START:]))
    return bytes(changed)


# --- The topic ---


def test_i01_the_mirror_source_can_be_set_at_the_creation_only(world: MirrorWorld) -> None:
    metadata = world.node.metadata
    assert metadata.topic_overrides("t")["mirror.source"] == SOURCE
    other = "kafka:BBBBBBBBBBBBBBBBBBBBBB"
    changes = {
        "another": ([SettingChange("mirror.source", ConfigOperation.SET, other)], False),
        "none": ([SettingChange("mirror.source", ConfigOperation.DELETE, None)], False),
        "empty": ([SettingChange("mirror.source", ConfigOperation.SET, "")], False),
        "left out": ([SettingChange("retention.ms", ConfigOperation.SET, "5")], True),
    }
    for name, (wanted, replaces) in changes.items():
        asked = ResourceChanges(RESOURCE_TOPIC, "t", wanted, replaces)
        records, (result,) = alter_configs(metadata, [asked])
        assert (records, result.error) == ([], E.INVALID_CONFIG), name
        assert "odradek mirror promote" in (result.message or "")
    more = ResourceChanges(
        RESOURCE_TOPIC, "t", [SettingChange("retention.ms", ConfigOperation.SET, "5")]
    )
    records, (result,) = alter_configs(metadata, [more])
    assert len(records) == 1 and result.error is E.NONE


def test_i01_an_ordinary_topic_does_not_become_a_mirror(world: MirrorWorld) -> None:
    world.create("plain")
    asked = ResourceChanges(
        RESOURCE_TOPIC, "plain", [SettingChange("mirror.source", ConfigOperation.SET, SOURCE)]
    )
    records, (result,) = alter_configs(world.node.metadata, [asked])
    assert (records, result.error) == ([], E.INVALID_CONFIG)


@pytest.mark.parametrize(
    "source", ["kafka", "kafka:short", ":AAAAAAAAAAAAAAAAAAAAAA", "a b:" + "A" * 22]
)
def test_i01_an_invalid_mirror_source_is_refused(world: MirrorWorld, source: str) -> None:
    wanted = RequestedTopic("u", 1, configs={"mirror.source": source})
    _, (result,) = create_topics(world.node.metadata, [wanted])
    assert result.error is E.INVALID_CONFIG and "CLUSTER_ID:TOPIC_ID" in (result.message or "")
    with pytest.raises(BrokerConfigError):
        world.node.metadata.topic_configs.validate({"mirror.source": source})


def test_i01_a_restart_keeps_the_mirror_source(world: MirrorWorld) -> None:
    world.crash(keep_page_cache=False)
    assert world.node.metadata.mirror_sources == {"t": SOURCE}
    assert world.node.metadata.is_mirror("t")


def test_i01_a_recreated_topic_is_no_mirror(world: MirrorWorld) -> None:
    world.append(batch(), high_watermark=1)
    topic_id = world.node.metadata.topic_id("t")
    world.delete("t")
    world.flush_all()
    world.create("t")
    world.flush_all()
    assert not world.node.metadata.is_mirror("t")
    assert world.node.mirrors.source_of("t", 0) is None
    result = world.append(batch(), topic_id=topic_id)
    assert result.error_code == E.INCONSISTENT_TOPIC_ID and result.log_end_offset == -1


OTHER = "kafka:BBBBBBBBBBBBBBBBBBBBBB"


def test_i14_a_request_names_the_id_and_the_source_of_the_topic(world: MirrorWorld) -> None:
    world.append(batch())
    for records in (batch(1), None):
        for named, error in (
            ({"topic_id": bytes(16)}, E.INCONSISTENT_TOPIC_ID),
            ({"topic_id": bytes(range(16))}, E.INCONSISTENT_TOPIC_ID),
            ({"source": OTHER}, E.INVALID_REQUEST),
        ):
            result = world.append(records, start=1, **named)
            assert (result.error_code, result.log_end_offset) == (error, -1)
    assert OTHER in (result.error_message or "") and SOURCE in (result.error_message or "")
    assert (world.stored(), world.log_of().log_start_offset) == (batch(), 0)
    assert world.node.mirrors.source_of("t", 0).log_start_offset == 0  # type: ignore[union-attr]


def test_i14_a_late_append_moves_no_log_start_of_a_topic_that_was_created_again(
    world: MirrorWorld,
) -> None:
    world.append(batch(0, 3))
    late = world.send(batch(3, 3), start=2)
    world.delete("t")
    world.mirror_topic(mirror_source=OTHER)
    world.append(batch(0, 6), source=OTHER)
    (result,) = late.result()
    assert result.log_end_offset == -1
    assert world.log_of().log_start_offset == 0


# --- Batches ---


@pytest.mark.parametrize("codec", list(Codec))
def test_i03_mirrored_batches_are_stored_unchanged(
    world: MirrorWorld, source: SourceLog, codec: Codec
) -> None:
    source.data(3, codec)
    source.data(1, codec, producer_id=7)
    source.skip(5)
    source.data(2, codec, log_append_time_ms=NOW_MS + 5)
    world.follow(source)
    same_state(world, source)


def test_i03_a_batch_without_records_is_accepted(world: MirrorWorld) -> None:
    content = batch(0, 1, producer_id=5)
    empty = forged(
        content[:HEADER_BYTES],
        length=HEADER_BYTES - 12,
        record_count=0,
        last_offset_delta=9,
    )
    assert world.append(empty).log_end_offset == 10
    assert world.stored() == empty


def test_i03_the_settings_of_the_topic_do_not_limit_mirrored_batches() -> None:
    world = MirrorWorld()
    world.mirror_topic(
        max_message_bytes="100",
        segment_bytes="1048576",
        message_timestamp_type="LogAppendTime",
        cleanup_policy="compact",
        compression_type="zstd",
        message_timestamp_before_max_ms="1",
    )
    content = batch(0, 2, key=None, value=b"x" * 2_000_000, timestamp=5)
    assert world.append(content).error_code == E.NONE
    assert world.stored() == content


LIES: dict[str, dict[str, int]] = {
    "a wrong checksum": {"crc": 1},
    "an old format": {"magic": 1},
    "a format that does not exist": {"magic": 3},
    "too short": {"length": 10},
    "a negative length": {"length": -1},
    "longer than it is": {"length": 2_000},
    "a codec that does not exist": {"attributes": 7},
    "compressed, but it is not": {"attributes": 1},
    "a negative last offset": {"last_offset_delta": -1},
    "more offsets than records reach": {"last_offset_delta": 0},
    "fewer records than there are": {"record_count": 1},
    "more records than offsets": {"record_count": 3},
    "no records, with bytes of some": {"record_count": 0},
    "a negative number of records": {"record_count": -5},
    "a producer id below -1": {"producer_id": -2},
    "a producer id beyond all": {"producer_id": 2**63 - 1},
    "a negative epoch of a producer": {"producer_id": 5, "producer_epoch": -1},
    "a sequence below -1": {"base_sequence": -2},
    "transactional, without a producer": {"attributes": 16},
    "a marker that is none": {"attributes": 32 | 16, "producer_id": 5, "producer_epoch": 0},
    "a newer leader epoch than the source's": {"leader_epoch": 8},
    "a negative offset": {"base_offset": -1},
    "an offset beyond all": {"base_offset": 2**63 - 1},
}


@pytest.mark.parametrize("lie", LIES)
def test_i03_a_batch_with_a_false_header_is_refused_and_earlier_ones_stay(
    world: MirrorWorld, lie: str
) -> None:
    sound = batch(0, 3)
    liar = forged(batch(3, 2), **LIES[lie])
    before = world.node.metadata.producer_ids_end
    result = world.append(sound + liar + batch(5), epoch=4)
    assert result.error_code in (
        E.INVALID_RECORD,
        E.CORRUPT_MESSAGE,
        E.UNKNOWN_SERVER_ERROR,
    ), result
    assert result.error_message and result.log_end_offset == 3
    assert world.stored() == sound
    if LIES[lie].get("producer_id") == 2**63 - 1:
        assert world.node.metadata.producer_ids_end == before
    world.crash(keep_page_cache=False)
    assert world.stored() == sound
    assert world.append(batch(3)).error_code == E.NONE


def test_i03_random_bytes_never_damage_the_log(world: MirrorWorld) -> None:
    chance = random.Random(5)
    content = batch(0, 3)
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        if bytes(changed) != content:
            result = world.append(bytes(changed), end=world.log_of().log_end_offset)
            assert isinstance(result, MirroredPartitionResult)
    assert not world.log_of().offline
    world.crash(keep_page_cache=False)
    assert not world.log_of().offline


def test_i04_an_append_with_another_expected_end_is_refused(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.data(5)
    content = source.read()
    assert world.append(content, end=0).log_end_offset == 5
    for end in (0, 4, 6, -1):
        result = world.append(content, end=end)
        assert (result.error_code, result.log_end_offset) == (E.OFFSET_OUT_OF_RANGE, 5), end
        assert "ends at 5" in (result.error_message or "")
    assert world.stored() == content


def test_i04_an_append_of_a_second_mirror_at_the_same_offset_is_refused(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.data(2)
    first, second = world.send(source.read(), end=0), world.send(source.read(), end=0)
    world.flush_all()
    assert first.result()[0].error_code == E.NONE
    assert second.result()[0].error_code == E.OFFSET_OUT_OF_RANGE
    assert world.stored() == source.read()


def test_i04_batches_without_rising_base_offsets_are_refused(world: MirrorWorld) -> None:
    for bad in (batch(3, 2) + batch(4), batch(3) + batch(3), batch(3) + batch(0)):
        begin = world.log_of().log_end_offset
        shifted = [batch(begin)] if begin else []
        result = world.append(b"".join(shifted) + bad)
        assert result.error_code == E.INVALID_RECORD
        if not begin:
            assert result.log_end_offset in (4, 5)


def test_i04_an_incomplete_last_batch_is_refused(world: MirrorWorld) -> None:
    result = world.append(batch(0) + batch(1)[:-1])
    assert (result.error_code, result.log_end_offset) == (E.CORRUPT_MESSAGE, 1)
    assert "incomplete" in (result.error_message or "")


def test_i04_batches_fetched_at_another_offset_than_the_log_end_are_refused(
    world: MirrorWorld, source: SourceLog
) -> None:
    """A mirror may have fetched the batches before an earlier append failed. To append them would
    leave a gap."""
    source.data(5)
    source.skip(4)
    source.data(2)
    first, behind = source.read(0)[: len(batch(0, 5))], source.read(9)
    assert base_offsets(first) == [0] and base_offsets(behind)[0] == 9
    world.append(first)
    for fetch_offset in (9, 6, 4, 0, -1):
        result = world.append(behind, end=5, fetch_offset=fetch_offset)
        assert (result.error_code, result.log_end_offset) == (E.OFFSET_OUT_OF_RANGE, 5)
        assert f"were fetched at offset {fetch_offset}" in (result.error_message or "")
    assert world.stored() == first
    # A fetch at offset 5 returned the batch at 9, because the source has no records in between.
    assert world.append(behind, fetch_offset=5).error_code == E.NONE
    same_state(world, source)


def test_i04_a_gap_of_records_deleted_at_the_source_is_accepted(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.data(5)
    world.append(source.read())
    late = SourceLog(30)
    late.data(2)
    result = world.append(late.read(), start=30, fetch_offset=31)
    assert result.error_code == E.OFFSET_OUT_OF_RANGE
    assert world.append(late.read(), start=30, fetch_offset=30).error_code == E.NONE
    same_state(world, late)


@pytest.mark.full
def test_i04_a_request_that_decompresses_to_too_much_is_taken_in_part(
    world: MirrorWorld,
) -> None:
    zeros = b"x" * 40_000_000
    batches = [batch(offset, codec=Codec.GZIP, value=zeros) for offset in range(4)]
    assert sum(map(len, batches)) < 1_000_000
    result = world.append(b"".join(batches))
    assert (result.error_code, result.log_end_offset) == (E.NONE, 3)
    assert world.append(batches[3]).log_end_offset == 4
    assert world.stored() == b"".join(batches)


def test_i04_a_batch_that_decompresses_to_too_much_is_refused(
    world: MirrorWorld,
) -> None:
    larger = batch(0, 4, codec=Codec.GZIP, value=b"x" * 40_000_000)
    result = world.append(larger)
    assert (result.error_code, result.log_end_offset) == (E.MESSAGE_TOO_LARGE, 0)
    assert "record.validation=header" in (result.error_message or "")


# --- Transactions, producers ---


def test_i05_a_mirror_has_the_transactions_of_the_source(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.data(2, producer_id=1, transactional=True)
    source.data(3, producer_id=2, transactional=True)
    source.data(1)
    world.follow(source)
    same_state(world, source)
    assert world.log_of().last_stable_offset == 0
    source.marker(False, 2)
    world.follow(source)
    same_state(world, source)
    source.marker(True, 1)
    source.data(2, producer_id=2, sequence=3, transactional=True)
    world.follow(source)
    same_state(world, source)
    for keep in (True, False):
        world.crash(keep_page_cache=keep)
        same_state(world, source)


def test_i05_sequences_of_mirrored_batches_are_not_checked(world: MirrorWorld) -> None:
    """At the source, compaction or retention may have removed batches of a producer."""
    content = batch(0, producer_id=3, epoch=4, sequence=9) + batch(
        1, producer_id=3, epoch=4, sequence=2
    )
    assert world.append(content).error_code == E.NONE
    assert world.stored() == content


def test_i06_no_mirrored_producer_id_is_assigned_to_a_producer(world: MirrorWorld) -> None:
    first = world.node.producer_ids.next()
    world.flush_all()
    assert first.result() == 0
    world.append(batch(0, producer_id=17))
    assert world.node.producer_ids.next().result() == 18
    answer = world.send(batch(1, producer_id=123_456))
    assert not answer.done
    world.flush_all()
    assert answer.result()[0].error_code == E.NONE
    given = world.node.producer_ids.next()
    world.flush_all()
    assert (given.result() or 0) > 123_456
    world.crash(keep_page_cache=False)
    again = world.node.producer_ids.next()
    world.flush_all()
    assert (again.result() or 0) > 123_456


def test_i06_a_producer_id_block_being_recorded_skips_mirrored_ids(world: MirrorWorld) -> None:
    given = world.node.producer_ids.next()
    answer = world.send(batch(0, producer_id=400))
    world.flush_all()
    assert answer.result()[0].error_code == E.NONE
    assert (given.result() or 0) > 400


@pytest.mark.parametrize("ids", [(5_000, 5_001), (7_000, 5_000), (5_000, 7_000)])
def test_i06_i07_producer_ids_and_epochs_of_a_request_never_decrease(
    world: MirrorWorld, ids: tuple[int, int]
) -> None:
    """The request has new producer ids for two partitions, and names one of the partitions again
    with a lower epoch."""
    world.mirror_topic("u", 2)
    request = [
        world.wanted(batch(0, producer_id=producer_id), topic="u", index=index, epoch=9)
        for index, producer_id in enumerate(ids)
    ]
    lower = world.wanted(None, topic="u", index=0, end=1, epoch=4)
    answer = world.node.mirrors.append([*request, lower])
    world.flush_all()
    assert [each.error_code for each in answer.result()[:2]] == [E.NONE, E.NONE]
    world.crash(keep_page_cache=False)
    assert world.node.metadata.leader_epoch_of("u", 0) == 9
    given = world.node.producer_ids.next()
    world.flush_all()
    assert (given.result() or 0) > max(ids)


def test_i07_the_epoch_of_a_partition_named_often_is_raised_once(world: MirrorWorld) -> None:
    """A request names a partition 5,000 times, and the epoch of the partition is raised to the
    highest of the request. The request also names topics and partitions that do not exist."""
    epochs = random.Random(1).sample(range(1, 50_000), 5_000)
    request = [
        world.wanted(batch(0, leader_epoch=-1, producer_id=epoch), epoch=epoch) for epoch in epochs
    ]
    request += [each._replace(topic="nowhere") for each in request]
    nowhere = world.wanted(None, end=0, epoch=60_000)
    nowhere.part.partition_index = 77
    answer = world.node.mirrors.append([nowhere, *request])
    world.flush_all()
    codes = [each.error_code for each in answer.result()]
    assert (len(codes), codes.count(E.NONE), codes[1]) == (10_001, 1, E.NONE)
    events = world.node.mirror_history.about("t").events
    raised = [each for each in events if each.kind is EventKind.MIRROR_EPOCH_RAISED]
    assert [each.fields["epoch"] for each in raised] == [max(epochs)]
    world.crash(keep_page_cache=False)
    assert world.node.metadata.leader_epoch_of("t", 0) == max(epochs)
    assert world.node.metadata.producer_ids_end > max(epochs)


def test_i07_a_leader_epoch_that_was_not_recorded_is_not_in_the_history(world: MirrorWorld) -> None:
    world.files.fail(DiskFailure("append", code=errno.ENOSPC, for_ever=True))
    for _ in range(3):
        assert world.send(batch(0), epoch=7).result()[0].error_code == E.KAFKA_STORAGE_ERROR
    assert not world.node.mirror_history.about("t").events
    world.files.heal()
    assert world.append(batch(0), epoch=7).error_code == E.NONE
    kinds = [each.kind for each in world.node.mirror_history.about("t").events]
    assert kinds.count(EventKind.MIRROR_EPOCH_RAISED) == 1


def test_i06_a_damaged_batch_reserves_no_producer_ids(world: MirrorWorld) -> None:
    before = world.node.metadata.producer_ids_end
    world.append(forged(batch(0, producer_id=10**9), crc=5))
    assert world.node.metadata.producer_ids_end == before


# --- Epochs ---


def test_i07_the_leader_epoch_is_durable_before_the_batch_can_be_read(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.leader_epoch = 6
    source.data(2)
    answer = world.send(source.read(), epoch=7)
    assert world.node.metadata.leader_epoch_of("t", 0) == 7
    assert world.log_of().log_end_offset == 0, "appended before the epoch is durable"
    world.flush_all()
    (result,) = answer.result()
    assert (result.error_code, result.last_leader_epoch) == (E.NONE, 6)
    world.crash(keep_page_cache=False)
    assert world.node.metadata.leader_epoch_of("t", 0) == 7
    partition = world.node.partition("t", 0)
    assert partition is not None and partition.leader_epoch == 7
    assert partition.log.leader_epochs.entries == [(6, 0)]


def test_i07_the_leader_epoch_of_a_mirror_does_not_decrease(world: MirrorWorld) -> None:
    assert world.append(batch(0, leader_epoch=5), epoch=5).error_code == E.NONE
    result = world.append(batch(1, leader_epoch=4), epoch=5)
    assert result.error_code == E.INVALID_RECORD and "older" in (result.error_message or "")
    assert world.append(None, epoch=3).error_code == E.NONE
    assert world.node.metadata.leader_epoch_of("t", 0) == 5
    assert world.append(None, epoch=2**31 - 1).error_code == E.INVALID_REQUEST


# --- Log start ---


def test_i08_an_empty_mirror_log_begins_at_the_sources_log_start(world: MirrorWorld) -> None:
    source = SourceLog(1_000)
    source.data(2)
    world.follow(source)
    same_state(world, source)
    for keep in (True, False):
        world.crash(keep_page_cache=keep)
        same_state(world, source)


def test_i08_an_empty_mirror_log_begins_at_the_start_of_an_empty_source(world: MirrorWorld) -> None:
    source = SourceLog(77)
    world.follow(source)
    assert (world.log_of().log_start_offset, world.log_of().log_end_offset) == (77, 77)
    source.data(1)
    world.follow(source)
    same_state(world, source)


def test_i08_i09_the_new_log_start_is_durable_with_the_answer(world: MirrorWorld) -> None:
    assert world.append(None, start=77, high_watermark=77).log_end_offset == 77
    world.asked.clear()
    world.crash(keep_page_cache=False)
    assert (world.log_of().log_start_offset, world.log_of().log_end_offset) == (77, 77)
    late = world.send(None, start=99, high_watermark=99)
    assert late.done
    world.crash(keep_page_cache=False)
    assert (world.log_of().log_start_offset, world.log_of().log_end_offset) == (99, 99)


def test_i08_the_first_batch_may_begin_before_the_log_start(world: MirrorWorld) -> None:
    source = SourceLog(100)
    source.data(10)
    source.log.trimming.delete_records(104)
    world.follow(source)
    assert base_offsets(world.stored()) == [100]
    same_state(world, source)
    world.crash(keep_page_cache=False)
    same_state(world, source)


@pytest.mark.parametrize("start", [0, 40])
def test_i08_a_gap_at_the_log_start_stays_part_of_the_log(world: MirrorWorld, start: int) -> None:
    """If the log began after the gap, a committed offset in the gap would be out of range."""
    source = SourceLog(start)
    source.leader_epoch = 3
    source.skip(20)
    world.follow(source)
    same_state(world, source)
    for keep in (True, False):
        world.crash(keep_page_cache=keep)
        assert world.log_of().log_start_offset == start
        same_state(world, source)


def test_i08_the_log_start_of_a_partition_named_twice_does_not_decrease(
    world: MirrorWorld,
) -> None:
    assert world.append(batch(0, 2) + batch(2, 2)).error_code == E.NONE
    answer = world.node.mirrors.append([world.wanted(None, start=start) for start in (3, 2)])
    world.flush_all()
    assert [each.log_start_offset for each in answer.result()] == [3, 3]
    world.crash(keep_page_cache=False)
    assert world.log_of().log_start_offset == 3


def test_i08_an_append_without_records_sets_no_log_start_if_records_follow(
    world: MirrorWorld,
) -> None:
    source = SourceLog(100)
    source.data(10)
    source.log.trimming.delete_records(104)
    result = world.append(None, start=104, high_watermark=110)
    assert (result.error_code, result.log_end_offset) == (E.NONE, 0)
    world.follow(source)
    same_state(world, source)


def test_i08_the_log_start_of_a_mirror_follows_the_source(
    world: MirrorWorld, source: SourceLog
) -> None:
    for _ in range(4):
        source.data(5)
    world.follow(source)
    source.log.trimming.delete_records(7)
    world.follow(source)
    same_state(world, source)
    world.crash(keep_page_cache=False)
    assert world.log_of().log_start_offset == 7


def test_i08_the_log_start_of_a_compacted_mirror_follows_the_source() -> None:
    world, source = MirrorWorld(), SourceLog()
    world.mirror_topic(cleanup_policy="compact")
    source.data(5)
    world.follow(source)
    source.log.trimming.delete_records(3)
    world.follow(source)
    assert world.log_of().log_start_offset == 3


def test_i08_a_mirror_that_ends_before_the_sources_log_start_begins_there(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.data(3, producer_id=1, transactional=True)
    world.follow(source)
    source.marker(True, 1)
    source.data(50)
    source.log.trimming.delete_records(30)
    late = SourceLog(30)
    late.data(4)
    world.append(None, start=30, high_watermark=30)
    assert (world.log_of().log_start_offset, world.log_of().log_end_offset) == (30, 30)
    assert world.log_of().last_stable_offset == 30, "a transaction without an end"
    world.follow(late)
    same_state(world, late)
    for keep in (True, False):
        world.crash(keep_page_cache=keep)
        same_state(world, late)


def test_i08_invalid_batches_with_a_later_log_start_delete_no_records(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.data(3)
    world.follow(source)
    assert world.append(b"x" * 100, start=30).error_code == E.CORRUPT_MESSAGE
    assert world.stored() == source.read()


# --- Durability, gaps ---


def test_i09_an_append_is_answered_when_its_batches_are_durable(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.data(2)
    answer = world.send(source.read())
    assert not answer.done and world.log_of().high_watermark == 0
    world.flush_all()
    (result,) = answer.result()
    assert (result.log_start_offset, result.log_end_offset, result.last_leader_epoch) == (0, 2, 0)


def test_i09_an_append_without_records_waits_for_earlier_appends(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.data(2)
    world.send(source.read())
    answer = world.send(None, end=-1)
    world.flush_all()
    assert answer.result()[0].log_end_offset == 2


def test_i09_an_offline_log_is_answered_without_its_end_offset(
    world: MirrorWorld, source: SourceLog
) -> None:
    source.data(2)
    world.follow(source)
    world.node.close()
    world.logs.close()
    world.start()
    log = world.log_of()
    assert not log.loaded
    log.offline = True
    (result,) = world.send(None, end=-1).result()
    assert result.error_code == E.KAFKA_STORAGE_ERROR
    assert (result.log_start_offset, result.log_end_offset) == (-1, -1)


def test_i09_a_mirror_continues_after_a_power_cut_before_the_answer(
    world: MirrorWorld, source: SourceLog
) -> None:
    """The mirror requests the log end offset of the partition, and continues at that offset."""
    for seed in range(20):
        source.data(2, producer_id=3, sequence=2 * seed, transactional=True)
        world.send(source.read(world.log_of().log_end_offset))
        world.crash(keep_page_cache=False, rng=random.Random(seed))
        end = world.append(None, end=-1).log_end_offset
        assert end in (source.end, source.end - 2)
        world.follow(source)
        same_state(world, source)


def test_i10_batches_after_a_gap_survive_a_power_cut() -> None:
    """The journal restores only contiguous batches, and the segment before a gap looks as if it had
    lost its end."""
    world, source = MirrorWorld(), SourceLog()
    world.mirror_topic(segment_bytes="1048576")
    source.data(3)
    for number in range(6):
        source.skip(10 + number)
        source.data(1, value=b"v" * 300_000)
    content = source.read()
    for position, header in iter_batches(content):
        world.append(content[position : position + header.size_bytes])
    assert len(world.log_of().segments) > 1
    same_state(world, source)
    world.crash(keep_page_cache=False)
    same_state(world, source)


def test_i10_a_gap_too_large_for_a_segment_is_refused(world: MirrorWorld) -> None:
    far = 2**33
    assert world.append(batch(far)).log_end_offset == far + 1
    assert world.log_of().log_start_offset == far
    result = world.append(batch(2 * far))
    assert result.error_code == E.INVALID_RECORD
    world.crash(keep_page_cache=False)
    assert base_offsets(world.stored()) == [far]


def test_partitions_of_a_mirror_topic_fail_independently() -> None:
    world = MirrorWorld()
    world.mirror_topic(partitions=2)
    first = world.send(batch(0), index=0)
    second = world.send(b"", index=1, end=9)
    third = world.node.mirrors.append([])
    world.flush_all()
    assert first.result()[0].error_code == E.NONE
    assert second.result()[0].error_code == E.OFFSET_OUT_OF_RANGE
    assert third.result() == []


# --- Large batches ---


@pytest.fixture
def held() -> tuple[MirrorWorld, HeldThread]:
    """A mirror topic in a broker with a thread that the test runs."""
    thread = HeldThread()

    class World(MirrorWorld):
        beside = thread

    world = World()
    world.mirror_topic()
    return world, thread


def test_n57_batches_that_inflate_to_much_are_checked_in_the_thread(
    held: tuple[MirrorWorld, HeldThread],
) -> None:
    """Another mirror appends meanwhile: then nothing of the request is appended."""
    world, thread = held
    large = batch(1, value=bytes(AT_ONCE_BYTES + 1), codec=Codec.ZSTD)
    asked = world.send(batch() + large, end=0)
    world.soon.run()
    assert not asked.done
    assert (len(thread.works), world.log_of().log_end_offset) == (1, 0)
    thread.run()
    world.flush_all()
    assert asked.result()[0].error_code == E.NONE
    assert world.log_of().log_end_offset == 2
    overtaken = world.send(batch(2, value=bytes(AT_ONCE_BYTES + 1), codec=Codec.ZSTD), end=2)
    world.soon.run()
    assert world.append(batch(2), end=2).error_code == E.NONE
    thread.run()
    world.flush_all()
    assert overtaken.result()[0].error_code == E.OFFSET_OUT_OF_RANGE
    assert world.log_of().log_end_offset == 3


def test_n57_nothing_is_appended_to_a_topic_that_was_made_again_meanwhile(
    held: tuple[MirrorWorld, HeldThread],
) -> None:
    world, thread = held
    asked = world.send(batch(0, value=bytes(AT_ONCE_BYTES + 1), codec=Codec.GZIP), end=0)
    world.soon.run()
    world.delete("t")
    world.flush_all()
    world.mirror_topic()
    thread.run()
    world.flush_all()
    assert asked.result()[0].error_code == E.INCONSISTENT_TOPIC_ID
    assert world.log_of().log_end_offset == 0
