"""A batch read: the driver plans the offset ranges once, and a task reads each range."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.errors import OdradekError
from odradek_client.network.client import NetworkClient
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.arrow import TimestampBeyondMicroseconds
from odradek_protocol.records.batch import BatchError
from odradek_protocol.schemas.fetch import PartitionData
from pyspark_odradek import blocking, cluster, planning, reuse
from pyspark_odradek.errors import DataLoss, SourceError
from pyspark_odradek.fetching import RangeReader, RowDecodeSettings, Then, decode
from pyspark_odradek.offsets import EARLIEST
from pyspark_odradek.options import SourceOptions
from pyspark_odradek.planning import OffsetRange
from pyspark_odradek.reuse import PlannedOffsets
from pyspark_odradek.schema import check_read_schema

log = logging.getLogger("odradek.spark")

_BACKOFF_S = 0.1


@dataclass
class RangePartition(InputPartition):
    """The range of offsets that a task reads. Spark sends the object to an executor as a pickle."""

    wanted: OffsetRange
    topic_id: bytes

    def __post_init__(self) -> None:
        # The constructor of Spark's base class, which is not called, would set this attribute.
        self.value = str(self.wanted)


class Fetched(NamedTuple):
    """The answer to a fetch, and the range of offsets to take from the answer. The range begins at
    the fetched position.
    """

    answer: PartitionData
    wanted: OffsetRange


class BatchReader(DataSourceReader):
    """The reader of a batch query. `partitions` runs on the driver, `read` on an executor with a
    pickled copy.

    Filters are not pushed down (S-20). The ranges are those at the time when the reader is made,
    before Spark pickles it: so the copies have the snapshot too.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_read_schema(schema, options.columns)
        self.options = options
        network = blocking.network(self.options.client)
        found = blocking.shared().thread.run(cluster.plan(network, self.options))
        for warning in found.warnings:
            log.warning(
                "odradek: %s; reading the records that are left (failOnDataLoss=false)", warning
            )
        ranges = planning.split(
            found.ranges,
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )
        ends = {each.partition: each.end for each in found.ranges}
        self.snapshot = PlannedOffsets(ends, found.topic_ids)
        self._partitions: list[InputPartition] = [
            RangePartition(each, found.topic_ids[each.partition.topic]) for each in ranges
        ]

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_partitions": []}

    def partitions(self) -> list[InputPartition]:
        return self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range, in offset order."""
        reuse.check(self.snapshot, self.options)
        if not isinstance(partition, RangePartition):
            # Spark adds a partition to a plan without partitions. The added partition has nothing
            # to read.
            return iter(())
        network = blocking.network(self.options.client)
        return read_range(network, partition, self.options, self.snapshot.remedy)


def read_range(
    network: NetworkClient, partition: RangePartition, options: SourceOptions, remedy: str = ""
) -> Iterator[pa.RecordBatch]:
    """Read a range. The next fetch is always in progress while an answer is decoded and passed to
    Spark. `remedy`: a sentence for the error if records are lost."""
    config = network.config
    assert isinstance(config, ConsumerConfig)
    settings = RowDecodeSettings(
        check_crcs=config.check_crcs,
        read_committed=config.isolation_level == "read_committed",
        columns=options.columns,
    )
    state = RangeReader(
        partition.wanted,
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_ms=options.poll_timeout_ms,
        gone_answers_max=options.num_retries,
        progress_ms=_now_ms(),
    )
    thread = blocking.shared().thread

    def begin() -> Future[Fetched | None] | None:
        return None if state.done else thread.submit(_next(network, partition, state, options))

    pending = begin()
    try:
        while pending is not None:
            fetched = _result(pending, partition, remedy)
            if fetched is None:
                return
            pending = begin()
            yield from _decode(fetched, partition, settings)
    finally:
        if pending is not None:
            pending.cancel()


async def _next(
    network: NetworkClient, partition: RangePartition, state: RangeReader, options: SourceOptions
) -> Fetched | None:
    """The next answer with batches; None at the end of the range. The position of `state` is moved
    to the offset after these batches."""
    while not state.done:
        position = state.position
        try:
            answer = await cluster.fetch(
                network,
                partition.wanted.partition,
                partition.topic_id,
                position,
                state.remaining_ms(_now_ms()),
            )
            then = state.on_answer(answer, _now_ms())
        except OdradekError as error:
            then = state.on_failure(error.code, str(error), retriable=error.retriable)
        if then is Then.DECODE:
            return Fetched(
                answer, OffsetRange(partition.wanted.partition, position, state.wanted.end)
            )
        if then is Then.FIND_START:
            await _skip_to_log_start(network, partition, state, options)
        elif then is Then.WARN:
            log.warning("%s", state.last_trouble)
        else:
            network.request_metadata_update()
            await asyncio.sleep(_BACKOFF_S)
    return None


async def _skip_to_log_start(
    network: NetworkClient, partition: RangePartition, state: RangeReader, options: SourceOptions
) -> None:
    where = partition.wanted.partition
    found = await cluster.list_offsets(network, {where: EARLIEST}, options)
    log.warning("%s", state.log_starts_at(found[where] or 0, _now_ms()))


def _result(
    pending: Future[Fetched | None], partition: RangePartition, remedy: str
) -> Fetched | None:
    try:
        return pending.result()
    except DataLoss as error:
        raise DataLoss(f"{error}. {remedy}" if remedy else str(error)) from error
    except BatchError as error:
        raise _damaged(partition, error) from error


def _decode(
    fetched: Fetched, partition: RangePartition, settings: RowDecodeSettings
) -> Iterator[Any]:
    answer = fetched.answer
    try:
        yield from decode(
            answer.records or b"", fetched.wanted, answer.aborted_transactions, settings
        )
    except BatchError as error:
        raise _damaged(partition, error) from error


def _damaged(partition: RangePartition, error: BatchError) -> SourceError:
    if isinstance(error, TimestampBeyondMicroseconds):
        return SourceError(
            f"odradek: a record of {partition.wanted.partition} cannot be a row: {error}; read past it "
            "by startingOffsets"
        )
    return SourceError(
        f"odradek: a batch of {partition.wanted.partition} is damaged: {error}. Look at the broker's "
        "disk; kafka.check.crcs=false reads damaged records as they are"
    )


def _now_ms() -> float:
    return time.monotonic() * 1000
