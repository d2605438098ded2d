"""Five hundred topics, written by one job, and read with a pattern by a batch and by a stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek import NewTopic, sync
from spark_stream import Stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS_EACH = 4


@pytest.mark.parametrize("topics", [50, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.full
def test_rows_are_written_to_many_topics_and_read_by_a_pattern(
    spark: SparkSession, spark_broker: str, tmp_path: Path, topics: int
) -> None:
    prefix = f"many-{topics}-"
    with sync.Admin(bootstrap_servers=spark_broker) as admin:
        admin.create_topics([NewTopic(f"{prefix}{number:03}", 1) for number in range(topics)])
    common = {"kafka.bootstrap.servers": spark_broker, "kafka.isolation.level": "read_committed"}
    place = f"concat('{prefix}', lpad(string(id % {topics}), 3, '0'))"
    rows = spark.range(0, topics * ROWS_EACH, 1, 2).selectExpr(f"{place} topic", "string(id) value")
    rows.write.format("odradek").mode("append").options(**common).save()

    def found(frame: DataFrame) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for row in frame.select("topic", "value").collect():
            numbers.setdefault(row.topic, []).append(int(row.value))
        return {topic: sorted(some) for topic, some in numbers.items()}

    expected = {
        f"{prefix}{number:03}": [number + turn * topics for turn in range(ROWS_EACH)]
        for number in range(topics)
    }
    pattern = {"subscribePattern": f"^{prefix}"}
    assert found(spark.read.format("odradek").options(**common, **pattern).load()) == expected
    query = Stream(
        spark, spark_broker, tmp_path / "checkpoint", {"startingOffsets": "earliest"} | pattern
    )
    query.options["kafka.isolation.level"] = "read_committed"
    assert len(query.run_anew()) == topics * ROWS_EACH
    assert set(query.topics) == set(expected)
    assert query.run_anew() == []
