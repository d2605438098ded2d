"""Batches and streams with Spark's own `kafka` format. Arguments: jars, address, name, folder."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

ROWS, PARTITIONS = 500, 3
WAIT_S = 120


def told(name: str, well: bool, found: object) -> None:
    """Print a check."""
    problem = str(found).replace("\n", " ")
    print(f"ok {name}" if well else f"failed {name}: found {problem}", flush=True)


class Trial:
    """A session, and the topics of a run."""

    def __init__(self, jars: str, address: str, name: str, folder: str) -> None:
        self.name, self._folder, self.address = name, folder, address
        self.spark = (
            SparkSession.builder.master("local[2]")
            .appName(name)
            .config("spark.jars", jars)
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.local.dir", folder)
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("OFF")

    def numbers(self, first: int, last: int) -> DataFrame:
        """Rows to write: key, value, partition and headers."""
        return self.spark.range(first, last).selectExpr(
            "concat('k', id % 7) AS key",
            "concat('v', id) AS value",
            f"CAST(id % {PARTITIONS} AS INT) AS partition",
            "array(named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
        )

    def write(self, frame: DataFrame, topic: str) -> None:
        """Append a batch to a topic."""
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", self.address)
        writer.option("topic", topic).option("kafka.compression.type", "zstd").save()

    def read(self, topic: str, **options: str) -> DataFrame:
        """Read a topic as a batch, with values as text."""
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.address)
        frame = reader.option("subscribe", topic).options(**options).load()
        return frame.withColumn("value", frame.value.cast("string"))

    def stream(self, source: str, target: str, *, ends: bool) -> StreamingQuery:
        """Start a query that copies a topic. `ends`: the query stops when it has copied the present
        records."""
        reader = self.spark.readStream.format("kafka").option("subscribe", source)
        reader = reader.option("kafka.bootstrap.servers", self.address)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "200")
        frame = reader.load().selectExpr("key", "value")
        writer = frame.writeStream.format("kafka").option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", self.address)
        writer = writer.option("checkpointLocation", f"{self._folder}/checkpoint")
        if ends:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime="500 milliseconds").start()

    def values(self, topic: str) -> list[str]:
        """The committed values of a topic."""
        options = {"kafka.isolation.level": "read_committed"}
        return sorted(row.value for row in self.read(topic, **options).select("value").collect())


def numbered(last: int) -> list[str]:
    """The sorted values of the first `last` rows."""
    return sorted(f"v{number}" for number in range(last))


def waited(condition: Callable[[], bool]) -> bool:
    """Wait until the condition is true. Returns False after WAIT_S."""
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def batches(trial: Trial, topic: str) -> None:
    """Write a batch, and read it in several ways."""
    trial.write(trial.numbers(0, ROWS), topic)
    told("a batch there and back", trial.values(topic) == numbered(ROWS), trial.values(topic)[:3])
    rows = trial.read(topic, includeHeaders="true").select("key", "value", "headers", "offset")
    found = {row.value: row for row in rows.collect()}
    header = found["v9"].headers[0]
    well = bytes(found["v9"].key) == b"k2" and header.key == "h" and bytes(header.value) == b"9"
    told("keys and headers", well, found["v9"])
    starts = json.dumps({topic: {str(each): 10 for each in range(PARTITIONS)}})
    ends = json.dumps({topic: {str(each): 20 for each in range(PARTITIONS)}})
    count = trial.read(topic, startingOffsets=starts, endingOffsets=ends).count()
    told("from offsets to offsets", count == 10 * PARTITIONS, count)
    count = trial.read(topic, startingTimestamp="1000").count()
    told("from a time", count == ROWS, count)


def streams(trial: Trial, source: str, target: str) -> None:
    """Copy a topic in two runs of a query, and in a third run during which the broker is killed."""
    query = trial.stream(source, target, ends=True)
    query.awaitTermination(WAIT_S)
    copied = trial.values(target)
    told("a stream of what is there", copied == numbered(ROWS), len(copied))
    batches_run = len(query.recentProgress)
    told("not more than 200 rows in a batch", batches_run >= 3, batches_run)
    trial.write(trial.numbers(ROWS, ROWS + 100), source)
    trial.stream(source, target, ends=True).awaitTermination(WAIT_S)
    copied = trial.values(target)
    told("the query goes on from its checkpoint", copied == numbered(ROWS + 100), len(copied))
    query = trial.stream(source, target, ends=False)
    trial.write(trial.numbers(ROWS + 100, ROWS + 200), source)
    print("wanted: restart", flush=True)
    sys.stdin.readline()
    trial.write(trial.numbers(ROWS + 200, ROWS + 300), source)
    # The sink writes at least once, so there may be duplicates.
    well = waited(lambda: set(trial.values(target)) == set(numbered(ROWS + 300)))
    told("nothing is lost when the broker is killed", well, len(set(trial.values(target))))
    query.stop()


def main() -> None:
    trial = Trial(*sys.argv[1:])
    source, target = f"{trial.name}-in", f"{trial.name}-out"
    admin = AdminClient({"bootstrap.servers": trial.address})
    for topic in (source, target):
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_S)
    batches(trial, source)
    streams(trial, source, target)
    trial.spark.stop()


main()
