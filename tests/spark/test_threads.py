"""Reads and writes from threads of the user's program."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek.spark import session
from spark_stream import numbered, run_to_end
from two_formats import OURS, load, save

pytestmark = pytest.mark.spark


@pytest.fixture
def source(new_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    topic = new_topic()
    produce(topic, numbered(0, 3))
    return topic


def test_reads_work_in_any_thread(spark: SparkSession, spark_broker: str, source: str) -> None:
    loaded = load(spark, OURS, spark_broker, subscribe=source)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(loaded.count).result() == 3
        counted = pool.submit(lambda: load(spark, OURS, spark_broker, subscribe=source).count())
        assert counted.result() == 3


def test_writes_work_in_threads_that_have_called_session(
    spark: SparkSession, spark_broker: str, source: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    rows = load(spark, OURS, spark_broker, subscribe=source).select("key", "value")

    def write() -> None:
        save(rows, OURS, spark_broker, topic=topic)

    # Spark looks for a sink in Python in the thread's active session only.
    with ThreadPoolExecutor(1) as pool, pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        pool.submit(write).result()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(session).result() is spark
        pool.submit(write).result()
    assert load(spark, OURS, spark_broker, subscribe=topic).count() == 3


@pytest.mark.full
def test_streams_start_and_foreach_batch_writes_in_threads_that_have_called_session(
    spark: SparkSession,
    spark_broker: str,
    source: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    copies = [new_topic(), new_topic(), new_topic()]
    reader = spark.readStream.format(OURS).option("kafka.bootstrap.servers", spark_broker)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
    stream = reader.load().select("key", "value")

    def publish(frame: DataFrame, batch: int) -> None:
        def write(topic: str) -> None:
            save(frame, OURS, spark_broker, topic=topic, commitId=topic, commitVersion=str(batch))

        with ThreadPoolExecutor(2, initializer=session) as pool:
            list(pool.map(write, copies[:2]))

    writer = stream.writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "batches"))
    run_to_end(writer.foreachBatch(publish).start)
    writer = stream.writeStream.trigger(availableNow=True).format(OURS)
    writer = writer.option("kafka.bootstrap.servers", spark_broker).option("topic", copies[2])
    writer = writer.option("checkpointLocation", str(tmp_path / "stream"))
    with ThreadPoolExecutor(1, initializer=session) as pool:
        pool.submit(run_to_end, writer.start).result()
    for topic in copies:
        assert load(spark, OURS, spark_broker, subscribe=topic).count() == 3
