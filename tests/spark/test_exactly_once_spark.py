"""Exactly-once writes with a real Spark: streams that are restarted, several sinks at the same
time, jobs that fail."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from odradek import sync

pytestmark = pytest.mark.spark

NewTopic = Callable[..., str]
WAIT_S = 120


class Stream:
    """A query from text files to a topic; each file becomes a batch."""

    def __init__(self, spark: SparkSession, broker: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.topic = topic
        self.input = folder / "in"
        self.input.mkdir(exist_ok=True)
        self.checkpoint = folder / "checkpoint"
        self.batches = len(list(self.input.iterdir()))

    def put(self, *batches: list[str]) -> None:
        for lines in batches:
            path = self.input / f"{self.batches:04}.tmp"
            path.write_text("".join(f"{line}\n" for line in lines))
            # Spark reads files in the order of their modification times.
            os.utime(path, (1_700_000_000 + self.batches,) * 2)
            path.rename(path.with_suffix(".txt"))
            self.batches += 1

    def frame(self, tasks: int = 2) -> DataFrame:
        read = self.spark.readStream.option("maxFilesPerTrigger", "1")
        return read.text(str(self.input)).repartition(tasks)

    def start(self, tasks: int = 2, frame: DataFrame | None = None, **options: Any) -> Any:
        return (
            (frame or self.frame(tasks))
            .writeStream.format("odradek")
            .option("kafka.bootstrap.servers", self.broker)
            .option("topic", self.topic)
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )

    def run(self, tasks: int = 2, **options: Any) -> Any:
        query = self.start(tasks, **options)
        assert query.awaitTermination(WAIT_S)
        return query

    def forget_commit(self, batch: int) -> None:
        """Delete the record of the last commit, as if Spark had died before writing it."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def visible(self) -> list[str]:
        return visible(self.broker, self.topic)


SETTLE_DEADLINE_S = 5.0


def visible(broker: str, topic: str) -> list[str]:
    """The committed records, read by kafka-python, after their transactions have ended."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker, isolation_level="read_committed")
    try:
        count = len(consumer.partitions_for_topic(topic) or ())
        partitions = [kafka.TopicPartition(topic, number) for number in range(count)]
        consumer.assign(partitions)
        stable = _settled(consumer, broker, partitions)
        consumer.seek_to_beginning()
        values: list[str] = []
        while any(consumer.position(each) < stable[each] for each in partitions):
            for some in consumer.poll(timeout_ms=500).values():
                values += [record.value.decode() for record in some]
        return sorted(values)
    finally:
        consumer.close()


def _settled(consumer: Any, broker: str, partitions: list[Any]) -> dict[Any, int]:
    """Wait until the last stable offsets are the log ends, but not longer than SETTLE_DEADLINE_S.
    Returns the last stable offsets."""
    everything = kafka.KafkaConsumer(bootstrap_servers=broker)
    try:
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        while True:
            stable: dict[Any, int] = consumer.end_offsets(partitions)
            if stable == everything.end_offsets(partitions) or time.monotonic() > deadline:
                return stable
            time.sleep(0.05)
    finally:
        everything.close()


@pytest.fixture
def stream(spark: SparkSession, spark_broker: str, new_topic: NewTopic, tmp_path: Path) -> Stream:
    return Stream(spark, spark_broker, new_topic(2), tmp_path)


def test_a_restarted_stream_writes_every_batch_once(stream: Stream) -> None:
    """Spark passes query, run and batch to the tasks, and the transactional id of each task
    contains all three (S-01)."""
    stream.put(["a", "b", "c"], [], ["d"])
    first = stream.run()
    assert stream.visible() == ["a", "b", "c", "d"]
    stream.put(["e", "f"])
    stream.forget_commit(2)
    second = stream.run(tasks=3)
    assert stream.visible() == ["a", "b", "c", "d", "e", "f"]
    assert second.recentProgress[0]["batchId"] == 2, "the batch was replayed"
    with sync.Admin(bootstrap_servers=stream.broker) as admin:
        ids = [each.transactional_id for each in admin.list_transactions()]
    mine = [each for each in ids if str(first.id) in each]
    assert first.id == second.id
    assert {each.split(".")[2] for each in mine} == {str(first.runId), str(second.runId)}


@pytest.mark.full
def test_a_replay_with_other_rows_is_refused(stream: Stream) -> None:
    """Rule S-07."""
    stream.put(["a"])
    stream.run()
    stream.forget_commit(0)
    query = stream.start(frame=stream.frame().selectExpr("explode(array(value, 'x')) AS value"))
    with pytest.raises(Exception, match="was written with 1 rows, and now has 2"):
        query.awaitTermination(WAIT_S)
    assert stream.visible() == ["a"]


@pytest.mark.full
def test_an_outdated_copy_of_a_checkpoint_is_refused(stream: Stream, tmp_path: Path) -> None:
    """Rule S-07."""
    stream.put(["a"])
    stream.run()
    shutil.copytree(stream.checkpoint, tmp_path / "copy")
    stream.put(["b"], ["c"])
    stream.run()
    stream.checkpoint = tmp_path / "copy"
    with pytest.raises(Exception, match="batch 2 was written already"):
        stream.start().awaitTermination(WAIT_S)
    assert stream.visible() == ["a", "b", "c"]


@pytest.mark.full
def test_several_queries_write_to_one_topic(
    spark: SparkSession, stream: Stream, spark_broker: str, tmp_path: Path
) -> None:
    (tmp_path / "two").mkdir()
    other = Stream(spark, spark_broker, stream.topic, tmp_path / "two")
    stream.put(["a1"], ["a2"])
    other.put(["b1"], ["b2"])
    queries = [stream.start(), other.start()]
    assert all(query.awaitTermination(WAIT_S) for query in queries)
    assert stream.visible() == ["a1", "a2", "b1", "b2"]


@pytest.mark.full
def test_several_sinks_of_an_application_write_exactly_once(
    spark: SparkSession,
    stream: Stream,
    spark_broker: str,
    new_topic: NewTopic,
    tmp_path: Path,
) -> None:
    """There are two streams from one source, and a job between them."""
    topic, jobs = new_topic(1), new_topic(1)
    (tmp_path / "two").mkdir()
    other = Stream(spark, spark_broker, topic, tmp_path / "two")
    other.input = stream.input
    stream.put(["a"], ["b"])
    queries = [stream.start(), other.start(tasks=1)]
    write(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), spark_broker, topic=jobs)
    assert all(query.awaitTermination(WAIT_S) for query in queries)
    assert stream.visible() == other.visible() == ["a", "b"]
    assert visible(spark_broker, jobs) == ["0", "1", "2"]


def test_at_least_once_writes_a_replayed_batch_again(stream: Stream) -> None:
    stream.put(["a"])
    stream.run(semantics="at_least_once")
    stream.forget_commit(0)
    stream.run(semantics="at_least_once")
    assert stream.visible() == ["a", "a"]


@pytest.mark.full
def test_a_stream_in_complete_mode_writes_the_whole_result_each_time(stream: Stream) -> None:
    """The rows come from a shuffle. As with Spark's own sink, each batch writes the whole result
    again."""
    stream.put(["x", "x", "y"], ["x"])
    counts = stream.frame().groupBy("value").count().selectExpr("concat(value, count) AS value")
    query = (
        counts.writeStream.format("odradek")
        .outputMode("complete")
        .option("kafka.bootstrap.servers", stream.broker)
        .option("topic", stream.topic)
        .option("checkpointLocation", str(stream.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    assert stream.visible() == ["x2", "x3", "y1", "y1"]


@pytest.mark.full
def test_a_commit_id_makes_a_write_in_foreach_batch_exactly_once(
    stream: Stream, tmp_path: Path
) -> None:
    """Only the commitId identifies such a write; the identity of the query is ignored (S-16)."""
    name = tmp_path.name
    calls = 0

    def twice(frame: DataFrame, batch: int) -> None:
        nonlocal calls
        calls += 1
        options = {"topic": stream.topic, "commitId": name, "commitVersion": str(batch)}
        frame = frame.coalesce(1)
        for _ in range(2):
            write(frame, stream.broker, **options)
        write(frame.selectExpr("concat(value, '!') AS value"), stream.broker, topic=stream.topic)

    stream.put(["a"], ["b"])
    query = (
        stream.frame()
        .writeStream.foreachBatch(twice)
        .option("checkpointLocation", str(stream.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    assert calls == 2
    assert stream.visible() == ["a", "a!", "b", "b!"]


def write(frame: DataFrame, broker: str, **options: str) -> None:
    writer = frame.write.format("odradek").mode("append").options(**options)
    writer.option("kafka.bootstrap.servers", broker).save()


@pytest.mark.full
def test_a_job_that_fails_half_way_leaves_no_visible_rows(
    spark: SparkSession, spark_broker: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)

    @udf("string")
    def fragile(number: int) -> str:
        if number == 1500:
            raise ValueError("row 1500 is bad")
        return str(number)

    rows = spark.range(0, 2000, 1, 2).select(fragile("id").alias("value"))
    with pytest.raises(Exception, match="row 1500 is bad"):
        write(rows, spark_broker, topic=topic)
    assert visible(spark_broker, topic) == []
    write(
        spark.range(0, 3, 1, 2).selectExpr("CAST(id AS STRING) AS value"), spark_broker, topic=topic
    )
    assert visible(spark_broker, topic) == ["0", "1", "2"]


@pytest.mark.full
def test_options_that_exclude_each_other_are_refused(stream: Stream) -> None:
    stream.put(["a"])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"semantics": "twice"}, "must be exactly_once or at_least_once"),
        ({"commitId": "x"}, "commitId is for batch writes"),
        ({"semantics": "at_least_once", "queryId": "x"}, "queryId cannot be obeyed"),
    ]
    for options, told in wrong:
        with pytest.raises(Exception, match=told):
            stream.run(**options)
    with pytest.raises(Exception, match="queryId is for streams"):
        frame = stream.spark.sql("SELECT 'x' AS value")
        write(frame, stream.broker, topic=stream.topic, queryId="x")
