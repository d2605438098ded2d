"""The reader of a stream. Spark repeatedly requests the available end, and plans each micro-batch
as a batch read.

`initialOffset`, `latestOffset` and `partitions` run on the driver, in one Python process per run of
the query. `read` runs on executors, with a pickled copy that does not have the driver's state.

Progress is committed for a consumer group, if a group is configured, when Spark requests the next
batch. The batches before that batch have then been processed, and are already in Spark's commit
log. With `availableNow` Spark requests another batch before the run ends, so the progress of the
last batch is also committed. With `once` the progress of the last batch is not committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from odradek_client.errors import OdradekError
from odradek_client.network.client import NetworkClient
from pyspark_odradek import blocking, cluster, planning, progress, topic_identity
from pyspark_odradek.admission import BatchLimits, MinimumGate
from pyspark_odradek.batch_reader import RangePartition, read_range
from pyspark_odradek.errors import DataLoss
from pyspark_odradek.offsets import LATEST, AtEdge
from pyspark_odradek.options import SourceOptions
from pyspark_odradek.progress import OffsetJson, Offsets, Survey
from pyspark_odradek.schema import check_read_schema

T = TypeVar("T")

log = logging.getLogger("odradek.spark")

_COMMIT_TIMEOUT_S = 5.0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream. Raises SourceError, DataLoss and OptionsError."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_read_schema(schema, options.columns)
        self.options = options
        self._gate = MinimumGate(options.limits)
        self._initial: Offsets | None = None
        #: The offsets at which a run with `availableNow` ends; None for other runs.
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        #: The last known identity of each topic.
        self._topic_ids: dict[str, str] = {}
        self._committed: Offsets = {}

    # --- What to read -----------------------------------------------------------------------------

    def initialOffset(self) -> OffsetJson:
        """The beginning of a query without a checkpoint. Spark calls this method twice;
        the second call returns the result of the first call.
        """
        if self._initial is None:
            # A stream ignores the option for the end. So no value of the option may cause an
            # error here, as it would in a batch query.
            options = replace(self.options, end=AtEdge(LATEST))
            plan = self._run(cluster.plan(self._network(), options))
            for warning in plan.warnings:
                log.warning(
                    "odradek: %s; reading the records that are left (failOnDataLoss=false)", warning
                )
            self._initial = {each.partition: each.start for each in plan.ranges}
            network = self._network()
            for topic in plan.topic_ids:
                self._topic_ids[topic] = cluster.identity_of(network, topic)
            if self._target is not None:
                # Spark requests the end offsets of the run before the start offsets of the query.
                # If the query starts at "latest", and records have arrived between the two
                # requests, the start offset is above the end offset.
                for each, start in self._initial.items():
                    self._target[each] = max(self._target.get(each, start), start)
        return progress.to_json(self._initial, self._topic_ids)

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the present ends of the logs the end of this run."""
        before = dict(self._topic_ids)
        self._target = dict(self._survey({}).ends)
        # The old topic ids are kept, so that `latestOffset` reports a recreated topic.
        self._topic_ids.update(before)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The read limit nearest to the options; `latestOffset` uses the options themselves,
        because Spark's types cannot express all options."""
        limits = self.options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetJson:
        """The end of the batch that begins at `start`; `start` itself if no records are
        available."""
        begin = progress.from_json(start)
        self._commit_progress(begin)
        self._topic_ids |= topic_identity.identities(start)
        survey = self._survey(begin)
        self._latest = dict(survey.ends)
        if self._target is not None:
            survey = self._up_to_target(begin, survey)
        # With the trigger `once` Spark requests everything. The request overrides the limits in the
        # options.
        limits = BatchLimits() if isinstance(limit, ReadAllAvailable) else self.options.limits
        waits_for_more = (
            limits.min_offsets is not None
            and self._target is None
            and progress.must_wait(begin, survey, self._gate, _now_ms())
        )
        if waits_for_more:
            return start
        sizes = None
        if limits.max_bytes is not None:
            waiting = progress.waiting(begin, survey)
            positions = {
                each: begin[each] for each, count in waiting.items() if count and each in begin
            }
            sizes = self._run(cluster.bytes_per_offset(self._network(), positions))
        step = progress.next_step(begin, survey, limits, sizes)
        self._report_lost(step.lost)
        if step.end == begin and not step.lost:
            return start  # Even if it has no identities yet: equal offsets must be equal texts.
        return progress.to_json(step.end, self._topic_ids)

    def reportLatestOffset(self) -> OffsetJson | None:
        """The ends of the logs at the last call of `latestOffset`. Spark shows them in the query's
        progress.
        """
        return None if self._latest is None else progress.to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch. The ranges of the tasks depend only on the given offsets."""
        begin, until = progress.from_json(start), progress.from_json(end)
        network = self._network()
        before, planned = topic_identity.identities(start), topic_identity.identities(end)
        # The batch that finds a recreated topic reads nothing of it: its end is the new beginning.
        until = {
            each: offset
            for each, offset in until.items()
            if not topic_identity.is_another(
                before.get(each.topic, ""), planned.get(each.topic, "")
            )
        }
        new = [each for each in until if each not in begin]
        if new:
            # A new partition has an empty range in the batch that finds it. But in a checkpoint
            # of Spark's `kafka` format, this range begins at the first offset and can have records.
            begin |= self._run(cluster.first_offsets(network, self.options, new))
        ranges = planning.split(
            progress.ranges(begin, until),
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )
        topics = sorted({each.partition.topic for each in ranges})
        ids = self._run(cluster.ensure_topic_ids(network, topics))
        for topic in topics:
            # The batch may have been planned before the query, and then the topic, was stopped.
            found = cluster.identity_of(network, topic)
            ids[topic] = topic_identity.planned_id(planned.get(topic, ""), found) or ids[topic]
        return [RangePartition(each, ids[each.partition.topic]) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range, in offset order."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(blocking.network(self.options.client), partition, self.options)

    # --- Inside -----------------------------------------------------------------------------------

    def _network(self) -> NetworkClient:
        return blocking.network(self.options.client)

    def _run(self, question: Coroutine[Any, Any, T]) -> T:
        return blocking.shared().thread.run(question)

    def _survey(self, known: Offsets) -> Survey:
        return self._run(cluster.survey(self._network(), self.options, known, self._topic_ids))

    def _up_to_target(self, begin: Offsets, survey: Survey) -> Survey:
        """The survey, but with no end above the end of this run."""
        assert self._target is not None
        # The target is below `begin` if the query has read beyond the beginning of an open
        # transaction.
        ends = {
            each: min(max(self._target[each], begin.get(each, 0)), end)
            for each, end in survey.ends.items()
            if each in self._target
        }
        return replace(survey, ends=ends)

    def _report_lost(self, lost: tuple[str, ...]) -> None:
        if not lost:
            return
        text = "; ".join(lost)
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"odradek: records may be lost: {text}. Set failOnDataLoss to false to go on with what "
                "is there, or start again with another checkpointLocation"
            )
        log.warning(
            "odradek: records may be lost: %s; reading continues (failOnDataLoss=false)", text
        )

    def _commit_progress(self, done: Offsets) -> None:
        group = self.options.group
        if group is None or done == self._committed:
            return
        try:
            blocking.shared().thread.run(
                cluster.commit_progress(self._network(), group, done), _COMMIT_TIMEOUT_S
            )
        except (OdradekError, TimeoutError) as error:
            # A failed commit is only logged, because committed offsets are only for monitoring, and
            # the checkpoint decides what is read.
            log.warning("odradek: progress was not committed for group %r: %s", group, error)
        else:
            self._committed = done


def _now_ms() -> float:
    return time.monotonic() * 1000
