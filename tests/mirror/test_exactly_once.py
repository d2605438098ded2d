"""The exactly-once mirror between two brokers of Odradek: the copied records, and the errors that
stop it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

import budget
from mirrored import CODECS, DEADLINE_S, Planned, fill, killed, make_topic, mirror, read_all
from odradek import Admin, Producer
from odradek.broker import SubprocessBroker
from odradek_client.errors import ConnectionLost
from odradek_client.structs import TopicPartition
from odradek_mirror.exactly_once import CrashPoint
from odradek_mirror.map_topic import MapTopicUnfit, map_topic, read_map
from odradek_mirror.offset_map import MapDamaged
from odradek_mirror.ownership import MirrorFenced
from odradek_mirror.source import SourceRecordsDeleted
from odradek_mirror.start_state import MirrorRefused
from odradek_mirror.transactional_writer import TransactionalWriter

SETTINGS = {"log.durability": "page-cache"}


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    with SubprocessBroker(settings=SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def broker() -> Iterator[SubprocessBroker]:
    with SubprocessBroker(settings=SETTINGS, testing=True) as running:
        yield running


@pytest.fixture
def target(broker: SubprocessBroker) -> Iterator[str]:
    yield broker.bootstrap
    broker.faults.clear()


async def test_i30_i31_every_record_arrives_once_and_every_offset_is_translated(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic)
    async with mirror(source, target, unique_topic) as made:
        ran = await made.drain()
        await made.check()
        assert ran.untouched_batches > 0
        for tp, next_offset in made.counts.positions.items():
            assert ran.translate(tp, next_offset) == ran.maps[tp].position.target_end
            assert ran.translate(tp, next_offset + 1) is None
        copied = made.counts.records
        await made.drain()
        assert made.counts.records == 0, "nothing is new"
        await fill(source, unique_topic, first=1000, count=50)
        await made.drain()
        assert 0 < made.counts.records < copied
        await made.check()


async def test_prefix_and_offset_header_are_applied_to_the_copy(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, 1)
    await fill(source, unique_topic, 1, 50)
    options = {"prefix": "copy-of-", "offset_header": "from"}
    async with mirror(source, target, unique_topic, **options) as made:
        await made.drain()
    (before,) = await read_all(source, unique_topic, 1)
    (after,) = await read_all(target, f"copy-of-{unique_topic}", 1)
    assert [row[4] for row in after] == [(*row[4], ("from", b"%d" % row[0])) for row in before]


async def test_log_append_times_of_the_source_become_record_timestamps(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, message_timestamp_type="LogAppendTime")
    await fill(source, unique_topic, count=50)
    async with mirror(source, target, unique_topic) as made:
        await made.drain()
        await made.check()


async def test_i32_batches_that_are_too_large_for_the_target_are_split(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, 1)
    await make_topic(target, unique_topic, 1, max_message_bytes="3000")
    for codec in CODECS:
        async with Producer(
            bootstrap_servers=source, compression_type=codec, linger_ms=50, batch_size=100_000
        ) as producer:
            for number in range(100):
                value = b"".join(b"%d" % (number * 7919 + at) for at in range(60))
                await producer.send(unique_topic, value, partition=0)
    async with mirror(source, target, unique_topic) as made:
        await made.drain()
        await made.check(1)
        async with Producer(bootstrap_servers=source) as producer:
            large = await producer.send_and_wait(unique_topic, bytes(range(256)) * 40, partition=0)
        await made.drain()
        (why,) = made.counts.failures.values()
        assert re.search(rf"at offset {large.offset} of .*max.message.bytes", why)


async def test_new_partitions_of_the_source_are_copied(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, 1)
    async with mirror(source, target, unique_topic) as made:
        copier = made.make()
        await copier.start()
        await copier.add(await made.planned())
        await made.source.create_partitions({unique_topic: 3})
        await fill(source, unique_topic, 3, 60)
        await copier.add(await made.planned())
        async with asyncio.timeout(30):
            while made.counts.records == 0 or any(
                made.counts.positions[tp] < end for tp, end in made.counts.ends.items()
            ):
                await copier.step(100)
        await copier.close()
        await made.check(3)


@pytest.mark.full
async def test_i30_a_new_partition_during_a_transaction_duplicates_no_record(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, 1)
    await fill(source, unique_topic, 1, 60)
    async with mirror(source, target, unique_topic) as made:
        made.settings = replace(made.settings, transaction_ms=600_000.0)
        copier = made.make()
        await copier.start()
        await copier.add(await made.planned())
        async with asyncio.timeout(30):
            while not copier.batches:
                await copier.step(100)
        await made.source.create_partitions({unique_topic: 2})
        await fill(source, unique_topic, 2, 40)
        await copier.add(await made.planned())
        async with asyncio.timeout(30):
            while len(made.counts.ends) < 2 or any(
                made.counts.positions[tp] < end for tp, end in made.counts.ends.items()
            ):
                await copier.step(100)
                await copier.flush()
        await copier.close()
        await made.check(2)


@pytest.mark.parametrize("step", budget.of_which(CrashPoint, [CrashPoint.WRITTEN]))
async def test_i30_a_killed_mirror_continues_without_loss_or_duplicates(
    source: str, target: str, unique_topic: str, step: CrashPoint
) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=100)
    assert await asyncio.to_thread(killed, source, target, unique_topic, step)
    async with mirror(source, target, unique_topic) as made:
        await made.drain()
        await made.check()


@pytest.mark.full
@pytest.mark.parametrize("api", ["Produce", "EndTxn", "InitProducerId", "FindCoordinator"])
async def test_i30_lost_answers_lose_and_duplicate_no_record(
    source: str, target: str, broker: SubprocessBroker, unique_topic: str, api: str
) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=100)
    broker.faults.cut(api, handled=True, skip=1, times=1)
    broker.faults.cut(api, times=1)
    async with mirror(source, target, unique_topic, transaction_bytes=20_000) as made:
        await made.drain()
        await made.check()


@pytest.mark.full
async def test_i33_a_transaction_that_the_target_aborts_is_repeated(
    source: str, target: str, broker: SubprocessBroker, unique_topic: str
) -> None:
    """An abort by the timeout fences the mirror's producer; the mirror continues."""
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=100)
    aborted: list[bool] = []

    def reached(step: CrashPoint) -> None:
        if step is CrashPoint.WRITTEN and not aborted:
            aborted.append(True)
            broker.faults.abort_transaction(map_topic(unique_topic))

    async with mirror(source, target, unique_topic) as made:
        await made.drain(reached)
        assert aborted
        await made.check()


@pytest.mark.parametrize("is_committed", budget.of_which([False, True], [True]))
async def test_i33_a_failed_start_of_an_instance_is_repeated(
    source: str,
    target: str,
    unique_topic: str,
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
) -> None:
    """The commit of the instance's name fails twice, before or after the broker has carried it
    out."""
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=10)
    commit, failing = TransactionalWriter.commit, [True, True]

    async def fail_twice(writer: TransactionalWriter) -> None:
        if failing and not is_committed:
            failing.pop()
            raise ConnectionLost("cut by the test")
        await commit(writer)
        if failing:
            failing.pop()
            raise ConnectionLost("cut by the test")

    async with mirror(source, target, unique_topic) as made:
        await made.drain()
        monkeypatch.setattr(TransactionalWriter, "commit", fail_twice)
        await made.drain()
        assert not failing
        await made.check()


async def test_i33_a_second_instance_ends_the_first(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=100)
    async with (
        mirror(source, target, unique_topic) as made,
        mirror(source, target, unique_topic) as other,
    ):
        first = made.make()
        await first.start()
        await first.add(await made.planned())
        await other.drain()
        await fill(source, unique_topic, count=20, first=500)
        with pytest.raises(MirrorFenced, match=r"another instance of the mirror .* has taken over"):
            async with asyncio.timeout(30):
                while True:
                    await first.step(100)
        await first.close()
        await other.drain()
        await other.check()


@pytest.mark.full
async def test_i35_records_deleted_before_copying_are_refused_or_skipped(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, 1)
    await fill(source, unique_topic, 1, 50)
    tp = TopicPartition(unique_topic, 0)
    async with mirror(source, target, unique_topic) as made:
        await made.source.delete_records({tp: 7})
        await made.drain()
        await made.check(1)
        await fill(source, unique_topic, 1, 50, first=100)
        end = made.counts.positions[tp]
        await made.source.delete_records({tp: end + 5})
        with pytest.raises(MirrorRefused, match="were deleted before they were copied"):
            await made.drain()
    async with mirror(source, target, unique_topic, skip_deleted=True) as made:
        ran = await made.drain()
        (before,) = await read_all(source, unique_topic, 1)
        (after,) = await read_all(target, unique_topic, 1)
        assert [row[1:] for row in after[-len(before) :]] == [row[1:] for row in before]
        assert ran.translate(tp, end) == after[-len(before)][0]


@pytest.mark.full
@pytest.mark.parametrize("side", ["source", "target"])
async def test_i34_a_topic_deleted_and_created_again_is_refused(
    source: str, target: str, unique_topic: str, side: str
) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=50)
    async with mirror(source, target, unique_topic) as made:
        await made.drain()
        admin = made.source if side == "source" else made.target
        await admin.delete_topics(unique_topic)
        await make_topic(source if side == "source" else target, unique_topic)
        with pytest.raises(MirrorRefused, match=f"was deleted at the {side} and created again"):
            await made.drain()


async def test_i34_a_copy_that_is_created_again_while_the_mirror_runs_is_left(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=5)
    async with mirror(source, target, unique_topic) as made:
        topics, copier = await made.planned(), made.make()
        try:
            await copier.start()
            await copier.add(topics)
            while not made.is_copied():
                await copier.step(100)
            await copier.add(topics)
            await made.target.delete_topics(unique_topic)
            await make_topic(target, unique_topic)
            with pytest.raises(MirrorRefused, match="was deleted at the target and created again"):
                await copier.add(topics)
            assert made.counts.failures.keys() == {TopicPartition(unique_topic, n) for n in (0, 1)}
            await copier.step(100)
        finally:
            await copier.close()
    assert await read_all(target, unique_topic, 2) == [[], []]


async def test_i34_a_target_topic_with_records_of_other_producers_is_refused(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic)
    await make_topic(target, unique_topic)
    async with mirror(source, target, unique_topic) as made:
        async with Producer(bootstrap_servers=target) as producer:
            await producer.send_and_wait(unique_topic, b"mine", partition=1)
        with pytest.raises(MirrorRefused, match="-1 of the target has records that this mirror"):
            await made.drain()


async def test_i34_fewer_partitions_at_the_target_are_refused(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, 3)
    async with mirror(source, target, unique_topic) as made:
        topics = await made.planned()
        await made.source.create_partitions({unique_topic: 4})
        copier = made.make()
        await copier.start()
        with pytest.raises(MirrorRefused, match="has 3 partitions, and the source has 4"):
            await copier.add(topics)
            await copier.add([type(topics[0])(unique_topic, 4)])
        await copier.close()


@pytest.mark.full
async def test_i34_a_map_topic_with_unfit_settings_is_refused(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic)
    name = map_topic(unique_topic)
    async with mirror(source, target, unique_topic) as made:
        await make_topic(target, name, 1, cleanup_policy="compact,delete")
        with pytest.raises(MapTopicUnfit, match=r"cleanup.policy=compact,delete.*set cleanup"):
            await made.drain()
        await made.target.delete_topics(name)
        await make_topic(target, name, 2, cleanup_policy="compact")
        with pytest.raises(MapTopicUnfit, match="has 2 partitions"):
            await made.drain()


@pytest.mark.full
@pytest.mark.parametrize("damage", ["foreign", "gap"])
async def test_i34_a_damaged_map_topic_is_refused(
    source: str, target: str, unique_topic: str, damage: str
) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=50)
    async with mirror(source, target, unique_topic) as made:
        await made.drain()
        async with Producer(bootstrap_servers=target) as producer:
            value = b'{"runs":[],"next":999,"target_end":-1,"source_topic_id":"%s","target_topic_id":"%s"}'
            ids = b"00000000-0000-0000-0000-000000000000"
            key = b'{"topic":"%s","partition":0,"from":998}' % unique_topic.encode()
            record = (value % (ids, ids), key) if damage == "gap" else (b"hello", b"world")
            await producer.send_and_wait(map_topic(unique_topic), *record)
        with pytest.raises(MapDamaged, match=r"damaged, or something else .* delete this topic"):
            await made.drain()


async def test_i34_a_copy_that_another_producer_has_written_to_is_refused(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=50)
    async with mirror(source, target, unique_topic) as made:
        await made.drain()
        await made.drain()
        async with Producer(bootstrap_servers=target) as producer:
            await producer.send_and_wait(unique_topic, b"of a program that has moved", partition=1)
        with pytest.raises(MirrorRefused, match="-1 of the target has records that this mirror"):
            await made.drain()


@pytest.mark.full
async def test_i34_copies_without_their_map_topic_are_refused(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=50)
    async with mirror(source, target, unique_topic) as made:
        await made.drain()
        await made.target.delete_topics(map_topic(unique_topic))
        with pytest.raises(MirrorRefused, match="has records that this mirror has not written"):
            await made.drain()


@pytest.mark.full
async def test_i36_positions_below_the_start_of_the_source_leave_the_map(
    source: str, target: str, unique_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek_mirror.offset_map.RUNS_PER_RECORD", 2)
    await make_topic(source, unique_topic, 1)
    tp = TopicPartition(unique_topic, 0)
    async with mirror(source, target, unique_topic) as made:
        for number in range(6):
            async with Producer(bootstrap_servers=source) as producer:
                await producer.send_and_wait(unique_topic, b"%d" % number, partition=0)
            await made.drain()
        assert (await read_map(made.target, unique_topic)).partitions[tp].start == 0
        await made.source.delete_records({tp: 5})
        await fill(source, unique_topic, 1, 20)
        await made.drain()
        assert (await read_map(made.target, unique_topic)).partitions[tp].start == 4


@pytest.mark.full
async def test_a_mirror_waits_for_a_target_that_restarts(source: str, unique_topic: str) -> None:
    await make_topic(source, unique_topic)
    await fill(source, unique_topic, count=100)
    with SubprocessBroker(settings=SETTINGS) as own:
        restarted: list[bool] = []

        def reached(step: CrashPoint) -> None:
            if step is CrashPoint.MAPPED and not restarted:
                restarted.append(True)
                own.kill()
                own.restart()

        async with mirror(source, own.bootstrap, unique_topic) as made:
            await made.drain(reached)
            assert restarted
            await made.check()


@pytest.mark.full
async def test_i30_uncommitted_copies_are_not_readable(
    source: str, target: str, unique_topic: str
) -> None:
    await make_topic(source, unique_topic, 1)
    await fill(source, unique_topic, 1, 50)
    assert await asyncio.to_thread(killed, source, target, unique_topic, CrashPoint.MAPPED)
    assert await read_all(target, unique_topic, 1) == [[]]
    async with Admin(bootstrap_servers=target) as admin:
        assert (await read_map(admin, unique_topic)).partitions == {}


@pytest.mark.full
@pytest.mark.parametrize(
    "loss",
    budget.of_which(
        ["topic deleted", "topic created again", "records deleted"], ["topic created again"]
    ),
)
async def test_a_mirror_with_a_failed_partition_waits_for_a_restarting_target(
    source: str, unique_topic: str, loss: str
) -> None:
    other = f"{unique_topic}-other"
    for topic in (unique_topic, other):
        await make_topic(source, topic, 1)
        await fill(source, topic, 1, 50)
    tp, other_tp = TopicPartition(unique_topic, 0), TopicPartition(other, 0)
    with SubprocessBroker(settings=SETTINGS) as own:
        await make_topic(own.bootstrap, other, 1)
        async with mirror(source, own.bootstrap, unique_topic) as made:
            copier, counts = made.make(), made.counts
            await copier.start()
            await copier.add([*await made.planned(), Planned(other, 1)])

            async def copy_until(is_enough: Callable[[], bool]) -> None:
                async with asyncio.timeout(DEADLINE_S):
                    while not is_enough():
                        await copier.step(100)

            await copy_until(lambda: counts.positions[tp] == counts.ends[tp] > 0)
            if loss == "records deleted":
                copier._reader.unassign(tp)
                await fill(source, unique_topic, 1, 50, first=100)
                await made.source.delete_records({tp: counts.ends[tp] + 5})
                at = counts.positions[tp]
                await copier._source_failed(SourceRecordsDeleted(tp, at, at + 5))
            else:
                await made.source.delete_topics(unique_topic)
                if loss == "topic created again":
                    await make_topic(source, unique_topic, 1)
            await copy_until(lambda: tp in counts.failures)
            own.kill()
            own.restart()
            await fill(source, other, 1, 50, first=100)
            before = counts.records
            await copy_until(
                lambda: (
                    counts.records > before and counts.positions[other_tp] == counts.ends[other_tp]
                )
            )
            await copier.close()
            assert len([line for line in made.told if "is not copied any more" in line]) == 1


@pytest.mark.full
async def test_i35_records_deleted_during_the_first_transaction_are_not_skipped(
    source: str, target: str, unique_topic: str
) -> None:
    """The mirror notices the deletion while its first transaction is open. The records of this
    transaction are before the deleted records, and must be copied."""
    await make_topic(source, unique_topic, 1)
    await fill(source, unique_topic, 1, 50)
    tp = TopicPartition(unique_topic, 0)
    async with mirror(source, target, unique_topic, transaction_ms=600_000.0) as made:
        copier = made.make()
        await copier.start()
        await copier.add(await made.planned())
        async with asyncio.timeout(DEADLINE_S):
            while not copier.batches:
                await copier.step(100)
        at = copier._reader.positions[tp]
        await copier._source_failed(SourceRecordsDeleted(tp, at, at + 5))
        await copier.close()
        assert "were deleted before they were read" in made.counts.failures[tp]
