"""The whole producer over sockets, against a scripted broker."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest

from odradek import Producer
from odradek_client.errors import (
    BufferFull,
    BufferTimeout,
    Closed,
    ClusterAuthorizationFailed,
    ConfigError,
    DeliveryTimeout,
    InvalidTopic,
    MetadataTimeout,
    RecordTooLarge,
    StorageFailed,
    UnsupportedByBroker,
    UnsupportedCompression,
)
from odradek_client.producer.partitioner import partition_for_key
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.init_producer_id import InitProducerIdResponse
from odradek_protocol.schemas.produce import ProduceRequest
from scripted_broker import DEFAULT, HANG_UP, SILENCE, ScriptedBroker
from waiting import until


@pytest.fixture
async def broker() -> Any:
    async with ScriptedBroker(topics={"t": 1, "wide": 6}) as running:
        yield running


def producer(broker: ScriptedBroker, **settings: Any) -> Producer:
    quick: dict[str, Any] = {
        "bootstrap_servers": broker.address,
        "linger_ms": 1,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 10,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 10,
        "max_block_ms": 5000,
    }
    return Producer(**(quick | settings))


# --- what arrives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
async def test_records_are_sent_in_every_version_of_produce(version: int) -> None:
    versions = {ApiKey.PRODUCE: (3, version), ApiKey.METADATA: (0, min(version, 13))}
    async with (
        ScriptedBroker(topics={"t": 1}, versions=dict(versions)) as broker,
        producer(broker) as sending,
    ):
        metadata = await sending.send_and_wait("t", b"value", b"key", headers=[("h", b"x")])
        assert metadata[:3] == ("t", 0, 0)
        log = broker.log("t")
        assert (log.values, log.keys, log.headers) == ([b"value"], [b"key"], [(("h", b"x"),)])
        used = {v for key, v, _ in broker.requests if key is ApiKey.PRODUCE}
        # Topic names are sent if topic ids are unknown; topic ids came with version 10 of Metadata.
        assert used == {min(version, 12) if version < 10 else version}


async def test_produce_names_topics_whose_metadata_has_no_topic_ids() -> None:
    versions = {ApiKey.METADATA: (0, 9)}
    async with (
        ScriptedBroker(topics={"t": 1}, versions=dict(versions)) as broker,
        producer(broker) as sending,
    ):
        await sending.send_and_wait("t", b"value")
        assert {v for key, v, _ in broker.requests if key is ApiKey.PRODUCE} == {12}


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_are_requested_in_every_version_of_init_producer_id(
    version: int,
) -> None:
    versions = {ApiKey.INIT_PRODUCER_ID: (0, version)}
    async with (
        ScriptedBroker(topics={"t": 1}, versions=dict(versions)) as broker,
        producer(broker) as sending,
    ):
        await sending.send_and_wait("t", b"value")
        assert broker.log("t").batches == [(1001, 0, 0, 1)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_and_nulls_of_every_codec_keep_their_order(
    broker: ScriptedBroker, codec: str
) -> None:
    values = [None, b"", *(b"%d" % i * 50 for i in range(3000))]
    async with producer(broker, compression_type=codec) as sending:
        deliveries = [await sending.send("t", value) for value in values]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(len(values)))
    assert broker.log("t").values == values


async def test_timestamps_are_the_given_ones_or_those_of_the_clock(broker: ScriptedBroker) -> None:
    async with producer(broker) as sending:
        sending._wall_clock = lambda: 1700000000.5
        given = await sending.send_and_wait("t", b"x", timestamp_ms=42)
        taken = await sending.send_and_wait("t", b"x")
    assert (given.timestamp_ms, taken.timestamp_ms) == (42, 1700000000500)


async def test_c18_a_key_gets_the_partition_of_the_java_client(broker: ScriptedBroker) -> None:
    async with producer(broker) as sending:
        for key in (b"a", b"foobar", bytearray(b"mutable"), b"x" * 200):
            metadata = await sending.send_and_wait("wide", b"v", key)
            assert metadata.partition == partition_for_key(bytes(key), 6)


async def test_c18_records_without_a_key_fill_a_batch_before_changing_partition(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker, batch_size=1000) as sending:
        deliveries = [await sending.send("wide", b"x" * 90) for _ in range(300)]
        await sending.flush()
    partitions = [delivery.result().partition for delivery in deliveries]
    changes = sum(a != b for a, b in itertools.pairwise(partitions))
    # Each change draws a partition, so that one of the six may be missing.
    assert 10 <= changes <= 60 and len(set(partitions)) >= 4


async def test_c18_records_without_a_key_avoid_partitions_without_leader(
    broker: ScriptedBroker,
) -> None:
    broker.leaders = {("wide", index): -1 for index in range(5)}
    async with producer(broker) as sending:
        metadata = [await sending.send_and_wait("wide", b"x") for _ in range(5)]
    assert {m.partition for m in metadata} == {5}


async def test_round_robin_and_custom_partitioners_are_used(broker: ScriptedBroker) -> None:
    async with producer(broker, partitioner="round_robin") as sending:
        found = [(await sending.send_and_wait("wide", b"x")).partition for _ in range(6)]
        assert sorted(found) == list(range(6))
    async with producer(broker, partitioner=lambda topic, key, n: n - 1) as sending:
        assert (await sending.send_and_wait("wide", b"x", b"k")).partition == 5
        assert (await sending.send_and_wait("wide", b"x", partition=2)).partition == 2
    async with producer(broker, partitioner=lambda topic, key, n: n) as sending:
        with pytest.raises(ValueError, match="partitioner chose 6"):
            await sending.send("wide", b"x")


async def test_serializers_convert_key_and_value(broker: ScriptedBroker) -> None:
    async with producer(
        broker, key_serializer=str.encode, value_serializer=lambda v: repr(v).encode()
    ) as sending:
        await sending.send_and_wait("t", {"a": 1}, "key")
    assert (broker.log("t").keys, broker.log("t").values) == ([b"key"], [b"{'a': 1}"])


async def test_headers_may_be_a_mapping_or_pairs(broker: ScriptedBroker) -> None:
    async with producer(broker) as sending:
        await sending.send_and_wait("t", b"x", headers={"a": b"1", "b": None})
        await sending.send_and_wait("t", b"x", headers=(("a", b"1"), ("a", b"2")))
    assert broker.log("t").headers == [(("a", b"1"), ("b", None)), (("a", b"1"), ("a", b"2"))]


async def test_each_leader_gets_the_records_of_its_partitions() -> None:
    async with ScriptedBroker(1, topics={"t": 2}) as one, ScriptedBroker(2) as two:
        two.topics = one.topics
        one.peers = two.peers = [one, two]
        one.leaders = two.leaders = {("t", 0): 1, ("t", 1): 2}
        async with producer(one) as sending:
            await sending.send_and_wait("t", b"zero", partition=0)
            await sending.send_and_wait("t", b"one", partition=1)
        assert one.log("t", 0).values == [b"zero"] and two.log("t", 1).values == [b"one"]


async def test_c26_acks_0_is_sent_without_an_answer(broker: ScriptedBroker) -> None:
    async with producer(broker, acks=0) as sending:
        assert (await sending.send_and_wait("t", b"x")).offset == -1
    await until(lambda: broker.log("t").values == [b"x"])
    assert broker.received(ApiKey.INIT_PRODUCER_ID) == []


async def test_acks_1_has_no_identity(broker: ScriptedBroker) -> None:
    async with producer(broker, acks=1) as sending:
        assert (await sending.send_and_wait("t", b"x")).offset == 0
    assert broker.log("t").batches == [(-1, -1, -1, 1)]
    (request,) = broker.received(ApiKey.PRODUCE)
    assert request.acks == 1


# --- faults ---------------------------------------------------------------------------------------


async def test_c54_p09_lost_answers_neither_lose_nor_duplicate_records(
    broker: ScriptedBroker,
) -> None:
    rng = random.Random(3)

    def sometimes(request: ProduceRequest, version: int) -> Any:
        luck = rng.random()
        if luck < 0.1:
            return HANG_UP
        if luck < 0.2:
            broker.produce(request)
            return HANG_UP
        if luck < 0.3:
            return broker.produce(request, {0: ErrorCode.NOT_ENOUGH_REPLICAS})
        return DEFAULT

    broker.always(ApiKey.PRODUCE, sometimes)
    values = [b"%d" % index for index in range(3000)]
    async with producer(broker, batch_size=300) as sending:
        deliveries = [await sending.send("t", value) for value in values]
        await sending.flush()
    assert broker.log("t").values == values
    assert [delivery.result().offset for delivery in deliveries] == list(range(3000))


async def test_c21_c50_order_is_kept_when_the_second_of_five_in_flight_fails(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker, batch_size=100) as sending:
        await sending.send_and_wait("t", b"first")
        broker.on(
            ApiKey.PRODUCE,
            DEFAULT,
            lambda request, version: broker.produce(request, {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}),
        )
        deliveries = [await sending.send("t", b"%d" % i * 80) for i in range(5)]
        await sending.flush()
    assert [delivery.result().offset for delivery in deliveries] == [1, 2, 3, 4, 5]
    assert {epoch for _, epoch, _, _ in broker.log("t").batches} == {0}


async def test_n16_a_request_without_answer_is_repeated_on_a_new_connection(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker, request_timeout_ms=60, delivery_timeout_ms=5000) as sending:
        await sending.send_and_wait("t", b"first")
        connections = broker.connections
        broker.on(ApiKey.PRODUCE, SILENCE)
        assert (await sending.send_and_wait("t", b"second")).offset == 1
        assert broker.connections > connections


async def test_a_record_is_delivered_after_the_broker_restarts(broker: ScriptedBroker) -> None:
    async with producer(broker) as sending:
        await sending.send_and_wait("t", b"first")
        await broker.stop()
        delivery = await sending.send("t", b"second")
        await asyncio.sleep(0.05)
        assert not delivery.done()
        await broker.start()
        assert (await delivery).offset == 1


async def test_c40_a_delivery_timeout_names_the_last_error_of_the_broker(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker, request_timeout_ms=300, delivery_timeout_ms=700) as sending:
        await sending.send_and_wait("t", b"first")
        code = {0: ErrorCode.KAFKA_STORAGE_ERROR}
        broker.always(ApiKey.PRODUCE, lambda request, version: broker.produce(request, code))
        with pytest.raises(
            DeliveryTimeout, match=r"last failure: .*disk.*KAFKA_STORAGE_ERROR"
        ) as told:
            await sending.send_and_wait("t", b"x")
        assert isinstance(told.value.__cause__, StorageFailed)


async def test_c40_a_delivery_timeout_names_the_connection_failure(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker, request_timeout_ms=300, delivery_timeout_ms=700) as sending:
        await sending.send_and_wait("t", b"first")
        await broker.stop()
        said = f"could not be sent.*last failure: no connection to {broker.address}: .*"
        with pytest.raises(DeliveryTimeout, match=said):
            await sending.send_and_wait("t", b"x")


async def test_c40_a_record_that_may_be_written_is_not_called_unwritten(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(broker, request_timeout_ms=800, delivery_timeout_ms=2_000) as sending:
        await sending.send_and_wait("t", b"first")
        broker.always(ApiKey.PRODUCE, lambda request, version: SILENCE)
        with pytest.raises(DeliveryTimeout, match="may be written or not"):
            await sending.send_and_wait("t", b"x")
        await until(lambda: "1 record for t-0 may be written or not: " in caplog.text)
        assert "not written" not in caplog.text
        before = len(broker.received(ApiKey.PRODUCE))
        late, never = (
            await sending.send("t", b"late"),
            await sending.send("t", b"never", partition=0),
        )
        await until(lambda: len(broker.received(ApiKey.PRODUCE)) > before)
        await sending.close(timeout_ms=0)
    with pytest.raises(Closed, match="may be written or not"):
        await late
    with pytest.raises(Closed):
        await never


async def test_c40_a_record_without_answer_fails_at_its_delivery_timeout(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker, request_timeout_ms=300, delivery_timeout_ms=800) as sending:
        await sending.send_and_wait("t", b"first")
        broker.always(ApiKey.PRODUCE, lambda request, version: SILENCE)
        with pytest.raises(DeliveryTimeout, match="may be written or not"):
            await sending.send_and_wait("t", b"second")
        broker.always(ApiKey.PRODUCE, lambda request, version: DEFAULT)
        assert (await sending.send_and_wait("t", b"third")).offset == 1
    assert [epoch for _, epoch, _, _ in broker.log("t").batches] == [0, 1]


async def test_records_follow_a_moved_leader(broker: ScriptedBroker) -> None:
    async with ScriptedBroker(2, topics=broker.topics) as other:
        broker.peers = other.peers = [broker, other]
        async with producer(broker) as sending:
            await sending.send_and_wait("t", b"first")
            broker.always(
                ApiKey.PRODUCE,
                lambda request, version: broker.produce(
                    request, {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
                ),
            )
            broker.leaders = other.leaders = {("t", 0): 2}
            await sending.send_and_wait("t", b"second")
        assert other.log("t").values == [b"second"]


async def test_a_record_waits_for_a_partition_without_leader(broker: ScriptedBroker) -> None:
    broker.leaders = {("t", 0): -1}
    async with producer(broker) as sending:
        delivery = await sending.send("t", b"x", partition=0)
        await until(lambda: len(broker.received(ApiKey.METADATA)) > 4)
        assert not delivery.done()
        broker.leaders.clear()
        assert (await delivery).offset == 0


async def test_c55_a_refused_producer_id_is_fatal_and_names_the_setting(
    broker: ScriptedBroker,
) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    broker.on(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(error_code=code))
    async with producer(broker) as sending:
        with pytest.raises(ClusterAuthorizationFailed, match="enable_idempotence=False"):
            await sending.send_and_wait("t", b"x")


async def test_c33_a_request_for_a_producer_id_is_retried(broker: ScriptedBroker) -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.on(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(error_code=code), HANG_UP)
    async with producer(broker) as sending:
        await sending.send_and_wait("t", b"x")
    assert len(broker.received(ApiKey.INIT_PRODUCER_ID)) == 3


async def test_a_broker_too_old_for_idempotence_is_an_error_with_a_remedy() -> None:
    async with ScriptedBroker(topics={"t": 1}, versions={ApiKey.INIT_PRODUCER_ID: None}) as broker:
        async with producer(broker) as sending:
            with pytest.raises(UnsupportedByBroker, match="enable_idempotence=False"):
                await sending.send_and_wait("t", b"x")
        async with producer(broker, enable_idempotence=False) as sending:
            assert (await sending.send_and_wait("t", b"x")).offset == 0


async def test_r09_zstd_needs_a_newer_broker() -> None:
    versions: dict[ApiKey, Any] = {ApiKey.PRODUCE: (3, 6)}
    async with (
        ScriptedBroker(topics={"t": 1}, versions=versions) as broker,
        producer(broker, compression_type="zstd") as sending,
    ):
        with pytest.raises((UnsupportedCompression, UnsupportedByBroker), match="zstd"):
            await sending.send_and_wait("t", b"x")


# --- buffer memory --------------------------------------------------------------------------------


async def test_c11_send_waits_for_buffer_memory_and_keeps_the_order(broker: ScriptedBroker) -> None:
    async with producer(broker, buffer_memory=3000, batch_size=1000) as sending:
        values = [b"%d" % index * 30 for index in range(500)]
        tasks = [asyncio.create_task(sending.send("t", value)) for value in values]
        deliveries = await asyncio.gather(*tasks)
        await sending.flush()
        assert sending.accumulator is not None
        assert sending.accumulator.available_bytes == 3000
    assert broker.log("t").values == values
    assert all(delivery.done() for delivery in deliveries)


async def test_c11_a_full_buffer_is_an_error_after_max_block_ms(broker: ScriptedBroker) -> None:
    broker.always(ApiKey.PRODUCE, lambda request, version: SILENCE)
    async with producer(broker, buffer_memory=1500, batch_size=1000, max_block_ms=300) as sending:
        first = await sending.send("t", b"x" * 900)
        with pytest.raises(BufferTimeout, match="max_block_ms=300"):
            await sending.send("t", b"x" * 900)
        with pytest.raises(BufferFull, match="buffer_memory"):
            sending.send_nowait("t", b"x" * 900)
        assert not first.done()
        await sending.close(timeout_ms=10)
        with pytest.raises(Closed):
            await first


async def test_c11_a_send_that_stops_waiting_wakes_the_next_one(broker: ScriptedBroker) -> None:
    gate = asyncio.Event()

    async def later(request: Any, version: int) -> Any:
        await gate.wait()
        return DEFAULT

    async with producer(broker, buffer_memory=1500, batch_size=1000) as sending:
        await sending.partitions_for("t")
        broker.always(ApiKey.PRODUCE, later)
        await sending.send("t", b"x" * 900)
        waiting = [asyncio.create_task(sending.send("t", b"%d" % i * 900)) for i in range(3)]
        accumulator = sending.accumulator
        assert accumulator is not None
        await until(lambda: len(accumulator.waiters) == 3)
        waiting[0].cancel()
        gate.set()
        await asyncio.gather(*waiting[1:])
        await sending.flush()
    assert [value[:1] for value in broker.log("t").values if value] == [b"x", b"1", b"2"]


async def test_c12_a_record_that_can_never_fit_is_refused(broker: ScriptedBroker) -> None:
    async with producer(broker, max_request_size=1000) as sending:
        with pytest.raises(RecordTooLarge, match="max_request_size is 1000"):
            await sending.send("t", b"x" * 1000)
        await sending.send_and_wait("t", b"x" * 800)
    async with producer(broker, buffer_memory=1000) as sending:
        with pytest.raises(RecordTooLarge, match="buffer_memory"):
            await sending.send("t", b"x" * 1000)


async def test_send_nowait_needs_metadata_and_does_not_wait(broker: ScriptedBroker) -> None:
    async with producer(broker) as sending:
        with pytest.raises(MetadataTimeout, match="partitions_for"):
            sending.send_nowait("t", b"x")
        assert await sending.partitions_for("t") == [0]
        deliveries = [sending.send_nowait("t", b"%d" % index) for index in range(1000)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(1000))


@pytest.mark.full
async def test_a_loop_of_sends_does_not_starve_the_sender(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker, batch_size=500) as sending:
        await sending.partitions_for("t")
        for _ in range(20_000):
            await sending.send("t", b"x" * 100)
        assert broker.received(ApiKey.PRODUCE), "something went out before the loop was over"


# --- start and close ------------------------------------------------------------------------------


async def test_leaving_the_async_with_block_delivers_buffered_records(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker, linger_ms=60_000) as sending:
        delivery = await sending.send("t", b"x")
    assert delivery.result().offset == 0
    with pytest.raises(Closed, match="closed"):
        await sending.send("t", b"y")
    with pytest.raises(Closed):
        sending.send_nowait("t", b"y")
    with pytest.raises(Closed):
        await sending.start()
    await sending.close()


async def test_c34_a_close_with_a_timeout_fails_undelivered_records(broker: ScriptedBroker) -> None:
    broker.always(ApiKey.PRODUCE, lambda request, version: SILENCE)
    sending = producer(broker)
    await sending.start()
    delivery = await sending.send("t", b"x")
    waiting = asyncio.create_task(sending.send_and_wait("t", b"y"))
    await asyncio.sleep(0)
    await sending.close(timeout_ms=20)
    for failed in (delivery, waiting):
        with pytest.raises(Closed):
            await failed


async def test_flush_waits_for_failed_records_and_does_not_raise(broker: ScriptedBroker) -> None:
    async with producer(broker) as sending:
        await sending.flush()
        broker.on(
            ApiKey.PRODUCE,
            lambda request, version: broker.produce(request, {0: ErrorCode.INVALID_RECORD}),
        )
        delivery = await sending.send("t", b"x")
        await sending.flush()
        assert delivery.exception() is not None


async def test_a_producer_that_was_not_started_names_async_with(broker: ScriptedBroker) -> None:
    sending = producer(broker)
    for call in (sending.send("t", b"x"), sending.flush(), sending.partitions_for("t")):
        with pytest.raises(Closed, match="async with"):
            await call
    await sending.close()


async def test_unknown_invalid_and_unnamed_topics_are_errors(broker: ScriptedBroker) -> None:
    broker.topic_errors["bad"] = ErrorCode.INVALID_TOPIC_EXCEPTION
    async with producer(broker, max_block_ms=300) as sending:
        with pytest.raises(MetadataTimeout, match="'missing'"):
            await sending.send("missing", b"x")
        with pytest.raises(InvalidTopic):
            await sending.send("bad", b"x")
        for wrong in ("", b"t", None):
            with pytest.raises((TypeError, ValueError), match="topic is a name"):
                await sending.send(wrong, b"x")  # type: ignore[arg-type]


async def test_a_record_for_a_new_partition_is_sent_after_a_metadata_refresh(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker, max_block_ms=300) as sending:
        await sending.send_and_wait("t", b"x")
        with pytest.raises(ValueError, match="partitions 0 to 0, not 3"):
            await sending.send("t", b"x", partition=3)
        with pytest.raises(ValueError, match="-1"):
            await sending.send("t", b"x", partition=-1)
        broker.topics["t"] = 4
        await sending.network.refresh_metadata()
        assert (await sending.send_and_wait("t", b"x", partition=3)).partition == 3


@pytest.mark.parametrize("bad", ["text", 5, ["list"]])
async def test_arguments_that_are_not_bytes_are_refused_with_advice(
    broker: ScriptedBroker, bad: Any
) -> None:
    async with producer(broker) as sending:
        for _ in range(2):  # first without, then with an open batch
            with pytest.raises(TypeError, match="value_serializer"):
                await sending.send("t", bad)
            with pytest.raises(TypeError, match="key_serializer"):
                await sending.send("t", b"x", bad)
            with pytest.raises(TypeError, match="header"):
                await sending.send("t", b"x", headers=[(b"h", b"x")])  # type: ignore[list-item]
            with pytest.raises(TypeError, match="header"):
                await sending.send("t", b"x", headers=5)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="timestamp"):
                await sending.send("t", b"x", timestamp_ms=-5)
            await sending.send("t", b"good")
        await sending.flush()
    assert broker.log("t").values == [b"good", b"good"]


async def test_an_unknown_producer_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match="linger_ms"):
        Producer(linger="x")  # type: ignore[call-arg]


async def test_unused_topics_are_dropped_from_the_metadata(broker: ScriptedBroker) -> None:
    async with producer(broker, metadata_max_idle_ms=5000) as sending:
        await sending.send_and_wait("t", b"x")
        cluster = sending.network.cluster
        cluster.forget_expired(sending.network.now_ms() + 4000)
        assert "t" in cluster.wanted_topics
        cluster.forget_expired(sending.network.now_ms() + 6000)
        assert "t" not in cluster.wanted_topics
        await sending.network.refresh_metadata()
        await sending.send_and_wait("t", b"y")
    assert broker.log("t").values == [b"x", b"y"]
