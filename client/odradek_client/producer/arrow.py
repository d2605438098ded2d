"""`Producer.produce_arrow`: the rows of a RecordBatch as batches of their partitions, and their
results.

The batches are encoded by `odradek_protocol.records.from_arrow`; the accumulator treats them like
all other batches. One `pyarrow.RecordBatch` may have the rows of many batches; its rows are encoded
in chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import IllegalState, OdradekError, RecordTooLarge
from odradek_client.producer.accumulator import Accumulator, PartitionQueue
from odradek_client.producer.batch import ProducerBatch
from odradek_client.producer.partitioner import Partitioner, TopicQueues
from odradek_protocol.compression import Codec
from odradek_protocol.constants import NO_OFFSET
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.arrow import pyarrow
from odradek_protocol.records.builder import EncodedRecords
from odradek_protocol.records.from_arrow import (
    ArrowRecords,
    Group,
    RowTooLarge,
)
from odradek_protocol.records.lines import LineRecords

#: The bytes before compression that are encoded at a time; the sender can run between two chunks.
CHUNK_BYTES = 512 * 1024


class RowsOutcome(NamedTuple):
    """The result of consecutive rows of one partition.

    `rows`: the numbers of the rows in the RecordBatch, in the order of offsets; a range if the
    numbers are adjacent. `base_offset`: the offset of the first row; -1 if the offset is unknown or
    the rows were not written. `error`: the reason why the rows were not written, else None.
    """

    partition: int
    rows: Sequence[int]
    base_offset: int
    error: OdradekError | None


class ArrowMetadata(NamedTuple):
    """The partitions and offsets of the rows of a RecordBatch."""

    topic: str
    row_count: int
    outcomes: list[RowsOutcome]

    def offsets(self) -> Any:
        """A `pyarrow.RecordBatch` with the columns partition (int32) and offset (int64). Its rows
        correspond to the rows that were sent."""
        pa = pyarrow()
        from pyarrow.compute import array_sort_indices

        partitions, offsets, rows = [], [], []
        for outcome in self.outcomes:
            count = len(outcome.rows)
            first = outcome.base_offset
            partitions.append(pa.repeat(pa.scalar(outcome.partition, pa.int32()), count))
            if first == NO_OFFSET:
                offsets.append(pa.repeat(pa.scalar(NO_OFFSET, pa.int64()), count))
            else:
                offsets.append(pa.array(range(first, first + count), pa.int64()))
            rows.append(pa.array(outcome.rows, pa.int64()))
        schema = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
        if not rows:
            return pa.RecordBatch.from_arrays(
                [pa.nulls(0, each.type) for each in schema], schema=schema
            )
        unordered = pa.RecordBatch.from_arrays(
            [pa.concat_arrays(partitions), pa.concat_arrays(offsets)], schema=schema
        )
        return unordered.take(array_sort_indices(pa.concat_arrays(rows)))


class ArrowDelivery:
    """The result of sending a RecordBatch's rows. Await it for the `ArrowMetadata`; it raises if a
    row was not written.

    May be awaited any number of times, by several tasks, or not at all.
    """

    __slots__ = ("_batches", "_row_count", "topic")

    def __init__(self, topic: str, row_count: int) -> None:
        self.topic = topic
        self._row_count = row_count
        self._batches: list[tuple[ProducerBatch, Sequence[int]]] = []

    def add(self, batch: ProducerBatch, rows: Sequence[int]) -> None:
        """Add rows that were buffered in this batch. Called by the producer."""
        self._batches.append((batch, rows))

    @property
    def buffered(self) -> int:
        """The number of rows that were put into batches."""
        return sum(len(rows) for _, rows in self._batches)

    def __await__(self) -> Generator[Any, None, ArrowMetadata]:
        for batch, _ in self._batches:
            while not batch.done:
                yield from batch.wait().__await__()
        return self.result()

    def done(self) -> bool:
        """True if the result of every row is known."""
        return all(batch.done for batch, _ in self._batches)

    def result(self) -> ArrowMetadata:
        """Return the metadata, or raise the error, of a finished delivery. Raises IllegalState if
        the delivery is not finished."""
        error = self.exception()
        if error is not None:
            raise error
        return ArrowMetadata(self.topic, self._row_count, self.outcomes())

    def exception(self) -> OdradekError | None:
        """The reason why the first failed row was not written, with the row's number. None if all
        rows were written; IllegalState while a result is unknown."""
        failures = [
            (leaf_rows[failure[0]], len(leaf_rows), failure[1])
            for leaf, leaf_rows in self._leaves()
            if (failure := leaf.first_error()) is not None
        ]
        if not failures:
            return None
        row, _, error = min(failures, key=lambda each: each[0])
        count = sum(each for _, each, _ in failures)
        return type(error)(
            f"{count} of {self._row_count} rows were not written, or may not be; row {row}: {error}",
            code=error.code,
        )

    def outcomes(self, *, known: bool = False) -> list[RowsOutcome]:
        """The results, one for the rows of each batch. IllegalState while a result is unknown; with
        `known`, only the known results."""
        found = []
        for leaf, rows in self._leaves(known):
            failure = leaf.first_error()
            error = None if failure is None else failure[1]
            found.append(RowsOutcome(leaf.tp.partition, rows, leaf.base_offset, error))
        return found

    def _leaves(self, known: bool = False) -> list[tuple[ProducerBatch, Sequence[int]]]:
        if not known and not self.done():
            raise IllegalState("rows are still on their way; await the delivery")
        return [
            (leaf, rows[start : start + leaf.record_count])
            for batch, rows in self._batches
            for start, leaf in batch.leaves()
            if leaf.done
        ]

    def __repr__(self) -> str:
        if not self.done():
            return f"<ArrowDelivery of {self._row_count} rows to {self.topic}, on its way>"
        error = self.exception()
        if error is not None:
            return f"<ArrowDelivery to {self.topic}, failed: {error}>"
        return f"<ArrowDelivery of {self._row_count} rows to {self.topic}, written>"


class Lines:
    """Lines to send as records, with the interface of `PartitionedRows`. All lines are sent to
    `partition` (None: the partitioner chooses)."""

    def __init__(
        self, config: ProducerConfig, records: LineRecords, partition: int | None, timestamp_ms: int
    ) -> None:
        """Read the lines, up to the first line that is too large for a record."""
        self.records = records
        self.timestamp_ms = timestamp_ms
        self._partition = partition
        limit = min(config.max_request_size, config.buffer_memory)
        count = records.count
        try:
            records.check(limit)
        except RowTooLarge as error:
            count = error.row
        self.groups = [Group(partition, 0, count)] if count else []

    @property
    def count(self) -> int:
        return sum(group.end for group in self.groups)

    def place(self, partitioner: Partitioner, state: TopicQueues) -> None:
        """Check the partition. Raises ValueError if it does not exist."""
        if self._partition is not None:
            partitioner.choose(state, None, None, self._partition)


class PartitionedRows:
    """A RecordBatch to send: its records, and their partitions."""

    def __init__(
        self, config: ProducerConfig, batch: Any, partition: int | None, timestamp_ms: int
    ) -> None:
        """Read the columns. Raises TypeError, ValueError."""
        self.records = ArrowRecords(batch)
        self.timestamp_ms = timestamp_ms
        self._batch = batch
        self._partition = partition
        self._config = config
        self.groups: list[Group] = []
        if partition is not None and (
            not isinstance(partition, int) or isinstance(partition, bool)
        ):
            raise TypeError(f"a partition is a number, not {partition!r}")
        names = batch.schema.names
        if partition is not None and "partition" in names:
            raise ValueError("both the argument and a column say the partition; give one of them")

    @property
    def count(self) -> int:
        return self.records.count

    def place(self, partitioner: Partitioner, state: TopicQueues) -> None:
        """Check all rows, and choose their partitions. Raises RecordTooLarge, UnwritablePartition,
        ValueError."""
        partitions = len(state.queues)
        if self._partition is not None:
            partitioner.choose(state, None, None, self._partition)  # the partition must exist
            self._check(partitions)
            if self.count:
                self.groups = [Group(self._partition, 0, self.records.count)]
            return
        if partitioner.decides_by_itself:
            self._check(partitions)
        else:
            self.records = ArrowRecords(_with_partitions(self._batch, partitioner, state))
            self._check(partitions)
        self.groups = self.records.place(partitions)

    def _check(self, partitions: int) -> None:
        limits = {
            name: getattr(self._config, name) for name in ("max_request_size", "buffer_memory")
        }
        name = min(limits, key=lambda each: int(limits[each]))
        try:
            self.records.check(limits[name], partitions)
        except RowTooLarge as error:
            raise RecordTooLarge(
                f"{error} by {name}; send less in one record, or raise it"
            ) from None


def _with_partitions(batch: Any, partitioner: Partitioner, state: TopicQueues) -> Any:
    """The rows with a complete partition column. The configured partitioner chooses the partition
    of a row without one."""
    pa = pyarrow()
    names = batch.schema.names
    keys = batch.column("key") if "key" in names else pa.nulls(batch.num_rows)
    given = batch.column("partition") if "partition" in names else pa.nulls(batch.num_rows)
    chosen = []
    for row, (key, partition) in enumerate(zip(keys, given, strict=True)):
        content = key.as_py()
        octets = content.encode() if isinstance(content, str) else content
        number = partition.as_py()
        try:
            if number is None:
                number = partitioner.choose(state, octets, None, None).tp.partition
        except ValueError as error:
            raise ValueError(f"row {row}: {error}") from error
        chosen.append(number)
    columns = {name: batch.column(name) for name in names if name != "partition"}
    return pa.record_batch({**columns, "partition": pa.array(chosen, pa.int64())})


class EncodedGroup(NamedTuple):
    """An encoded batch for a partition (None: the partitioner chooses). `rows`: the numbers of its
    rows."""

    partition: int | None
    records: EncodedRecords
    rows: Sequence[int]


class ArrowSending:
    """Adds rows to the accumulator, one batch of each partition in turn."""

    def __init__(
        self,
        rows: PartitionedRows | Lines,
        partitioner: Partitioner,
        state: TopicQueues,
        accumulator: Accumulator,
        delivery: ArrowDelivery,
    ) -> None:
        self.delivery = delivery
        self._rows = rows
        self._partitioner = partitioner
        self._state = state
        #: The queues at the time when the partitions were chosen; new metadata replaces
        #: `state.queues`.
        self._queues = state.queues
        self._accumulator = accumulator
        self._left = deque(rows.groups)

    @property
    def left(self) -> bool:
        """True if some rows are not encoded yet."""
        return bool(self._left)

    @property
    def compresses(self) -> bool:
        """True if `chunk` compresses, which is slow, so that it should be called in another
        thread."""
        return self._accumulator.codec is not Codec.NONE

    def chunk(self) -> list[EncodedGroup]:
        """Encode the next batches, up to about CHUNK_BYTES."""
        limit_bytes = min(
            self._accumulator.limit_bytes(self._state.name), self._accumulator.buffer_memory
        )
        found: list[EncodedGroup] = []
        size = 0
        records, codec = self._rows.records, self._accumulator.codec
        while self._left and size < CHUNK_BYTES:
            partition, start, end = self._left.popleft()
            encoded = records.encode(start, end, limit_bytes, self._rows.timestamp_ms, codec)
            following = start + encoded.record_count
            if following < end:
                self._left.append(Group(partition, following, end))
            size += encoded.estimated_bytes
            found.append(EncodedGroup(partition, encoded, records.rows(start, following)))
        return found

    def admit(self, group: EncodedGroup, now_ms: float) -> bool:
        """Put a batch into its queue, if there is memory."""
        if not self._accumulator.has_room(self._accumulator.encoded_bytes(group.records)):
            return False
        queue = self._queue(group.partition)
        self.delivery.add(self._accumulator.add(queue, group.records, now_ms), group.rows)
        return True

    def _queue(self, partition: int | None) -> PartitionQueue:
        if partition is None:
            return self._partitioner.choose(self._state, None, None, None)
        return self._queues[partition]

    def progress(self) -> str:
        """The number of rows buffered so far, as a text for error messages."""
        buffered = self.delivery.buffered
        return f"{buffered} of {self._rows.count} rows were buffered before, and are sent"
