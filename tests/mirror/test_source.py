"""The reader of the source: whole batches, and each kind of failure of a source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from odradek import Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic
from odradek_client.consumer.fetcher import PartitionRequest
from odradek_client.structs import TopicPartition
from odradek_mirror import source
from odradek_mirror.source import (
    FetchedPartition,
    SourceReader,
    SourceReadingEnded,
    SourceRecordsDeleted,
    SourceTopicDeleted,
    SourceTopicRecreated,
    SourceTruncated,
)
from odradek_protocol.records.batch import iter_batches, verify_crc
from odradek_protocol.records.record import read_columns
from odradek_protocol.schemas.fetch import PartitionData
from odradek_records.partition_fetch import FetchLimits
from waiting import DEADLINE_S


@asynccontextmanager
async def _reader(
    bootstrap: str, *, read_committed: bool = False, **options: object
) -> AsyncIterator[tuple[SourceReader, Admin]]:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        reader = SourceReader(admin, read_committed=read_committed, **options)  # type: ignore[arg-type]
        try:
            yield reader, admin
        finally:
            await reader.close()


async def _read(
    reader: SourceReader, done: Callable[[list[FetchedPartition]], bool]
) -> list[FetchedPartition]:
    """The results of polls, until `done` is true for them."""
    news: list[FetchedPartition] = []
    async with asyncio.timeout(DEADLINE_S):
        while not done(news):
            news += await reader.poll(100)
    return news


async def _error(reader: SourceReader) -> SourceReadingEnded:
    """Poll until a partition has an error; returns the error."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await reader.poll(100)
            except SourceReadingEnded as error:
                return error


async def _fill(bootstrap: str, topic: str, partitions: int, count: int, size: int = 10) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(NewTopic(topic, partitions=partitions))
    async with Producer(bootstrap_servers=bootstrap, linger_ms=0, batch_size=200) as producer:
        for number in range(count):
            for partition in range(partitions):
                value = b"%d" % number
                await producer.send(topic, value.ljust(size, b"."), partition=partition)


def _values(news: list[FetchedPartition], tp: TopicPartition) -> dict[int, bytes]:
    """Offset -> value; the checksums of the batches must match."""
    values: dict[int, bytes] = {}
    for piece in news:
        if piece.tp == tp:
            for at, header in iter_batches(piece.records):
                verify_crc(piece.records, at, header)
                columns = read_columns(piece.records, at, header)
                values |= dict(zip(columns.offsets, columns.values, strict=True))  # type: ignore[arg-type]
    return values


async def test_whole_batches_of_all_partitions_are_read_from_their_positions(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _fill(live_bootstrap, unique_topic, 3, 50)
    tps = [TopicPartition(unique_topic, number) for number in range(3)]
    async with _reader(live_bootstrap) as (reader, _):
        for tp in tps:
            reader.assign(tp, 7 * tp.partition)
        news = await _read(reader, lambda _: set(reader.positions.values()) == {50})
        for tp in tps:
            values = _values(news, tp)
            assert {int(value.rstrip(b".")): offset for offset, value in values.items()} == {
                offset: offset for offset in values
            }
            assert min(values) <= 7 * tp.partition
            assert max(values) == 49
        assert {piece.high_watermark for piece in news} == {50}
        assert {piece.log_start_offset for piece in news} == {0}
        for piece in news:
            first = next(header for _, header in iter_batches(piece.records))
            assert first.base_offset <= piece.fetch_offset < piece.next_offset
        # All records were read, and none twice.
        assert await reader.poll(0) == []


async def test_a_batch_larger_than_all_limits_is_read_whole(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _fill(live_bootstrap, unique_topic, 2, 3, size=5_000)
    tps = [TopicPartition(unique_topic, number) for number in range(2)]
    limits = FetchLimits(max_bytes=100, partition_bytes=100, wait_ms=10)
    async with _reader(live_bootstrap, limits=limits) as (reader, _):
        for tp in tps:
            reader.assign(tp, 0)
        news = await _read(reader, lambda _: set(reader.positions.values()) == {3})
        assert all(len(_values(news, tp)) == 3 for tp in tps)


async def test_only_read_committed_stops_at_open_transactions(
    live_bootstrap: str, unique_topic: str
) -> None:
    tp = TopicPartition(unique_topic, 0)
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
    async with Producer(
        bootstrap_servers=live_bootstrap, transactional_id=unique_topic
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(unique_topic, b"aborted", partition=0)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(unique_topic, b"open", partition=0)
        async with _reader(live_bootstrap, read_committed=True) as (reader, _):
            reader.assign(tp, 0)
            news = await _read(reader, lambda _: reader.positions[tp] == 2)
            assert [each.first_offset for piece in news for each in piece.aborted] == [0]
            assert {piece.last_stable_offset for piece in news} == {2}
        async with _reader(live_bootstrap) as (reader, _):
            reader.assign(tp, 0)
            news = await _read(reader, lambda _: reader.positions[tp] == 3)
            assert _values(news, tp)[2] == b"open"
            # The position moves past a marker, although a marker has no record to copy.
            await producer.commit_transaction()
            await _read(reader, lambda _: reader.positions[tp] == 4)


async def test_a_moved_log_start_is_reported_without_records(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _fill(live_bootstrap, unique_topic, 1, 10)
    tp = TopicPartition(unique_topic, 0)
    async with _reader(live_bootstrap) as (reader, admin):
        reader.assign(tp, 0)
        await _read(reader, lambda _: reader.positions[tp] == 10)
        await admin.delete_records({tp: 6})
        news = await _read(reader, lambda news: bool(news))
        assert [(len(piece.records), piece.log_start_offset) for piece in news] == [(0, 6)]


async def test_records_deleted_before_they_are_read_fail_only_their_partition(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _fill(live_bootstrap, unique_topic, 2, 10)
    gone, other = TopicPartition(unique_topic, 0), TopicPartition(unique_topic, 1)
    async with _reader(live_bootstrap) as (reader, admin):
        await admin.delete_records({gone: 6})
        reader.assign(gone, 2)
        error = await _error(reader)
        assert isinstance(error, SourceRecordsDeleted)
        assert (error.tp, error.offset, error.log_start_offset) == (gone, 2, 6)
        assert "offsets 2 to 5 were deleted before they were read" in str(error)
        reader.assign(other, 0)
        await _read(reader, lambda _: reader.positions[other] == 10)
        assert reader.positions[gone] == 2
        reader.seek(gone, 6)
        await _read(reader, lambda _: reader.positions[gone] == 10)


async def test_a_position_after_the_log_end_or_of_an_unknown_epoch_is_a_truncation(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _fill(live_bootstrap, unique_topic, 1, 10)
    tp = TopicPartition(unique_topic, 0)
    async with _reader(live_bootstrap) as (reader, _):
        reader.assign(tp, 12)
        error = await _error(reader)
        assert isinstance(error, SourceTruncated)
        assert error.divergent_offset == 10
        reader.seek(tp, 8, last_epoch=1000)
        error = await _error(reader)
        assert isinstance(error, SourceTruncated)
        assert error.divergent_offset is None


@pytest.mark.full
async def test_records_of_an_earlier_topic_are_not_taken_for_those_of_its_successor(
    live_bootstrap: str, unique_topic: str
) -> None:
    tp, earlier, later = TopicPartition(unique_topic, 0), bytes([1] * 16), bytes([2] * 16)
    async with _reader(live_bootstrap) as (reader, _):
        reader.assign(tp, 0, topic_id=later)
        for topic_id in (earlier, later):
            asked = PartitionRequest(0, 100, topic_id=topic_id)
            data = PartitionData(partition_index=0, high_watermark=5)
            reader._answers.append(({tp: asked}, source._Answer({tp: data}, {})))
            taken = reader._take()
            assert [each.topic_id for each in taken] == [later] * (topic_id == later)


async def test_a_deleted_topic_and_a_recreated_one_are_distinguished(
    live_bootstrap: str, unique_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MISSING_TOPIC_PATIENCE_MS", 200)
    await _fill(live_bootstrap, unique_topic, 1, 10)
    tp = TopicPartition(unique_topic, 0)
    async with _reader(live_bootstrap) as (reader, admin):
        reader.assign(tp, 0)
        await _read(reader, lambda _: reader.positions[tp] == 10)
        await admin.delete_topics(unique_topic)
        assert isinstance(await _error(reader), SourceTopicDeleted)
        await _fill(live_bootstrap, unique_topic, 1, 20)
        reader.seek(tp, 10)
        error = await _error(reader)
        assert isinstance(error, SourceTopicRecreated)
        reader.assign(tp, 0, topic_id=error.topic_id)
        await _read(reader, lambda _: reader.positions[tp] == 20)


@pytest.mark.full
async def test_an_outage_of_the_source_is_reported_until_it_ends(
    odradek_broker: SubprocessBroker,
) -> None:
    await _fill(odradek_broker.bootstrap, "orders", 1, 10)
    tp = TopicPartition("orders", 0)
    async with _reader(odradek_broker.bootstrap) as (reader, _):
        reader.assign(tp, 0)
        await _read(reader, lambda _: reader.positions[tp] == 10)
        await asyncio.to_thread(odradek_broker.kill)
        await _read(reader, lambda _: tp in reader.troubles())
        since_s = reader.troubles()[tp].since_s
        assert reader.troubles()[tp].error
        await asyncio.to_thread(odradek_broker.start)
        async with Producer(bootstrap_servers=odradek_broker.bootstrap) as producer:
            await producer.send_and_wait("orders", b"10", partition=0)
        await _read(reader, lambda _: reader.positions[tp] == 11)
        assert reader.troubles() == {}
        assert since_s > 0


class _Slow:
    """A rate limit that lets nothing through until the test lifts it."""

    def __init__(self) -> None:
        self.lifted = False
        self.spent_bytes = 0

    def spend(self, size_bytes: int, now_s: float) -> None:
        self.spent_bytes += size_bytes

    def wait_s(self, now_s: float) -> float:
        return 0.0 if self.lifted else 0.01


async def test_a_rate_limit_delays_fetches_and_counts_their_bytes(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _fill(live_bootstrap, unique_topic, 1, 10)
    tp = TopicPartition(unique_topic, 0)
    rate = _Slow()
    async with _reader(live_bootstrap, rate=rate) as (reader, _):
        reader.assign(tp, 0)
        assert await reader.poll(50) == []
        rate.lifted = True
        news = await _read(reader, lambda _: reader.positions[tp] == 10)
        assert rate.spent_bytes == sum(len(piece.records) for piece in news)
