"""A stream that a test starts and stops, and the rows that the stream has read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

Records = list[tuple[Any, ...]]
T0 = 1_700_000_000_000
PATIENCE_S = 240
_STARTS_MAX = 5
#: Spark's error when the process of a Python source does not start within ten seconds; it says
#: nothing about the broker.
LATE_START = "Python worker failed to connect back"


def numbered(partition: int, count: int, start: int = 0) -> Records:
    """Records to send, whose value is their offset, and whose timestamps are one second apart."""
    return [(partition, None, b"%d" % n, T0 + n * 1000, []) for n in range(start, start + count)]


def run_to_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Run a query until it ends; retry a start that failed because the machine is busy."""
    for _ in range(_STARTS_MAX - 1):
        query = start()
        try:
            assert query.awaitTermination(PATIENCE_S)
        except StreamingQueryException as error:
            if LATE_START not in str(error):
                raise
        else:
            return query
    query = start()
    assert query.awaitTermination(PATIENCE_S)
    return query


@dataclass
class Stream:
    """A query with its checkpoint. A test runs it repeatedly, and may change its options in
    between.

    `batches`: (batch id, (partition, offset) of its rows). `topics`: the topics of all rows, in the
    order of the batches.
    """

    spark: SparkSession
    bootstrap: str
    checkpoint: Path
    options: dict[str, str]
    kind: str = "odradek"
    batches: list[tuple[int, list[tuple[int, int]]]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)

    def frame(self) -> DataFrame:
        reader = self.spark.readStream.format(self.kind)
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**self.options).load()

    def start(self, **trigger: Any) -> StreamingQuery:
        def keep(frame: DataFrame, batch_id: int) -> None:
            rows = frame.select("topic", "partition", "offset").collect()
            self.batches.append((batch_id, sorted((row.partition, row.offset) for row in rows)))
            self.topics += sorted(row.topic for row in rows)

        writer = self.frame().writeStream.foreachBatch(keep)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()

    def run(self, **trigger: Any) -> None:
        """Run the query until nothing is left to read."""
        query = run_to_end(lambda: self.start(**(trigger or {"availableNow": True})))
        self.progress += [json.loads(each.json) for each in query.recentProgress]

    def run_anew(self, **trigger: Any) -> list[tuple[int, int]]:
        """Run the query once more. Returns the (partition, offset) of the rows that this run has
        read, sorted."""
        self.batches.clear()
        self.topics.clear()
        self.run(**trigger)
        return self.places

    def forget_last_commit(self) -> int:
        """Undo the last commit, as if Spark had died before it. Returns the number of the batch."""
        commits = self.checkpoint / "commits"
        last = max(int(each.name) for each in commits.glob("[0-9]*"))
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        return last

    @property
    def places(self) -> list[tuple[int, int]]:
        return sorted(place for _, places in self.batches for place in places)

    @property
    def sizes(self) -> list[int]:
        return [len(places) for _, places in self.batches if places]


def until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    """Wait until the condition is true, while the query runs. Raises the query's failure."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, query.lastProgress
        if (error := query.exception()) is not None:
            raise error
        time.sleep(0.05)
