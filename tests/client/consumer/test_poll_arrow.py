"""`poll_arrow` against a running broker: rows, limits, commits, and the blocking counterpart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer as ForeignProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from live_brokers import LiveBroker, live_broker
from odradek import sync
from odradek.testing import make_unique_topic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import Closed
from odradek_client.producer.producer import Producer
from odradek_protocol.records.arrow import COLUMNS, arrow_schema

pytestmark = pytest.mark.usefixtures("codec_twin")

DEADLINE_S = 30.0
RECORDS = 300


@pytest.fixture(scope="module")
def broker(pytestconfig: pytest.Config) -> Iterator[LiveBroker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "log.durability": "page-cache"}
    with live_broker(pytestconfig, settings) as running:
        yield running


@pytest.fixture
def topic(broker: LiveBroker) -> str:
    """A topic of three partitions; record n has the value b"n", and is in partition n mod 3."""
    name = make_unique_topic()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(DEADLINE_S)
    producer = ForeignProducer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for n in range(RECORDS):
        headers: Any = {"n": b"%d" % n, "null": None} if n % 2 else None
        producer.produce(name, b"%d" % n, b"k" if n % 5 else None, partition=n % 3, headers=headers)
    assert producer.flush(DEADLINE_S) == 0
    return name


def settings(broker: LiveBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest", **more}


async def read(consumer: Consumer, count: int, **options: Any) -> list[pa.RecordBatch]:
    """Poll until there are `count` rows, and not more; returns their batches."""
    found: list[pa.RecordBatch] = []
    async with asyncio.timeout(DEADLINE_S):
        while sum(each.num_rows for each in found) < count:
            found.append(await consumer.poll_arrow(1_000, **options))
    assert sum(each.num_rows for each in found) == count
    return found


async def test_arrow_rows_have_the_columns_of_sparks_kafka_source(
    broker: LiveBroker, topic: str
) -> None:
    async with Consumer(topic, **settings(broker)) as consumer:
        found = await read(consumer, RECORDS, max_records=70, include_headers=True)
        assert await consumer.position((topic, 1)) == RECORDS // 3
        assert await consumer.lag((topic, 1)) == 0
        nothing = await consumer.poll_arrow(10)
    assert all(0 < each.num_rows <= 70 for each in found if each.num_rows)
    assert nothing.num_rows == 0 and nothing.schema.equals(arrow_schema(COLUMNS[:-1]))
    rows = [row for each in found for row in each.to_pylist()]
    for each in found:
        each.validate(full=True)
        assert each.schema.equals(arrow_schema(COLUMNS))
    for row in rows:
        n = int(row["value"])
        assert (row["topic"], row["partition"], row["offset"]) == (topic, n % 3, n // 3)
        assert row["key"] == (b"k" if n % 5 else None)
        headers = [{"key": "n", "value": b"%d" % n}, {"key": "null", "value": None}]
        assert row["headers"] == (headers if n % 2 else None)
        assert (row["timestampType"], row["timestamp"].year > 2000) == (0, True)
    assert sorted(int(row["value"]) for row in rows) == list(range(RECORDS))


async def committed(consumer: Consumer, topic: str) -> int:
    found = await consumer.committed((topic, 0))
    return 0 if found is None else found.offset


async def test_k39_a_poll_commits_the_rows_of_the_previous_poll(
    broker: LiveBroker, topic: str
) -> None:
    more = settings(broker, group_id=f"{topic}-readers", auto_commit_interval_ms=1)
    async with Consumer(**more) as consumer:
        consumer.assign([(topic, 0)])
        (batch,) = [each for each in await read(consumer, 40, max_records=40) if each.num_rows]
        assert batch.column("offset").to_pylist() == list(range(40))
        # The rows may still be processed, so they are not committed.
        assert await committed(consumer, topic) == 0
        consumer.pause((topic, 0))
        async with asyncio.timeout(DEADLINE_S):
            while await committed(consumer, topic) == 0:
                await consumer.poll_arrow(10)
        assert await committed(consumer, topic) == 40


async def test_read_committed_rows_leave_out_aborted_records(
    broker: LiveBroker, topic: str
) -> None:
    async with Producer(
        bootstrap_servers=broker.bootstrap, transactional_id=f"{topic}-writer"
    ) as producer:
        await producer.init_transactions()
        for word, stays in ((b"gone", False), (b"kept", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, word, partition=0)
            await (producer.commit_transaction if stays else producer.abort_transaction)()
    more = settings(broker, isolation_level="read_committed")
    async with Consumer(**more) as consumer:
        consumer.assign([(topic, 0)])
        found = await read(consumer, RECORDS // 3 + 1, columns=["value"])
    seen = [value for each in found for value in each.column("value").to_pylist()]
    assert seen[-1] == b"kept" and b"gone" not in seen


async def test_wrong_arguments_and_a_closed_consumer_are_errors(
    broker: LiveBroker, topic: str
) -> None:
    consumer = Consumer(topic, **settings(broker))
    with pytest.raises(Closed):
        await consumer.poll_arrow()
    async with consumer:
        with pytest.raises(ValueError, match="at least 1"):
            await consumer.poll_arrow(max_records=0)
        with pytest.raises(ValueError, match="no such column: 'Key'"):
            await consumer.poll_arrow(columns=["Key"])
        # The calls with errors have not moved the position.
        await read(consumer, RECORDS)
    with pytest.raises(Closed):
        await consumer.poll_arrow()


def test_the_blocking_consumer_polls_arrow_rows(broker: LiveBroker, topic: str) -> None:
    with sync.Consumer(topic, **settings(broker)) as consumer:
        count = 0
        while count < RECORDS:
            batch = consumer.poll_arrow(1_000, 100, columns=["value", "offset"])
            assert batch.num_rows <= 100
            assert batch.schema.names == ["value", "offset"]
            count += batch.num_rows
    assert count == RECORDS


async def test_the_first_poll_waits_for_the_group_unless_it_has_a_timeout(
    broker: LiveBroker, topic: str
) -> None:
    more = settings(broker, group_id=f"{topic}-late")
    async with Consumer(topic, **more) as consumer:
        assert (await consumer.poll_arrow(0)).num_rows == 0
        assert (await consumer.poll_arrow()).num_rows > 0
