"""A task's rows on their way to the brokers, as long as not all of them are acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_odradek.errors import SinkError

if TYPE_CHECKING:
    from odradek_client.producer.batch import Delivery
    from odradek_client.producer.producer import Producer

#: Arrow batches whose records may be on their way while the next one is sent.
CHUNKS_MAX = 16

Headers = list[tuple[str, bytes | None]] | tuple[()]
#: Key, value, headers, topic, partition.
Row = tuple[bytes | None, bytes | None, Headers, str | None, int | None]


class Sending:
    """One task's rows on their way. All coroutines run on the producer's loop, one at a time."""

    def __init__(self, producer: Producer, topic: str | None) -> None:
        self._producer = producer
        self._topic = topic
        self._chunks: deque[list[Delivery]] = deque()

    async def send(self, rows: Iterable[Row]) -> None:
        """Buffer them, waiting for room where there is none."""
        send, fixed_topic = self._producer.send, self._topic
        deliveries: list[Delivery] = []
        self._chunks.append(deliveries)
        for key, value, headers, topic, partition in rows:
            topic = fixed_topic if fixed_topic is not None else topic
            if topic is None:
                raise SinkError(
                    "odradek: a row has no topic: its column `topic` is null; fill it, or set the "
                    "option `topic`"
                )
            try:
                deliveries.append(
                    await send(topic, value, key, headers=headers, partition=partition)
                )
            except ValueError as error:
                raise SinkError(f"odradek: a row cannot be written: {error}") from error
        while len(self._chunks) > CHUNKS_MAX or (self._chunks and _all_done(self._chunks[0])):
            await _check(self._chunks.popleft())

    async def finish(self) -> None:
        """Until the fate of every row is known; raises that of the first that was not written."""
        await self._producer.flush()
        while self._chunks:
            await _check(self._chunks.popleft())


def _all_done(deliveries: list[Delivery]) -> bool:
    return all(delivery.done() for delivery in reversed(deliveries))


async def _check(deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        if not delivery.done():
            await delivery
        error = delivery.exception()
        if error is not None:
            raise error
