"""Produce: appended and refused batches, and the time of the answer (rules P-06..P-23)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_in_loop import RunningBroker, StartBroker
from fake_verifier import FakeVerifier
from odradek_broker.handlers import produce
from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.log_config import LogConfig
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.record import read_records
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from raw_client import RawClient, batch_of, produce_request
from waiting import until


def only(response: Any) -> Any:
    """The only partition of a produce response."""
    return response.responses[0].partition_responses[0]


async def read_values(client: RawClient, topic: str, offset: int = 0) -> list[bytes | None]:
    response = await client.call(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                        )
                    ],
                )
            ],
        ),
        11,
    )
    data = response.responses[0].partitions[0].records
    return [
        record.value
        for position, header in iter_batches(data)
        for record in read_records(data, position, header)
    ]


@pytest.fixture
async def topic(client: RawClient) -> str:
    await client.create_topic("t")
    return "t"


@pytest.mark.parametrize("version", range(3, 13))
async def test_every_version_below_13_appends_by_topic_name(
    client: RawClient, topic: str, version: int
) -> None:
    first = only(await client.call(produce_request(topic, batch_of(b"a", b"b")), version))
    second = only(await client.call(produce_request(topic, batch_of(b"c")), version))
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert await read_values(client, topic) == [b"a", b"b", b"c"]


async def test_version_13_names_topics_by_id(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    topic_id = broker.node.metadata.topic_id(topic)
    known = only(await client.call(produce_request("", batch_of(b"a"), topic_id=topic_id), 13))
    assert (known.error_code, known.base_offset) == (0, 0)
    other = only(await client.call(produce_request("", batch_of(b"a"), topic_id=b"\1" * 16), 13))
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_p06_a_produce_to_an_unknown_topic_or_partition_is_refused(
    client: RawClient, topic: str
) -> None:
    answer = only(await client.call(produce_request("absent", batch_of(b"a")), 9))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = only(await client.call(produce_request(topic, batch_of(b"a"), partition=7), 9))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_p06_a_partition_takes_exactly_one_batch_of_magic_2(
    client: RawClient, topic: str
) -> None:
    two = only(await client.call(produce_request(topic, batch_of(b"a") + batch_of(b"b")), 9))
    assert two.error_code == ErrorCode.INVALID_RECORD
    old = batch_of(b"a")
    old[16] = 1
    magic = only(await client.call(produce_request(topic, old), 9))
    assert magic.error_code == ErrorCode.INVALID_RECORD
    nothing = only(await client.call(produce_request(topic, None), 9))
    assert nothing.error_code == ErrorCode.INVALID_RECORD
    assert await read_values(client, topic) == []


async def test_p11_a_duplicate_together_with_another_batch_is_refused(
    client: RawClient, broker: RunningBroker, topic: str
) -> None:
    """A request may have only one batch per partition. Otherwise a new batch after a duplicate
    could be acknowledged as a duplicate, without having been written."""
    first = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    second = batch_of(b"b", producer_id=7, producer_epoch=0, base_sequence=1)
    assert only(await client.call(produce_request(topic, bytearray(first)), 9)).error_code == 0
    both = only(await client.call(produce_request(topic, first + second), 9))
    assert (both.error_code, both.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert await read_values(client, topic) == [b"a"]
    assert broker.node.partition(topic, 0).log.producers.entry(7).last_sequence == 0


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "verified"])
async def test_p19_a_batch_sent_on_many_connections_at_once_is_written_once(
    broker: RunningBroker, client: RawClient, topic: str, transactional: bool
) -> None:
    """The check and the append are one step: no other append comes between them, even while a
    transaction is verified."""
    identity: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    request = produce_request(topic, None)
    if transactional:
        identity["transactional"] = True
        request.transactional_id = "tx"
        broker.node.verification._verifier = FakeVerifier()
    batches = [batch_of(b"once", **identity) for _ in range(20)]
    clients = [await broker.client() for _ in batches]
    for one, batch in zip(clients, batches, strict=True):
        request.topic_data[0].partition_data[0].records = batch
        one.send(request, 12)
    answers = [only(await one.receive()) for one in clients]
    assert {(answer.error_code, answer.base_offset) for answer in answers} == {(0, 0)}
    assert broker.node.partition(topic, 0).log.log_end_offset == 1


async def test_p06_zstd_needs_version_7(client: RawClient, topic: str) -> None:
    batch = batch_of(b"a")
    batch[22] |= 4
    answer = only(await client.call(produce_request(topic, batch), 6))
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


async def test_p07_a_bad_crc_is_refused_and_nothing_is_appended(
    client: RawClient, topic: str
) -> None:
    batch = batch_of(b"a")
    batch[-1] ^= 1
    answer = only(await client.call(produce_request(topic, batch), 9))
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert await read_values(client, topic) == []


async def test_p07_a_too_large_batch_is_refused(client: RawClient) -> None:
    await client.create_topic("small", max_message_bytes="200")
    answer = only(await client.call(produce_request("small", batch_of(b"x" * 300)), 9))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_p09_p10_a_retry_answers_the_original_offset(client: RawClient, topic: str) -> None:
    identity = await client.call(InitProducerIdRequest(transactional_id=None), 4)
    assert identity.error_code == 0

    def batch(sequence: int) -> Any:
        return batch_of(
            b"once",
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
        )

    answers = [
        only(await client.call(produce_request(topic, batch(sequence)), 9))
        for sequence in (0, 1, 0, 1)
    ]
    assert [answer.base_offset for answer in answers] == [0, 1, 0, 1]
    assert all(answer.error_code == 0 for answer in answers)
    gap = only(await client.call(produce_request(topic, batch(5)), 9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await read_values(client, topic) == [b"once", b"once"]


async def test_p22_unknown_acks_are_refused(client: RawClient, topic: str) -> None:
    answer = only(await client.call(produce_request(topic, batch_of(b"a"), acks=2), 9))
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert await read_values(client, topic) == []


@pytest.mark.parametrize(
    ("records", "version", "code"),
    [
        (b"", 9, ErrorCode.INVALID_RECORD),
        (batch_of(b"a")[:-3], 9, ErrorCode.INVALID_RECORD),
        (batch_of(b"a") * 2, 9, ErrorCode.INVALID_RECORD),
    ],
)
async def test_p06_what_is_no_batch_is_refused_before_unknown_acks(
    client: RawClient, topic: str, records: bytes, version: int, code: ErrorCode
) -> None:
    answer = only(await client.call(produce_request(topic, records, acks=2), version))
    assert answer.error_code == code


async def test_p23_n09_a_produce_with_acks_0_is_not_answered(client: RawClient, topic: str) -> None:
    client.send(produce_request(topic, batch_of(b"a"), acks=0), 9)
    client.expect_no_answer()
    answer = only(await client.call(produce_request(topic, batch_of(b"b"), acks=1), 9))
    assert answer.base_offset == 1


async def test_p23_an_error_of_a_produce_with_acks_0_closes_the_connection(
    client: RawClient, topic: str
) -> None:
    client.send(produce_request("absent", batch_of(b"a"), acks=0), 9)
    assert await client.closed()


async def test_o01_clients_do_not_write_internal_topics(
    client: RawClient, broker: RunningBroker
) -> None:
    made = asyncio.Event()
    broker.node.ensure_internal_topic("__consumer_offsets").then(lambda _: made.set())
    await asyncio.wait_for(made.wait(), 10)
    answer = only(await client.call(produce_request("__consumer_offsets", batch_of(b"a")), 9))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_r03_log_append_time_is_answered(client: RawClient) -> None:
    await client.create_topic("stamped", message_timestamp_type="LogAppendTime")
    answer = only(await client.call(produce_request("stamped", batch_of(b"a")), 9))
    assert answer.log_append_time_ms > 1_700_000_000_000


async def test_p29_no_producer_id_is_assigned_again_after_a_restart(
    start_broker: StartBroker,
) -> None:
    seen = []
    for _ in range(2):
        broker = await start_broker()
        client = await broker.client()
        for _ in range(3):
            seen.append(await client.call(InitProducerIdRequest(transactional_id=None), 4))
        await broker.stop()
    ids = [answer.producer_id for answer in seen]
    assert len(set(ids)) == 6
    assert ids[3] >= 1000, "the rest of the lost block is skipped"


async def test_d5_a_produce_is_answered_when_its_records_are_durable(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    held: list[Any] = []
    partition = broker.node.partition("t", 0)
    monkeypatch.setattr(partition, "_request_flush", held.append)
    client.send(produce_request("t", batch_of(b"a")), 9)
    await until(lambda: held)
    assert partition.log.log_end_offset == 1
    assert partition.log.high_watermark == 0
    assert await read_values(await broker.client(), "t") == []
    broker.server.group_commit.request(held[0])
    assert only(await client.receive()).base_offset == 0
    assert await read_values(client, "t") == [b"a"]


async def test_the_deletion_of_a_topic_answers_its_waiting_produces(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this answer, a Produce request would delay all later requests of its connection until
    it times out (N-03)."""
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    held: list[Any] = []
    monkeypatch.setattr(broker.node.partition("t", 0), "_request_flush", held.append)
    request = produce_request("t", batch_of(b"a"))
    request.timeout_ms = 600_000
    client.send(request, 9)
    await until(lambda: held)
    other = await broker.client()
    await other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
    assert only(await client.receive()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_d11_p24_the_oldest_producers_over_the_limit_are_dropped(
    start_broker: StartBroker,
) -> None:
    """The producers that have written nothing for the longest time are dropped, and are unknown
    afterwards (P-14)."""
    broker = await start_broker(max_producer_ids="1000", log_durability="page-cache")
    client = await broker.client()
    await client.create_topic("t")
    start_ms = broker.node.clock.wall_ms()
    for number in range(1_010):
        batch = batch_of(
            b"a",
            timestamp_ms=start_ms + number,
            producer_id=number,
            producer_epoch=0,
            base_sequence=0,
        )
        client.send(produce_request("t", batch), 9)
        assert only(await client.receive()).error_code == ErrorCode.NONE
    broker.node.maintain()
    producers = broker.node.partition("t", 0).log.producers
    assert [entry.producer_id for entry in producers.entries()] == list(range(10, 1_010))
    again = batch_of(b"b", producer_id=3, producer_epoch=0, base_sequence=1)
    assert only(await client.call(produce_request("t", again), 9)).error_code == ErrorCode.NONE


def test_n14_a_refusal_keeps_no_inflated_records() -> None:
    """The frames of a traceback would keep them, and whoever raises it again keeps the refusal."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    refusal = produce._prepared(memoryview(batch_of(b"without a key")), config, 0, None)
    assert isinstance(refusal, AppendRejected)
    assert refusal.__traceback__ is None
    assert refusal.__context__ is None
