"""Batches as Spark runs them, one after the other, while the nodes of an Apache Kafka are killed.

The test itself calls the connector, in the place of Spark. It plays the driver at the start and end
of a batch, and a task for each partition. Nothing is retried, so the first error ends the query.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType

from kafka_cluster import KafkaCluster
from killed_nodes import (
    WAIT_S,
    Writer,
    committed,
    killed_one_after_the_other,
    make_topic,
    wait_for,
)
from pyspark_odradek import transactional_writer
from pyspark_odradek.options import QueryKind, columns_of, parse_sink, parse_source
from pyspark_odradek.schema import schema_of
from pyspark_odradek.stream_reader import StreamReader
from pyspark_odradek.task_properties import BATCH_PROPERTY, QUERY_PROPERTY, RUN_PROPERTY
from pyspark_odradek.transactional_writer import TransactionalStreamWriter
from pyspark_odradek.writer import StreamWriter
from spark_task import Context

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]

SCHEMA = StructType([StructField("value", StringType())])


class Copying(threading.Thread):
    """A query that copies a topic. `failure`: the error that has ended it; `copied`: the sum of its
    end offsets."""

    def __init__(
        self, patch: pytest.MonkeyPatch, bootstrap: str, source: str, sink: str, semantics: str
    ) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self.copied = self.batches = 0
        self._patch = patch
        self._finish = threading.Event()
        self._properties = {QUERY_PROPERTY: str(uuid.uuid4()), RUN_PROPERTY: str(uuid.uuid4())}
        common = {"kafka.bootstrap.servers": bootstrap}
        read = {**common, "subscribe": source, "startingOffsets": "earliest"}
        self._reader = StreamReader(
            parse_source(read, QueryKind.STREAM), schema_of(columns_of(read))
        )
        self._sink = parse_sink({**common, "topic": sink, "semantics": semantics}, streaming=True)

    def run(self) -> None:
        try:
            start = self._reader.initialOffset()
            while not self._finish.is_set():
                end = self._reader.latestOffset(start, ReadAllAvailable())
                if end == start:
                    self._finish.wait(0.2)
                    continue
                self._batch(start, end)
                start = end
                self.copied = sum(next(iter(end.values())).values())
                self.batches += 1
                self._finish.wait(0.5)
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.failure = error

    def _batch(self, start: Any, end: Any) -> None:
        messages = []
        writer: Any = self._writer()
        for slot, partition in enumerate(self._reader.partitions(start, end)):
            properties = {**self._properties, BATCH_PROPERTY: str(self.batches)}
            context = Context(slot, properties)
            self._patch.setattr(transactional_writer, "_context", lambda context=context: context)
            messages.append(writer.write(_values(self._reader.read(partition))))
        self._writer().commit(messages, self.batches)

    def _writer(self) -> Any:
        kind: Any = TransactionalStreamWriter if self._sink.exactly_once else StreamWriter
        return kind(self._sink, SCHEMA)

    def finish(self) -> None:
        self._finish.set()
        self.join(WAIT_S)


def _values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = batch.column(batch.schema.get_field_index("value")).cast(pa.string())
        yield pa.record_batch([values], names=["value"])


@pytest.mark.parametrize("semantics", ["exactly_once", "at_least_once"])
def test_batches_continue_while_nodes_are_killed(
    monkeypatch: pytest.MonkeyPatch, kafka_cluster: KafkaCluster, semantics: str
) -> None:
    """Each of the three nodes is killed once, and so each leader, coordinator and controller is
    lost once."""
    bootstrap = kafka_cluster.bootstrap
    source, sink = make_topic(bootstrap), make_topic(bootstrap)
    writer = Writer(bootstrap, source)
    copying = Copying(monkeypatch, bootstrap, source, sink, semantics)
    writer.start()
    copying.start()
    try:
        wait_for(lambda: copying.copied > 0 or copying.failure, "the first batch")
        for node in killed_one_after_the_other(kafka_cluster):
            before = copying.copied
            wait_for(
                lambda before=before: copying.copied > before + 200 or copying.failure,
                f"a batch is done without node {node.node_id}",
            )
            assert copying.failure is None
        writer.finish()
        wait_for(lambda: copying.copied >= writer.count or copying.failure, "all is copied")
    finally:
        copying.finish()
    assert copying.failure is None
    found = committed(bootstrap, sink)
    if semantics == "exactly_once":
        assert found == list(range(writer.count))
    else:
        assert sorted(set(found)) == list(range(writer.count))
