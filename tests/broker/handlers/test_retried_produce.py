"""Batches that are sent again: one of the producer's last five batches, an older batch, a batch
after a restart, and a batch after the producer has expired (P-04, P-09, P-14, P-24 to P-28)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from broker_in_loop import RunningBroker, StartBroker
from logs import EVERYTHING, records
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raw_client import RawClient, batch_of, produce_request

E = ErrorCode
PRODUCER = 4000
Answer = tuple[int, int]


async def send(client: RawClient, sequence: int) -> Answer:
    """Send a batch of one record. Its value is the sequence as text. Returns (error, base
    offset)."""
    batch = batch_of(
        b"%d" % sequence,
        # a producer whose records are old would expire immediately
        timestamp_ms=int(time.time() * 1000),
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )
    response = await client.call(produce_request("t", batch), 9)
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def log_of(broker: RunningBroker) -> Any:
    return broker.node.partition("t", 0).log


def values(broker: RunningBroker) -> list[bytes | None]:
    log = log_of(broker)
    offset, found = log.log_start_offset, []
    while data := log.read(offset, 1 << 20, upper_bound=EVERYTHING, minimum_one=True):
        read = records(data)
        found += [record.value for record in read]
        offset = read[-1].offset + 1
    return found


def forget(broker: RunningBroker) -> None:
    """Let the producer expire, as if it had been idle for `producer.id.expiration.ms`."""
    producers = log_of(broker).producers
    idle_ms = broker.node.config.producer_id_expiration_ms
    expired = producers.remove_expired(producers.entry(PRODUCER).last_timestamp + idle_ms)
    assert expired == [PRODUCER]


@pytest.fixture
async def seven(client: RawClient) -> None:
    """Append the sequences 0 to 6, each in its own batch."""
    await client.create_topic("t")
    for sequence in range(7):
        assert await send(client, sequence) == (E.NONE, sequence)


@pytest.mark.usefixtures("seven")
async def test_p04_retries_of_the_last_five_batches_are_answered_and_older_refused(
    client: RawClient, broker: RunningBroker
) -> None:
    for sequence in range(7):
        error, offset = await send(client, sequence)
        if sequence < 2:
            assert (error, offset) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        else:
            assert (error, offset) == (E.NONE, sequence)
    assert values(broker) == [b"%d" % sequence for sequence in range(7)]


def ruin_snapshots(folder: Path, how: str) -> None:
    found = list(folder.glob("*.snapshot"))
    assert found
    for path in found:
        if how == "missing":
            path.unlink()
        elif how == "damaged":
            path.write_bytes(path.read_bytes()[:-1] + b"\0")


@pytest.mark.parametrize("snapshots", ["kept", "missing", "damaged"])
async def test_p28_a_retry_across_a_restart_is_stored_once(
    start_broker: StartBroker, snapshots: str
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    for sequence in range(7):
        assert await send(client, sequence) == (E.NONE, sequence)
    await broker.stop()
    ruin_snapshots(Path(broker.node.logs.directories[0].path_of("t-0")), snapshots)
    broker = await start_broker()
    client = await broker.client()
    assert await send(client, 6) == (E.NONE, 6)
    assert await send(client, 2) == (E.NONE, 2)
    assert await send(client, 1) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(client, 7) == (E.NONE, 7)
    assert values(broker) == [b"%d" % sequence for sequence in range(8)]


@pytest.mark.usefixtures("seven")
@pytest.mark.parametrize("how", ["expired", "records deleted"])
async def test_p24_a_retry_of_an_expired_producer_is_written_twice(
    client: RawClient, broker: RunningBroker, how: str
) -> None:
    """Kafka has the same gap in the detection of duplicates: an unknown producer may begin with any
    sequence."""
    log = log_of(broker)
    if how == "expired":
        forget(broker)
    else:
        log.roll(0)
        topic = DeleteRecordsTopic(
            name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=7)]
        )
        await client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2)
        assert log.log_start_offset == 7
        # A producer's state outlives its records, until it expires.
        assert await send(client, 6) == (E.NONE, 6)
        forget(broker)
    assert await send(client, 6) == (E.NONE, 7), "a second time"
    assert await send(client, 7) == (E.NONE, 8), "and on it goes"
    assert values(broker)[-2:] == [b"6", b"7"]
