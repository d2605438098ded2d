"""An unreadable batch: its error, and the ways to continue (K-16).

The broker does not check records (record.validation=header). The log has records 0 and 1, a batch
with a count of five and three records (offsets 2 to 6), and records 7 and 8.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek import ConsumerSettings, sync
from odradek.broker import SubprocessBroker
from odradek.testing import make_unique_topic
from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.errors import CorruptRecord
from odradek_protocol.records.batch import update_crc
from raw_client import RawClient, batch_of, produce_request

DEADLINE_S = 30.0
PLACES = (
    "offset 2: the batch of offsets 2 to 6 cannot be read: the records end within record 3 of 5"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[SubprocessBroker]:
    settings = {
        "log.durability": "page-cache",
        "record.validation": "header",
        "log.retention.ms": -1,  # otherwise the old records would be deleted
    }
    with SubprocessBroker(settings=settings) as running:
        yield running


def broken_batch() -> bytearray:
    batch = bytearray(batch_of(b"c", b"d", b"e" * 20))
    batch[57:61] = (5).to_bytes(4, "big")
    batch[23:27] = (4).to_bytes(4, "big")
    update_crc(batch, 0)
    return batch


@pytest.fixture
async def topic(broker: SubprocessBroker) -> str:
    host, port = broker.bootstrap.rsplit(":", 1)
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    name = make_unique_topic()
    await client.create_topic(name)
    for batch in (batch_of(b"a", b"b"), broken_batch(), batch_of(b"x", b"y")):
        answer = await client.call(produce_request(name, batch), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    client.close()
    return name


def a_consumer(broker: SubprocessBroker, topic: str) -> Consumer:
    return Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")


async def polled(consumer: Consumer) -> list[Any]:
    return [record.value for record in await consumer.poll(1_000)]


async def polled_as_arrow(consumer: Consumer) -> list[Any]:
    rows = await consumer.poll_arrow(1_000)
    return list(rows.column("value").to_pylist())


async def iterated(consumer: Consumer) -> list[Any]:
    async for record in consumer:
        return [record.value]
    raise AssertionError("a loop over a consumer does not end")


@pytest.mark.parametrize("read", [polled, polled_as_arrow, iterated])
async def test_k16_the_error_of_an_unreadable_batch_has_the_next_offset(
    broker: SubprocessBroker, topic: str, read: Callable[[Consumer], Any]
) -> None:
    async with asyncio.timeout(DEADLINE_S), a_consumer(broker, topic) as consumer:
        found: list[Any] = []
        with pytest.raises(CorruptRecord, match=PLACES) as caught:
            while True:
                found += await read(consumer)
        assert found == [b"a", b"b"]
        error = caught.value
        assert (error.first_offset, error.last_offset, error.next_offset) == (2, 6, 7)
        assert str(error).endswith(f"to go on behind it: consumer.seek(('{topic}', 0), 7)")
        assert await consumer.position((topic, 0)) == 2
        with pytest.raises(CorruptRecord, match=PLACES):
            while True:
                assert not await read(consumer), "it was passed over in silence"
        assert error.next_offset is not None
        consumer.seek(error.partition, error.next_offset)
        while len(found) < 4:
            found += await read(consumer)
        assert found == [b"a", b"b", b"x", b"y"]


def test_k16_the_blocking_consumer_continues_after_an_unreadable_batch(
    broker: SubprocessBroker, topic: str
) -> None:
    settings: ConsumerSettings = {
        "bootstrap_servers": broker.bootstrap,
        "auto_offset_reset": "earliest",
    }
    with sync.Consumer(topic, **settings) as consumer:
        found: list[Any] = []
        while len(found) < 4:
            try:
                found += [record.value for record in consumer.poll(1_000)]
            except CorruptRecord as error:
                assert error.next_offset == 7
                consumer.seek(error.partition, error.next_offset)
    assert found == [b"a", b"b", b"x", b"y"]


def consumed(broker: SubprocessBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "odradek", *arguments, "-b", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.full
async def test_k16_odradek_consume_prints_the_command_that_continues(
    broker: SubprocessBroker, topic: str
) -> None:
    stopped = consumed(broker, "consume", topic, "-e")
    assert (stopped.stdout, stopped.returncode) == ("a\nb\n", 1)
    assert f"{topic}-0, {PLACES}" in stopped.stderr
    command = f"odradek consume {topic} -p 0 -o 7"
    assert f"Go on behind it: {command}\n" in stopped.stderr
    went_on = consumed(broker, *command.split()[1:], "-e")
    assert (went_on.stdout, went_on.returncode) == ("x\ny\n", 0), went_on.stderr


@pytest.mark.full
async def test_k16_the_printed_command_moves_a_group_past_the_batch(
    broker: SubprocessBroker, topic: str
) -> None:
    group = f"{topic}-readers"
    reading = ("consume", topic, "-g", group, "-e")
    stopped = consumed(broker, *reading)
    assert (stopped.stdout, stopped.returncode) == ("a\nb\n", 1)
    line = next(each for each in stopped.stderr.splitlines() if each.startswith("Move the group"))
    moved = consumed(broker, *line.partition("odradek ")[2].split())
    assert moved.returncode == 0, moved.stderr
    went_on = consumed(broker, *reading)
    assert (went_on.stdout, went_on.returncode) == ("x\ny\n", 0), went_on.stderr
