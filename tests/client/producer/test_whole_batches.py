"""`produce_batch` sends batches of other programs through the whole producer, with unchanged
bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from live_brokers import LiveBroker, live_broker
from odradek import Admin, Consumer, NewTopic, Producer
from odradek.testing import make_unique_topic
from odradek_client.errors import IllegalState
from odradek_client.producer.batch import ProducerBatch
from odradek_protocol.compression import Codec
from odradek_protocol.keys import ApiKey
from odradek_protocol.records.batch import read_header
from odradek_protocol.records.builder import BatchBuilder, EncodedRecords
from odradek_protocol.records.layout import HEADER_BYTES
from odradek_protocol.schemas.produce import ProduceRequest
from scripted_broker import HANG_UP, ScriptedBroker

DEADLINE_S = 30.0


@pytest.fixture
async def broker() -> Any:
    async with ScriptedBroker(topics={"t": 1}) as running:
        yield running


@pytest.fixture(scope="module")
def live(pytestconfig: pytest.Config) -> Iterator[LiveBroker]:
    with live_broker(pytestconfig, {"log.durability": "page-cache"}) as running:
        yield running


def whole(codec: Codec, *values: bytes) -> tuple[bytes, EncodedRecords]:
    """The body of a batch with these values, and the encoded batch itself."""
    builder = BatchBuilder(codec)
    for number, value in enumerate(values):
        builder.append(1_000 + number, b"k", value, [("h", b"%d" % number)])
    data = builder.build(base_offset=500, leader_epoch=3, producer_id=8)
    body = memoryview(data)[HEADER_BYTES:]
    return bytes(body), EncodedRecords.of_batch(read_header(data), body)


async def finished(batch: ProducerBatch) -> ProducerBatch:
    while not batch.done:
        await batch.wait()
    return batch


def quick(broker: ScriptedBroker, **settings: Any) -> Producer:
    return Producer(
        bootstrap_servers=broker.address, retry_backoff_ms=1, reconnect_backoff_ms=1, **settings
    )


@pytest.mark.parametrize("codec", list(Codec))
async def test_r08_the_batch_body_is_kept_and_the_header_is_rewritten(
    broker: ScriptedBroker, codec: Codec
) -> None:
    body, records = whole(codec, b"a" * 200, b"b")
    async with asyncio.timeout(DEADLINE_S), quick(broker) as sending:
        await sending.send("t", b"first")
        batch = await finished(await sending.produce_batch("t", 0, records))
    assert batch.base_offset == 1
    assert broker.log("t", 0).values == [b"first", b"a" * 200, b"b"]
    requests = broker.received(ApiKey.PRODUCE)
    (data,) = [
        part.records
        for request in requests
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for part in topic.partition_data
        if bytes(part.records or b"")[HEADER_BYTES:] == body
    ]
    header = read_header(data or b"")
    assert (header.base_offset, header.leader_epoch, header.base_sequence) == (0, -1, 1)
    assert (header.codec, header.base_timestamp, header.max_timestamp) == (codec, 1_000, 1_001)


async def test_c22_a_batch_without_an_answer_is_sent_again_and_written_once(
    broker: ScriptedBroker,
) -> None:
    broker.on(ApiKey.PRODUCE, HANG_UP)
    async with asyncio.timeout(DEADLINE_S), quick(broker) as sending:
        batches = [await sending.produce_batch("t", 0, whole(Codec.NONE, b"x")[1])]
        batches.append(await sending.produce_batch("t", 0, whole(Codec.GZIP, b"y", b"z")[1]))
        assert [(await finished(batch)).base_offset for batch in batches] == [0, 1]
    assert broker.log("t", 0).values == [b"x", b"y", b"z"]


async def test_c11_batches_wait_for_buffer_memory(broker: ScriptedBroker) -> None:
    records = whole(Codec.NONE, b"v" * 600)[1]
    async with asyncio.timeout(DEADLINE_S), quick(broker, buffer_memory=1000) as sending:
        batches = [await sending.produce_batch("t", 0, records) for _ in range(5)]
        assert [(await finished(batch)).base_offset for batch in batches] == [0, 1, 2, 3, 4]


async def test_a_missing_partition_is_named(broker: ScriptedBroker) -> None:
    async with asyncio.timeout(DEADLINE_S), quick(broker) as sending:
        with pytest.raises(ValueError, match="topic 't' has the partitions 0 to 0, not 4"):
            await sending.produce_batch("t", 4, whole(Codec.NONE, b"x")[1])


async def test_c60_batches_need_an_open_transaction(live: LiveBroker) -> None:
    topic = make_unique_topic()
    settings: dict[str, Any] = {"bootstrap_servers": live.bootstrap, "transactional_id": topic}
    async with asyncio.timeout(DEADLINE_S), Admin(bootstrap_servers=live.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
        async with Producer(**settings) as sending:
            await sending.init_transactions()
            with pytest.raises(IllegalState, match="begin_transaction"):
                await sending.produce_batch(topic, 0, whole(Codec.NONE, b"x")[1])
            async with sending.transaction():
                batch = await sending.produce_batch(topic, 0, whole(Codec.ZSTD, b"x" * 99, b"y")[1])
        assert (await finished(batch)).base_offset == 0
        found = await values(live.bootstrap, topic, 2)
    assert found == [b"x" * 99, b"y"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_c25_a_batch_that_is_too_large_for_the_topic_is_split(
    live: LiveBroker, codec: Codec
) -> None:
    """For each part, the producer reports the index of its first record, and its base offset."""
    topic = make_unique_topic()
    values_sent = [bytes([97 + n % 20]) * 50 + b"%d" % (n * 7919) for n in range(100)]
    async with asyncio.timeout(DEADLINE_S), Admin(bootstrap_servers=live.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, configs={"max.message.bytes": "1000"})])
        async with Producer(bootstrap_servers=live.bootstrap, batch_size=1 << 20) as sending:
            batch = await sending.produce_batch(topic, 0, whole(codec, *values_sent)[1])
            await finished(batch)
        parts = list(batch.leaves())
        found = await values(live.bootstrap, topic, len(values_sent))
    assert found == values_sent
    assert len(parts) > 1
    assert [start for start, _ in parts] == [part.base_offset for _, part in parts]


async def values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        while len(found) < count:
            found += [record.value for record in await consumer.poll(200)]
    return found
