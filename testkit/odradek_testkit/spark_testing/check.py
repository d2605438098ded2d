"""The check of a user's query, which is run, interrupted and restarted from its checkpoint, and
whose rows are then counted."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek_client import sync
from odradek_client.admin import NewTopic
from odradek_client.structs import TopicPartition
from odradek_testkit.broker import SubprocessBroker
from odradek_testkit.spark_testing import interruptions as wrong
from odradek_testkit.spark_testing import verdict
from odradek_testkit.spark_testing.interruptions import INTERRUPTIONS, Gate, Interruption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Transform = Callable[[DataFrame], DataFrame]

_STEP_S = 0.05
_UNPLANNED_RESTARTS_MAX = 5
_numbers = count(1)


@dataclass(frozen=True)
class Report:
    """The figures of a successful assertion. `restarts`: the number of restarts from the
    checkpoint; `rows`: the number of rows in the output topic."""

    rows: int
    batches: int
    restarts: int
    interruptions: tuple[str, ...]


class ExactlyOnceCheck:
    """A callable that asserts, for a query and its input, that interruptions lose and repeat no
    rows.

    `broker`: an object with `bootstrap`; only a SubprocessBroker can be killed. `folder`: the
    folder for checkpoints.
    """

    def __init__(self, spark: SparkSession, broker: Any, folder: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.folder = folder

    def __call__(
        self,
        transform: Transform,
        records: Iterable[Any],
        *,
        expected: Iterable[Any] | None = None,
        seed: int = 0,
        interruptions: Sequence[str] | None = None,
        output_mode: str = "append",
        read_options: Mapping[str, str] | None = None,
        write_options: Mapping[str, str] | None = None,
        partitions: int = 2,
        timeout_s: float = 300.0,
    ) -> Report:
        """Assert that `transform` as a stream writes each of its rows once, despite interruptions.

        `transform` gets the rows of `format("odradek")` and returns those to write. `records`:
        values, or (key, value) pairs, as str or bytes; they become the input in the given order:
        before each run, the next part of them is written. `expected`: the rows of the output, as
        values or pairs, in any order; by default the result of `transform` as a batch query.
        `interruptions`: names of `INTERRUPTIONS`, all by default; each happens once, in an order
        and at times that depend on `seed`. `partitions`: the number of partitions of the input
        topic and of the output topic. `timeout_s`: the time limit for all runs together.

        Raises AssertionError with the missing and repeated rows; raises ValueError for a query with
        state and without `expected`; raises TimeoutError; the query's own error if it fails by
        itself."""
        rows = [verdict.as_row(each) for each in records]
        wanted = None if expected is None else verdict.given_rows(expected)
        planned = wrong.plan(seed, self._kinds(interruptions))
        if len(rows) < 2 * (len(planned) + 1):
            raise ValueError(
                f"{len(rows)} records are too few for {len(planned)} interruptions: give at least "
                f"{2 * (len(planned) + 1)}, so that each run has something to do"
            )
        number = next(_numbers)
        runs = _Runs(
            spark=self.spark,
            broker=self.broker,
            transform=transform,
            folder=self.folder / f"exactly-once-{number}",
            output_mode=output_mode,
            read_options=dict(read_options or {}),
            write_options=dict(write_options or {}),
            deadline=time.monotonic() + timeout_s,
        )
        runs.create_topics(partitions)
        chance = random.Random(seed)
        size = ceil(len(rows) / (len(planned) + 1))
        for place, interruption in enumerate((*planned, None)):
            part = rows[place * size : (place + 1) * size]
            runs.feed(part, partitions, chance)
            runs.run(interruption, len(part))
        columns, right = wanted if wanted is not None else runs.as_batch()
        found, undecided = runs.written(columns)
        problems = verdict.differences(found, right)
        if problems:
            raise AssertionError(
                "\n".join(
                    [
                        f"the query does not write exactly once (seed={seed}):",
                        *problems,
                        *undecided,
                        "it was interrupted by: " + "; ".join(runs.happened),
                    ]
                )
            )
        return Report(found.total(), runs.next_batch(), runs.restarts, tuple(runs.happened))

    def _kinds(self, given: Sequence[str] | None) -> list[str]:
        can_be_killed = isinstance(self.broker, SubprocessBroker)
        if given is None:
            return [kind for kind in INTERRUPTIONS if kind != "broker" or can_be_killed]
        if "broker" in given and not can_be_killed:
            raise ValueError("this broker cannot be killed; leave out the interruption 'broker'")
        return list(given)


@dataclass
class _Runs:
    """The runs of one query, with separate topics and a separate checkpoint."""

    spark: SparkSession
    broker: Any
    transform: Transform
    folder: Path
    output_mode: str
    read_options: dict[str, str]
    write_options: dict[str, str]
    deadline: float

    def __post_init__(self) -> None:
        unique = secrets.token_hex(4)
        self.input = f"exactly-once-input-{unique}"
        self.output = f"exactly-once-output-{unique}"
        self.checkpoint = self.folder / "checkpoint"
        self.restarts = 0
        self.happened: list[str] = []
        self._run_number = 0

    # --- Input ------------------------------------------------------------------------------------

    def create_topics(self, partitions: int) -> None:
        topics = [NewTopic(name, partitions) for name in (self.input, self.output)]
        with sync.Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            admin.create_topics(topics)

    def feed(
        self, rows: Sequence[tuple[bytes | None, ...]], partitions: int, chance: random.Random
    ) -> None:
        """Write input. The key chooses the partition of a record; a record without a key goes to a
        random partition."""
        with sync.Producer(bootstrap_servers=self.broker.bootstrap) as producer:
            sent = []
            for row in rows:
                key = row[0] if len(row) == 2 else None
                partition = chance.randrange(partitions) if key is None else None
                sent.append(producer.send(self.input, row[-1], key, partition=partition))
            producer.flush()
            for each in sent:
                each.result()

    # --- Runs -------------------------------------------------------------------------------------

    def run(self, what: Interruption | None, records: int) -> None:
        """Run the query until all input is processed, or until the interruption has ended it."""
        if what is None:
            self._to_the_end(records)
            return
        gate = self._gate(what)
        query = self._start(records, None if what.kind == "commit" else gate)
        if what.kind == "commit":
            self._await(query)
            self._raise_for(query)
            happened = self._forget_commit()
        else:
            happened = self._interrupt(query, gate)
        if not happened:
            raise AssertionError(
                f"the interruption {what} did not come about: the query wrote no rows then; give more "
                "records, or leave it out"
            )
        self.happened.append(str(what))

    def _interrupt(self, query: StreamingQuery, gate: Gate) -> bool:
        """Carry out the interruption, and wait for the end of the run. True if the query was
        interrupted."""
        while query.isActive and not gate.reached.exists():
            self._pause(query)
        reached = gate.reached.exists()
        try:
            if reached and gate.what.kind == "stop":
                query.stop()
            elif reached and gate.what.kind == "broker":
                self.broker.kill()
                self.broker.start()
        finally:
            gate.go.touch()
        self._await(query)
        # While the broker is down, the query may fail; a failed query is restarted.
        if not (reached and gate.what.kind == "broker"):
            self._raise_for(query)
        return reached

    def _to_the_end(self, records: int) -> None:
        for _ in range(_UNPLANNED_RESTARTS_MAX):
            query = self._start(records, None)
            self._await(query)
            if query.exception() is None:
                return
        self._raise_for(query)

    def _start(self, records: int, gate: Gate | None) -> StreamingQuery:
        if self.checkpoint.exists():
            self.restarts += 1
        per_batch = max(1, ceil(records / wrong.BATCHES_PER_RUN))
        read = self.spark.readStream.options(
            startingOffsets="earliest", maxOffsetsPerTrigger=str(per_batch)
        )
        frame = self.transform(self._load(read))
        if gate is not None:
            frame = _through(gate, frame)
        options = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "topic": self.output,
            "checkpointLocation": str(self.checkpoint),
        }
        writer = frame.writeStream.format("odradek").outputMode(self.output_mode)
        writer = writer.options(**{**self.write_options, **options})
        return writer.trigger(availableNow=True).start()

    def _load(self, reader: Any) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": self.input}
        frame: DataFrame = (
            reader.format("odradek").options(**{**self.read_options, **options}).load()
        )
        return frame

    def _gate(self, what: Interruption) -> Gate:
        self._run_number += 1
        folder = self.folder / f"run-{self._run_number}"
        folder.mkdir(parents=True)
        bootstrap = self.broker.bootstrap
        written = wrong.end_of(bootstrap, self.output) if what.after_others else 0
        return Gate(what, folder, self.next_batch(), bootstrap, self.output, written)

    def _await(self, query: StreamingQuery) -> None:
        while query.isActive:
            self._pause(query)
        if _keeps_state(query):
            self._stateful = True

    def _pause(self, query: StreamingQuery) -> None:
        if time.monotonic() > self.deadline:
            query.stop()
            raise TimeoutError(
                f"the query was not done in time; interrupted by: {'; '.join(self.happened) or '-'}; "
                f"last progress: {query.lastProgress}"
            )
        time.sleep(_STEP_S)

    def _raise_for(self, query: StreamingQuery) -> None:
        """Raise the query's own failure, unless it was injected."""
        error = query.exception()
        if error is not None and "InjectedFailure" not in str(error):
            raise error

    # --- The checkpoint ---------------------------------------------------------------------------

    _stateful = False

    def next_batch(self) -> int:
        """The id of the first batch that a restart runs."""
        return max(self._commits(), default=-1) + 1

    def _commits(self) -> list[int]:
        folder = self.checkpoint / "commits"
        return [int(each.name) for each in folder.glob("*") if each.name.isdigit()]

    def _forget_commit(self) -> bool:
        """Delete the newest commit, as if Spark had ended between the sink's commit and its own."""
        commits = self._commits()
        if not commits:
            return False
        name = str(max(commits))
        for each in (name, f".{name}.crc"):
            (self.checkpoint / "commits" / each).unlink(missing_ok=True)
        return True

    # --- Output -----------------------------------------------------------------------------------

    def as_batch(self) -> tuple[tuple[str, ...], verdict.Rows]:
        """(columns, rows) that the same query writes as a batch query over the whole input."""
        if self._stateful:
            raise ValueError(
                "this query keeps state between batches, so its rows need not be those of a batch "
                "query: give expected=[...]"
            )
        frame = self.transform(self._load(self.spark.read))
        columns = tuple(name for name in verdict.COMPARED if name in frame.columns)
        rows = (row.asDict() for row in frame.select(*columns).collect())
        return columns, verdict.spark_rows(rows, columns)

    def written(self, columns: Sequence[str]) -> tuple[verdict.Rows, list[str]]:
        """(the committed rows of the output topic, its open transactions as text)."""
        bootstrap = self.broker.bootstrap
        found = verdict.Rows()
        with sync.Consumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            partitions = [(self.output, each) for each in consumer.partitions_for(self.output)]
            stable = consumer.end_offsets(*partitions)
            consumer.assign(partitions)
            while any(consumer.position(each) < stable[each] for each in stable):
                if time.monotonic() > self.deadline:
                    raise TimeoutError(f"the output topic {self.output} could not be read in time")
                found.update(
                    tuple(_cell(record, name) for name in columns)
                    for record in consumer.poll(500)
                    if record.offset < stable[TopicPartition(record.topic, record.partition)]
                )
        open_offsets = wrong.end_of(bootstrap, self.output) - sum(stable.values())
        undecided = (
            f"{open_offsets} offsets of the output are in transactions that nobody has ended"
        )
        return found, [undecided] if open_offsets else []


def _through(gate: Gate, frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    kind = frame.schema["value"].dataType
    return frame.withColumn(
        "value", F.udf(gate, kind, useArrow=False).asNondeterministic()("value")
    )


def _keeps_state(query: StreamingQuery) -> bool:
    return any(progress.stateOperators for progress in query.recentProgress)


def _cell(record: Any, name: str) -> Any:
    if name == "headers":
        return tuple((key, value) for key, value in record.headers)
    return getattr(record, name)
