"""Batches that inflate to so much that they are checked in a thread (rules N-57, N-03, R-12)."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from broker_in_loop import RunningBroker
from held_thread import HeldThread
from interleaved import Asked, InterleavedBroker
from logs import NOW_MS, make_batch
from odradek_broker.slices import BESIDE_MAX
from odradek_broker.storage.validation import AT_ONCE_BYTES
from odradek_protocol.compression import Codec, compress
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches, update_crc
from odradek_protocol.records.layout import HEADER_BYTES
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.metadata import MetadataRequest
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raw_client import RawClient, produce_request

E = ErrorCode
CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
LARGE = bytes(AT_ONCE_BYTES)


class Broker(InterleavedBroker):
    """A broker with a thread that the test runs, and a topic `t` of three partitions."""

    def __init__(self, **settings: str) -> None:
        self.thread = HeldThread()
        self.beside = self.thread
        super().__init__(log_durability="page-cache", **settings)
        self.create("t", 3)
        self.flush()
        self.go_on()

    def end_offset(self, partition: int = 0) -> int:
        return self.end("t", partition)

    def let(self, *asked: Asked) -> list[Any]:
        """Let the thread do what it has to do, and return the answers."""
        for _ in range(100):
            self.go_on()
            self.flush()
            if not self.thread.works:
                break
            self.thread.run()
        return self.finish(*asked)


@pytest.fixture
def held() -> Broker:
    return Broker()


def large(codec: Codec = Codec.ZSTD, **build: Any) -> memoryview:
    """A small batch whose records have more bytes than are inflated at once."""
    return make_batch(2, value=LARGE, codec=codec, **build)


def produce(*batches: Any, acks: int = -1, transactional_id: str | None = None) -> ProduceRequest:
    """A request with one batch for each partition from 0 on."""
    parts = [
        PartitionProduceData(index=index, records=bytearray(batch))
        for index, batch in enumerate(batches)
    ]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=20_000,
        topic_data=[TopicProduceData(name="t", partition_data=parts)],
    )


def results(answer: Any) -> list[tuple[int, int]]:
    """(error, base offset) of each partition."""
    return [
        (each.error_code, each.base_offset)
        for topic in answer.responses
        for each in topic.partition_responses
    ]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_n57_a_batch_that_inflates_to_much_is_checked_in_the_thread(
    held: Broker, codec: Codec
) -> None:
    asked = held.begin(produce(large(codec)), 9)
    held.go_on()
    assert not asked.done
    assert len(held.thread.works) == 1
    assert held.end_offset() == 0
    other = held.ask(produce(make_batch(3)), 9)
    assert results(other) == [(0, 0)]
    assert results(held.let(asked)[0]) == [(0, 3)]
    assert held.end_offset() == 5


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_n57_smaller_batches_are_checked_at_once(held: Broker, codec: Codec) -> None:
    batch = make_batch(10, value=bytes(AT_ONCE_BYTES // 12), codec=codec)
    assert results(held.begin(produce(batch), 9).answer) == [(0, 0)]


def test_n57_many_batches_are_checked_in_slices(held: Broker) -> None:
    """Each inflates to less than is inflated at once, all together to more."""
    half = make_batch(1, value=bytes(AT_ONCE_BYTES * 2 // 3), codec=Codec.LZ4)
    asked = held.begin(produce(half, half, half), 9)
    assert not asked.done
    assert held.end_offset(2) == 0
    held.go_on()
    assert not held.thread.works
    assert results(asked.answer) == [(0, 0)] * 3


def test_n57_the_other_batches_of_the_request_do_not_wait(held: Broker) -> None:
    asked = held.begin(produce(make_batch(1), large(), make_batch(2)), 9)
    assert [held.end_offset(index) for index in range(3)] == [1, 0, 2]
    assert results(held.let(asked)[0]) == [(0, 0)] * 3


def test_n57_recompression_is_work_for_the_thread(held: Broker) -> None:
    partition = held.node.partition("t", 0)
    assert partition is not None
    partition.log.config = replace(partition.log.config, compression_type="lz4")
    batch = make_batch(20_000, value=b"x" * 20)
    asked = held.begin(produce(batch), 9)
    held.go_on()
    assert len(held.thread.works) == 1
    assert results(held.let(asked)[0]) == [(0, 0)]
    assert held.end_offset() == 20_000


@pytest.mark.parametrize("records", [300_000, 400_000, 1_400_000])
def test_n57_very_many_records_are_recompressed_or_refused(held: Broker, records: int) -> None:
    partition = held.node.partition("t", 0)
    assert partition is not None
    partition.log.config = replace(
        partition.log.config, compression_type="lz4", max_message_bytes=100_000_000
    )
    batch = make_batch(records, value=b"", codec=Codec.ZSTD)
    answer = held.let(held.begin(produce(batch), 9))[0]
    too_many = records > 1_000_000
    assert results(answer) == [(E.MESSAGE_TOO_LARGE, -1) if too_many else (0, 0)]


def test_r03_the_log_append_times_of_a_partition_ascend(held: Broker) -> None:
    """The time is that of the append, as in Kafka, not that of the check in the thread."""
    partition = held.node.partition("t", 0)
    assert partition is not None
    partition.log.config = replace(partition.log.config, message_timestamp_type="LogAppendTime")
    asked = held.begin(produce(large()), 9)
    held.go_on()
    held.clock.now_ms += 5_000
    sooner = held.ask(produce(make_batch(1)), 9)
    held.clock.now_ms += 5_000
    (later,) = held.let(asked)
    times = [
        answer.responses[0].partition_responses[0].log_append_time_ms for answer in (sooner, later)
    ]
    assert times == [NOW_MS + 5_000, NOW_MS + 10_000]
    stored = partition.log.read_at_once(0, 1 << 20)
    headers = [header for _, header in iter_batches(stored)]
    assert [header.max_timestamp for header in headers] == times
    assert all(header.is_log_append_time for header in headers)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_n10_a_request_whose_connection_is_closed_is_carried_out_to_its_end(
    held: Broker, acks: int
) -> None:
    asked = held.begin(produce(large(), large(), acks=acks), 9)
    held.go_on()
    asked.hang_up()
    held.let()
    assert [held.end_offset(index) for index in range(2)] == [2, 2]


def test_n57_a_topic_that_is_made_again_meanwhile_gets_nothing(held: Broker) -> None:
    asked = held.begin(produce(large()), 9)
    held.go_on()
    held.delete("t")
    held.flush()
    held.go_on()
    held.create("t", 3)
    answer = held.let(asked)[0]
    assert results(answer) == [(E.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert held.end_offset() == 0


def test_r12_a_batch_beyond_the_limit_of_a_request_is_refused_by_the_thread(
    held: Broker,
) -> None:
    batch = make_batch(130, value=bytes(1 << 20), codec=Codec.ZSTD)
    asked = held.begin(produce(batch, large()), 9)
    (answer,) = held.let(asked)
    assert results(answer) == [(E.MESSAGE_TOO_LARGE, -1), (E.MESSAGE_TOO_LARGE, -1)]
    assert "134217728" in answer.responses[0].partition_responses[0].error_message


def test_r06_the_errors_of_records_come_from_the_thread(held: Broker) -> None:
    batch = make_batch(2, value=LARGE, codec=Codec.ZSTD, timestamp=NOW_MS + 10**10)
    (answer,) = held.let(held.begin(produce(batch), 9))
    assert results(answer) == [(E.INVALID_TIMESTAMP, -1)]
    assert len(answer.responses[0].partition_responses[0].record_errors) == 2


def damaged() -> memoryview:
    """A large batch whose records cannot be read."""
    header = bytes(make_batch(2))[:HEADER_BYTES]
    batch = bytearray(header + compress(Codec.LZ4, b"\1" + LARGE))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = Codec.LZ4.to_bytes(2, "big")
    update_crc(batch, 0)
    return memoryview(batch)


@pytest.mark.parametrize("kind", ["records that cannot be read", "a time in the future"])
def test_n14_refused_large_batches_leave_nothing_to_a_collection_of_garbage(
    held: Broker, kind: str
) -> None:
    """The collector does not visit what has survived for a while."""
    if kind.startswith("records"):
        batch = damaged()
    else:
        batch = make_batch(1, value=LARGE, codec=Codec.LZ4, timestamp=NOW_MS + 10**10)
    (answer,) = held.let(held.begin(produce(batch), 9))
    assert results(answer)[0][0] in (E.INVALID_RECORD, E.INVALID_TIMESTAMP)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(5):
            held.let(held.begin(produce(batch), 9))
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left_bytes < AT_ONCE_BYTES


def test_n57_what_waits_for_the_thread_is_limited(held: Broker) -> None:
    asked = [held.begin(produce(large()), 9) for _ in range(BESIDE_MAX + 1)]
    held.go_on()
    assert [each.done for each in asked] == [False] * BESIDE_MAX + [True]
    assert results(asked[-1].answer) == [(E.REQUEST_TIMED_OUT, -1)]
    held.thread.run()
    held.go_on()
    assert results(asked[0].answer) == [(0, 0)]
    again = held.begin(produce(large()), 9)
    held.go_on()
    assert not again.done


# --- Transactions ---


@pytest.fixture
def transaction(held: Broker) -> int:
    """The producer id of a transactional id "tx" with an open transaction in `t`."""
    held.ask(FindCoordinatorRequest(coordinator_keys=["tx"], key_type=1))
    for _ in range(20):
        answer = held.ask(
            InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4
        )
        if answer.error_code == 0:
            break
    assert answer.error_code == 0
    added = held.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=answer.producer_id,
            v3_and_below_producer_epoch=answer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1, 2])],
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    producer_id: int = answer.producer_id
    return producer_id


def in_transaction(producer_id: int, sequence: int, *, is_large: bool) -> memoryview:
    of: dict[str, Any] = {
        "producer_id": producer_id,
        "epoch": 0,
        "sequence": sequence,
        "transactional": True,
    }
    return large(**of) if is_large else make_batch(1, **of)


def test_p15_a_large_batch_that_is_not_verified_is_not_overtaken(
    held: Broker, transaction: int
) -> None:
    """Both batches wait for the same verification; the second is checked sooner."""
    first = held.begin(
        produce(in_transaction(transaction, 0, is_large=True), transactional_id="tx"), 11
    )
    held.go_on()
    assert len(held.thread.works) == 1
    held.thread.run()
    second = held.begin(
        produce(in_transaction(transaction, 2, is_large=False), transactional_id="tx"), 11
    )
    answers = held.let(first, second)
    assert [results(each) for each in answers] == [[(0, 0)], [(0, 2)]]


def test_p15_a_large_batch_in_a_verified_transaction(held: Broker, transaction: int) -> None:
    small = produce(in_transaction(transaction, 0, is_large=False), transactional_id="tx")
    assert results(held.ask(small, 11)) == [(0, 0)]
    asked = held.begin(
        produce(in_transaction(transaction, 1, is_large=True), transactional_id="tx"), 11
    )
    assert results(held.let(asked)[0]) == [(0, 1)]


# --- Searches for timestamps ---


def offset_at(timestamp: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="t",
                partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
            )
        ],
    )


def found(answer: Any) -> tuple[int, int, int]:
    (only,) = answer.topics[0].partitions
    return only.error_code, only.offset, only.timestamp


@pytest.mark.parametrize("timestamp", [NOW_MS + 1, -3], ids=["by time", "the largest"])
@pytest.mark.parametrize(
    "batch",
    [large(), make_batch(20_000, value=b"x", timestamp=NOW_MS - 19_998)],
    ids=["inflates to much", "many records"],
)
def test_l15_a_large_batch_is_searched_in_the_thread(
    held: Broker, timestamp: int, batch: memoryview
) -> None:
    held.let(held.begin(produce(make_batch(1), batch), 9))
    held.let(held.begin(produce(batch), 9))
    last = held.end_offset() - 1
    asked = held.begin(offset_at(timestamp), 7)
    held.go_on()
    assert not asked.done
    assert len(held.thread.works) == 1
    assert found(held.let(asked)[0]) == (0, last, NOW_MS + 1)


def test_l15_a_small_batch_is_searched_at_once(held: Broker) -> None:
    held.ask(produce(make_batch(3)), 9)
    asked = held.begin(offset_at(NOW_MS + 2), 7)
    held.go_on()
    assert found(asked.answer) == (0, 2, NOW_MS + 2)


def test_l15_the_search_goes_on_after_the_topic_was_deleted(held: Broker) -> None:
    held.let(held.begin(produce(large()), 9))
    asked = held.begin(offset_at(NOW_MS), 7)
    held.go_on()
    held.delete("t")
    assert found(held.let(asked)[0])[0] in (E.UNKNOWN_TOPIC_OR_PARTITION, E.KAFKA_STORAGE_ERROR)


# --- A connection ---


async def test_n03_the_next_batch_of_a_connection_does_not_overtake_a_large_one(
    client: RawClient, broker: RunningBroker
) -> None:
    """Neither batch is refused because of its sequence, and the answers come in order."""
    await client.create_topic("t")
    first = large(producer_id=7, sequence=0)
    second = make_batch(1, producer_id=7, sequence=2)
    for each in (first, second):
        client.send(produce_request("t", bytearray(each)), 9)
    answers = [await client.receive() for _ in range(2)]
    assert [results(each) for each in answers] == [[(0, 0)], [(0, 2)]]
    assert (await client.call(MetadataRequest(topics=None), 12)).topics[0].name == "t"
