"""A task's rows on their way to the brokers, as long as not all of them are acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark_odradek.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek_client.producer.arrow import ArrowDelivery
    from odradek_client.producer.producer import Producer

#: Arrow batches whose records may be on their way while the next one is sent.
CHUNKS_MAX = 16

TopicRows = tuple[str, "pa.RecordBatch"]
"""A topic and rows for it, in columns as `Producer.produce_arrow` takes them."""


class Sending:
    """One task's rows on their way. All coroutines run on the producer's loop, one at a time."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._chunks: deque[list[ArrowDelivery]] = deque()

    async def send(self, parts: Sequence[TopicRows]) -> None:
        """Buffer them, waiting for room where there is none."""
        deliveries: list[ArrowDelivery] = []
        self._chunks.append(deliveries)
        for topic, rows in parts:
            try:
                deliveries.append(await self._producer.produce_arrow(topic, rows))
            except ValueError as error:
                raise SinkError(f"odradek: a row cannot be written: {error}") from error
        while len(self._chunks) > CHUNKS_MAX or (self._chunks and _all_done(self._chunks[0])):
            await _check(self._chunks.popleft())

    async def finish(self) -> None:
        """Until the fate of every row is known; raises that of the first that was not written."""
        await self._producer.flush()
        while self._chunks:
            await _check(self._chunks.popleft())


def _all_done(deliveries: list[ArrowDelivery]) -> bool:
    return all(delivery.done() for delivery in reversed(deliveries))


async def _check(deliveries: list[ArrowDelivery]) -> None:
    for delivery in deliveries:
        await delivery
