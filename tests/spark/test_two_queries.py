"""Two queries of one application with the same checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_stream import PATIENCE_S, Records, numbered, until
from topic_values import values_of

pytestmark = pytest.mark.spark


@pytest.mark.full
def test_a_second_query_on_a_checkpoint_replaces_the_first(
    spark: SparkSession,
    spark_broker: str,
    new_topic: Callable[..., str],
    produce: Callable[[str, Records], None],
    tmp_path: Path,
) -> None:
    """Spark can stop the first query at any point. Each row must be written exactly once."""
    source, sink = new_topic(), new_topic(2)
    common = {"kafka.bootstrap.servers": spark_broker}

    def start() -> Any:
        frame = spark.readStream.format("odradek").options(**common).option("subscribe", source)
        frame = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "5")
        writer = frame.load().select("value").writeStream.format("odradek").options(**common)
        writer = writer.option("topic", sink).option("checkpointLocation", str(tmp_path / "c"))
        return writer.trigger(processingTime="0 seconds").start()

    produce(source, numbered(0, 20))
    first = start()
    until(lambda: bool(first.lastProgress), first)
    second = start()
    try:
        assert first.id == second.id and not first.isActive
        produce(source, numbered(0, 5, start=20))
        until(lambda: len(values_of(spark_broker, sink)) >= 25, second)
    finally:
        second.stop()
    assert second.awaitTermination(PATIENCE_S)
    assert sorted(map(int, values_of(spark_broker, sink))) == list(range(25))
