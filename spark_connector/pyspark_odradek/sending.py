"""The unacknowledged rows of a task."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odradek_client.errors import OdradekError
from pyspark_odradek.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek_client.producer.arrow import ArrowDelivery
    from odradek_client.producer.producer import Producer

#: The most Arrow batches with unacknowledged records while the next one is sent.
CHUNKS_MAX = 16

TopicRows = tuple[str, "pa.RecordBatch"]
"""A topic and rows for it, in columns as `Producer.produce_arrow` takes them."""


class Sending:
    """The sending of a task's rows. All coroutines run on the producer's loop, one at a time."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._chunks: deque[list[ArrowDelivery]] = deque()
        self._found: set[str] = set()

    async def send(self, parts: Sequence[TopicRows]) -> None:
        """Buffer rows, waiting for memory if needed."""
        deliveries: list[ArrowDelivery] = []
        self._chunks.append(deliveries)
        await self._find(topic for topic, _ in parts)
        for topic, rows in parts:
            try:
                deliveries.append(await self._producer.produce_arrow(topic, rows))
            except ValueError as error:
                raise SinkError(f"odradek: a row cannot be written: {error}") from error
        while len(self._chunks) > CHUNKS_MAX or (self._chunks and _all_done(self._chunks[0])):
            await _check(self._chunks.popleft())

    async def _find(self, topics: Iterable[str]) -> None:
        """Get the partitions of these topics with one request, not one for each topic."""
        new = [topic for topic in topics if topic not in self._found]
        if len(new) > 1:
            find = self._producer.partitions_for
            answers = await asyncio.gather(*map(find, new), return_exceptions=True)
            for answer in answers:
                if isinstance(answer, OdradekError):
                    raise answer
        self._found.update(new)

    async def finish(self) -> None:
        """Wait for the result of every row; raises the error of the first one that was not
        written."""
        await self._producer.flush()
        while self._chunks:
            await _check(self._chunks.popleft())


def _all_done(deliveries: list[ArrowDelivery]) -> bool:
    return all(delivery.done() for delivery in reversed(deliveries))


async def _check(deliveries: list[ArrowDelivery]) -> None:
    for delivery in deliveries:
        await delivery
