"""Lag, computed from the progress reports of a query."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pyspark_odradek.lag import LagListener, SourceLag, lag_of
from pyspark_odradek.planning import Partition

WAIT_S = 120


def progress(*sources: tuple[Any, Any]) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources]}


def test_lag_is_the_distance_of_each_partition_to_its_end() -> None:
    end, latest = {"b": {"0": 5, "1": 7}, "a": {"0": 1}}, {"b": {"0": 9, "1": 7}, "a": {"0": 2}}
    expected = SourceLag({Partition("a", 0): 1, Partition("b", 0): 4, Partition("b", 1): 0})
    assert lag_of(progress((end, latest))) == [expected]
    assert lag_of(progress((json.dumps(end), json.dumps(latest)))) == [expected]
    assert expected.description == "odradek[a, b]"
    assert expected.metrics == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": str(5 / 3),
    }


def test_lag_ignores_added_and_removed_partitions_and_truncated_logs() -> None:
    end, latest = {"a": {"0": 5, "1": 7}}, {"a": {"0": 3, "2": 9}}
    assert lag_of(progress((end, latest))) == [SourceLag({Partition("a", 0): 0})]


@pytest.mark.parametrize("other", [None, "None", "null", "17", "{", 17, [1], {"a": 1}, {}])
def test_other_sources_and_batches_without_offsets_have_no_lag(other: Any) -> None:
    mine = {"a": {"0": 1}}
    sources = [(mine, other), (other, mine), (other, other), (mine, mine)]
    assert lag_of(progress(*sources)) == [SourceLag({Partition("a", 0): 0})]
    assert lag_of(None) == lag_of({}) == []


def test_the_description_of_a_lag_names_at_most_five_topics() -> None:
    many = SourceLag({Partition(f"t{number}", 0): 0 for number in range(9)})
    assert many.description == "odradek[t0, t1, t2, t3, t4, ...]"


@pytest.mark.spark
@pytest.mark.full
def test_a_listener_gets_the_lag_of_every_batch(
    spark: SparkSession,
    spark_broker: str,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic(2)
    rows = [(number % 2, None, b"v", 1_700_000_000_000, None) for number in range(10)]
    produce(topic, rows)
    heard: list[tuple[StreamingQueryProgress, SourceLag]] = []

    def report(progress: StreamingQueryProgress, lags: Any) -> None:
        heard.extend((progress, lag) for lag in lags)

    listeners = [LagListener(report), LagListener()]
    for listener in listeners:
        spark.streams.addListener(listener)
    try:
        with caplog.at_level("INFO", "odradek.spark"):
            query = (
                spark.readStream.format("odradek")
                .option("kafka.bootstrap.servers", spark_broker)
                .option("subscribe", topic)
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", "4")
                .load()
                .writeStream.format("noop")
                .queryName("lagging")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(WAIT_S)
            spark._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
    totals = [sum(lag.behind.values()) for _, lag in heard]
    assert totals == [6, 2, 0]
    assert {lag.description for _, lag in heard} == {f"odradek[{topic}]"}
    assert f"query lagging, batch 1: odradek[{topic}] minOffsetsBehindLatest=1" in caplog.text
    assert [lag_of(each) for each in query.recentProgress] == [[lag] for _, lag in heard]


@pytest.mark.full
@pytest.mark.spark
def test_spark_shows_no_description_and_metrics_of_python_sources(
    spark: SparkSession, spark_broker: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """If this test fails, Spark has a place for a description and metrics, which `lag` should
    use."""
    query = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", spark_broker)
        .option("subscribe", new_topic(1))
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        progress = query.lastProgress
        assert progress is not None
        (source,) = progress.sources
    finally:
        query.stop()
    assert "python.PythonMicroBatchStream" in source.description
    assert source.metrics == {}
