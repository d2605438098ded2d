"""`produce_arrow`: the rows of a RecordBatch through the whole producer, against a scripted broker
and a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import record_codecs
from live_brokers import LiveBroker, live_broker
from odradek import Consumer, Producer, sync
from odradek.testing import make_unique_topic
from odradek_client.errors import (
    BufferTimeout,
    Closed,
    IllegalState,
    RecordTooLarge,
    Refused,
    TransactionAborted,
)
from odradek_client.producer.arrow import ArrowDelivery
from odradek_client.producer.partitioner import partition_for_key
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.records import native
from odradek_protocol.records.batch import read_header
from odradek_protocol.records.lines import LineRecords
from odradek_protocol.schemas.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
)
from scripted_broker import DEFAULT, HANG_UP, SILENCE, ScriptedBroker
from waiting import until


@pytest.fixture(params=record_codecs.TWINS, autouse=True)
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "CODEC", record_codecs.twin(request.param))


@pytest.fixture
async def broker() -> Any:
    async with ScriptedBroker(topics={"t": 1, "wide": 6}) as running:
        yield running


@pytest.fixture(scope="module")
def live(pytestconfig: pytest.Config) -> Iterator[LiveBroker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "log.durability": "page-cache"}
    with live_broker(pytestconfig, settings) as running:
        yield running


def producer(broker: ScriptedBroker, **settings: Any) -> Producer:
    quick: dict[str, Any] = {
        "bootstrap_servers": broker.address,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 10,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 10,
        "max_block_ms": 5000,
    }
    made = Producer(**(quick | settings))
    made._random.seed(1)
    return made


def rows(count: int, size: int = 20, **columns: Any) -> pa.RecordBatch:
    values = [b"%d" % number + b"." * size for number in range(count)]
    return pa.record_batch({"value": pa.array(values), **columns})


def values_of(batch: pa.RecordBatch) -> list[bytes]:
    found: list[bytes] = batch.column("value").to_pylist()
    return found


def written(broker: ScriptedBroker, topic: str, partitions: int) -> list[list[bytes | None]]:
    return [broker.log(topic, number).values for number in range(partitions)]


# --- what arrives ---------------------------------------------------------------------------------


async def test_c18_rows_with_a_key_get_the_partition_of_send_in_order(
    broker: ScriptedBroker,
) -> None:
    keys = [b"key-%d" % (number % 17) for number in range(500)]
    batch = rows(500, key=pa.array(keys))
    async with producer(broker, batch_size=500) as sending:
        delivery = await sending.produce_arrow("wide", batch)
        metadata = await delivery
    expected: list[list[bytes]] = [[] for _ in range(6)]
    for key, value in zip(keys, values_of(batch), strict=True):
        expected[partition_for_key(key, 6)].append(value)
    assert written(broker, "wide", 6) == expected
    assert (metadata.topic, metadata.row_count) == ("wide", 500)
    places = metadata.offsets()
    assert places.schema.names == ["partition", "offset"]
    for value, place in zip(values_of(batch), places.to_pylist(), strict=True):
        assert broker.log("wide", place["partition"]).values[place["offset"]] == value


async def test_headers_partition_and_nulls_of_rows_are_written(broker: ScriptedBroker) -> None:
    batch = pa.record_batch(
        {
            "key": pa.array([None, "k", "k"]),
            "value": pa.array(["a", None, "c"], pa.large_string()),
            "headers": pa.array(
                [None, [("h", b"1"), ("h", None)], []], pa.map_(pa.string(), pa.binary())
            ),
            "partition": pa.array([5, 5, 4], pa.int32()),
        }
    )
    async with producer(broker) as sending:
        await (await sending.produce_arrow("wide", batch))
    five, four = broker.log("wide", 5), broker.log("wide", 4)
    assert (five.keys, five.values) == ([None, b"k"], [b"a", None])
    assert five.headers == [(), (("h", b"1"), ("h", None))]
    assert (four.keys, four.values, four.headers) == ([b"k"], [b"c"], [()])


async def test_c18_rows_without_a_key_fill_a_batch_before_changing_partition(
    broker: ScriptedBroker,
) -> None:
    batch = rows(2000)
    async with producer(broker, batch_size=1000) as sending:
        metadata = await (await sending.produce_arrow("wide", batch))
    assert sorted(value for log in written(broker, "wide", 6) for value in log if value) == sorted(
        values_of(batch)
    )
    assert {outcome.partition for outcome in metadata.outcomes} == set(range(6))
    for number in range(6):
        assert all(count > 15 for *_, count in broker.log("wide", number).batches[:-1])


async def test_rows_keep_their_place_among_records_of_send(broker: ScriptedBroker) -> None:
    async with producer(broker, linger_ms=50, batch_size=300) as sending:
        await sending.send("t", b"first")
        await sending.produce_arrow("t", rows(100))
        await sending.send("t", b"last")
        await sending.flush()
    assert broker.log("t").values == [b"first", *values_of(rows(100)), b"last"]


async def test_partition_and_timestamp_arguments_apply_to_all_rows(
    broker: ScriptedBroker,
) -> None:
    stamps: list[int] = []

    def look(request: ProduceRequest, version: int) -> Any:
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        stamps.append(read_header(records).base_timestamp)
        return DEFAULT

    broker.always(ApiKey.PRODUCE, look)
    async with producer(broker) as sending:
        await (await sending.produce_arrow("wide", rows(3), partition=2, timestamp_ms=77))
        own = rows(1, timestamp=pa.array([78], pa.timestamp("ms")))
        await (await sending.produce_arrow("wide", own, partition=2, timestamp_ms=77))
        with pytest.raises(ValueError, match="both the argument and a column"):
            column = pa.array([1], pa.int32())
            await sending.produce_arrow("wide", rows(1, partition=column), partition=2)
        with pytest.raises(ValueError, match="partitions 0 to 5, not 6"):
            await sending.produce_arrow("wide", rows(1), partition=6)
        with pytest.raises(TypeError, match="a partition is a number"):
            await sending.produce_arrow("wide", rows(1), partition=True)
    assert len(broker.log("wide", 2).values) == 4
    assert stamps == [77, 78]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_rows_are_written_with_every_codec(broker: ScriptedBroker, compression: str) -> None:
    batch = rows(3000, 100)
    async with producer(broker, compression_type=compression, batch_size=4000) as sending:
        metadata = await (await sending.produce_arrow("t", batch))
        assert sending.accumulator is not None
        assert sending.accumulator.available_bytes == sending.config.buffer_memory
    assert broker.log("t").values == values_of(batch)
    # The producer learns the compression ratio from the first batches, so later batches have more
    # rows.
    assert len(metadata.outcomes) > 1
    sizes = [len(outcome.rows) for outcome in metadata.outcomes]
    assert max(sizes) >= sizes[0]


@pytest.mark.parametrize("chosen", ["round_robin", lambda topic, key, count: len(key) % count])
async def test_rows_get_their_partition_from_the_configured_partitioner(
    broker: ScriptedBroker, chosen: Any
) -> None:
    keys = pa.array(["", "1", "12", None, "1"])
    partition = pa.array([None, None, None, 5, None], pa.int32())
    batch = rows(5, key=keys, partition=partition)
    async with producer(broker, partitioner=chosen) as sending:
        await (await sending.produce_arrow("wide", batch))
    counts = [len(log) for log in written(broker, "wide", 6)]
    assert counts == ([1, 2, 1, 0, 0, 1] if callable(chosen) else [1, 1, 1, 1, 0, 1])


async def test_an_empty_record_batch_sends_no_request(broker: ScriptedBroker) -> None:
    async with producer(broker) as sending:
        metadata = await (await sending.produce_arrow("t", rows(0)))
    assert (metadata.row_count, metadata.outcomes) == (0, [])
    assert metadata.offsets().num_rows == 0
    assert not broker.received(ApiKey.PRODUCE)


# --- refused before anything is buffered ----------------------------------------------------------


async def test_rows_are_not_buffered_if_one_of_them_is_invalid(
    broker: ScriptedBroker,
) -> None:
    large = pa.record_batch({"value": pa.array([b"v", b"v" * 2000])})
    async with producer(broker, max_request_size=1000) as sending:
        with pytest.raises(RecordTooLarge, match=r"row 1 takes \d+ bytes.* by max_request_size"):
            await sending.produce_arrow("t", large)
        with pytest.raises(
            ValueError, match="row 1, column partition: the topic has the partitions 0 to 5, not 7"
        ):
            await sending.produce_arrow("wide", rows(2, partition=pa.array([0, 7])))
        with pytest.raises(TypeError, match="no part of a record is called 'offset'"):
            await sending.produce_arrow("t", rows(1, offset=pa.array([1])))
        with pytest.raises(TypeError, match="RecordBatch is wanted, not list"):
            await sending.produce_arrow("t", [b"v"])
        with pytest.raises(TypeError, match="a topic is a name"):
            await sending.produce_arrow(b"t", rows(1))  # type: ignore[arg-type]
        assert sending.accumulator is not None and not sending.accumulator.incomplete
    with pytest.raises(Closed):
        await sending.produce_arrow("t", rows(1))
    assert not broker.received(ApiKey.PRODUCE)


# --- failures after buffering ---------------------------------------------------------------------


async def test_c22_retried_rows_have_the_same_sequences_and_are_written_once(
    broker: ScriptedBroker,
) -> None:
    batch = rows(400)

    def written_but_unanswered(request: ProduceRequest, version: int) -> Any:
        broker.produce(request)
        return HANG_UP

    broker.on(ApiKey.PRODUCE, DEFAULT, written_but_unanswered, HANG_UP)
    async with producer(broker, batch_size=1000) as sending:
        await (await sending.produce_arrow("t", batch))
    log = broker.log("t")
    assert log.values == values_of(batch)
    sequences = [sequence for _, _, sequence, _ in log.batches]
    counts = [count for *_, count in log.batches]
    assert sequences == [sum(counts[:at]) for at in range(len(counts))]


async def test_c25_batches_too_large_for_the_broker_are_split_until_they_fit(
    broker: ScriptedBroker,
) -> None:
    def small_only(request: ProduceRequest, version: int) -> Any:
        def append(topic: str, index: int, records: Any) -> PartitionProduceResponse:
            if len(records) > 600:
                code = ErrorCode.MESSAGE_TOO_LARGE
                return PartitionProduceResponse(index=index, error_code=code, base_offset=-1)
            code, offset = broker.log(topic, index).append(records)
            return PartitionProduceResponse(index=index, error_code=code, base_offset=offset)

        return broker.answer_produce(request, append)

    broker.always(ApiKey.PRODUCE, small_only)
    batch = rows(200, key=pa.array([b"key"] * 200))
    async with producer(broker, batch_size=4000) as sending:
        async with asyncio.timeout(20):
            metadata = await (await sending.produce_arrow("t", batch))
    assert broker.log("t").values == values_of(batch)
    assert broker.log("t").keys == [b"key"] * 200
    assert metadata.offsets().column("offset").to_pylist() == list(range(200))


async def test_outcomes_tell_written_rows_from_failed_ones(broker: ScriptedBroker) -> None:
    def refuse(request: ProduceRequest, version: int) -> Any:
        code = ErrorCode.INVALID_RECORD
        reason = BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="bad")
        return broker.produce(request, {3: code}, record_errors=[reason])

    broker.always(ApiKey.PRODUCE, refuse)
    batch = rows(6, partition=pa.array([0, 3, 0, 3, 3, 1]))
    async with producer(broker) as sending:
        delivery = await sending.produce_arrow("wide", batch)
        with pytest.raises(Refused, match=r"3 of 6 rows were not written.*; row 3: .*refused: bad"):
            await delivery
        outcomes = {each.partition: each for each in delivery.outcomes()}
    assert list(outcomes[0].rows) == [0, 2] and outcomes[0].error is None
    assert list(outcomes[3].rows) == [1, 3, 4] and isinstance(outcomes[3].error, Refused)
    assert (outcomes[0].base_offset, outcomes[3].base_offset) == (0, -1)
    assert "failed" in repr(delivery)


async def test_c11_rows_wait_for_buffer_memory(broker: ScriptedBroker) -> None:
    batch = rows(1000, 30)
    async with producer(broker, buffer_memory=3000, batch_size=1000) as sending:
        alongside = asyncio.create_task(sending.produce_arrow("wide", rows(100), partition=1))
        delivery = await sending.produce_arrow("t", batch)
        await delivery
        await (await alongside)
        assert sending.accumulator is not None
        assert sending.accumulator.available_bytes == 3000
    assert broker.log("t").values == values_of(batch)


async def test_c11_a_buffer_timeout_tells_the_number_of_buffered_rows(
    broker: ScriptedBroker,
) -> None:
    broker.always(ApiKey.PRODUCE, lambda request, version: SILENCE)
    settings = {"buffer_memory": 1500, "batch_size": 1000, "max_block_ms": 200}
    async with producer(broker, **settings) as sending:
        with pytest.raises(BufferTimeout, match=r"; [1-9]\d? of 100 rows were buffered before"):
            await sending.produce_arrow("t", rows(100))
        await sending.close(timeout_ms=10)


async def test_an_arrow_delivery_is_done_when_all_its_rows_are(broker: ScriptedBroker) -> None:
    broker.always(ApiKey.PRODUCE, lambda request, version: SILENCE)
    async with producer(broker) as sending:
        delivery = await sending.produce_arrow("t", rows(3))
        await until(lambda: bool(broker.received(ApiKey.PRODUCE)))
        assert not delivery.done() and "on its way" in repr(delivery)
        with pytest.raises(IllegalState, match="on their way"):
            delivery.result()
        await sending.close(timeout_ms=10)
        with pytest.raises(Closed, match="3 of 3 rows"):
            await delivery


# --- lines ---------------------------------------------------------------------------------------


def lines_of(*lines: bytes) -> LineRecords:
    return LineRecords(b"".join(line + b"\n" for line in lines), b"\n")


async def test_c15_lines_are_written_as_values_in_order(broker: ScriptedBroker) -> None:
    values = [b"", *(b"%d" % number for number in range(500))]
    async with producer(broker, batch_size=1000) as sending:
        delivery = ArrowDelivery("t", len(values))
        await sending.produce_lines(lines_of(*values), delivery)
        one_more = await sending.send("t", b"last")
        await delivery
        assert (await one_more).offset == len(values)
    assert broker.log("t", 0).values == [*values, b"last"]
    assert len(delivery.outcomes()) > 5
    assert delivery.buffered == len(values)


async def test_c12_lines_before_one_that_is_too_large_are_sent(broker: ScriptedBroker) -> None:
    async with producer(broker, max_request_size=1000) as sending:
        delivery = ArrowDelivery("t", 3)
        await sending.produce_lines(lines_of(b"a", b"x" * 1000, b"b"), delivery)
        assert (await delivery).row_count == 3
        assert delivery.buffered == 1
        with pytest.raises(ValueError, match="partitions 0 to 0"):
            await sending.produce_lines(lines_of(b"a"), ArrowDelivery("t", 1), partition=3)
    assert broker.log("t", 0).values == [b"a"]


async def test_c11_a_buffer_timeout_counts_the_buffered_lines(
    broker: ScriptedBroker,
) -> None:
    broker.always(ApiKey.PRODUCE, lambda request, version: SILENCE)
    settings = {"buffer_memory": 1500, "batch_size": 1000, "max_block_ms": 200}
    async with producer(broker, **settings) as sending:
        delivery = ArrowDelivery("t", 100)
        with pytest.raises(BufferTimeout):
            await sending.produce_lines(lines_of(*[b"x" * 20] * 100), delivery)
        assert 0 < delivery.buffered < 100
        assert delivery.outcomes(known=True) == []
        await sending.close(timeout_ms=10)
    assert sum(len(each.rows) for each in delivery.outcomes()) == delivery.buffered


async def test_outcomes_of_lines_are_reported_by_batch(broker: ScriptedBroker) -> None:
    """`odradek produce` needs these counts when it is stopped."""
    broker.on(ApiKey.PRODUCE, DEFAULT)
    broker.always(ApiKey.PRODUCE, lambda request, version: SILENCE)
    settings = {"batch_size": 1000, "max_in_flight_requests_per_connection": 1}
    async with producer(broker, **settings) as sending:
        delivery = ArrowDelivery("t", 100)
        await sending.produce_lines(lines_of(*[b"x" * 20] * 100), delivery)
        await until(lambda: len(broker.received(ApiKey.PRODUCE)) > 1)
        (first,) = delivery.outcomes(known=True)
        assert (first.base_offset, first.error, first.rows[0]) == (0, None, 0)
        assert not delivery.done()
        await sending.close(timeout_ms=10)


# --- ours -----------------------------------------------------------------------------------------


async def test_c60_rows_of_a_transaction_are_committed_or_aborted_together(
    live: LiveBroker,
) -> None:
    topic = make_unique_topic()
    async with Producer(
        bootstrap_servers=live.bootstrap, transactional_id=topic, batch_size=500
    ) as sending:
        await sending.init_transactions()
        with pytest.raises(IllegalState):
            await sending.produce_arrow(topic, rows(1))
        async with sending.transaction():
            await sending.produce_arrow(topic, rows(300))
        with pytest.raises(ZeroDivisionError):
            async with sending.transaction():
                await sending.produce_arrow(topic, rows(300, 9))
                raise ZeroDivisionError
        async with sending.transaction():
            delivery = await sending.produce_arrow(topic, rows(7))
        assert delivery.done()
        await sending.begin_transaction()
        dropped = await sending.produce_arrow(topic, rows(2))
        await sending.abort_transaction()
        assert isinstance(dropped.exception(), TransactionAborted | None)
    found: list[bytes | None] = []
    async with Consumer(
        topic,
        bootstrap_servers=live.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        async with asyncio.timeout(30):
            while len(found) < 307:
                found += [record.value for record in await consumer.poll(100)]
        found += [record.value for record in await consumer.poll(100)]
    assert sorted(map(bytes, filter(None, found))) == sorted(
        values_of(rows(300)) + values_of(rows(7))
    )


def test_rows_of_the_blocking_producer_are_read_by_poll_arrow(live: LiveBroker) -> None:
    topic = make_unique_topic()
    batch = rows(1000, key=pa.array(["k"] * 1000))
    with sync.Producer(bootstrap_servers=live.bootstrap) as sending:
        delivery = sending.produce_arrow(topic, batch)
        metadata = delivery.result(timeout_ms=30_000)
        assert delivery.done() and delivery.exception() is None
        assert sum(len(outcome.rows) for outcome in delivery.outcomes()) == 1000
    with sync.Consumer(
        topic, bootstrap_servers=live.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        read = consumer.poll_arrow(30_000, columns=["key", "value", "offset"])
        while read.num_rows < 1000:
            more = consumer.poll_arrow(30_000, columns=["key", "value", "offset"])
            read = pa.Table.from_batches([read, more]).combine_chunks().to_batches()[0]
    assert values_of(read) == values_of(batch)
    assert read.column("offset").to_pylist() == metadata.offsets().column("offset").to_pylist()
