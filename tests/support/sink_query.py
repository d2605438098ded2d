"""The exactly-once sink's writer for a task, run in the test's own process without Spark.

`Query` is a stream, and `Job` a batch write; they give the writer the context that Spark would
give.
"""

from __future__ import annotations

import uuid
from typing import Any

import kafka
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from odradek import sync
from odradek_client.admin import NewTopic
from pyspark_odradek import transactional_writer
from pyspark_odradek.exactly_once import ledger, protocol
from pyspark_odradek.exactly_once.identity import Writer
from pyspark_odradek.exactly_once.protocol import Terms
from pyspark_odradek.options import parse_sink
from pyspark_odradek.task_properties import BATCH_PROPERTY, QUERY_PROPERTY, RUN_PROPERTY
from pyspark_odradek.transactional_writer import (
    PreparedTask,
    TransactionalBatchWriter,
    TransactionalStreamWriter,
)
from spark_task import Context

SCHEMA = StructType([StructField("value", StringType())])


class Query:
    """A run of a streaming query; `tasks` and `commit` make the calls that Spark makes for a
    batch."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, address: str, topic: str, **options: str
    ) -> None:
        self._monkeypatch = monkeypatch
        self.address = address
        self.topic = topic
        self.query = str(uuid.uuid4())
        self.run = str(uuid.uuid4())
        self.options = {"kafka.bootstrap.servers": address, "topic": topic, **options}
        self.properties_there = True

    def restarted(self) -> Query:
        other = Query(self._monkeypatch, self.address, self.topic)
        other.options, other.query = self.options, self.query
        return other

    def writer(self) -> TransactionalStreamWriter:
        return TransactionalStreamWriter(parse_sink(self.options, streaming=True), SCHEMA)

    def task(self, batch: int, slot: int, *values: str, writer: Any = None) -> PreparedTask:
        properties = {QUERY_PROPERTY: self.query}
        if self.properties_there:
            properties |= {BATCH_PROPERTY: str(batch), RUN_PROPERTY: self.run}
        context = Context(slot, properties)
        self._monkeypatch.setattr(transactional_writer, "_context", lambda: context)
        prepared: PreparedTask = (writer or self.writer()).write(iter([self.rows(values)]))
        return prepared

    def rows(self, values: tuple[str, ...]) -> Any:
        """An Arrow batch in the form that Spark passes to a writer."""
        return pa.record_batch([pa.array(values, pa.string())], names=["value"])

    def tasks(self, batch: int, *parts: list[str]) -> list[Any]:
        writer = self.writer()  # Spark pickles one writer for all tasks of a batch.
        return [self.task(batch, slot, *part, writer=writer) for slot, part in enumerate(parts)]

    def commit(self, batch: int, messages: list[Any]) -> None:
        self.writer().commit(messages, batch)

    def abort(self, batch: int, messages: list[Any]) -> None:
        self.writer().abort(messages, batch)

    def terms(self, batch: int) -> Terms:
        name = self.options.get("queryId")
        writer = Writer(name or self.query, self.run, self.query if name else None)
        return Terms(writer, batch)

    def drive(self, steps: Any, batch: int) -> Any:
        return self.writer()._drive(steps, self.terms(batch))

    def state(self) -> ledger.LedgerState:
        def reading() -> Any:
            found = yield protocol.Read()
            return found.state

        state: ledger.LedgerState = self.drive(reading(), 0)
        return state

    def decide(self, batch: int, messages: list[Any]) -> None:
        """Write the decision to commit the batch, but do not end its transactions."""
        steps = protocol.commit(self.terms(batch), tuple(each.outcome for each in messages))

        def cut() -> Any:
            answer = None
            while True:
                action = steps.send(answer)
                if isinstance(action, protocol.End):
                    return
                answer = yield action

        self.drive(cut(), batch)

    def visible(self, count: int) -> list[str]:
        """Wait for `count` committed records of the topic. Returns all of them, sorted, as a
        foreign consumer reads them."""
        return visible(self.address, self.topic, count)

    def open_transactions(self) -> list[str]:
        with sync.Admin(bootstrap_servers=self.address) as admin:
            found = admin.list_transactions(states=["Ongoing"])
        return [each.transactional_id for each in found if self.query in each.transactional_id]


class Job(Query):
    """A batch write."""

    def writer(self) -> Any:
        if not hasattr(self, "_writer"):
            self._writer = TransactionalBatchWriter(parse_sink(self.options), SCHEMA)
        return self._writer

    def commit(self, batch: int, messages: list[Any]) -> None:
        self.writer().commit(messages)

    def abort(self, batch: int, messages: list[Any]) -> None:
        self.writer().abort(messages)


def visible(address: str, topic: str, count: int) -> list[str]:
    """Read the committed records up to the end of the topic; fails if its open transactions do not
    end in time."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", max_poll_interval_ms=60_000
    )
    try:
        partitions = [kafka.TopicPartition(topic, 0)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        values: list[str] = []
        empty = 0
        while empty < (2 if len(values) >= count else 40):
            polled = consumer.poll(timeout_ms=250)
            empty = 0 if polled else empty + 1
            values += [record.value.decode() for some in polled.values() for record in some]
        return sorted(values)
    finally:
        consumer.close()


def made(monkeypatch: pytest.MonkeyPatch, address: str, topic: str, **options: str) -> Query:
    with sync.Admin(bootstrap_servers=address) as admin:
        admin.create_topics(NewTopic(topic, partitions=1))
    return Query(monkeypatch, address, topic, **options)
