"""The connector with Apache Kafka, a cluster of one node and one of three: reads, writes, killed
nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafka_cluster import KafkaCluster
from killed_nodes import (
    WAIT_S,
    Writer,
    committed,
    killed_one_after_the_other,
    make_topic,
    wait_for,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(params=["kafka", "kafka_cluster"])
def nodes(request: pytest.FixtureRequest) -> KafkaCluster:
    """Runs a test with a cluster of one node, and with a cluster of three nodes."""
    found: KafkaCluster = request.getfixturevalue(request.param)
    return found


def write(frame: DataFrame, bootstrap: str, topic: str, **options: str) -> None:
    (
        frame.selectExpr("CAST(id AS STRING) AS value")
        .write.format("odradek")
        .mode("append")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .options(**options)
        .save()
    )


def test_a_batch_is_written_read_and_copied(spark: SparkSession, nodes: KafkaCluster) -> None:
    bootstrap = nodes.bootstrap
    topic, copy = make_topic(bootstrap), make_topic(bootstrap)
    write(spark.range(3_000), bootstrap, topic)
    read = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    assert read.count() == 3_000
    write(
        read.selectExpr("CAST(value AS STRING) AS id"), bootstrap, copy, semantics="at_least_once"
    )
    assert committed(bootstrap, copy) == committed(bootstrap, topic) == list(range(3_000))


def test_the_first_exactly_once_write_of_a_cluster_succeeds(
    spark: SparkSession, nodes: KafkaCluster
) -> None:
    """The write creates the job's decision log, and some nodes learn of it only later."""
    bootstrap = nodes.bootstrap
    topic = make_topic(bootstrap)
    for number in range(8):
        frame = spark.range(10 * number, 10 * number + 10)
        log = f"{topic}-log-{number}"
        write(frame, bootstrap, topic, commitLogTopic=log, commitId="first")
        # The job is already done, so repeating it writes nothing.
        write(frame, bootstrap, topic, commitLogTopic=log, commitId="first")
    assert committed(bootstrap, topic) == list(range(80))


def copy_stream(
    spark: SparkSession, bootstrap: str, source: str, sink: str, folder: Path, **options: str
) -> Any:
    return (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select("key", "value")
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(**options)
    )


def test_a_restarted_stream_is_written_once(
    spark: SparkSession, nodes: KafkaCluster, tmp_path: Path
) -> None:
    bootstrap = nodes.bootstrap
    source, sink = make_topic(bootstrap), make_topic(bootstrap)
    for first in (0, 500):
        write(spark.range(first, first + 500), bootstrap, source)
        query = copy_stream(spark, bootstrap, source, sink, tmp_path)
        assert query.trigger(availableNow=True).start().awaitTermination(WAIT_S)
        # This is the state after Spark has died before recording a commit: the last batch is run
        # again.
        commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    assert committed(bootstrap, sink) == list(range(1_000))


def started(writer: Any) -> Any:
    """Start a query, and return it after its first batch.

    Spark gives the process of a Python source ten seconds to start, which may be too short on a
    busy machine. Such a failure does not depend on Kafka, so the start is repeated.
    """
    for _ in range(5):
        query = writer.start()
        wait_for(lambda query=query: query.lastProgress or not query.isActive, "the first batch")
        failure = query.exception()
        if failure is None or "Python worker failed to connect back" not in str(failure):
            break
    assert_alive(query)
    return query


def assert_alive(query: Any) -> None:
    failure = query.exception()
    assert failure is None, str(failure)
    assert query.isActive


@pytest.mark.parametrize("semantics", ["exactly_once", "at_least_once"])
def test_a_query_continues_while_nodes_are_killed(
    spark: SparkSession, kafka_cluster: KafkaCluster, tmp_path: Path, semantics: str
) -> None:
    """Each of the three nodes is killed once, and so each leader, coordinator and controller is
    lost once."""
    bootstrap = kafka_cluster.bootstrap
    source, sink = make_topic(bootstrap), make_topic(bootstrap)
    writer = Writer(bootstrap, source)
    query = copy_stream(spark, bootstrap, source, sink, tmp_path, semantics=semantics)
    query.trigger(processingTime="500 milliseconds")
    writer.start()
    running = started(query)

    def rows() -> int:
        """The number of rows that were read from the source and written, up to the last progress
        report."""
        progress = running.lastProgress
        if progress is None:
            return 0
        offsets = progress["sources"][0]["endOffset"] or "{}"
        return sum(json.loads(offsets).get(source, {}).values())

    try:
        for node in killed_one_after_the_other(kafka_cluster):
            before = rows()
            wait_for(
                lambda before=before: rows() > before + 200 or not running.isActive,
                f"a batch is done without node {node.node_id}",
            )
            assert_alive(running)
        writer.finish()
        wait_for(lambda: rows() >= writer.count or not running.isActive, "everything is copied")
        assert_alive(running)
        assert {each["runId"] for each in running.recentProgress} == {str(running.runId)}
    finally:
        running.stop()
    found = committed(bootstrap, sink)
    if semantics == "exactly_once":
        assert found == list(range(writer.count))
    else:
        assert sorted(set(found)) == list(range(writer.count))
