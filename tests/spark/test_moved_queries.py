"""Spark queries that continue in another cluster, to which their records were mirrored."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_cluster import KafkaCluster
from odradek.broker import SubprocessBroker
from odradek.sync import Admin, Consumer, Producer
from odradek_client.admin import NewTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"log.durability": "page-cache"}


#: The name of each query -> the format of its source.
QUERIES = {"files": "odradek", "topic": "odradek", "counts": "odradek"}
#: The queries in QUERIES, and some with Spark's own format.
ALL_QUERIES = QUERIES | {"kafka-files": "kafka", "kafka-counts": "kafka"}


def _write(bootstrap: str, topic: str, numbers: range) -> None:
    """Write the numbers, three in each transaction. The marker of each transaction also takes an
    offset."""
    with Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-writer") as producer:
        producer.init_transactions()
        for first in numbers[::3]:
            producer.begin_transaction()
            for number in range(first, min(first + 3, numbers.stop)):
                producer.send_and_wait(topic, b"%d" % number, partition=number % 2)
            producer.commit_transaction()


def _run(
    spark: SparkSession, bootstrap: str, topic: str, query: str, checkpoint: Path, out: Path
) -> None:
    """Run the query until it has read everything. The output of the query `topic` is in a topic,
    that of the other queries in a folder."""
    frame = (
        spark.readStream.format(ALL_QUERIES[query])
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", "5")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )
    if query.endswith("counts"):
        counts = frame.groupBy((frame.value % 3).cast("int").alias("key")).count()
        writer = counts.writeStream.outputMode("complete").foreachBatch(
            lambda rows, _: rows.write.mode("overwrite").parquet(str(out / query))
        )
    elif query == "topic":
        writer = (
            frame.writeStream.format("odradek")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", f"{topic}-copied")
        )
    else:
        writer = frame.writeStream.format("text").option("path", str(out / query))
    writer = writer.option("checkpointLocation", str(checkpoint / query))
    writer.trigger(availableNow=True).start().awaitTermination()


def _check(spark: SparkSession, bootstrap: str, topic: str, out: Path, count: int) -> None:
    """Check that each query that has run has read each number once."""
    once = Counter(range(count))
    for folder in out.iterdir():
        if folder.name.endswith("counts"):
            found = {row["key"]: row["count"] for row in spark.read.parquet(str(folder)).collect()}
            assert found == Counter(number % 3 for number in range(count)), folder.name
        else:
            rows = spark.read.text(str(folder)).collect()
            assert Counter(int(row.value) for row in rows) == once, folder.name
    assert _committed(bootstrap, f"{topic}-copied") == once


def _committed(bootstrap: str, topic: str) -> Counter[int]:
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign([(topic, number) for number in partitions])
        ends = consumer.end_offsets(*((topic, number) for number in partitions))
        found: Counter[int] = Counter()
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            batches = consumer.getmany(timeout_ms=500)
            found.update(int(record.value) for some in batches.values() for record in some)
        return found


def _mirror(*words: str) -> None:
    command = [sys.executable, "-m", "odradek", "mirror", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.parametrize("mode", ["exactly-once", "same-offsets"])
def test_a_query_continues_at_the_right_record_of_another_cluster(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    with (
        SubprocessBroker(data_dir=tmp_path / "source", settings=SETTINGS) as source,
        SubprocessBroker(data_dir=tmp_path / "target", settings=SETTINGS) as target,
    ):
        _move(spark, source.bootstrap, target.bootstrap, "flights", tmp_path, mode, [*QUERIES])


@pytest.mark.kafka
@pytest.mark.own_broker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["exactly-once", "same-offsets"])
def test_queries_continue_at_three_nodes_of_kafka_and_from_there(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    unique_topic: str,
    mode: str,
) -> None:
    with SubprocessBroker(settings=SETTINGS) as ours:
        source, target = ours.bootstrap, kafka_cluster.bootstrap
        if mode == "same-offsets":
            source, target = target, source
        _move(spark, source, target, unique_topic, tmp_path, mode, [*ALL_QUERIES])


def _move(
    spark: SparkSession,
    source: str,
    target: str,
    topic: str,
    folder: Path,
    mode: str,
    queries: list[str],
) -> None:
    """Run queries in the source cluster, move them, and run them in the target cluster."""
    old, new, out = folder / "old", folder / "new", folder / "out"
    with Admin(bootstrap_servers=source) as admin:
        admin.create_topics(NewTopic(topic, 2), NewTopic(f"{topic}-copied", 1))
    _write(source, topic, range(20))
    for query in queries:
        _run(spark, source, topic, query, old, out)
    _write(source, topic, range(20, 30))

    topics = ("--topics", f"{topic}.*", "--name", topic)
    _mirror("--from", source, "--to", target, "--mode", mode, *topics)
    if mode == "same-offsets":
        _mirror("promote", "--to", target, "--topics", f"{topic}.*")
        new = old
    else:
        new.mkdir()
        for query in queries:
            folders = (str(old / query), str(new / query))
            _mirror("checkpoint", *folders, "--to", target, "--name", topic)
    _write(target, topic, range(30, 40))
    for query in queries:
        _run(spark, target, topic, query, new, out)
    _check(spark, target, topic, out, 40)
