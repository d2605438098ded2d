"""Batches and their memory: rules C-10 to C-18, C-23 and C-25, without a loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from odradek_client.producer.accumulator import Accumulator, PartitionQueue
from odradek_client.producer.batch import Delivery, ProducerBatch, ProducerIdAndEpoch
from odradek_client.structs import TopicPartition
from odradek_protocol.compression import Codec
from odradek_protocol.records.builder import BatchBuilder, EncodedRecords
from odradek_protocol.records.layout import HEADER_BYTES

ME = ProducerIdAndEpoch(1, 0)


def accumulator(**settings: Any) -> Accumulator:
    defaults: dict[str, Any] = {
        "batch_size": 1000,
        "linger_ms": 5,
        "buffer_memory": 10_000,
        "codec": Codec.NONE,
        "delivery_timeout_ms": 1000,
        "new_future": lambda: None,
    }
    return Accumulator(**(defaults | settings))


def put(
    acc: Accumulator, partition: int = 0, size: int = 100, now_ms: float = 0.0, topic: str = "t"
) -> Delivery:
    """Add a record like the producer: to the open batch if it has room, else to a new batch."""
    queue = acc.queue(TopicPartition(topic, partition))
    value = b"x" * size
    delivery = queue.try_append(0, None, value, ())
    if delivery is None:
        limit, reserved = acc.batch_bytes(topic, None, value, ())
        assert acc.has_room(reserved)
        batch = acc.begin(queue, limit, reserved, now_ms)
        delivery = Delivery(batch, batch.builder.append(0, None, value, ()))
    return delivery


def ready(acc: Accumulator, now_ms: float, leader: int | None = 1) -> dict[int, list[int]]:
    found = acc.ready(now_ms, lambda topic, partition: leader)
    return {node: [q.tp.partition for q in queues] for node, queues in found.nodes.items()}


def drain(
    acc: Accumulator,
    queues: list[PartitionQueue],
    max_bytes: int = 1 << 20,
    may: Callable[[ProducerBatch], bool] = lambda _: True,
) -> list[ProducerBatch]:
    return acc.drain(1, queues, max_bytes, 0.0, may, lambda _: None)


def queues(acc: Accumulator, now_ms: float = 100.0) -> list[PartitionQueue]:
    return acc.ready(now_ms, lambda *_: 1).nodes.get(1, [])


def test_c10_records_share_a_batch_until_it_is_full() -> None:
    acc = accumulator()
    deliveries = [put(acc, size=200) for _ in range(6)]
    held = acc.queue(TopicPartition("t", 0)).batches
    assert [b.builder.record_count for b in held] == [4, 2]
    assert [d.index for d in deliveries] == [0, 1, 2, 3, 0, 1]
    assert all(not b.has_sequence for b in held)


def test_c10_a_record_above_batch_size_has_its_own_batch() -> None:
    acc = accumulator()
    put(acc, size=10)
    put(acc, size=5000)
    put(acc, size=10)
    held = acc.queue(TopicPartition("t", 0)).batches
    assert [b.builder.record_count for b in held] == [1, 1, 1]
    assert held[1].reserved_bytes > 5000


def test_c11_memory_is_reserved_per_batch_and_released_once() -> None:
    acc = accumulator(buffer_memory=2500)
    put(acc, 0)
    put(acc, 1)
    assert acc.available_bytes == 500 and not acc.has_room(1000)
    (batch, _) = drain(acc, queues(acc))
    acc.finished(batch)
    acc.finished(batch)
    assert acc.available_bytes == 1500, "given back once"


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_c11_a_batch_that_grows_by_compression_fits_into_the_whole_buffer(codec: Codec) -> None:
    acc = accumulator(buffer_memory=32_768, codec=codec)
    builder = BatchBuilder()
    builder.append(0, None, Random(1).randbytes(32_676))
    body = bytes(builder.build())[HEADER_BYTES:]
    encoded = EncodedRecords(codec, body, 1, 0, 0)
    reserved = acc.encoded_bytes(encoded)
    assert acc.has_room(reserved)
    batch = acc.add(acc.queue(TopicPartition("t", 0)), encoded, 0.0)
    assert acc.available_bytes == 32_768 - reserved >= 0
    acc.finished(batch)
    assert acc.available_bytes == 32_768


def test_c13_a_batch_is_ready_by_linger_size_flush_waiters_or_close() -> None:
    acc = accumulator()
    put(acc, now_ms=10.0)
    assert ready(acc, 14.0) == {} and ready(acc, 15.0) == {1: [0]}
    assert acc.ready(12.0, lambda *_: 1).check_ms == pytest.approx(3.0)
    for attribute, value in {"flushes": 1, "waiters": deque([object()]), "closing": True}.items():
        usual = getattr(acc, attribute)
        setattr(acc, attribute, value)
        assert ready(acc, 10.0) == {1: [0]}, attribute
        setattr(acc, attribute, usual)
    put(acc, size=900, now_ms=10.0)
    assert ready(acc, 10.0) == {1: [0]}, "a second batch makes the first full"


def test_c14_a_retry_waits_for_its_backoff_unless_the_leader_changed() -> None:
    acc = accumulator()
    put(acc)
    (batch,) = drain(acc, queues(acc))
    batch.attempts, batch.retry_at_ms, batch.last_leader = 1, 300.0, 1
    acc.requeue(batch)
    assert ready(acc, 299.0) == {} and ready(acc, 300.0) == {1: [0]}
    assert ready(acc, 200.0, leader=2) == {2: [0]}


def test_c15_a_request_has_one_batch_per_partition_up_to_max_request_size() -> None:
    acc = accumulator()
    for partition in range(4):
        put(acc, partition, 900)
        put(acc, partition, 900)
    found = drain(acc, queues(acc), max_bytes=2500)
    assert len(found) == 2 and len({b.tp for b in found}) == 2


def test_c15_an_oversized_batch_is_sent_alone() -> None:
    acc = accumulator()
    put(acc, 0, 5000)
    put(acc, 1, 10)
    assert [b.tp.partition for b in drain(acc, queues(acc), max_bytes=100)] == [0]


def test_c15_every_partition_has_its_turn_to_be_first() -> None:
    acc = accumulator(buffer_memory=100_000)
    for partition in range(3):
        for _ in range(3):
            put(acc, partition, 900)
    firsts = [drain(acc, queues(acc), max_bytes=1)[0].tp.partition for _ in range(3)]
    assert sorted(firsts) == [0, 1, 2]


def test_c16_an_unknown_leader_is_reported_and_not_ready() -> None:
    acc = accumulator()
    put(acc)
    found = acc.ready(100.0, lambda *_: None)
    assert found.unknown_leaders and not found.nodes


def test_c17_a_muted_partition_is_not_ready() -> None:
    acc = accumulator()
    put(acc)
    acc.queue(TopicPartition("t", 0)).muted = True
    assert ready(acc, 100.0) == {}


def test_c20_a_partition_that_may_not_be_sent_delays_no_other() -> None:
    acc = accumulator()
    for partition in range(3):
        put(acc, partition)
    found = drain(acc, queues(acc), may=lambda batch: batch.tp.partition != 0)
    assert [b.tp.partition for b in found] == [1, 2]
    assert ready(acc, 100.0) == {1: [0]}


def test_c22_a_drained_batch_takes_no_more_records() -> None:
    acc = accumulator()
    put(acc)
    (batch,) = drain(acc, queues(acc))
    put(acc)
    assert batch.record_count == batch.builder.record_count == 1


def stamped(acc: Accumulator, *sequences: int, epoch: int = 0) -> list[ProducerBatch]:
    found = []
    for sequence in sequences:
        put(acc, size=900)
        (batch,) = drain(acc, queues(acc))
        batch.stamp(ProducerIdAndEpoch(1, epoch), sequence)
        found.append(batch)
    return found


def test_c23_requeued_batches_are_ordered_by_sequence() -> None:
    acc = accumulator()
    a, b, c = stamped(acc, 0, 1, 2)
    put(acc, size=900)
    for batch in (b, c, a):
        acc.requeue(batch)
    held = list(acc.queue(TopicPartition("t", 0)).batches)
    assert held[:3] == [a, b, c] and not held[3].has_sequence


def test_c23_requeued_batches_are_ordered_across_a_wrap_and_an_epoch() -> None:
    acc = accumulator()
    a, b = stamped(acc, 2**31 - 1, 0)
    (old,) = stamped(acc, 9, epoch=-1)
    for batch in (b, a, old):
        acc.requeue(batch)
    assert list(acc.queue(TopicPartition("t", 0)).batches) == [old, a, b]


def test_c23_requeued_batches_without_sequences_go_to_the_head() -> None:
    acc = accumulator()
    put(acc, size=900)
    (first,) = drain(acc, queues(acc))
    put(acc, size=900)
    acc.requeue(first)
    assert acc.queue(TopicPartition("t", 0)).batches[0] is first


def test_c25_parts_of_a_split_batch_go_to_the_head_in_order() -> None:
    acc = accumulator(batch_size=4000)
    for index in range(10):
        put(acc, size=300 + index)
    (whole,) = drain(acc, queues(acc))
    put(acc)
    parts = whole.split(1000)
    acc.replace(whole, parts)
    held = list(acc.queue(TopicPartition("t", 0)).batches)
    assert held[: len(parts)] == parts
    assert [len(r[2] or b"") for p in parts for r in p.builder.records()] == [
        300 + index for index in range(10)
    ]
    assert list(acc.incomplete)[: len(parts)] == parts and whole not in acc.incomplete
    for batch in list(acc.incomplete):
        acc.finished(batch)
    assert acc.available_bytes == acc.buffer_memory


def test_c40_expiry_counts_from_creation_and_includes_batches_in_flight() -> None:
    acc = accumulator()
    put(acc, 0, now_ms=0.0)
    put(acc, 1, now_ms=500.0)
    (in_flight, *_) = drain(acc, queues(acc))
    assert acc.expiry_ms() == 1000.0
    assert acc.expired(999.0) == []
    assert acc.expired(1000.0) == [in_flight]


def test_batches_are_filled_to_their_estimated_compressed_size() -> None:
    acc = accumulator(codec=Codec.ZSTD, buffer_memory=1 << 30)
    sizes = []
    for _ in range(200):
        put(acc, size=100)
    for _ in range(60):
        queue = acc.queue(TopicPartition("t", 0))
        if not queue.batches:
            for _ in range(200):
                put(acc, size=100)
        for batch in drain(acc, queues(acc)):
            estimated = batch.builder.estimated_bytes
            batch.encode()
            acc.encoded(batch, estimated)
            sizes.append(batch.record_count)
    assert sizes[-1] > 3 * sizes[0], "records that compress well are taken in larger numbers"
