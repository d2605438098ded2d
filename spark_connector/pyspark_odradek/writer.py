"""Writing with `semantics=at_least_once`: each task sends its rows with the producer.

As in Spark's own sink, a task that fails after it has sent a part of its rows is run again from its
first row. A row counts as written when the brokers have acknowledged it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.compute import array_sort_indices
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from odradek_client.errors import OdradekError
from pyspark_odradek import blocking
from pyspark_odradek.errors import SinkError
from pyspark_odradek.exactly_once import fault_points
from pyspark_odradek.exactly_once.fault_points import SparkFaultPoint
from pyspark_odradek.exactly_once.targets import number_of
from pyspark_odradek.options import SinkOptions
from pyspark_odradek.schema import check_write_schema

if TYPE_CHECKING:
    from odradek_client.producer.arrow import ArrowDelivery
    from odradek_client.producer.producer import Producer

log = logging.getLogger("odradek.spark")

_RECORD_COLUMNS = ("key", "value", "headers", "partition")
#: The limit of the Arrow batches that have unacknowledged records.
CHUNKS_MAX = 16

#: A topic and its rows, with the columns of `Producer.produce_arrow`.
TopicRows = tuple[str, pa.RecordBatch]


@dataclass
class WrittenRows(WriterCommitMessage):
    """The output of one task: the number of acknowledged rows, the bytes of their keys and values,
    and the number that `exactly_once.targets` computes from these rows."""

    rows: int = 0
    value_bytes: int = 0
    targets: int = 0


class BatchJobWriter(DataSourceArrowWriter):
    """The writer of a batch job. The writer is created on the driver, where the schema is checked;
    `write` runs on executors with a copy of the writer.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.places = check_write_schema(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write all rows, and wait until they are acknowledged. SinkError names the first row that
        was not acknowledged.
        """
        return write_untransacted(iterator, self.options, self.places)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing, because the rows are already in the topic."""
        done = [message for message in messages if isinstance(message, WrittenRows)]
        log.info(
            "odradek: %d tasks wrote %d records", len(done), sum(message.rows for message in done)
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log how many rows a failed job has left in the topic, since they cannot be removed."""
        rows = sum(message.rows for message in messages if isinstance(message, WrittenRows))
        log.warning(
            "odradek: the job failed; at least %d records of it were written and stay in the topic",
            rows,
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream, which writes every micro-batch as a `BatchJobWriter` writes its
    job."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.places = check_write_schema(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write all rows, and wait until they are acknowledged. SinkError names the first row that
        was not acknowledged.
        """
        return write_untransacted(iterator, self.options, self.places)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing, because the rows are already in the topic."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing, because rows cannot be removed from the topic; a restart writes the batch
        again.
        """
        log.warning(
            "odradek: batch %d failed; records of it that were written stay in the topic", batchId
        )


def write_untransacted(
    iterator: Iterator[pa.RecordBatch], options: SinkOptions, places: Mapping[str, int]
) -> WrittenRows:
    """Write the rows of a task with the producer of this process."""
    here = blocking.shared()
    try:
        producer = blocking.producer(options.client)
        written = send_all(iterator, producer, options.topic, places)
        fault_points.reach(SparkFaultPoint.TASK_PREPARED)
    except BaseException as error:
        # The producer may be broken, so the next attempt makes a new producer.
        here.producers.discard(here.thread, options.client)
        if isinstance(error, OdradekError):
            raise SinkError.of_rows(error) from error
        raise
    return written


def send_all(
    iterator: Iterator[pa.RecordBatch],
    producer: Producer,
    topic: str | None,
    places: Mapping[str, int],
) -> WrittenRows:
    """Send all rows, and wait until they are acknowledged. Raises SinkError, or the OdradekError of
    the first row that was not acknowledged."""
    thread = blocking.shared().thread
    sending = Sending(producer)
    written = WrittenRows()
    pending: Future[None] | None = None
    try:
        # While a batch is sent, Spark prepares the next batch.
        for batch in iterator:
            rows = rows_of(batch, topic, places)
            if pending is not None:
                pending.result()
            written.rows += batch.num_rows
            written.value_bytes += _content_bytes(batch, places)
            written.targets += number_of({name: part.num_rows for name, part in rows})
            pending = thread.submit(sending.send(rows))
        if pending is not None:
            pending.result()
        thread.run(sending.finish())
    except BaseException:
        if pending is not None:
            pending.cancel()
        raise
    return written


def rows_of(batch: pa.RecordBatch, topic: str | None, places: Mapping[str, int]) -> list[TopicRows]:
    """The rows of each topic, in their original order, with only the columns of a record.

    `topic`: the topic of all rows, None if a column has the topic. Raises SinkError for a row
    without a topic.
    """
    names = [name for name in _RECORD_COLUMNS if name in places]
    rows = pa.RecordBatch.from_arrays([batch.column(places[name]) for name in names], names=names)
    if topic is not None:
        return [(topic, rows)]
    topics = _topics(batch, places)
    if not len(topics):
        return []
    numbers = topics.dictionary_encode()
    found = numbers.dictionary.to_pylist()
    if len(found) == 1:
        return [(found[0], rows)]
    order = array_sort_indices(numbers.indices)  # stable: the rows of each topic keep their order
    counts = {each["values"]: each["counts"] for each in numbers.indices.value_counts().to_pylist()}
    sorted_rows = rows.take(order)
    parts, start = [], 0
    for number, name in enumerate(found):
        parts.append((name, sorted_rows.slice(start, counts[number])))
        start += counts[number]
    return parts


def rows_per_topic(
    batch: pa.RecordBatch, topic: str | None, places: Mapping[str, int]
) -> dict[str, int]:
    """The number of rows for each topic, divided as in `rows_of`."""
    if topic is not None:
        return {topic: batch.num_rows}
    counts = _topics(batch, places).value_counts().to_pylist()
    return {each["values"]: each["counts"] for each in counts}


def _topics(batch: pa.RecordBatch, places: Mapping[str, int]) -> Any:
    topics = batch.column(places["topic"])
    if topics.null_count:
        raise SinkError(
            "odradek: a row has no topic: its column `topic` is null; fill it, or set the option `topic`"
        )
    return topics


def _content_bytes(batch: Any, places: Mapping[str, int]) -> int:
    return sum(batch.column(places[name]).nbytes for name in ("key", "value") if name in places)


class Sending:
    """The unacknowledged rows of a task. All coroutines run on the producer's event loop, one at a
    time."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._chunks: deque[list[ArrowDelivery]] = deque()
        self._found: set[str] = set()

    async def send(self, parts: Sequence[TopicRows]) -> None:
        """Give rows to the producer. Waits if the producer has no memory for them."""
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
        """Wait for the result of every row; raises the error of the first row that was not
        written."""
        await self._producer.flush()
        while self._chunks:
            await _check(self._chunks.popleft())


def _all_done(deliveries: list[ArrowDelivery]) -> bool:
    return all(delivery.done() for delivery in reversed(deliveries))


async def _check(deliveries: list[ArrowDelivery]) -> None:
    for delivery in deliveries:
        await delivery
