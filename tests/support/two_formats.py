"""The same reads and writes with Spark's own `kafka` format and with ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from foreign_topics import create_topic
from spark_stream import LATE_START

THEIRS, OURS = "kafka", "odradek"
COMMITTED = {"kafka.isolation.level": "read_committed"}


#: The outcome of a failed query. Error messages are not compared, because those of the two formats
#: differ.
REFUSED = "refused"


def outcome(run: Callable[[], Any]) -> Any:
    """The result of a query, or REFUSED if Spark reports a failure."""
    try:
        return run()
    except (PySparkException, Py4JJavaError) as error:
        if LATE_START in str(error):
            raise
        return REFUSED


def of_both(run: Callable[[str], Any]) -> tuple[Any, Any]:
    """The results (theirs, ours) of `run`, which is called with the name of each format."""
    return outcome(lambda: run(THEIRS)), outcome(lambda: run(OURS))


def make_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic that keeps records of any age."""
    create_topic(bootstrap, name, partitions, retention_ms="-1", **configs)


def load(spark: SparkSession, kind: str, bootstrap: str, **options: str) -> DataFrame:
    """Do a batch read."""
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def save(frame: DataFrame, kind: str, bootstrap: str, **options: str) -> None:
    """Do a batch write."""
    writer = frame.write.format(kind).mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**options).save()


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows as sorted, comparable values."""
    return sorted((tuple(_plain(cell) for cell in row) for row in frame.collect()), key=repr)


def _plain(cell: Any) -> Any:
    if isinstance(cell, bytearray):
        return bytes(cell)
    if isinstance(cell, list):
        return [tuple(_plain(part) for part in header) for header in cell]
    return cell


def spans(places: list[tuple[int, int]]) -> dict[int, tuple[int, int, int]]:
    """{partition: (first offset, last offset, number of rows)}, from (partition, offset) of
    rows."""
    found: dict[int, list[int]] = {}
    for partition, offset in places:
        found.setdefault(partition, []).append(offset)
    return {each: (min(some), max(some), len(some)) for each, some in sorted(found.items())}
