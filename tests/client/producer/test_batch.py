"""The result of a batch, as programs get it from the deliveries of their records."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from odradek_client.errors import IllegalState, InvalidRecord, MessageTooLarge
from odradek_client.producer.batch import Delivery, ProducerBatch, RecordMetadata
from odradek_client.structs import TopicPartition
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode

TP = TopicPartition("t", 3)


def batch(count: int = 3) -> tuple[ProducerBatch, list[Delivery]]:
    loop = asyncio.get_running_loop()
    made = ProducerBatch(TP, Codec.NONE, 1 << 20, 0, 0.0, loop.create_future)
    deliveries = [
        Delivery(made, made.builder.append(1000 + index, None, b"v" * 50, ()))
        for index in range(count)
    ]
    made.close()
    return made, deliveries


async def test_each_delivery_has_its_offset_and_timestamp() -> None:
    made, deliveries = batch()
    made.complete(40, -1)
    assert deliveries[2].result() == RecordMetadata("t", 3, 42, 1002)
    assert [await d for d in deliveries] == [d.result() for d in deliveries]
    assert deliveries[0].exception() is None


async def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    made, deliveries = batch()
    made.complete(40, 7777)
    assert {d.result().timestamp_ms for d in deliveries} == {7777}


async def test_c24_an_unknown_offset_is_minus_one_for_all() -> None:
    made, deliveries = batch()
    made.complete(-1, -1)
    assert [d.result().offset for d in deliveries] == [-1, -1, -1]


async def test_a_delivery_that_is_not_done_has_no_result() -> None:
    _made, deliveries = batch()
    assert not deliveries[0].done() and "on its way" in repr(deliveries[0])
    with pytest.raises(IllegalState, match="await the delivery"):
        deliveries[0].result()


async def test_a_cancelled_waiter_of_a_delivery_does_not_disturb_others() -> None:
    made, deliveries = batch()

    async def wait(delivery: Delivery) -> RecordMetadata:
        return await delivery

    tasks = [asyncio.create_task(wait(deliveries[0])) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    made.complete(5, -1)
    assert (await tasks[0]).offset == (await tasks[2]).offset == 5
    assert tasks[1].cancelled()
    gathered = await asyncio.gather(*deliveries)
    assert [m.offset for m in gathered] == [5, 6, 7]


async def test_a_failed_batch_fails_every_delivery_without_growing_tracebacks() -> None:
    made, deliveries = batch()
    waiting = asyncio.ensure_future(asyncio.gather(*deliveries, return_exceptions=True))
    await asyncio.sleep(0)
    made.fail(MessageTooLarge("too large"))
    assert [type(e) for e in await waiting] == [MessageTooLarge] * 3
    depths = []
    for _ in range(3):
        with pytest.raises(MessageTooLarge) as caught:
            await deliveries[1]
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1, "tracebacks do not pile up"


async def test_r06_a_refused_record_has_its_own_reason() -> None:
    made, deliveries = batch()
    made.fail(InvalidRecord("refused", code=ErrorCode.INVALID_RECORD), {1: "no key"})
    assert "no key" in str(deliveries[1].exception())
    assert "other records" in str(deliveries[0].exception())
    assert isinstance(deliveries[0].exception(), InvalidRecord)


async def test_a_finished_batch_drops_its_records_and_is_finished_once() -> None:
    made, _ = batch()
    made.complete(0, -1)
    assert made.builder.record_count == 0 and made.encoded is None
    with pytest.raises(IllegalState, match="finished twice"):
        made.fail(MessageTooLarge("again"))


async def test_c25_deliveries_follow_their_records_into_the_parts_of_a_split_batch() -> None:
    made, deliveries = batch(8)
    waiting = asyncio.ensure_future(asyncio.gather(*deliveries, return_exceptions=True))
    await asyncio.sleep(0)
    first, *rest = made.split(made.builder.estimated_bytes // 2)
    inner = first.split(150)
    assert len(inner) >= 2
    for position, part in enumerate([*inner, *rest]):
        if position == 0:
            part.fail(MessageTooLarge("no"))
        else:
            part.complete(100 * position, -1)
    results = await waiting
    assert len(results) == 8
    assert isinstance(results[0], MessageTooLarge)
    good = [r for r in results if isinstance(r, RecordMetadata)]
    assert [m.timestamp_ms for m in good] == [1008 - len(good) + i for i in range(len(good))]
    assert deliveries[-1].result().offset > 100


class Held:
    """An object in a frame of the program, to notice frames that are kept alive."""


async def test_the_error_of_a_delivery_keeps_no_frames_alive() -> None:
    """Only the garbage collector frees the frames, because there is a reference cycle: error ->
    traceback -> frames -> delivery -> batch -> error."""
    gone = []

    def look(delivery: Delivery, how: str) -> None:
        held = Held()
        gone.append(weakref.ref(held))
        if how == "result":
            delivery.result()
        else:
            raise delivery.exception() or AssertionError

    for how in ("result", "exception"):
        made, deliveries = batch()
        made.fail(InvalidRecord("no", code=ErrorCode.INVALID_RECORD))
        with pytest.raises(InvalidRecord):
            look(deliveries[1], how)
        del made, deliveries
    gc.collect()
    assert [each() for each in gone] == [None, None]


async def test_a_waiter_for_a_delivery_that_is_never_sent_can_be_collected() -> None:
    gone = []

    def begin() -> None:
        made, deliveries = batch()
        waiting = deliveries[0].__await__()
        next(waiting)
        held = Held()
        held.waiting = waiting  # type: ignore[attr-defined]
        made._waiters[0].held = held  # type: ignore[attr-defined]
        gone.append(weakref.ref(held))

    class Future(asyncio.Future[None]):
        held: Held

    loop = asyncio.get_running_loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "create_future", Future)
        begin()
    gc.collect()
    assert gone[0]() is None
