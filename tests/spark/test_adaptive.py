"""Adaptive execution: Spark changes the number of tasks while a query runs, before the sink and
after the source."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek import sync
from spark_stream import Records, numbered
from topic_values import values_of

pytestmark = pytest.mark.spark

SHUFFLES = 12
#: Settings with which Spark merges partitions of a few bytes, and splits partitions that are larger
#: than others.
EAGER = {
    "spark.sql.shuffle.partitions": str(SHUFFLES),
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "4kb",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1kb",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.5",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


@pytest.fixture
def eager(spark: SparkSession) -> SparkSession:
    """A new session of the same application, with the settings `EAGER`."""
    made = spark.newSession()
    for name, value in EAGER.items():
        made.conf.set(name, value)
    return made


def write(frame: DataFrame, bootstrap: str, topic: str, commit_id: str) -> None:
    writer = frame.write.format("odradek").mode("append").option("topic", topic)
    writer.option("kafka.bootstrap.servers", bootstrap).option("commitId", commit_id).save()


def topic_frame(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).load()


def transactions_of(bootstrap: str, commit_id: str) -> int:
    """The number of tasks with rows in a job. Each of these tasks has used one transactional id."""
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        ids = [each.transactional_id for each in admin.list_transactions()]
    return sum(f":{commit_id}." in each for each in ids)


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.full
def test_merged_shuffle_partitions_are_written_once(
    eager: SparkSession,
    spark_broker: str,
    new_topic: Callable[..., str],
    produce: Callable[[str, Records], None],
    adaptive: str,
) -> None:
    eager.conf.set("spark.sql.adaptive.enabled", adaptive)
    source, sink = new_topic(2), new_topic(2)
    produce(source, numbered(0, 200) + numbered(1, 10))
    frame = topic_frame(eager, spark_broker, source)
    counts = frame.groupBy("value").count().selectExpr("concat(string(value), ' ', count) AS value")
    commit_id = f"{sink}-{adaptive}"
    write(counts, spark_broker, sink, commit_id)
    tasks = transactions_of(spark_broker, commit_id)
    assert tasks == SHUFFLES if adaptive == "false" else 1 <= tasks < SHUFFLES
    expected = [b"%d %d" % (number, 2 if number < 10 else 1) for number in range(200)]
    assert sorted(values_of(spark_broker, sink)) == sorted(expected)


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.full
def test_a_split_skewed_partition_is_written_once(
    eager: SparkSession,
    spark_broker: str,
    new_topic: Callable[..., str],
    produce: Callable[[str, Records], None],
    adaptive: str,
) -> None:
    """Most rows have the same key, so that Spark splits the shuffle partition of this key among
    several tasks."""
    eager.conf.set("spark.sql.adaptive.enabled", adaptive)
    source, sink = new_topic(4), new_topic(2)
    rows: Records = [
        (n % 4, b"0" if n % 50 else b"%d" % n, b"%050d" % n, 0, []) for n in range(2_000)
    ]
    produce(source, rows)
    left = topic_frame(eager, spark_broker, source).selectExpr("string(key) k", "value")
    right = eager.range(0, 2_000, 1, 4).selectExpr("string(id) k")
    joined = left.join(right, "k").where("k = '0'")
    write(
        joined.selectExpr("concat(string(value), ' ', spark_partition_id()) value"),
        spark_broker,
        sink,
        f"{sink}-{adaptive}",
    )
    found = [value.split() for value in values_of(spark_broker, sink)]
    tasks = {task for _, task in found}
    assert len(tasks) > 1 if adaptive == "true" else len(tasks) == 1
    assert sorted(int(value) for value, _ in found) == [n for n in range(2_000) if n % 50 or n == 0]
