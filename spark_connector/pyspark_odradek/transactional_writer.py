"""The writers of exactly-once writes: each task has its own transaction, and the driver ends all of
them.

The steps and their reasons are in `exactly_once.protocol` and docs/rules/spark.md. Spark creates a
writer on the driver, sends copies to the tasks, and commits a stream with another copy in another
process; so the driver gets all data from the messages of the tasks.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from odradek_client.errors import OdradekError
from pyspark_odradek import blocking
from pyspark_odradek.errors import SinkError
from pyspark_odradek.exactly_once import fault_points, protocol
from pyspark_odradek.exactly_once.fault_points import SparkFaultPoint
from pyspark_odradek.exactly_once.identity import Writer, commit_query
from pyspark_odradek.exactly_once.protocol import Begun, TaskOutcome, Terms
from pyspark_odradek.exactly_once.targets import number_of
from pyspark_odradek.exactly_once.task import ABORT_TIMEOUT_MS, TaskTransaction
from pyspark_odradek.options import SinkOptions
from pyspark_odradek.schema import check_write_schema
from pyspark_odradek.task_properties import BATCH_PROPERTY, QUERY_PROPERTY, RUN_PROPERTY
from pyspark_odradek.writer import rows_per_topic, send_all

T = TypeVar("T")

log = logging.getLogger("odradek.spark")


@dataclass
class PreparedTask(WriterCommitMessage):
    """The report of one task to the driver. `timeout_ms`: the timeout of its transaction if it was
    derived from the broker's limit; otherwise None."""

    writer: Writer
    outcome: TaskOutcome
    timeout_ms: int | None = None


class _Sink:
    """The common part of the stream writer and the batch writer."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.places = check_write_schema(schema, options.topic)
        #: The nonce is created on the driver, so all tasks of a job share a nonce, and each job has
        #: a different nonce.
        self.nonce = uuid.uuid4().hex

    def _drive(self, steps: Generator[Any, Any, T], terms: Terms) -> T:
        """Run a procedure of `protocol`. Raises SinkError."""
        thread = blocking.shared().thread
        brokers = blocking.brokers(self.options.client)
        try:
            return thread.run(brokers.run(steps, terms, self.options.log_topic))
        except OdradekError as error:
            raise SinkError(f"odradek: {terms.write}: {error}") from error

    def _terms(self, writer: Writer, batch: int) -> Terms:
        return Terms(writer, batch, self.options.lenient, log.warning)

    def _write(
        self, rows: Iterator[pa.RecordBatch], terms: Terms, begun: Begun, *, logged: bool = True
    ) -> PreparedTask:
        if not begun.write:
            return PreparedTask(terms.writer, counted(rows, self.options, self.places))
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return PreparedTask(terms.writer, TaskOutcome(0))
        names = blocking.names(terms.writer, lasting=isinstance(self, TransactionalStreamWriter))
        name = names.take(terms.batch, begun.over)
        brokers = blocking.brokers(self.options.client)
        transaction = TaskTransaction(brokers, terms, name, self.options.log_topic, logged=logged)
        outcome = write_transaction(chain([first], rows), self.options, self.places, transaction)
        timeout_ms = brokers.fallback_timeout_ms if logged else None
        return PreparedTask(terms.writer, outcome, timeout_ms)


class TransactionalStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("odradek")`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PreparedTask:
        """Write the rows of a task in a transaction and prepare it. Raises SinkError."""
        context = _context()
        own = context.getLocalProperty(QUERY_PROPERTY)
        query = self.options.query_id or own
        checkpoint = None if self.options.query_id is None else own
        batch = context.getLocalProperty(BATCH_PROPERTY)
        run = context.getLocalProperty(RUN_PROPERTY)
        if query is None:
            raise SinkError(
                "odradek: this Spark does not tell its tasks which query they belong to "
                f"({QUERY_PROPERTY}); give it a name that stays over restarts, by the option queryId, "
                "or write with semantics=at_least_once"
            )
        if batch is None or run is None:
            # The task cannot find out whether the batch is decided, so it always writes its rows,
            # in a run that is only for this batch.
            terms = self._terms(Writer(query, self.nonce, checkpoint), 0)
            return self._write(iterator, terms, Begun(write=True))
        terms = self._terms(Writer(query, run, checkpoint), int(batch))
        begun = self._drive(protocol.begin_task(terms), terms)
        return self._write(iterator, terms, begun)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Decide the batch and carry out the decision, or finish an earlier decision. Raises
        SinkError."""
        outcomes = _outcomes(messages)
        writer = _writer(messages)
        if writer is None:
            return  # not reached: Spark runs at least one task, and all have succeeded
        terms = self._terms(writer, batchId)
        _warn_of_timeout(messages)
        written = self._drive(protocol.commit(terms, outcomes), terms)
        rows = sum(each.rows for each in outcomes)
        if written:
            log.info("odradek: batch %d committed, %d rows", batchId, rows)
        else:
            log.info("odradek: batch %d was written already; nothing is written again", batchId)
        fault_points.reach(SparkFaultPoint.BATCH_DONE)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Give up a failed batch, so that nothing decides the batch afterwards."""
        writer = _writer(messages)
        if writer is None:
            return  # no task is known to have begun; the next run cleans up
        terms = self._terms(writer, batchId)
        if not self._drive(protocol.abort(terms), terms):
            log.warning(
                "odradek: the commit of batch %d is decided; a restart completes it", batchId
            )


class TransactionalBatchWriter(_Sink, DataSourceArrowWriter):
    """The writer of `df.write.format("odradek")`: either all rows of the job become visible
    together, or none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PreparedTask:
        """Write the rows of a task in a transaction and prepare it. Raises SinkError."""
        terms = self._job()
        if self.options.commit_id is None:
            begun = Begun(write=True)
        else:
            begun = self._drive(protocol.begin_task(terms), terms)
        # Later jobs cannot find the transactions of a job without a `commitId`, so these
        # transactions have a timeout.
        return self._write(iterator, terms, begun, logged=self.options.commit_id is not None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decide the job. After a SinkError, either all rows of the job will become visible, or
        none."""
        terms, outcomes = self._job_of(messages), _outcomes(messages)
        _warn_of_timeout(messages)
        if self.options.commit_id is None:
            self._drive(protocol.commit_job(terms, outcomes), terms)
        elif not self._drive(protocol.commit(terms, outcomes), terms):
            log.info(
                "odradek: %s was written already; nothing is written again", self.options.commit_id
            )
        fault_points.reach(SparkFaultPoint.BATCH_DONE)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give up a failed job: none of its rows becomes visible."""
        terms = self._job_of(messages)
        if self.options.commit_id is None:
            participants = tuple(
                each.participant for each in _outcomes(messages) if each.participant is not None
            )
            aborted = self._drive(protocol.abort_job(terms, participants), terms)
        else:
            aborted = self._drive(protocol.abort(terms), terms)
        if not aborted:
            log.warning(
                "odradek: the commit of the job was decided before the job failed; all rows are written"
            )

    def _job(self) -> Terms:
        if self.options.commit_id is None:
            return self._terms(Writer("job", self.nonce), 0)
        commit_id, topic = self.options.commit_id, self.options.topic
        version = self.options.commit_version
        if topic is not None:
            # A decision of an older connector that did not distinguish topics is also valid, so
            # that nothing is written twice.
            without_topic = self._terms(self._job_writer(commit_id, None), version)
            steps = protocol.is_decided_for_every_topic(without_topic)
            if self._drive(steps, without_topic):
                log.warning(
                    "odradek: commitId %s, commitVersion %d was decided without a topic; its rows "
                    "count as written to %s",
                    commit_id,
                    version,
                    topic,
                )
                return without_topic
        return self._terms(self._job_writer(commit_id, topic), version)

    def _job_writer(self, commit_id: str, topic: str | None) -> Writer:
        return Writer(commit_query(commit_id, topic), self.nonce, commit_id=commit_id)

    def _job_of(self, messages: list[WriterCommitMessage | None]) -> Terms:
        """The job in the messages of its tasks. Raises SinkError if the messages have different
        jobs."""
        writers = {each.writer for each in messages if isinstance(each, PreparedTask)}
        if not writers:
            return self._job()
        if len(writers) > 1:
            raise SinkError(
                f"odradek: commitId {self.options.commit_id} was decided by another job while this one "
                "wrote; run it again"
            )
        return self._terms(writers.pop(), self.options.commit_version)


def write_transaction(
    rows: Iterator[pa.RecordBatch],
    options: SinkOptions,
    places: Mapping[str, int],
    transaction: TaskTransaction,
) -> TaskOutcome:
    """Write all rows in a transaction, and prepare it.

    Raises SinkError, after aborting the transaction if possible.
    """
    thread = blocking.shared().thread
    try:
        producer = thread.run(transaction.begin())
        written = send_all(rows, producer, options.topic, places)
        fault_points.reach(SparkFaultPoint.TASK_WRITTEN)
        participant = thread.run(transaction.prepare(_context().partitionId(), written.rows))
        fault_points.reach(SparkFaultPoint.TASK_PREPARED)
    except BaseException as error:
        _abandon(transaction)
        # The connections may be broken, so the next attempt makes new connections.
        blocking.shared().brokers.discard(thread, options.client)
        if isinstance(error, OdradekError):
            raise SinkError.of_rows(error) from error
        raise
    return TaskOutcome(participant.rows, participant, written.targets)


def counted(
    rows: Iterator[pa.RecordBatch], options: SinkOptions, places: Mapping[str, int]
) -> TaskOutcome:
    """Count all rows without writing them. Raises SinkError for a row without a topic."""
    count = targets = 0
    for batch in rows:
        count += batch.num_rows
        targets += number_of(rows_per_topic(batch, options.topic, places))
    return TaskOutcome(count, targets=targets)


def _abandon(transaction: TaskTransaction) -> None:
    try:
        blocking.shared().thread.run(transaction.abandon(), ABORT_TIMEOUT_MS / 1000 + 1)
    except (OdradekError, TimeoutError, OSError) as error:
        log.info("odradek: a transaction was not aborted by its task: %s", error)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("odradek: write() runs in Spark's tasks only")
    return context


def _outcomes(messages: list[WriterCommitMessage | None]) -> tuple[TaskOutcome, ...]:
    return tuple(message.outcome for message in messages if isinstance(message, PreparedTask))


def _warn_of_timeout(messages: list[WriterCommitMessage | None]) -> None:
    """Warn, once per process, that the cluster has no two-phase commit (KIP-939), so that
    transactions can time out."""
    timeouts = [m.timeout_ms for m in messages if isinstance(m, PreparedTask) and m.timeout_ms]
    if timeouts and blocking.shared().first_time("fallback to timeouts"):
        log.warning(
            "odradek: this cluster aborts transactions after %d s (transaction.max.timeout.ms): a "
            "batch must be written, and a crash recovered from, within that time; what comes later "
            "fails with an error. Transactions have no timeout if all brokers are Kafka 4.3 or newer with "
            "transaction.two.phase.commit.enable=true and unstable.api.versions.enable=true",
            min(timeouts) // 1000,
        )


def _writer(messages: list[WriterCommitMessage | None]) -> Writer | None:
    return next((each.writer for each in messages if isinstance(each, PreparedTask)), None)
